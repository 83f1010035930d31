"""Writes a batch into topics: `df.write.format("kwire").mode("append")`. All rows are written, or there is an error.

A task writes each row once, even if requests are sent again, because the producers are idempotent. If a task fails
halfway and Spark runs it again, it writes its rows again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError
from kwire.client.producing import Producer
from kwire.pipeline.clock import now_ms
from kwire.pipeline.delivery.writing import RecordWriter
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.sink_options import SinkOptions
from kwire.pipeline.spark_source.sink_rows import records
from kwire.pipeline.spark_source.task import this_task

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@attrs.frozen
class Written(WriterCommitMessage):
    """The number of rows that a task has written."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        """Called in a task. Raises PipelineError."""
        return write_as_it_comes(self.options, iterator)


def write_as_it_comes(options: SinkOptions, batches: Iterator[RecordBatch]) -> Written:
    """Writes rows as they arrive. Raises PipelineError; some of the rows have been written then."""
    try:
        with connect(options) as cluster:
            producer = Producer(cluster, compression=options.compression)
            writer = RecordWriter(cluster, producer, first_partition=this_task().partition)
            add_rows(writer, batches, options)
            writer.flush()
            return Written(writer.records)
    except ClientError as error:
        raise PipelineError(error.message) from None


def add_rows(writer: RecordWriter, batches: Iterator[RecordBatch], options: SinkOptions) -> None:
    for rows in batches:
        for topic, partition, record in records(rows, options.topic, now_ms()):
            writer.add(topic, partition, record)


def connect(options: SinkOptions) -> Cluster:
    """Raises ClientError."""
    return Cluster(options.bootstrap, timeout_s=options.timeout_s, client_id=options.client_id)

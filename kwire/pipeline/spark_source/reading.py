"""A task's work: reads the rows of one range of offsets over its own connection, and reports lost records.

The driver plans a range, and the task reads it moments later, or days later if a query is restarted. By then records
may be gone: by retention, by a delete request, or with the whole topic. With `failOnDataLoss` that ends the task,
otherwise it reads the rest of the range, as Spark's Kafka connector does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import pyarrow as pa
from kwire_protocol.wire import Uuid
from pyspark.sql.datasource import InputPartition

from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError, UnknownTopic
from kwire.client.fetching import Batch, EndNotReached, OffsetOutOfRange, PartitionReader
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.arrow_rows import rows
from kwire.pipeline.spark_source.losses import ADVICE
from kwire.pipeline.spark_source.offset_reader import connect
from kwire.pipeline.spark_source.options import SourceOptions
from kwire.pipeline.spark_source.ranges import OffsetRange


class RangePartition(InputPartition):
    """One task's range, pickled by the driver for the task."""

    def __init__(self, wanted: OffsetRange, topic_id: Uuid | None) -> None:
        super().__init__(wanted)
        self.topic_id = topic_id


def read_range(
    partition: InputPartition | None,
    options: SourceOptions,
    open_cluster: Callable[[SourceOptions], Cluster] = connect,
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, some thousands at a time. Raises PipelineError.

    Spark passes None if there is nothing to read.
    """
    if not isinstance(partition, RangePartition):
        return
    try:
        with open_cluster(options) as cluster:
            batches = _batches(cluster, partition.value, partition.topic_id, options)
            yield from rows(batches, include_headers=options.include_headers)
    except ClientError as error:
        raise PipelineError(error.message) from None


def _batches(cluster: Cluster, wanted: OffsetRange, topic_id: Uuid | None, options: SourceOptions) -> Iterator[Batch]:
    start = wanted.start
    while start < wanted.stop:
        with PartitionReader(
            cluster,
            wanted.at,
            start,
            wanted.stop,
            isolation_level=options.isolation_level,
            topic_id=topic_id if options.fail_on_data_loss else None,
            fetch_bytes=options.fetch_bytes,
            max_wait_ms=options.max_wait_ms,
            check_crcs=options.check_crcs,
        ) as reader:
            try:
                yield from reader.batches()
                return
            except OffsetOutOfRange as error:
                if options.fail_on_data_loss:
                    raise _lost(attrs.evolve(wanted, start=error.offset), error) from None
                if error.earliest <= error.offset:
                    return  # beyond the end
                start = error.earliest
            except (EndNotReached, UnknownTopic) as error:
                if options.fail_on_data_loss:
                    raise _lost(attrs.evolve(wanted, start=reader.position), error) from None
                return


def _lost(missing: OffsetRange, error: ClientError) -> PipelineError:
    return PipelineError(
        f"offsets {missing.start} to {missing.stop - 1} of {missing.at} cannot be read: {error.message}; {ADVICE}"
    )

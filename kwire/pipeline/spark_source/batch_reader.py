"""A batch query: `spark.read.format("kwire")`. Spark plans it in a separate process, and each task reads its range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.light_tasks import begin_task
from kwire.pipeline.spark_source.offset_reader import OffsetReader
from kwire.pipeline.spark_source.options import SourceOptions
from kwire.pipeline.spark_source.ranges import OffsetRange, split
from kwire.pipeline.spark_source.reading import RangePartition, read_range


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges, as the brokers have them at this moment. Raises PipelineError."""
        with closing(OffsetReader(self.options)) as offset_reader:
            there = offset_reader.partitions()
            starts, ends = offset_reader.starts(there), offset_reader.ends(there)
        found = []
        for at in sorted(starts.keys() & ends.keys()):
            if starts[at] > ends[at]:
                raise PipelineError(
                    f"{at} would be read from offset {starts[at]} to {ends[at]}: "
                    f"options {self.options.starting.option} and {self.options.ending.option} leave nothing between"
                )
            found.append(OffsetRange(at, starts[at], ends[at]))
        tasks = split(
            found,
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )
        return [RangePartition(it, offset_reader.topic_ids.get(it.at.topic)) for it in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        begin_task()
        return read_range(partition, self.options)

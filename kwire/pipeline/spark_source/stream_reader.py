"""A stream: `spark.readStream.format("kwire")`. The reader lives in one process on the driver's machine.

The calls of Spark 4.0, as measured:

| when | calls |
|---|---|
| the query begins | latestOffset(), initialOffset() |
| it continues after a restart | partitions(end, end), with the end of the last batch in its log |
| and that batch was not committed | partitions(start, end) of it |
| each batch | latestOffset(), commit(end of the one before), partitions(start, end) |
| nothing new | latestOffset(), again and again |

So latestOffset() does not get the query's position, which the limits need. They count from the last end that
partitions() was called with. That is known before latestOffset() is called, also after a restart. At the beginning of a
query it is the initial offset, which is looked up once.

Not possible with Spark 4.0: Trigger.AvailableNow and Trigger.Once run a Python source for one batch, without notifying
it. With `maxOffsetsPerTrigger` that batch, and so the query, ends at the limit; a restarted query continues there. A
query's progress has no metrics of a Python source (the connector's `maxOffsetsBehindLatest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from kwire_protocol.wire import Uuid
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kwire.client.cluster import TopicPartition
from kwire.client.waiting import Clock, SystemClock
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.light_tasks import begin_task
from kwire.pipeline.spark_source.limits import Patience, limited
from kwire.pipeline.spark_source.losses import described, losses
from kwire.pipeline.spark_source.offset_reader import OffsetReader
from kwire.pipeline.spark_source.options import SourceOptions
from kwire.pipeline.spark_source.positions import Positions, from_json_value, to_json_value
from kwire.pipeline.spark_source.ranges import OffsetRange, split
from kwire.pipeline.spark_source.reading import RangePartition, read_range

JsonOffsets = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader):
    """A stream's reader. Only the driver's copy has state; the tasks' copies use only its options."""

    def __init__(
        self, options: SourceOptions, offset_reader: OffsetReader | None = None, clock: Clock | None = None
    ) -> None:
        self.options = options
        self._offset_reader = offset_reader or OffsetReader(options)
        self._clock = clock or SystemClock()
        self._initial: dict[TopicPartition, int] | None = None
        self._position: dict[TopicPartition, int] | None = None
        """The query's position: the end of the last batch that was planned."""
        self._topic_ids: dict[str, Uuid] = {}
        self._patience = (
            None
            if options.min_offsets_per_trigger is None
            else Patience(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        )

    def __reduce__(self) -> tuple[Callable[[SourceOptions], StreamReader], tuple[SourceOptions]]:
        return StreamReader, (self.options,)

    # Called by Spark, in the driver's process

    def initialOffset(self) -> JsonOffsets:  # noqa: N802 - Spark's name
        return to_json_value(self._begin())

    def latestOffset(self) -> JsonOffsets:  # noqa: N802 - Spark's name
        """Returns the end of the next batch; if none is due yet, the end of the last one."""
        position = self._begin() if self._position is None else self._position
        latest = self._offset_reader.latest(self._offset_reader.partitions())
        if self._patience is not None and latest != position:
            now_ms = int(self._clock.monotonic() * 1000)
            if not self._patience.is_over(position, latest, now_ms=now_ms):
                return to_json_value(position)
        if self.options.max_offsets_per_trigger is None:
            return to_json_value(latest)
        start = {**self._offset_reader.earliest(latest.keys() - position.keys()), **position}
        return to_json_value(limited(start, latest, self.options.max_offsets_per_trigger))

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Returns the ranges between `start` and `end`. Raises PipelineError for lost offsets, unless allowed."""
        begins, ends = _positions(start), _positions(end)
        self._position = ends
        if begins == ends:
            return []
        new = self._offset_reader.earliest(ends.keys() - begins.keys())
        topic_ids = dict(self._offset_reader.topic_ids)
        if self.options.fail_on_data_loss:
            found = losses(begins, ends, new) + self._replaced(begins, topic_ids)
            if found:
                raise PipelineError(described(found))
        self._topic_ids |= topic_ids
        known = {**new, **begins}
        ranges = [OffsetRange(at, known[at], stop) for at, stop in ends.items() if at in known]
        tasks = split(
            ranges, min_partitions=self.options.min_partitions, max_records=self.options.max_records_per_partition
        )
        return [RangePartition(it, topic_ids.get(it.at.topic)) for it in tasks]

    def commit(self, end: Mapping[str, Any]) -> None:
        """Does nothing: the query's checkpoint has its position, and the brokers keep none."""

    def stop(self) -> None:
        self._offset_reader.close()

    # Called by Spark, in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        begin_task()
        return read_range(partition, self.options)

    def _begin(self) -> dict[TopicPartition, int]:
        if self._initial is None:
            self._initial = self._offset_reader.starts(self._offset_reader.partitions())
        return self._initial

    def _replaced(self, begins: Positions, topic_ids: Mapping[str, Uuid]) -> list[str]:
        """Returns topics that were replaced while the query ran: their offsets belong to other records."""
        read = {at.topic for at in begins}
        return [
            f"{topic}: deleted, and created again"
            for topic, topic_id in sorted(topic_ids.items())
            if topic in read and self._topic_ids.get(topic, topic_id) != topic_id
        ]


def _positions(offsets: Mapping[str, Any]) -> dict[TopicPartition, int]:
    try:
        return from_json_value(dict(offsets))
    except ValueError as error:
        raise PipelineError(f"the checkpoint's offsets are not those of this source: {error}") from None

"""The function that Spark's Python processes run for a mirror. It copies the connector's rows, partition by partition.

A task returns a row of JSON for each partition.

Errors are returned as rows too. Spark would rerun a failed task, and stop the other tasks in the middle of their work,
and the driver would get only a traceback.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import UnknownTopic
from kwire.pipeline.brokers import connect, explaining, kind_of, raised_elsewhere
from kwire.pipeline.clock import now_ms
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.offsets import Run
from kwire.pipeline.mirror.state import Position
from kwire.pipeline.mirror.writing import Copied, OffsetRange, Writing, copy_rows
from kwire.pipeline.spark_source.light_tasks import begin_task
from kwire.pipeline.spark_source.sink_rows import records

if TYPE_CHECKING:
    from pyarrow import RecordBatch

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
SCHEMA: Final = "result string"


@attrs.frozen(kw_only=True)
class MirrorTask:
    """The work of a batch, sent to its tasks. `topic_ids` are the ids of the source's topics at the driver."""

    source: str
    target: str
    timeout_s: float
    writing: Writing
    ranges: Mapping[TopicPartition, OffsetRange]
    topic_ids: Mapping[str, str]

    def copy(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        begin_task()
        for result in self.results(_rows(batches)):
            yield pa.RecordBatch.from_pydict({"result": [json.dumps(result)]})

    def results(self, rows: Iterable[tuple[TopicPartition, Record]]) -> Iterator[dict[str, Any]]:
        """Copies rows, ordered by partition and offset. Yields each partition's result; the last may be an error."""
        try:
            with (
                explaining(),
                connect(self.source, timeout_s=self.timeout_s) as source,
                connect(self.target, timeout_s=self.timeout_s) as target,
            ):
                copied = copy_rows(
                    target,
                    self.writing,
                    self.ranges,
                    rows,
                    still_so=lambda topic: self._check_topic(source, topic),
                    now_ms=now_ms,
                )
                for it in copied:
                    yield _to_json(it)
        except PipelineError as error:
            yield {"error": str(error), "kind": kind_of(error)}

    def _check_topic(self, source: Cluster, topic: str) -> None:
        """Raises PipelineError if the topic was replaced by another one: the records may be from either."""
        source.forget_topic(topic)
        try:
            found = source.topic(topic).topic_id
        except UnknownTopic:
            raise PipelineError(f"topic {topic} was deleted while it was mirrored") from None
        if any(found) and str(found) != self.topic_ids[topic]:
            raise PipelineError(
                f"topic {topic} was deleted and created again while it was mirrored: its offsets count from 0 again"
            )


def parse_result(text: str) -> Copied:
    """A task's result. Raises PipelineError if the task failed."""
    result = json.loads(text)
    if "error" in result:
        raise raised_elsewhere(result["kind"], result["error"])
    return Copied(
        position=Position.read(TopicPartition(*result["at"]), result["position"].encode()),
        records=result["records"],
        runs=[Run(*it) for it in result["runs"]],
        was_further=result["was_further"],
    )


def _to_json(it: Copied) -> dict[str, Any]:
    return {
        "at": it.position.at,
        "position": it.position.value().decode(),
        "records": it.records,
        "runs": [[run.source, run.target, run.count] for run in it.runs],
        "was_further": it.was_further,
    }


def _rows(batches: Iterable[RecordBatch]) -> Iterator[tuple[TopicPartition, Record]]:
    """The connector's rows as records, with their offsets and timestamps."""
    for rows in batches:
        offsets = rows.column("offset").to_pylist()
        timestamps_us = rows.column("timestamp").cast(pa.int64()).to_pylist()
        for (topic, partition, record), offset, us in zip(records(rows, None, 0), offsets, timestamps_us, strict=True):
            assert partition is not None
            yield TopicPartition(topic, partition), record._replace(offset=offset, timestamp=us // 1000)

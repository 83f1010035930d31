"""A task's work: writes the rows of some target partitions, in order, as records and positions. Independent of Spark.

A task gets all rows of a target partition, one partition after the other. For each it takes the partition's writer,
which fences any earlier one, reads the position, skips the rows that are written already, and writes the rest in
transactions. Rows are collected before a transaction begins, so it is open only while the brokers write it, and never
during a wait for the rate limit.

A position is JSON: {"records": 17, "next": {"0": 4711}}. It has the number of records written, and the next offset of
each source partition.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.producing import split_records
from kwire.client.waiting import Clock
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.delivery.positioned import PositionedWriter
from kwire.pipeline.errors import Interrupted
from kwire.pipeline.replay.pace import Pace
from kwire.pipeline.replay.pinned import Pinned, key_of, position_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyarrow import RecordBatch

TRANSACTION_RECORDS: Final = 50_000
TRANSACTION_BYTES: Final = 8 << 20
TRANSACTION_S: Final = 1.0
"""The limits of a transaction: records, bytes, and the time in seconds that a record waits for the others."""
TIMEOUT_MS: Final = 15_000
"""The timeout of a transaction. Readers of the state topic wait for a killed task's transaction, and wait longer."""
_RECORD_BYTES: Final = 32


class Row(NamedTuple):
    target: int
    """The partition that the row goes to."""
    partition: int
    """The partition that it comes from, with its offset there."""
    offset: int
    record: Record


@attrs.frozen
class Position:
    """The position of a target partition."""

    records: int = 0
    next: Mapping[int, int] = attrs.field(factory=dict)

    def behind(self, rows: Sequence[Row]) -> Position:
        """The position after these rows."""
        offsets = dict(self.next)
        for row in rows:
            # The rows written of a source partition must be its first ones, or a restart could not continue.
            assert row.offset + 1 >= offsets.get(row.partition, 0), f"{row[:3]} comes too late"
            offsets[row.partition] = row.offset + 1
        return Position(self.records + len(rows), offsets)

    def to_json(self) -> bytes:
        return json.dumps({"records": self.records, "next": {str(it): at for it, at in self.next.items()}}).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Position:
        found: dict[str, Any] = json.loads(value)
        return cls(found["records"], {int(it): at for it, at in found["next"].items()})


@attrs.frozen(kw_only=True)
class Assignment:
    """The settings of each task of a run. `rate_per_s` is the task's share."""

    bootstrap: str
    topic: str
    state_topic: str
    name: str
    generation: int
    rate_per_s: float | None
    timeout_s: float

    def to_json(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        return cls(**json.loads(text))


def transactional_id(name: str, partition: int | None) -> str:
    """Returns the transactional id of a target partition's writer; without one, the prefix of all these ids."""
    return f"kwire-replay/{name}/{'' if partition is None else partition}"


def driver_id(name: str) -> str:
    """The transactional id of the driver, which pins the replay and ends it."""
    return f"kwire-replay/{name}"


def write_rows(
    cluster: Cluster, assignment: Assignment, rows: Iterable[Row], *, now_ms: Callable[[], int], clock: Clock
) -> None:
    """Writes the rows that are not written yet. Rows of a target partition are adjacent, in source order.

    Raises ClientError, and PipelineError if the replay has ended or was started over.
    """
    pace = None if assignment.rate_per_s is None else Pace(assignment.rate_per_s, clock.monotonic())
    state_topic = CompactedTopic(cluster, assignment.state_topic)
    for target, its_rows in groupby(rows, key=lambda row: row.target):
        at = TopicPartition(assignment.topic, target)
        writer = PositionedWriter(
            cluster,
            transactional_id(assignment.name, target),
            state_topic,
            position_key(assignment.name, assignment.generation, target),
            now_ms=now_ms,
            timeout_ms=TIMEOUT_MS,
        )
        position = _position(writer, state_topic, assignment)
        reached = position.next
        left = (row for row in its_rows if row.offset >= reached.get(row.partition, 0))
        for some in _gathered(left, pace, clock):
            position = position.behind(some)
            with writer.transaction():
                for batch in split_records(row.record for row in some):
                    writer.write({at: batch})
                writer.keep(position.to_json())


def _position(writer: PositionedWriter, state_topic: CompactedTopic, assignment: Assignment) -> Position:
    """The position to continue from. Raises PipelineError."""
    value = writer.position()
    if value is not None:
        return Position.from_json(value)
    # A finished replay has no positions. A late task of an overtaken run must not take that for a start.
    value = state_topic.newest(key_of(assignment.name))
    pinned = None if value is None else Pinned.from_json(value)
    if pinned is None or pinned.state != "running" or pinned.generation != assignment.generation:
        raise Interrupted(f"replay {assignment.name} is over, or was started again by another run")
    return Position()


def _gathered(rows: Iterator[Row], pace: Pace | None, clock: Clock) -> Iterator[Sequence[Row]]:
    """Yields the rows of one transaction at a time. No row waits longer than TRANSACTION_S for the next one."""
    some: list[Row] = []
    size, since_s = 0, 0.0
    for row in rows:
        wait_s = 0.0 if pace is None else pace.wait_s(clock.monotonic())
        if some and clock.monotonic() + wait_s - since_s >= TRANSACTION_S:
            yield some
            some, size = [], 0
        if wait_s:
            clock.sleep(wait_s)
        if not some:
            since_s = clock.monotonic()
        some.append(row)
        size += _RECORD_BYTES + len(row.record.key or b"") + len(row.record.value or b"")
        if pace is not None:
            pace.went(clock.monotonic())
        if len(some) >= TRANSACTION_RECORDS or size >= TRANSACTION_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def rows_of(batches: Iterable[RecordBatch]) -> Iterator[Row]:
    """Yields the rows that `source.py` and `order.py` make. Headers are JSON: [{"key": "a", "value": "base64"}]."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in COLUMNS)
        for target, partition, offset, timestamp_ms, key, value, headers in zip(*columns, strict=True):
            pairs = () if headers is None else _pairs(headers)
            yield Row(target, partition, offset, Record(0, timestamp_ms, key, value, pairs))


def _pairs(headers: str) -> tuple[tuple[str, bytes | None], ...]:
    found = json.loads(headers)
    return tuple((it["key"], b64decode(it["value"]) if "value" in it else None) for it in found)


COLUMNS: Final = ("target", "partition", "offset", "timestamp_ms", "key", "value", "headers")

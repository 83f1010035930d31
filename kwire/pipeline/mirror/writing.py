"""A task's work: writes the records of a batch to the target, then the mirror's position. Independent of Spark.

For each partition a task takes the partition's writer, which fences the one before it, and reads the partition's
position. That may be after the start of the batch, if the task or the batch is run again. Records before the position
are skipped. The others are collected into transactions of a few megabytes. A transaction has only records that are in
memory already, so it never waits for the source. Each transaction also contains the runs of offsets of its records, and
the position after them. In the last transaction the position is the batch's end, after control records and compacted
records.

| killed | state | the next run |
|---|---|---|
| before the commit | an open transaction, which readers do not see | aborts it, and continues at the position |
| after the commit | records, runs and position | continues after them |
| without transactions, before the position is kept | records | writes those records again, after the first ones |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final

import attrs
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.producing import ProducerFenced, split_records
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.delivery.positioned import PositionedWriter
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.offsets import Run, joined, renewed, runs_of
from kwire.pipeline.mirror.state import Position, run_values
from kwire.runtime.callbacks import ignore

TRANSACTION_BYTES: Final = 8 << 20
"""The maximum size of a transaction. Writing it takes a second; the time-out is a minute."""


class AnotherMirror(PipelineError):
    """Two mirrors of the same name mirror the same partition."""

    def __init__(self, name: str, at: TopicPartition) -> None:
        super().__init__(
            f"another mirror named {name} writes {at}: stop one of the two, or give one of them another --name. "
            "Nothing is lost"
        )


class PositionLost(PipelineError):
    """The mirror's position is not the one that it has written."""

    def __init__(self, at: TopicPartition, found: int | None, wanted: int, state_topic: str) -> None:
        position = "gone" if found is None else f"offset {found}"
        super().__init__(
            f"the mirror's position of {at} is {position}, and was offset {wanted}: topic {state_topic} at --to lost "
            "its newest records, or was deleted. Start the mirror again; records may be there twice then"
        )


@attrs.frozen(kw_only=True)
class Writing:
    """The settings of a mirror's writers, the same for all of its batches."""

    name: str
    state_topic: str
    run_id: str
    exactly_once: bool
    compression: int
    transaction_bytes: int = TRANSACTION_BYTES
    """The size of a transaction; without transactions, the maximum size of records that may be written twice."""

    def transactional_id(self, at: TopicPartition) -> str:
        return f"{self.prefix(at.topic)}{at.partition}"

    def prefix(self, topic: str) -> str:
        """The prefix of the transactional ids of a topic."""
        return f"kwire-mirror/{self.name}/{topic}/"

    def writer(self, cluster: Cluster, position: Position, now_ms: Callable[[], int]) -> PositionedWriter:
        """Takes the partition. Raises ClientError."""
        return PositionedWriter(
            cluster,
            self.transactional_id(position.at),
            CompactedTopic(cluster, self.state_topic),
            position.key,
            now_ms=now_ms,
            exactly_once=self.exactly_once,
            compression=self.compression,
        )


@attrs.frozen(kw_only=True)
class OffsetRange:
    """A batch's part of one partition: from `position`, as the driver has it, to `until`.

    dropped: runs to drop.
    batch_bytes: the largest batch of records that the target takes.
    """

    position: Position
    until: int
    dropped: Sequence[Run] = ()
    batch_bytes: int


@attrs.frozen(kw_only=True)
class Copied:
    """The result for an offset range. `runs` are its new runs; the first one may extend an earlier run.

    was_further: the position was not the one of the driver, so there may be runs that the driver does not have.
    """

    position: Position
    records: int
    runs: Sequence[Run]
    was_further: bool


def declare(
    cluster: Cluster,
    writing: Writing,
    position: Position,
    more: Mapping[bytes, bytes | None] | None = None,
    *,
    now_ms: Callable[[], int],
) -> Position:
    """Keeps a position without records, and `more` with it, unless a further one is kept. Returns the kept one.

    Raises AnotherMirror and ClientError.
    """
    try:
        writer = writing.writer(cluster, position, now_ms)
        value = writer.position()
        found = None if value is None else Position.read(position.at, value)
        if found is not None and found.next > position.next:
            return found
        with writer.transaction():
            writer.keep(position.value(), more)
    except ProducerFenced:
        raise AnotherMirror(writing.name, position.at) from None
    return position


def copy_rows(
    cluster: Cluster,
    writing: Writing,
    ranges: Mapping[TopicPartition, OffsetRange],
    rows: Iterable[tuple[TopicPartition, Record]],
    *,
    still_so: Callable[[str], None],
    now_ms: Callable[[], int],
    step: Callable[[str], None] = ignore,
) -> Iterator[Copied]:
    """Copies rows, which are ordered by partition and then by offset. A partition begins when the iterator is advanced.

    still_so: called with the topic after its records were read and before readers see them; it raises to stop there.
    step: called before each step; tests die there.

    Raises AnotherMirror, PositionLost and ClientError.
    """
    for at, some in groupby(rows, key=lambda it: it[0]):
        records = (record for _, record in some)
        yield _Copier(cluster, writing, ranges[at], partial(still_so, at.topic), now_ms, step).copy(records)


def copy_range(
    cluster: Cluster,
    writing: Writing,
    offset_range: OffsetRange,
    records: Iterable[Record],
    *,
    still_so: Callable[[], None] = ignore,
    now_ms: Callable[[], int],
    step: Callable[[str], None] = ignore,
) -> Copied:
    """Copies one partition's rows. Without records only the position moves."""
    return _Copier(cluster, writing, offset_range, still_so, now_ms, step).copy(records)


@attrs.frozen(eq=False)
class _Copier:
    cluster: Cluster
    writing: Writing
    offset_range: OffsetRange
    still_so: Callable[[], None]
    now_ms: Callable[[], int]
    step: Callable[[str], None]

    def copy(self, records: Iterable[Record]) -> Copied:
        at = self.offset_range.position.at
        try:
            self.step("take")
            writer = self.writing.writer(self.cluster, self.offset_range.position, self.now_ms)
            found = self._found(writer.position())
            return self._write(writer, found, (it for it in records if it.offset >= found.next))
        except ProducerFenced:
            raise AnotherMirror(self.writing.name, at) from None

    def _found(self, value: bytes | None) -> Position:
        known, it = self.offset_range.position, self.writing
        found = None if value is None else Position.read(known.at, value)
        if found is None or found.next < known.next:
            raise PositionLost(known.at, None if found is None else found.next, known.next, it.state_topic)
        if found.run_id not in (it.run_id, known.run_id):
            raise AnotherMirror(it.name, known.at)
        return found

    def _write(self, writer: PositionedWriter, found: Position, records: Iterable[Record]) -> Copied:
        position, count = found, 0
        runs: Sequence[Run] = []
        dropped: Sequence[Run] = self.offset_range.dropped
        parts = split_records(records, self.writing.transaction_bytes)
        part = next(parts, None)
        while part is not None or position.next < self.offset_range.until:
            following = next(parts, None) if part is not None else None
            end = self.offset_range.until if following is None or part is None else part[-1].offset + 1
            self.step("begin")
            with writer.transaction():
                written = self._write_records(writer, part or ())
                self.still_so()
                position, retained = self._moved(position, end, written)
                self.step("keep")
                writer.keep(position.value(), run_values(position.at, retained, dropped))
                self.step("commit")
            self.step("committed")
            runs, count, dropped = renewed(runs, retained), count + len(part or ()), ()
            part = following
        return Copied(position=position, records=count, runs=runs, was_further=found != self.offset_range.position)

    def _write_records(self, writer: PositionedWriter, records: Sequence[Record]) -> list[Run]:
        target = self.offset_range.position.target
        runs: list[Run] = []
        for batch in split_records(records, self.offset_range.batch_bytes):
            self.step("write")
            first = writer.write({target: batch})[target]
            if first >= 0:  # otherwise the broker returned no offset; the map omits the batch
                runs = joined(runs, runs_of([it.offset for it in batch], first))
        return runs

    def _moved(self, position: Position, end: int, written: Sequence[Run]) -> tuple[Position, Sequence[Run]]:
        """The position after the written records, and the runs to keep: the newest earlier run may have grown."""
        before = [] if position.run is None else [position.run]
        runs = joined(before, written)
        retained = runs[1:] if runs[:1] == before else runs
        newest = runs[-1] if runs else None
        return attrs.evolve(position, next=end, run=newest, run_id=self.writing.run_id), retained

"""The records in flight of a share partition: batches, and in each the runs of records in equal state.

A *batch* is what was acquired as one from the log (Kafka's InFlightBatch). Its records are usually acquired,
acknowledged and removed together. A *run* is a range of neighbours inside a batch with the same state, delivery count
and lock. A batch of 500 records in one state is one run, and so costs as much as a batch of one; where its records
differ there are as many runs as needed, and neighbours that become equal are joined again.

    start offset                                end offset
    |  batch 0-9          hole  batch 20-29     |
    [0-3 done][4-9 acquired]    [20-29 available]

* The start offset only moves forward, and only over records that are done, or that the log does not have: a hole
  between two batches. Batches keep their bounds when the start offset is inside of them, but the runs before it are
  dropped.
* With no batch the start and the end offset are the same: the offset from which to fetch. Otherwise the end offset is
  the last one of the last batch.
* A batch that *is unfetched* stands for offsets that are missing in the persisted state, between some that it has. They
  were in flight before a restart, and are read from the log again. (Kafka's SharePartition keeps a `GapWindow` for them
  instead.)

Nothing here depends on members, time, or the writes in progress.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import attrs

from kwire.coordinators.deadlines import Deadline
from kwire.share.leader.effects import Write
from kwire.share.leader.states import ACKNOWLEDGED, ARCHIVED, AVAILABLE, RecordState

_first_offset: Final = attrgetter("first")


class Lock(Deadline):
    """The lock of records that one member acquired, or renewed, with one request. It ends with its last held record."""

    __slots__ = ("first", "held", "last", "member", "until_ms")

    def __init__(self, member: str, until_ms: int) -> None:
        super().__init__()
        self.member = member
        self.until_ms = until_ms
        self.held = 0
        """The number of records that are acquired under it, or whose transition is being written."""
        self.first = -1
        self.last = -1
        """The range of the records; not all records in it are under this lock."""

    def take(self, first: int, last: int) -> None:
        if self.held == 0:
            self.first, self.last = first, last
        else:
            self.first = min(self.first, first)
            self.last = max(self.last, last)
        self.held += last - first + 1


@attrs.define(eq=False)
class Run:
    """Adjacent records in equal state. ACQUIRED records have a lock, and so have those whose `write` is under way.

    With a `write` the state is the one that it persists; the state before it was ACQUIRED.
    """

    first: int
    last: int
    state: RecordState
    delivery_count: int
    lock: Lock | None = None
    write: Write | None = None
    ready_ms: int = 0
    """The time until which it is kept, though it is AVAILABLE. Otherwise 0."""

    @property
    def is_done(self) -> bool:
        """True if it needs no more delivery, or will need none once it is written."""
        return self.state is ACKNOWLEDGED or self.state is ARCHIVED

    @property
    def may_be_acquired(self) -> bool:
        return self.state is AVAILABLE and self.write is None and self.ready_ms == 0

    def goes_on(self, before: Run) -> bool:
        """True if it can be joined to the run before it."""
        return (
            self.state is before.state
            and self.lock is before.lock
            and self.write is before.write
            and (self.delivery_count == before.delivery_count or (self.is_done and self.write is None))
            and self.ready_ms == before.ready_ms
        )


@attrs.define(eq=False)
class InFlightBatch:
    """`runs` cover all offsets from `first`, or from the start offset if that is later, to `last`."""

    first: int
    last: int
    runs: list[Run]
    is_unfetched: bool = False

    def index(self, offset: int) -> int:
        """Returns the index of the run with this offset, or of the first one if the offset is before it."""
        runs = self.runs
        return 0 if len(runs) == 1 else max(bisect_right(runs, offset, key=_first_offset) - 1, 0)

    def runs_in(self, first: int, last: int) -> Sequence[Run]:
        """Returns the whole runs that have an offset in this range."""
        runs = self.runs
        if len(runs) == 1:
            return runs if runs[0].first <= last and first <= runs[0].last else ()
        if last < runs[0].first or runs[-1].last < first:
            return ()
        return runs[self.index(first) : self.index(last) + 1]

    def isolate(self, first: int, last: int) -> list[Run]:
        """The runs of exactly this range, which must be in the batch; those at its borders are split."""
        runs = self.runs
        low = self.index(first)
        if runs[low].first < first:
            self._split(low, first)
            low += 1
        high = self.index(last)
        if runs[high].last > last:
            self._split(high, last + 1)
        return runs[low : high + 1]

    def _split(self, index: int, at: int) -> None:
        run = self.runs[index]
        rest = Run(at, run.last, run.state, run.delivery_count, run.lock, run.write, run.ready_ms)
        run.last = at - 1
        self.runs.insert(index + 1, rest)

    def join(self, first: int, last: int) -> None:
        """Joins adjacent runs that are equal, in this range and at its borders."""
        runs = self.runs
        if len(runs) == 1:
            return
        low = max(self.index(first) - 1, 0)
        high = min(self.index(last) + 2, len(runs))
        joined = [runs[low]]
        for run in runs[low + 1 : high]:
            if run.goes_on(joined[-1]):
                joined[-1].last = run.last
            else:
                joined.append(run)
        if len(joined) < high - low:
            runs[low:high] = joined


@attrs.define(eq=False)
class InFlight:
    start_offset: int
    end_offset: int
    batches: list[InFlightBatch] = attrs.field(factory=list)
    """The batches in the order of their offsets; none overlaps another."""
    delivery_complete_count: int = 0
    """The number of records that are done (KIP-1226); none of them is before the start offset."""
    may_have_available: bool = False
    """False only if no record can be acquired again."""
    _firsts: list[int] = attrs.field(factory=list)

    @property
    def count(self) -> int:
        """The offsets in flight as Kafka counts them: from the start to the end offset, with holes and done records."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def next_fetch_offset(self) -> int:
        """The offset from which to read the log: the first record that can be acquired again, or was never fetched."""
        if not self.batches:
            return self.end_offset
        if self.may_have_available:
            for batch in self.batches:
                for run in batch.runs:
                    if run.may_be_acquired:
                        return run.first
            self.may_have_available = False
        return self.end_offset + 1

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at or before this offset."""
        index = bisect_right(self._firsts, offset) - 1
        return self.batches[index] if index >= 0 else None

    def overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        low = max(bisect_right(self._firsts, first) - 1, 0)
        if low < len(self.batches) and self.batches[low].last < first:
            low += 1
        return self.batches[low : bisect_right(self._firsts, last)]

    def pieces(self, first: int, last: int) -> list[tuple[InFlightBatch, int, int]]:
        """Returns (batch, first offset, last offset) of the parts of this range in flight, from the start offset on."""
        first = max(first, self.start_offset)
        if first > last:
            return []
        return [(it, max(first, it.first), min(last, it.last)) for it in self.overlapping(first, last)]

    def insert(self, batch: InFlightBatch) -> None:
        """Inserts a batch. If it is the only one, the start offset moves to it: the log has no records before it."""
        if not self.batches:
            assert batch.first >= self.start_offset
            self.start_offset = batch.first
            self.end_offset = batch.last
        at = bisect_right(self._firsts, batch.first)
        self.batches.insert(at, batch)
        self._firsts.insert(at, batch.first)
        self.end_offset = max(self.end_offset, batch.last)

    def remove(self, batch: InFlightBatch) -> None:
        """Removes a batch, which the caller replaces at once."""
        at = bisect_right(self._firsts, batch.first) - 1
        assert self.batches[at] is batch
        del self.batches[at], self._firsts[at]

    def isolate_unfetched(self, batch: InFlightBatch, first: int, last: int) -> InFlightBatch:
        """Splits an unfetched batch at the borders of this range, and returns the one that is exactly the range."""
        if first > batch.runs[0].first:
            batch = self._split(batch, first)
        if last < batch.last:
            self._split(batch, last + 1)
        return batch

    def _split(self, batch: InFlightBatch, at: int) -> InFlightBatch:
        (rest,) = batch.isolate(at, batch.last)
        batch.runs.pop()
        after = InFlightBatch(at, batch.last, [rest], batch.is_unfetched)
        batch.last = at - 1
        self.insert(after)
        return after

    def change(self, run: Run, state: RecordState) -> None:
        """Sets the state of a run. The caller updates its lock, and joins it to adjacent runs."""
        count = run.last - run.first + 1
        if run.is_done:
            self.delivery_complete_count -= count
        run.state = state
        if run.is_done:
            self.delivery_complete_count += count

    def advance(self) -> bool:
        """Moves the start offset over all done records. Returns True if it moved."""
        before = self.start_offset
        removed = 0
        for batch in self.batches:
            self.start_offset = max(self.start_offset, batch.first)
            done = 0
            for run in batch.runs:
                if not run.is_done or run.write is not None:
                    break
                done += 1
                self.delivery_complete_count -= run.last - run.first + 1
                self.start_offset = run.last + 1
            if done < len(batch.runs):
                del batch.runs[:done]
                break
            removed += 1
        self._remove_first(removed)
        return self.start_offset > before

    def move_start(self, offset: int) -> list[Run]:
        """Drops all records before this offset, in any state, and returns the runs that had a lock."""
        dropped: list[Run] = []
        if offset <= self.start_offset:
            return dropped
        removed = 0
        for batch in self.batches:
            if batch.first >= offset:
                break
            gone = batch.isolate(batch.runs[0].first, offset - 1) if offset <= batch.last else list(batch.runs)
            for run in gone:
                if run.is_done:
                    self.delivery_complete_count -= run.last - run.first + 1
            dropped.extend(run for run in gone if run.lock is not None)
            if len(gone) < len(batch.runs):
                del batch.runs[: len(gone)]
            else:
                removed += 1
        self.start_offset = offset
        self._remove_first(removed)
        return dropped

    def _remove_first(self, count: int) -> None:
        del self.batches[:count], self._firsts[:count]
        if not self.batches:
            self.start_offset = self.end_offset = max(self.start_offset, self.end_offset)

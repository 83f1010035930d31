"""The rules by which a fetch acquires records of a share partition.

A fetch reads batches of the log from `InFlight.next_fetch_offset`. In their range it acquires, in the order of offsets,
records that are available again, and then new ones:

* New records are acquired in whole batches of the log. The maximum number of records is reached with the batch that
  contains the last one of them. Several log batches become one batch in flight, or several of at least `batch_size`
  records each. In record-limit mode (KIP-1206) the maximum is exact. Then the rest of the batch in flight is available
  to the next fetch, with a delivery count of 0.
* All available records of a batch in flight are acquired, in record-limit mode up to the maximum.
* The number of offsets in flight is limited. The limit is checked before a batch is acquired, so the last batch may
  exceed it, and records below the end offset may always be acquired again.
* A batch with records that were delivered often is *throttled*: it is acquired by a fetch of its own, and only a part
  of it, half as large with each further delivery. A record's last delivery is alone. So one record that breaks its
  consumers does not use up the deliveries of its neighbours. (Kafka also cuts a fetch at a batch with a high delivery
  count that is not available at all, if it has not been split; here only available records count.)
* The log may have lost available records by compaction: records between the fetch offset and the first batch that was
  read are archived. If they are unfetched, they are a hole.

Kafka does this in SharePartition.acquire and the methods that it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import attrs

from kwire.share.leader.in_flight import InFlight, InFlightBatch, Lock, Run
from kwire.share.leader.states import ACQUIRED, ARCHIVED, AVAILABLE, AcquireMode, ShareLimits


class AcquiredRange(NamedTuple):
    """A range of acquired records in ShareFetch. The delivery count includes this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


@attrs.frozen
class Fetched:
    """The batches that were read from the log."""

    fetch_offset: int
    """The offset at which the read began."""
    batches: Sequence[tuple[int, int]]
    """Base and last offset of each batch, in order."""
    archive: Sequence[tuple[int, int]] = ()
    """First and last offset of ranges, in order, that no consumer must see: records of aborted transactions, if the
    group reads only committed records, and control records. (Kafka delivers control records; its client skips them.)"""

    @property
    def first_offset(self) -> int:
        return self.batches[0][0]

    @property
    def last_offset(self) -> int:
        return self.batches[-1][1]

    def end_of_batch(self, offset: int) -> int:
        """The last offset of the batch with this offset, or the offset itself if it is in no batch."""
        for base, last in self.batches:
            if base <= offset <= last:
                return last
        return offset

    def split(self, first: int, last: int, batch_size: int) -> Iterator[tuple[int, int]]:
        """Splits the range into pieces of at least `batch_size` offsets that begin with a batch, and a last piece."""
        if last - first + 1 > batch_size:
            for base, _ in self.batches:
                if base > last:
                    break
                if base - first >= batch_size:
                    yield first, base - 1
                    first = base
        yield first, last


@attrs.define(eq=False)
class Acquiring:
    """One fetch's acquisition. `acquired` are records under `lock` at its end; those to be archived are not."""

    in_flight: InFlight
    fetched: Fetched
    limits: ShareLimits
    lock: Lock
    unlock: Callable[[Run], None]
    mode: AcquireMode
    batch_size: int
    left: int
    """The number of records that may still be acquired."""
    acquired: list[AcquiredRange] = attrs.field(factory=list)
    has_archived: bool = False

    def run(self) -> None:
        in_flight = self.in_flight
        last = self.fetched.last_offset
        room = self.limits.max_in_flight_records - in_flight.count
        if room <= 0:
            # The window is full. Released records may be read again, but no records after the end offset.
            if self.fetched.fetch_offset > in_flight.end_offset:
                return
            room = in_flight.end_offset - self.fetched.fetch_offset + 1
            last = min(last, in_flight.end_offset)
        self.left = min(self.left, room)
        if self.left <= 0:
            return
        self._archive_lost()
        first = max(self.fetched.first_offset, in_flight.start_offset)
        if first <= last:
            self._acquire(first, last)
            self._archive_unwanted()

    def _acquire(self, first: int, last: int) -> None:
        known = self.in_flight.overlapping(first, last)
        new_first = known[-1].last + 1 if known else first
        for batch in known:
            if self.left <= 0:
                return
            if batch.is_unfetched:
                self._acquire_unfetched(batch, first, last)
                continue
            is_throttled = self._is_throttled(batch, first, last)
            if is_throttled and self.acquired:
                return
            count = self._acquire_again(batch, first, last)
            self.left -= count
            if is_throttled and count:
                return
        if self.left > 0 and new_first <= last:
            self._acquire_new(new_first, self._end_of_new(new_first, last))

    def _is_throttled(self, batch: InFlightBatch, first: int, last: int) -> bool:
        throttled_from = self.limits.throttled_from
        return any(run.delivery_count >= throttled_from and run.may_be_acquired for run in batch.runs_in(first, last))

    def _acquire_again(self, batch: InFlightBatch, first: int, last: int) -> int:
        """Returns the number of records. Joins adjacent records of equal delivery count to one acquired range."""
        limits = self.limits
        count = 0
        most: int | None = None
        begun = len(self.acquired)
        for run in list(batch.runs_in(first, last)):
            if not run.may_be_acquired:
                continue
            low, high = max(run.first, first), min(run.last, last)
            is_last_delivery = limits.is_last_delivery(run.delivery_count)
            if is_last_delivery:
                if count:
                    break
                high = low
            if most is None and run.delivery_count >= limits.throttled_from:
                halvings = run.delivery_count - limits.throttled_from + 1
                most = max(1, (batch.last - batch.first + 1) >> halvings)
            if self.mode is AcquireMode.RECORD_LIMIT:
                high = min(high, low + self.left - count - 1)
            if most is not None and count < most:
                high = min(high, low + most - count - 1)
            (part,) = batch.isolate(low, high)
            self._take(part)
            self._say(part, joins=len(self.acquired) > begun)
            count += high - low + 1
            if is_last_delivery or count == most or (self.mode is AcquireMode.RECORD_LIMIT and count >= self.left):
                break
        if count:
            batch.join(first, last)
        return count

    def _say(self, run: Run, *, joins: bool) -> None:
        if joins:
            first, last, delivery_count = self.acquired[-1]
            if last == run.first - 1 and delivery_count == run.delivery_count:
                self.acquired[-1] = AcquiredRange(first, run.last, delivery_count)
                return
        self.acquired.append(AcquiredRange(run.first, run.last, run.delivery_count))

    def _take(self, run: Run) -> None:
        run.state = ACQUIRED
        run.delivery_count += 1
        run.lock = self.lock
        self.lock.take(run.first, run.last)

    def _acquire_unfetched(self, batch: InFlightBatch, first: int, last: int) -> None:
        """Acquires a part of an unfetched batch: it is taken out of the batch, and acquired as new records."""
        first = max(first, batch.runs[0].first)
        last = self._end_of_new(first, min(last, batch.last))
        self.in_flight.remove(self.in_flight.isolate_unfetched(batch, first, last))
        self._acquire_new(first, last)

    def _end_of_new(self, first: int, last: int) -> int:
        """Returns the end of the log batch that has the last record that may be acquired."""
        if self.left >= last - first + 1:
            return last
        return min(last, self.fetched.end_of_batch(first + self.left - 1))

    def _acquire_new(self, first: int, last: int) -> None:
        if self.mode is AcquireMode.RECORD_LIMIT:
            end = min(last, first + self.left - 1)
            runs = [self._new_run(first, end)]
            if end < last:
                runs.append(Run(end + 1, last, AVAILABLE, 0))
                self.in_flight.may_have_available = True
            self.in_flight.insert(InFlightBatch(first, last, runs))
            self.acquired.append(AcquiredRange(first, end, 1))
            self.left -= end - first + 1
            return
        for piece_first, piece_last in self.fetched.split(first, last, self.batch_size):
            self.in_flight.insert(InFlightBatch(piece_first, piece_last, [self._new_run(piece_first, piece_last)]))
            self.acquired.append(AcquiredRange(piece_first, piece_last, 1))
        self.left -= last - first + 1

    def _new_run(self, first: int, last: int) -> Run:
        self.lock.take(first, last)
        return Run(first, last, ACQUIRED, 1, self.lock)

    def _archive_lost(self) -> None:
        first, last = self.fetched.fetch_offset, self.fetched.first_offset - 1
        if first > last or not self.in_flight.batches:
            return
        for batch, low, high in self.in_flight.pieces(first, last):
            if batch.is_unfetched:
                self.in_flight.remove(self.in_flight.isolate_unfetched(batch, low, high))
                self.has_archived = True
                continue
            for run in batch.isolate(low, high):
                if run.state is AVAILABLE:
                    if run.lock is not None:
                        # Its release is being written, but the outcome does not matter any more.
                        self.unlock(run)
                    self.in_flight.change(run, ARCHIVED)
                    run.ready_ms = 0
                    self.has_archived = True
            batch.join(low, high)

    def _archive_unwanted(self) -> None:
        if not self.fetched.archive or not self.acquired:
            return
        for first, last in self.fetched.archive:
            for batch, low, high in self.in_flight.pieces(first, last):
                for run in batch.isolate(low, high):
                    if run.lock is self.lock:
                        self.unlock(run)
                        self.in_flight.change(run, ARCHIVED)
                        self.has_archived = True
                batch.join(low, high)
        self.acquired = list(_without(self.acquired, self.fetched.archive))


def _without(acquired: Sequence[AcquiredRange], gone: Sequence[tuple[int, int]]) -> Iterator[AcquiredRange]:
    """Returns the rest of each range without the offsets that are gone. Both arguments are in order."""
    for first, last, delivery_count in acquired:
        at = first
        for gone_first, gone_last in gone:
            if gone_last < at or gone_first > last:
                continue
            if gone_first > at:
                yield AcquiredRange(at, gone_first - 1, delivery_count)
            at = gone_last + 1
        if at <= last:
            yield AcquiredRange(at, last, delivery_count)

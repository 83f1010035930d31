"""A share partition as one dictionary from offsets to records, slow and obvious. Kafka's rules, offset by offset."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.share.leader.acknowledgements import AcknowledgementBatch
from kwire.share.leader.acquiring import Fetched
from kwire.share.leader.effects import StateBatch
from kwire.share.leader.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    AcquireMode,
    RecordState,
    ShareLimits,
)

DONE = (ACKNOWLEDGED, ARCHIVED)


@attrs.define
class Record:
    bounds: tuple[int, int]
    """The first and last offset of its batch in flight."""
    state: RecordState
    count: int
    member: str | None = None
    until_ms: int = 0
    token: object = None
    """The token of the write in flight; the state before was ACQUIRED."""
    ready_ms: int = 0
    is_unfetched: bool = False

    @property
    def count_that_matters(self) -> int:
        """The delivery count, which is not needed once the record is done."""
        return -1 if self.state in DONE and self.token is None else self.count

    @property
    def is_free(self) -> bool:
        return self.state is AVAILABLE and self.token is None and self.ready_ms == 0


@attrs.define
class SlowModel:
    limits: ShareLimits
    start: int
    end: int
    records: dict[int, Record] = attrs.field(factory=dict)

    # What it looks like.

    @property
    def count(self) -> int:
        return self.end - self.start + 1 if self.records else 0

    @property
    def complete(self) -> int:
        return sum(it.state in DONE for it in self.records.values())

    @property
    def next_fetch_offset(self) -> int:
        free = [offset for offset, it in self.records.items() if it.is_free]
        return min(free, default=self.end + 1 if self.records else self.end)

    @property
    def throttled_from(self) -> int:
        return max(2, math.ceil(self.limits.delivery_count_limit / 2))

    def held(self, member: str) -> list[int]:
        return sorted(o for o, it in self.records.items() if it.state is ACQUIRED and it.member == member)

    # What happens to it.

    @classmethod
    def restored(cls, limits: ShareLimits, start: int, batches: Sequence[StateBatch]) -> SlowModel:
        model = cls(limits, start, start)
        for first, last, state, count in batches:
            gap_first = model.end + 1 if model.records else start
            for offset in range(gap_first, first):
                model.records[offset] = Record((gap_first, first - 1), AVAILABLE, 0, is_unfetched=True)
            for offset in range(first, last + 1):
                model.records[offset] = Record((first, last), state, count)
            model.end = last
        model.advance()
        return model

    def acquire(
        self,
        member: str,
        fetched: Fetched,
        *,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        now_ms: int,
    ) -> dict[int, int]:
        """The acquired offsets with their delivery counts."""
        is_exact = mode is AcquireMode.RECORD_LIMIT
        room = self.limits.max_in_flight_records - self.count
        last = fetched.batches[-1][1]
        if room <= 0:
            if fetched.fetch_offset > self.end:
                return {}
            room = self.end - fetched.fetch_offset + 1
            last = min(last, self.end)
        left = min(max_records, room)
        first = max(fetched.batches[0][0], self.start)
        archived = False
        lost = range(fetched.fetch_offset, fetched.batches[0][0])
        for offset in lost:
            archived |= self._lose(offset)

        acquired: dict[int, int] = {}
        stopped = False
        for bounds in sorted({it.bounds for it in self.records.values()}):
            offsets = [o for o in range(bounds[0], bounds[1] + 1) if o in self.records and first <= o <= last]
            free = [o for o in offsets if self.records[o].is_free]
            if not offsets or stopped or left <= 0:
                continue
            if free and self.records[free[0]].is_unfetched:
                self._split_unfetched(free[0])
                got = self._new(free[0], free[-1], member, fetched, left, batch_size, is_exact, now_ms)
                acquired.update(dict.fromkeys(got, 1))
                left -= len(got)
                continue
            throttled = any(self.records[o].count >= self.throttled_from for o in free)
            if throttled and acquired:
                stopped = True
                continue
            got = self._again(bounds, free, left if is_exact else None)
            for o in got:
                self._take(self.records[o], member, now_ms)
                acquired[o] = self.records[o].count
            left -= len(got)
            stopped = throttled and bool(got)
        # What lies beyond the last batch of the range, if that is where the new begins.
        reached = max((it.bounds[1] for it in self.records.values() if it.bounds[0] <= last), default=first - 1)
        new_first = max(reached + 1, first)
        if not stopped and left > 0 and new_first <= last:
            got = self._new(new_first, last, member, fetched, left, batch_size, is_exact, now_ms)
            acquired.update(dict.fromkeys(got, 1))
        for gone_first, gone_last in fetched.archive:
            for o in range(gone_first, gone_last + 1):
                if acquired.pop(o, None) is not None:
                    self._set(self.records[o], ARCHIVED)
                    archived = True
        if archived:
            self.advance()
        return acquired

    def _lose(self, offset: int) -> bool:
        record = self.records.get(offset)
        if record is None or record.state is not AVAILABLE:
            return False
        if record.is_unfetched:
            for at in (offset, offset + 1):
                self._split_unfetched(at)
            del self.records[offset]
        else:
            self._set(record, ARCHIVED)
        return True

    def _split_unfetched(self, at: int) -> None:
        here, before = self.records.get(at), self.records.get(at - 1)
        if here is None or before is None or here.bounds != before.bounds or not here.is_unfetched:
            return
        for offset, it in self.records.items():
            if it.bounds == here.bounds and offset != at:
                it.bounds = (at, it.bounds[1]) if offset > at else (it.bounds[0], at - 1)
        here.bounds = (at, here.bounds[1])

    def _again(self, bounds: tuple[int, int], free: list[int], exactly: int | None) -> list[int]:
        limits = self.limits
        got: list[int] = []
        most: int | None = None
        for o in free:
            count = self.records[o].count
            alone = limits.delivery_count_limit > 2 and count == limits.delivery_count_limit - 1
            if alone and got:
                break
            if count >= self.throttled_from and most is None:
                most = max(1, (bounds[1] - bounds[0] + 1) >> (count - self.throttled_from + 1))
            got.append(o)
            if alone or len(got) == exactly or len(got) == most:
                break
        return got

    def _new(
        self,
        first: int,
        last: int,
        member: str,
        fetched: Fetched,
        left: int,
        batch_size: int,
        is_exact: bool,
        now_ms: int,
    ) -> list[int]:
        end = last
        if left < last - first + 1:
            wanted_last = first + left - 1
            inside = [batch_last for base, batch_last in fetched.batches if base <= wanted_last <= batch_last]
            end = min([last, *(inside or [wanted_last])])
        starts = [first]
        if not is_exact and end - first + 1 > batch_size:
            for base, _ in fetched.batches:
                if base <= end and base - starts[-1] >= batch_size:
                    starts.append(base)
        was_empty = not self.records
        rest = {o: it for o, it in self.records.items() if o > end and it.is_unfetched and it.bounds[0] <= end}
        for o, it in rest.items():
            it.bounds = (end + 1, it.bounds[1])
            assert o >= it.bounds[0]
        got: list[int] = []
        for at, start in enumerate(starts):
            stop = starts[at + 1] - 1 if at + 1 < len(starts) else end
            for o in range(start, stop + 1):
                self.records[o] = Record((start, stop), AVAILABLE, 0)
                if not (is_exact and len(got) >= left):
                    self._take(self.records[o], member, now_ms)
                    got.append(o)
        if was_empty:
            self.start, self.end = first, end
        self.end = max(self.end, end)
        return got

    def _take(self, record: Record, member: str, now_ms: int) -> None:
        record.state = ACQUIRED
        record.count += 1
        record.member = member
        record.until_ms = now_ms + self.limits.lock_duration_ms
        record.is_unfetched = False

    @staticmethod
    def _set(record: Record, state: RecordState) -> None:
        record.state = state
        record.member = record.token = None
        record.until_ms = record.ready_ms = 0

    def acknowledge(
        self, token: object, member: str, batches: Sequence[AcknowledgementBatch], *, now_ms: int
    ) -> tuple[ErrorCode, dict[int, RecordState]]:
        """The error, and the offsets whose new state is to be written."""
        types: dict[int, int] = {}
        renewed: set[int] = set()
        for batch in batches:
            if batch.last_offset < self.start:
                continue
            firsts = sorted({it.bounds for it in self.records.values()})
            moved = batch.first_offset < self.start <= batch.last_offset
            if not moved and not any(first <= batch.first_offset for first, _ in firsts):
                return ErrorCode.INVALID_RECORD_STATE, {}
            up_to = [last for first, last in firsts if first <= batch.last_offset]
            if not up_to:
                return ErrorCode.INVALID_RECORD_STATE, {}
            if up_to[-1] < batch.last_offset:
                return ErrorCode.INVALID_REQUEST, {}
            for o in range(batch.first_offset, batch.last_offset + 1):
                record = self.records.get(o)
                if record is None:
                    continue
                if record.state is not ACQUIRED or record.member != member or types.get(o, 4) != 4:
                    return ErrorCode.INVALID_RECORD_STATE, {}
                if types.get(o) == 4:
                    renewed.add(o)
                types[o] = batch.types[o - batch.first_offset] if len(batch.types) > 1 else batch.types[0]
        changed = {}
        for o, kind in types.items():
            record = self.records[o]
            if kind == 4 or o in renewed:
                record.until_ms = now_ms + self.limits.lock_duration_ms
            if kind == 4:
                continue
            record.state = changed[o] = {
                0: ARCHIVED,
                1: ACKNOWLEDGED,
                2: self.released(record.count),
                3: self.failed(),
            }[kind]
            record.token = token
        return ErrorCode.NONE, changed

    def released(self, count: int) -> RecordState:
        return self.failed() if count >= self.limits.delivery_count_limit else AVAILABLE

    def failed(self) -> RecordState:
        return ARCHIVING if self.limits.has_dead_letters else ARCHIVED

    def release(self, token: object, member: str) -> dict[int, RecordState]:
        changed = {}
        for o in self.held(member):
            record = self.records[o]
            record.state = changed[o] = self.released(record.count)
            record.token = token
        return changed

    def expire(self, *, now_ms: int) -> dict[int, RecordState]:
        changed = {}
        for o, record in self.records.items():
            if record.state is ACQUIRED and record.until_ms <= now_ms:
                changed[o] = self._come_back(record, now_ms)
            elif 0 < record.ready_ms <= now_ms:
                record.ready_ms = 0
        return changed

    def _come_back(self, record: Record, now_ms: int) -> RecordState:
        self._set(record, self.released(record.count))
        self._keep(record, now_ms)
        return record.state

    def _keep(self, record: Record, now_ms: int) -> None:
        delay_ms = self.limits.release_delay_ms
        if record.state is AVAILABLE and delay_ms:
            record.ready_ms = now_ms + min(delay_ms * 2 ** (record.count - 1), self.limits.max_release_delay_ms)

    def written(self, token: object, *, is_written: bool, now_ms: int) -> dict[int, RecordState]:
        """Returns the other changes to write: locks that have timed out meanwhile."""
        changed = {}
        for o, record in self.records.items():
            if token is None or record.token is not token:
                continue
            if is_written:
                self._set(record, record.state)
                self._keep(record, now_ms)
            else:
                record.token, record.state = None, ACQUIRED
                if record.until_ms <= now_ms:
                    changed[o] = self._come_back(record, now_ms)
        return changed

    def dead_lettered(self, first: int, last: int) -> dict[int, RecordState]:
        changed: dict[int, RecordState] = {}
        for o in range(first, last + 1):
            if o in self.records and self.records[o].state is ARCHIVING and self.records[o].token is None:
                self._set(self.records[o], ARCHIVED)
                changed[o] = ARCHIVED
        return changed

    def move_start(self, offset: int) -> None:
        if offset > self.start:
            for o in [o for o in self.records if o < offset]:
                del self.records[o]
            self.start = offset
            self.advance()

    def advance(self) -> None:
        """Moves the start over records that are done, and over holes."""
        last_done = self.start - 1
        for o in sorted(self.records):
            record = self.records[o]
            if record.state not in DONE or record.token is not None:
                break
            last_done = o
            del self.records[o]
        self.start = max(self.start, last_done + 1)
        if self.records:
            # A hole at the start is passed.
            self.start = max(self.start, min(self.records))
        else:
            self.start = self.end = max(self.start, self.end)

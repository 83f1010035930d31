"""The state of one partition for one share group at its leader, pure (KIP-932, Kafka's SharePartition).

    AVAILABLE --acquire--> ACQUIRED --accept--------------------> ACKNOWLEDGED
        ^                     |------reject, gap----------------> ARCHIVED
        |                     |------reject---> ARCHIVING ------> ARCHIVED      (with a dead-letter topic)
        +--release, time-out--+
                              +------after the last delivery----> ARCHIVED, or ARCHIVING

A member acquires records by a fetch and holds them under a lock, for a limited time. This is not persisted: after a
restart they are available. The end of a delivery is persisted by the share coordinator:

* An acknowledgement or a member's leave *begins* transitions and returns a `Write`. Its records have their new state,
  but can be neither acquired nor acknowledged until the outcome is known. Success ends their locks; failure puts them
  back to ACQUIRED, or, if their lock timed out meanwhile, is handled as a time-out. All batches of an acknowledgement
  are valid, or none takes effect.
* A time-out takes effect at once, and a `Write` reports it. If that fails, this delivery is lost at a restart.

An error for an obsolete leader or state ends the share partition: FENCED. Nothing is acquired or persisted any more.

With a dead-letter topic (KIP-1191) a record that is rejected, or was delivered too often, is ARCHIVING until the driver
reports that it was copied, or that it gives up. Only then ARCHIVED is persisted. ARCHIVING is persisted before the
`DeadLetter` is returned, so that no record is lost or delivered again. After a restart it is doubtful if it was copied
already, and the driver checks. A gap is no record, and not copied.

A released record can be kept for some time before it is available again, see `ShareLimits.release_delay`. The delay
does not survive a restart. Kafka has no such delay.

The start offset follows the log's when that moves (`move_start_offset`). Altered offsets of a group, which may move
back, come with a new state epoch, that is, with a new share partition.

Differences from Kafka 4.3.1, within the rules of KIP-932:

* The start offset never moves back. In Kafka it may, if the log has lost records that are in flight and the next batch
  begins before the remaining ones.
* Records that the log has lost are dropped at once. Kafka keeps acquired ones until their lock ends, and does not move
  the start offset before.
* The start offset passes records that a fetch archives at once, and records that are done where the log begins later.
  Kafka moves it with the next acknowledgement, so a group whose whole window is aborted makes no progress.
* An acknowledgement that fails renews no lock. Kafka keeps the locks that it renewed before it found the error.
* An acknowledgement may begin in a hole of the log. Kafka refuses it if another member holds the records before it.
* Holes of the log between persisted batches are found once. Kafka may deliver their offsets, and search again.
* A failed write of records whose lock has timed out counts as a time-out, and is written. Kafka does not write it.

Times are of the monotonic clock, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.coordinators.deadlines import Deadline, Deadlines
from kwire.share.leader.acknowledgements import AcknowledgementBatch, check
from kwire.share.leader.acquiring import AcquiredRange, Acquiring, Fetched
from kwire.share.leader.counts import SharingCounts
from kwire.share.leader.effects import Acknowledged, DeadLetter, Effect, Ended, StateBatch, Token, Wake, Write
from kwire.share.leader.in_flight import InFlight, InFlightBatch, Lock, Run
from kwire.share.leader.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    AcknowledgeType,
    AcquireMode,
    Cause,
    RecordState,
    ShareLimits,
)


class Status(Enum):
    INITIALIZING = auto()
    ACTIVE = auto()
    FAILED = auto()
    """The persisted state is invalid."""
    FENCED = auto()


class PersistedState(NamedTuple):
    """The state of the share coordinator. The caller replaces a start offset of -1 by share.auto.offset.reset."""

    start_offset: int
    state_epoch: int
    batches: Sequence[StateBatch] = ()
    """The batches in the order of their offsets, none before the start offset."""


@attrs.frozen
class FetchHint:
    """The position of an offset in the log, in the form that the reader of the log stores."""

    offset: int
    position: object


class _Delay(Deadline):
    """Released records that are available again at the deadline."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.first = first
        self.last = last


class _Retry(Deadline):
    """A dead letter whose effect is returned again at the deadline."""

    __slots__ = ("letter",)

    def __init__(self, letter: DeadLetter) -> None:
        super().__init__()
        self.letter = letter


class _Planned(NamedTuple):
    batch: InFlightBatch
    first: int
    last: int
    type: int


_ENDING: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@attrs.define(eq=False)
class SharePartition:
    """Every method that takes `now_ms` must get times that do not go back.

    A driver calls `expire` at `next_deadline_ms()`, which changes with every other call.
    """

    leader_epoch: int
    limits: ShareLimits
    """The limits, which may be set at any time."""
    counts: SharingCounts = attrs.field(factory=SharingCounts)
    """The counters of all share partitions of the broker."""
    status: Status = Status.INITIALIZING
    state_epoch: int = -1
    in_flight: InFlight = attrs.field(factory=lambda: InFlight(0, 0))
    fetch_hint: FetchHint | None = None
    """The position of a fetch offset, set by the driver. Only good for the next one if that has the same offset."""
    _locks: dict[str, dict[Lock, None]] = attrs.field(factory=dict)
    """The locks of each member that holds records."""
    _deadlines: Deadlines = attrs.field(factory=Deadlines)
    _ended_with: ErrorCode = ErrorCode.NONE

    @property
    def start_offset(self) -> int:
        return self.in_flight.start_offset

    @property
    def end_offset(self) -> int:
        return self.in_flight.end_offset

    @property
    def delivery_complete_count(self) -> int:
        return self.in_flight.delivery_complete_count

    @property
    def next_fetch_offset(self) -> int:
        return self.in_flight.next_fetch_offset

    def can_acquire(self) -> bool:
        """True if a fetch could acquire records: those that are available again, or new ones below the limit."""
        if self.status is not Status.ACTIVE:
            return False
        in_flight = self.in_flight
        return (
            in_flight.next_fetch_offset != in_flight.end_offset + 1
            or in_flight.count < self.limits.max_in_flight_records
        )

    def next_deadline_ms(self) -> int | None:
        """Returns the earliest time at which something may be due, and `expire` has to be called; None if never."""
        return self._deadlines.next_deadline_ms() if self.status is Status.ACTIVE else None

    def initialize(self, persisted: PersistedState) -> list[Effect]:
        """Takes over the persisted state, once. Returns the dead letters that are still to be written.

        Raises KafkaError UNKNOWN_SERVER_ERROR if a batch is before the start offset, or overlaps another.
        """
        assert self.status is Status.INITIALIZING
        in_flight = InFlight(persisted.start_offset, persisted.start_offset)
        effects: list[Effect] = []
        known_until = persisted.start_offset
        for first, last, persisted_state, delivery_count in persisted.batches:
            if not known_until <= first <= last:
                self.status = Status.FAILED
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The persisted batch {first}-{last} makes no sense.")
            if first > known_until:
                gap = Run(known_until, first - 1, AVAILABLE, 0)
                in_flight.insert(InFlightBatch(known_until, first - 1, [gap], is_unfetched=True))
            known_until = last + 1
            state = self._restored(persisted_state)
            run = Run(first, last, AVAILABLE, delivery_count)
            in_flight.insert(InFlightBatch(first, last, [run]))
            in_flight.change(run, state)
            if state is ARCHIVING:
                exceeded = delivery_count >= self.limits.delivery_count_limit
                cause = Cause.DELIVERY_COUNT if exceeded else Cause.REJECTED
                effects.append(DeadLetter(first, last, delivery_count, cause, is_doubtful=True))
        in_flight.may_have_available = True
        in_flight.advance()
        self.in_flight = in_flight
        self.state_epoch = persisted.state_epoch
        self.status = Status.ACTIVE
        return effects

    def _restored(self, state: RecordState) -> RecordState:
        if state is ACQUIRED:  # never written; no member would hold the lock
            return AVAILABLE
        if state is ARCHIVING and not self.limits.has_dead_letters:  # the group had a dead-letter topic then
            return ARCHIVED
        return state

    def acquire(
        self,
        member: str,
        fetched: Fetched,
        *,
        max_records: int,
        batch_size: int,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        now_ms: int,
    ) -> list[AcquiredRange]:
        """Acquires the fetched records that a member may have; none if this share partition is not active.

        `max_records` and `batch_size` are those of ShareFetch; `acquiring.py` defines their meaning.
        """
        if self.status is not Status.ACTIVE or max_records <= 0 or not fetched.batches:
            return []
        lock = Lock(member, now_ms + self.limits.lock_duration_ms)
        acquiring = Acquiring(
            self.in_flight, fetched, self.limits, lock, self._unlock, mode, batch_size, left=max_records
        )
        acquiring.run()
        self._hold(lock)
        if acquiring.has_archived:
            self.in_flight.advance()
        return acquiring.acquired

    def acknowledge(
        self,
        token: Token,
        member: str,
        batches: Sequence[AcknowledgementBatch],
        *,
        may_renew: bool = False,
        now_ms: int,
    ) -> list[Effect]:
        """Ends or renews deliveries, as a member requests in ShareFetch or ShareAcknowledge.

        `Acknowledged` comes at once, or after the write, with one of: INVALID_REQUEST (see `acknowledgements.check`;
        and for offsets that were never acquired), INVALID_RECORD_STATE (the member does not hold a record), an error of
        the write.
        """
        if self.status is Status.FENCED:
            return [Acknowledged(token, self._ended_with)]
        error = check(batches, may_renew=may_renew)
        plan: list[_Planned] = []
        if error is ErrorCode.NONE:
            error = self._plan(plan, member, batches)
        if error is not ErrorCode.NONE:
            return [Acknowledged(token, error)]
        renewal = Lock(member, now_ms + self.limits.lock_duration_ms)
        write = self._new_write(token)
        for batch, first, last, kind in plan:
            cause = Cause.REJECTED if kind == AcknowledgeType.REJECT else Cause.DELIVERY_COUNT
            for run in batch.isolate(first, last):
                self.counts.acknowledged[kind] += run.last - run.first + 1
                if kind == AcknowledgeType.RENEW:
                    self._unlock(run)
                    run.lock = renewal
                    renewal.take(run.first, run.last)
                else:
                    self._begin(run, self._acknowledged(kind, run.delivery_count), write, cause)
            batch.join(first, last)
        self._hold(renewal)
        return self._sent(write) or [Acknowledged(token, ErrorCode.NONE)]

    def _plan(self, plan: list[_Planned], member: str, batches: Sequence[AcknowledgementBatch]) -> ErrorCode:
        """Fills the plan with the transitions. Returns an error if the member does not hold the records."""
        start_offset = self.in_flight.start_offset
        done_until = -1
        for acknowledged in batches:
            first, last = acknowledged.first_offset, acknowledged.last_offset
            if last < start_offset:
                continue  # they are archived, so the acknowledgement has no effect
            pieces = self.in_flight.pieces(first, last)
            if (error := self._check_is_known(first, last, pieces)) is not ErrorCode.NONE:
                return error
            for batch, piece_first, piece_last in pieces:
                for run in batch.runs_in(piece_first, piece_last):
                    if run.state is not ACQUIRED or run.lock is None or run.lock.member != member:
                        return ErrorCode.INVALID_RECORD_STATE
            if first == done_until and self.in_flight.pieces(first, first):  # `check` lets batches share one offset
                return ErrorCode.INVALID_RECORD_STATE
            if len(acknowledged.types) == 1 and acknowledged.types[0] != AcknowledgeType.RENEW:
                for batch, piece_first, piece_last in pieces:
                    self._add(plan, batch, piece_first, piece_last, acknowledged.types[0])
                done_until = last
                continue
            for kind_first, kind_last, kind in acknowledged.pieces():
                for batch, piece_first, piece_last in self.in_flight.pieces(kind_first, kind_last):
                    self._add(plan, batch, piece_first, piece_last, kind)
                if kind != AcknowledgeType.RENEW:
                    done_until = kind_last
        return ErrorCode.NONE

    def _check_is_known(self, first: int, last: int, pieces: list[tuple[InFlightBatch, int, int]]) -> ErrorCode:
        """Checks an acknowledgement like Kafka: it must end within a batch, and may begin before the start offset."""
        if len(pieces) == 1 and pieces[0][1:] == (first, last):
            return ErrorCode.NONE
        if not first < self.in_flight.start_offset <= last and self.in_flight.floor(first) is None:
            return ErrorCode.INVALID_RECORD_STATE
        batch = self.in_flight.floor(last)
        if batch is None:
            return ErrorCode.INVALID_RECORD_STATE
        return ErrorCode.INVALID_REQUEST if batch.last < last else ErrorCode.NONE

    @staticmethod
    def _add(plan: list[_Planned], batch: InFlightBatch, first: int, last: int, kind: int) -> None:
        """Adds a step. Adjacent records are joined into one, even if a consumer acknowledges each record separately."""
        if plan:
            before = plan[-1]
            if before.batch is batch and before.last == first - 1 and before.type == kind:
                plan[-1] = _Planned(batch, before.first, last, kind)
                return
        plan.append(_Planned(batch, first, last, kind))

    def _acknowledged(self, kind: int, delivery_count: int) -> RecordState:
        if kind == AcknowledgeType.ACCEPT:
            return ACKNOWLEDGED
        if kind == AcknowledgeType.RELEASE:
            return self._released(delivery_count)
        return self._failed() if kind == AcknowledgeType.REJECT else ARCHIVED

    def _released(self, delivery_count: int) -> RecordState:
        return self._failed() if delivery_count >= self.limits.delivery_count_limit else AVAILABLE

    def _failed(self) -> RecordState:
        return ARCHIVING if self.limits.has_dead_letters else ARCHIVED

    def release(self, token: Token, member: str) -> list[Effect]:
        """A member's session has ended: releases all records that it holds. The token gets its `Acknowledged`.

        A release counts as a delivery. Records whose write is under way are not changed.
        """
        if self.status is not Status.ACTIVE:
            return [Acknowledged(token, self._ended_with)]
        write = self._new_write(token)
        for lock in sorted(self._locks.get(member, ()), key=lambda it: it.first):
            for batch, first, last in self.in_flight.pieces(lock.first, lock.last):
                for run in batch.runs_in(first, last):
                    if run.lock is lock and run.state is ACQUIRED:
                        self._begin(run, self._released(run.delivery_count), write, Cause.DELIVERY_COUNT)
                batch.join(first, last)
        return self._sent(write) or [Acknowledged(token, ErrorCode.NONE)]

    def expire(self, *, now_ms: int) -> list[Effect]:
        """Ends the locks that have timed out, and makes delayed records available."""
        if self.status is not Status.ACTIVE:
            return []
        effects: list[Effect] = []
        write = self._new_write()
        has_more = False
        while (due := self._deadlines.pop_due(now_ms)) is not None:
            if isinstance(due, Lock):
                self._time_out(due, write, now_ms)
            elif isinstance(due, _Delay):
                has_more |= self._end_delay(due, now_ms)
            elif isinstance(due, _Retry):
                effects.extend(self._still_failed(due.letter))
        effects.extend(self._sent(write))
        if has_more or write.batches:
            effects.append(Wake())
        return effects

    def _time_out(self, lock: Lock, write: Write, now_ms: int) -> None:
        for batch, first, last in self.in_flight.pieces(lock.first, lock.last):
            for run in batch.runs_in(first, last):
                if run.lock is lock and run.state is ACQUIRED:
                    self._come_back(run, write, now_ms)
            batch.join(first, last)

    def _come_back(self, run: Run, write: Write, now_ms: int) -> None:
        """Releases records whose lock has timed out."""
        self.counts.timed_out += run.last - run.first + 1
        self._unlock(run)
        self.in_flight.change(run, self._released(run.delivery_count))
        self._persist(run, write, Cause.DELIVERY_COUNT)
        if run.state is AVAILABLE:
            self._offer(run, now_ms)

    def _end_delay(self, delay: _Delay, now_ms: int) -> bool:
        has_ended = False
        for batch, first, last in self.in_flight.pieces(delay.first, delay.last):
            for run in batch.runs_in(first, last):
                if 0 < run.ready_ms <= now_ms:
                    run.ready_ms = 0
                    has_ended = True
            batch.join(first, last)
        self.in_flight.may_have_available |= has_ended
        return has_ended

    def move_start_offset(self, log_start_offset: int) -> list[Effect]:
        """Drops records that the log does not have any more. It is persisted with the next write. Never moves back."""
        if log_start_offset <= self.in_flight.start_offset:
            return []
        for run in self.in_flight.move_start(log_start_offset):
            self._unlock(run)
        self.in_flight.advance()  # It was held up by a record that is gone now.
        return [Wake()] if self.status is Status.ACTIVE else []

    def written(self, write: Write, error: ErrorCode, *, now_ms: int) -> list[Effect]:
        """The outcome of a write, with the share coordinator's error."""
        effects: list[Effect] = []
        if error in _ENDING and self.status is Status.ACTIVE:
            self.status = Status.FENCED
            self._ended_with = client_error(error)
            effects.append(Ended(self._ended_with))
        may_have_available = False
        if write.token is not None:
            again = self._new_write()
            for first, last, _, _ in write.batches:
                for batch, low, high in self.in_flight.pieces(first, last):
                    for run in batch.runs_in(low, high):
                        if run.write is write:
                            self._complete(run, again, is_written=error is ErrorCode.NONE, now_ms=now_ms)
                            may_have_available |= run.may_be_acquired
                    batch.join(low, high)
            effects.extend(self._sent(again))
        if error is ErrorCode.NONE or write.token is None:
            for letter in write.letters:
                effects.extend(self._still_failed(letter))
        if write.token is not None:
            effects.append(Acknowledged(write.token, client_error(error)))
        has_moved = (error is ErrorCode.NONE or write.token is None) and self.in_flight.advance()
        if has_moved or may_have_available:
            effects.append(Wake())
        if self.status is Status.FENCED:
            return [it for it in effects if isinstance(it, Acknowledged | Ended)]
        return effects

    def _complete(self, run: Run, again: Write, *, is_written: bool, now_ms: int) -> None:
        lock = run.lock
        assert lock is not None
        if is_written:
            self._unlock(run)
            if run.state is AVAILABLE:
                self._offer(run, now_ms)
            return
        run.write = None
        self.in_flight.change(run, ACQUIRED)
        if lock.until_ms <= now_ms:
            self._come_back(run, again, now_ms)

    def end(self, error: ErrorCode) -> None:
        """This broker does not lead it any more: nothing is acquired, and acknowledgements get the error.

        Writes under way keep their own outcome.
        """
        if self.status is not Status.FENCED:
            self.status = Status.FENCED
            self._ended_with = error

    def dead_lettered(self, letter: DeadLetter) -> list[Effect]:
        """Archives the records: they are in the dead-letter topic, or the driver has given up to copy them."""
        if self.status is not Status.ACTIVE:
            return []
        write = self._new_write()
        for batch, first, last in self.in_flight.pieces(letter.first_offset, letter.last_offset):
            for run in batch.isolate(first, last):
                if run.state is ARCHIVING and run.write is None:
                    self.in_flight.change(run, ARCHIVED)
                    self._persist(run, write, letter.cause)
            batch.join(first, last)
        return self._sent(write)

    def dead_letter_failed(self, letter: DeadLetter, *, retry_at_ms: int) -> list[Effect]:
        """Returns the dead letter again at this time, if its records are still in flight."""
        self._deadlines.schedule(_Retry(letter), retry_at_ms)
        return []

    def _still_failed(self, letter: DeadLetter) -> list[DeadLetter]:
        """Returns the part of the letter that the log still has."""
        first: int | None = None
        for batch, low, high in self.in_flight.pieces(letter.first_offset, letter.last_offset):
            for run in batch.runs_in(low, high):
                if first is None and run.state is ARCHIVING:
                    first = max(run.first, low)
        return [] if first is None else [attrs.evolve(letter, first_offset=first)]

    def _begin(self, run: Run, state: RecordState, write: Write, cause: Cause) -> None:
        """A transition that is undone if it cannot be written. The run keeps its lock until then."""
        self.in_flight.change(run, state)
        run.write = write
        self._persist(run, write, cause)

    @staticmethod
    def _persist(run: Run, write: Write, cause: Cause) -> None:
        write.add(run.first, run.last, run.state, run.delivery_count)
        if run.state is ARCHIVING:
            write.letters.append(DeadLetter(run.first, run.last, run.delivery_count, cause))

    def _offer(self, run: Run, now_ms: int) -> None:
        delay_ms = self.limits.release_delay(run.delivery_count)
        if delay_ms == 0:
            self.in_flight.may_have_available = True
            return
        run.ready_ms = now_ms + delay_ms
        self._deadlines.schedule(_Delay(run.first, run.last), run.ready_ms)

    def _new_write(self, token: Token | None = None) -> Write:
        return Write(self.state_epoch, self.leader_epoch, token=token)

    def _sent(self, write: Write) -> list[Effect]:
        if not write.batches:
            return []
        write.start_offset = self.in_flight.start_offset
        write.delivery_complete_count = self.in_flight.delivery_complete_count
        return [write]

    def _hold(self, lock: Lock) -> None:
        if lock.held:
            self._locks.setdefault(lock.member, {})[lock] = None
            self._deadlines.schedule(lock, lock.until_ms)

    def _unlock(self, run: Run) -> None:
        """Takes the run out of its lock, which ends with its last record."""
        lock = run.lock
        assert lock is not None
        run.lock = run.write = None
        lock.held -= run.last - run.first + 1
        if lock.held == 0:
            self._deadlines.cancel(lock)
            locks = self._locks.get(lock.member)
            if locks is not None:
                locks.pop(lock, None)
                if not locks:
                    del self._locks[lock.member]


def client_error(error: ErrorCode) -> ErrorCode:
    """Returns the client's error for a share coordinator's error, translated like Kafka's SharePartition."""
    match error:
        case ErrorCode.NONE | ErrorCode.GROUP_ID_NOT_FOUND | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return error
        case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.FENCED_LEADER_EPOCH | ErrorCode.FENCED_STATE_EPOCH | ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR

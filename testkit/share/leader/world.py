"""A share partition in a world that goes wrong: members, a log, a persister that fails, a dead-letter topic, restarts.

Every step is done to the share partition and to the slow model, and then they are compared, offset by offset. The world
also remembers what consumers were promised: what is acknowledged does not come back, and what is not is not lost.

Steps take their choices from a `Picker`: a seed's or hypothesis's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.share.leader.acknowledgements import AcknowledgementBatch
from kwire.share.leader.acquiring import Fetched
from kwire.share.leader.effects import Acknowledged, DeadLetter, Effect, Ended, StateBatch, Wake, Write
from kwire.share.leader.in_flight import Lock
from kwire.share.leader.share_partition import PersistedState, SharePartition, Status
from kwire.share.leader.states import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    AcquireMode,
    RecordState,
    ShareLimits,
)
from testkit.share.leader.slow_model import DONE, SlowModel

LEADER_EPOCH = 3
MEMBERS = ("a", "b", "c")
T = TypeVar("T")


class Picker(Protocol):
    def below(self, count: int) -> int:
        """Returns one of 0, 1, ... count - 1."""


@attrs.define
class Seeded:
    chance: random.Random

    def below(self, count: int) -> int:
        return self.chance.randrange(count)


@attrs.define(eq=False)
class Request:
    """A token: one request, to be answered once."""

    member: str
    offsets: dict[int, int]
    """The offsets with the type of their acknowledgement; 2 also for a release."""
    answer: ErrorCode | None = None


@attrs.define(eq=False)
class Sent:
    write: Write
    is_applied: bool = False
    outcome: ErrorCode | None = None
    """None as long as the persister has not come to it."""


@attrs.define
class Persister:
    """The share coordinator's state of this partition. Applies writes in their order."""

    start: int = 0
    state_epoch: int = 7
    states: dict[int, tuple[RecordState, int]] = attrs.field(factory=dict)

    def apply(self, write: Write) -> None:
        for first, last, state, count in write.batches:
            for offset in range(first, last + 1):
                self.states[offset] = (state, count)
        self.start = max(self.start, write.start_offset)
        self.states = {offset: it for offset, it in self.states.items() if offset >= self.start}

    def read(self) -> PersistedState:
        batches: list[StateBatch] = []
        for offset in sorted(self.states):
            state, count = self.states[offset]
            if batches and batches[-1].last_offset == offset - 1 and batches[-1][2:] == (state, count):
                batches[-1] = batches[-1]._replace(last_offset=offset)
            else:
                batches.append(StateBatch(offset, offset, state, count))
        return PersistedState(self.start, self.state_epoch, batches)


LIMITS = (
    ShareLimits(20, 5, 100),
    ShareLimits(12, 2, 100, has_dead_letters=True),
    ShareLimits(30, 4, 50, release_delay_ms=10, max_release_delay_ms=35),
    ShareLimits(30, 6, 80, release_delay_ms=20, max_release_delay_ms=200, has_dead_letters=True),
    ShareLimits(8, 3, 100),
)


class World:
    def __init__(
        self,
        pick: Picker,
        *,
        limits: Sequence[ShareLimits] = LIMITS,
        make: Callable[[ShareLimits], SharePartition] = lambda limits: SharePartition(LEADER_EPOCH, limits),
        is_tidy: bool = False,
    ) -> None:
        """A tidy world has a log without holes and without aborted records."""
        self.pick = pick
        self.make = make
        self.is_tidy = is_tidy
        self.now_ms = 1000
        self.limits = self.of(limits)
        self.log: list[tuple[int, int]] = []
        self.log_start = 0
        self.log_end = 0
        self.unwanted: set[int] = set()
        """Base offsets of aborted batches and of control batches."""
        self.persister = Persister()
        self.sent: list[Sent] = []
        self.letters: list[DeadLetter] = []
        self.delivered: dict[int, int] = {}
        self.accepted: set[int] = set()
        """The offsets whose acknowledgement was confirmed to a member."""
        self.excused: set[int] = set()
        """Offsets that need no more delivery: a member tried to accept them or reported a gap, or the log lost them."""
        self.failed: set[int] = set()
        """The offsets that were rejected, or delivered too often."""
        self.copied: set[int] = set()
        """The offsets that were copied to the dead-letter topic, or given up."""
        self.furthest_start = 0
        self.partition = make(self.limits)
        self.append()
        self.model = SlowModel.restored(self.limits, 0, ())
        self._carry_out(self.partition.initialize(self.persister.read()))
        self.compare()

    # Choices.

    def of(self, choices: Sequence[T]) -> T:
        return choices[self.pick.below(len(choices))]

    def happens(self, one_in: int) -> bool:
        return self.pick.below(one_in) == 0

    # The outside.

    def append(self) -> None:
        for _ in range(1 + self.pick.below(4)):
            size = self.of((1, 1, 3, 5, 10))
            if not self.is_tidy and self.happens(8):
                self.log_end += 1 + self.pick.below(3)  # a hole
            if not self.is_tidy and self.happens(6):
                self.unwanted.add(self.log_end)
            self.log.append((self.log_end, self.log_end + size - 1))
            self.log_end += size

    def compact(self) -> None:
        """Takes a whole batch away, but not the last one."""
        if len(self.log) > 1:
            first, last = self.log.pop(self.pick.below(len(self.log) - 1))
            self.excused.update(range(first, last + 1))

    def trim(self) -> None:
        """Retention: the log begins later."""
        if len(self.log) > 2:
            first, last = self.log[1]
            self.log_start = self.of((first, last))
            self.log = [it for it in self.log if it[1] >= self.log_start]
            self.excused.update(range(self.log_start))
            self._carry_out(self.partition.move_start_offset(self.log_start))
            self.model.move_start(self.log_start)
            self.compare()

    def change_limits(self) -> None:
        """Changes the limits that may change while records are in flight; not whether failures are kept."""
        self.limits = attrs.evolve(
            self.limits,
            max_in_flight_records=self.of((6, 12, 30)),
            delivery_count_limit=self.of((2, 3, 5, 8)),
            lock_duration_ms=self.of((30, 100)),
        )
        self.partition.limits = self.model.limits = self.limits

    # What members do.

    def fetch(self) -> None:
        if not self.partition.can_acquire():
            assert self.partition.next_fetch_offset == self.model.next_fetch_offset
            return
        fetch_offset = self.partition.next_fetch_offset
        batches = [it for it in self.log if it[1] >= fetch_offset][: 1 + self.pick.below(4)]
        if not batches:
            return
        archive = [it for it in batches if it[0] in self.unwanted]
        fetched = Fetched(fetch_offset, batches, archive)
        member = self.of(MEMBERS)
        how = {
            "max_records": self.of((1, 3, 7, 100)),
            "batch_size": self.of((1, 4, 100)),
        }
        mode = self.of((AcquireMode.BATCH_OPTIMIZED, AcquireMode.RECORD_LIMIT))
        room = self.limits.max_in_flight_records - self.partition.in_flight.count
        end = self.partition.end_offset
        acquired = self.partition.acquire(member, fetched, **how, mode=mode, now_ms=self.now_ms)
        expected = self.model.acquire(member, fetched, **how, mode=mode, now_ms=self.now_ms)
        got = {o: count for first, last, count in acquired for o in range(first, last + 1)}
        assert got == expected, (fetched, how, mode, got, expected)
        assert [it.first_offset for it in acquired] == sorted(it.first_offset for it in acquired)
        if mode is AcquireMode.RECORD_LIMIT:
            assert len(got) <= how["max_records"]
        new = [o for o in got if o > end]
        if new:
            assert room > 0, "new records beyond the limit"
            last_batch = next(it for it in batches if it[1] >= min(new) + room - 1 or it is batches[-1])
            most = self.limits.max_in_flight_records + last_batch[1] - last_batch[0] + min(new) - end - 1
            assert self.partition.in_flight.count <= most, "more than one batch beyond the limit"
        for offset in got:
            assert offset not in self.accepted, f"{offset} was acknowledged, and comes back"
            self.delivered[offset] = self.delivered.get(offset, 0) + 1
        self.excused.update(o for first, last in archive for o in range(first, last + 1))
        self.compare()

    def acknowledge(self) -> None:
        member = self.of(MEMBERS)
        held = self.model.held(member)
        if not held:
            return
        self._acknowledge(member, list(self._batches(held)))

    def acknowledge_each(self) -> None:
        """Acknowledges in one batch for each record."""
        member = self.of(MEMBERS)
        held = self.model.held(member)[: 1 + self.pick.below(12)]
        if held:
            kind = self.of((1, 1, 1, 2, 3))
            self._acknowledge(member, [AcknowledgementBatch(o, o, [kind]) for o in held])

    def acknowledge_wrongly(self) -> None:
        """Any offsets at all."""
        first = max(0, self.partition.start_offset - 3 + self.pick.below(12))
        last = first + self.pick.below(8)
        batches = [AcknowledgementBatch(first, last, [self.of((0, 1, 2, 3, 4))])]
        if self.happens(2):
            batches.append(AcknowledgementBatch(last + self.pick.below(2), last + 2, [self.of((1, 4))]))
        self._acknowledge(self.of(MEMBERS), batches)

    def _batches(self, held: Sequence[int]) -> Iterable[AcknowledgementBatch]:
        """Some of what is held, in batches of neighbours."""
        begin = self.pick.below(len(held))
        offsets = held[begin : begin + 1 + self.pick.below(12)]
        first = offsets[0]
        for at, offset in enumerate(offsets):
            is_last = at == len(offsets) - 1
            if is_last or offsets[at + 1] != offset + 1 or self.happens(5):
                count = offset - first + 1
                types = [self.of((1, 1, 1, 2, 3, 0, 4))] if self.happens(2) else self._types(count)
                yield AcknowledgementBatch(first, offset, types)
                first = offset if is_last else offsets[at + 1]

    def _types(self, count: int) -> list[int]:
        return [self.of((0, 1, 2, 3, 4)) for _ in range(count)]

    def _acknowledge(self, member: str, batches: list[AcknowledgementBatch]) -> None:
        request = Request(member, {})
        effects = self.partition.acknowledge(request, member, batches, may_renew=True, now_ms=self.now_ms)
        error, changed = self.model.acknowledge(request, member, batches, now_ms=self.now_ms)
        for batch in batches:
            for o in range(batch.first_offset, batch.last_offset + 1):
                if o in changed:
                    one = len(batch.types) == 1
                    request.offsets[o] = batch.types[0 if one else o - batch.first_offset]
        self._follow(request, effects, error, changed)

    def release(self) -> None:
        request = Request(self.of(MEMBERS), {})
        effects = self.partition.release(request, request.member)
        changed = self.model.release(request, request.member)
        request.offsets = dict.fromkeys(changed, 2)
        self._follow(request, effects, ErrorCode.NONE, changed)

    def _follow(
        self, request: Request, effects: list[Effect], error: ErrorCode, changed: Mapping[int, RecordState]
    ) -> None:
        for o, kind in request.offsets.items():
            if kind in (0, 1):
                self.excused.add(o)
            elif changed[o] is not AVAILABLE:
                self.failed.add(o)
        writes = self._carry_out(effects)
        if changed:
            self._is_right(writes, changed)
            assert request.answer is None
        else:
            assert not writes
            assert request.answer is error, (request.answer, error)
        self.compare()

    # What time, the persister and the dead-letter topic do.

    def wait(self) -> None:
        self.now_ms += self.of((1, 10, 40, 120))
        deadline_ms = self.partition.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            self._expire()

    def _expire(self) -> None:
        effects = self.partition.expire(now_ms=self.now_ms)
        changed = self.model.expire(now_ms=self.now_ms)
        self.failed.update(o for o, state in changed.items() if state is not AVAILABLE)
        self._is_right(self._carry_out(effects), changed)
        self.compare()

    def persist(self, *, may_fail: bool = True) -> None:
        """Lets the persister perform the next write; its response comes later."""
        sent = next((it for it in self.sent if it.outcome is None), None)
        if sent is None:
            return
        sent.outcome, sent.is_applied = ErrorCode.NONE, True
        if may_fail and self.happens(4):
            sent.outcome = self.of((ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR))
            sent.is_applied = self.happens(2)  # the answer was lost
        if sent.is_applied:
            self._persist(sent.write)

    def _persist(self, write: Write) -> None:
        self.persister.apply(write)
        for first, last, state, _ in write.batches:
            for o in range(first, last + 1):
                if state is ARCHIVED and self.limits.has_dead_letters:
                    assert o in self.copied or o in self.excused, f"{o} is archived, and not in the dead-letter topic"
        self._keeps_promises()

    def hear(self) -> None:
        """The outcome of any write that the persister has come to."""
        known = [it for it in self.sent if it.outcome is not None]
        if not known:
            return
        sent = self.of(known)
        self.sent.remove(sent)
        assert sent.outcome is not None
        token = sent.write.token
        effects = self.partition.written(sent.write, sent.outcome, now_ms=self.now_ms)
        is_written = sent.outcome is ErrorCode.NONE
        again = self.model.written(token, is_written=is_written, now_ms=self.now_ms)
        self.failed.update(o for o, state in again.items() if state is not AVAILABLE)
        if is_written or token is None:
            self.model.advance()
        self._is_right(self._carry_out(effects), again)
        if isinstance(token, Request):
            assert token.answer is sent.outcome, (token.answer, sent.outcome)
            if is_written:
                self.accepted.update(o for o, kind in token.offsets.items() if kind == 1)
        self.compare()

    def copy_letter(self) -> None:
        if not self.letters:
            return
        letter = self.letters.pop(self.pick.below(len(self.letters)))
        if self.happens(3):
            self._carry_out(self.partition.dead_letter_failed(letter, retry_at_ms=self.now_ms + 30))
            self.compare()
            return
        self.copied.update(range(letter.first_offset, letter.last_offset + 1))
        effects = self.partition.dead_lettered(letter)
        changed = self.model.dead_lettered(letter.first_offset, letter.last_offset)
        self._is_right(self._carry_out(effects), changed)
        self.compare()

    def restart(self) -> None:
        """Writes that are under way may still arrive, in their order; their answers do not."""
        for sent in self.sent:
            if sent.outcome is None and self.happens(2):
                self._persist(sent.write)
        self.sent.clear()
        self.letters.clear()
        self._read_again()

    def fence(self) -> None:
        """Another leader, or altered offsets: the next write is refused, and the share partition ends."""
        sent = next((it for it in self.sent if it.outcome is None), None)
        if sent is None:
            return
        self.sent.remove(sent)
        error = self.of((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND))
        effects = self.partition.written(sent.write, error, now_ms=self.now_ms)
        assert any(isinstance(it, Ended) for it in effects)
        assert self.partition.status is Status.FENCED
        assert not any(isinstance(it, Write | DeadLetter) for it in effects)
        self._carry_out(effects)
        assert self.partition.acquire("a", Fetched(0, [(0, 1)]), max_records=9, batch_size=9, now_ms=self.now_ms) == []
        assert self.partition.next_deadline_ms() is None
        for late in self.sent:
            late_effects = self.partition.written(late.write, ErrorCode.NONE, now_ms=self.now_ms)
            assert all(isinstance(it, Acknowledged) for it in late_effects)
            self._carry_out(late_effects)
        for it in [sent, *self.sent]:
            if isinstance(it.write.token, Request):
                assert it.write.token.answer is not None, "a request waits for ever"
        self.sent.clear()
        self.letters.clear()
        self._read_again()

    def _read_again(self) -> None:
        persisted = self.persister.read()
        self._keeps_promises()
        self.partition = self.make(self.limits)
        self.furthest_start = persisted.start_offset
        self.model = SlowModel.restored(self.limits, persisted.start_offset, persisted.batches)
        self._carry_out(self.partition.initialize(persisted))
        archiving = {o for o, it in self.model.records.items() if it.state is ARCHIVING}
        assert archiving <= {o for it in self.letters for o in range(it.first_offset, it.last_offset + 1)}
        self.compare()
        if self.log_start > self.partition.start_offset:
            self._carry_out(self.partition.move_start_offset(self.log_start))
            self.model.move_start(self.log_start)
            self.compare()

    # What must be true.

    def _carry_out(self, effects: Iterable[Effect]) -> list[Write]:
        writes = []
        for effect in effects:
            match effect:
                case Write():
                    assert effect.state_epoch == self.persister.state_epoch
                    assert effect.leader_epoch == LEADER_EPOCH
                    self.sent.append(Sent(effect))
                    writes.append(effect)
                case Acknowledged(token=Request() as request):
                    assert request.answer is None, "answered twice"
                    request.answer = effect.error
                case DeadLetter():
                    for o in range(effect.first_offset, effect.last_offset + 1):
                        record = self.model.records[o]
                        assert record.state is ARCHIVING
                        assert record.token is None, f"{o} is copied before that is persisted"
                        assert record.count == effect.delivery_count
                    self.letters.append(effect)
                case Wake() | Ended():
                    pass
                case _:
                    raise AssertionError(effect)
        return writes

    def _is_right(self, writes: list[Write], changed: Mapping[int, RecordState]) -> None:
        """Checks that one write has all changes, nothing else, and the present start offset."""
        assert len(writes) == (1 if changed else 0)
        for write in writes:
            written = {o: state for first, last, state, _ in write.batches for o in range(first, last + 1)}
            assert written == changed
            counts = {o: count for first, last, _, count in write.batches for o in range(first, last + 1)}
            for o in changed:
                if o in self.model.records and self.model.records[o].state not in DONE:
                    assert counts[o] == self.model.records[o].count
            assert self.furthest_start <= write.start_offset <= self.partition.start_offset

    def _keeps_promises(self) -> None:
        persisted = self.persister
        done = set(range(persisted.start)) | {o for o, (state, _) in persisted.states.items() if state in DONE}
        for o in self.accepted:
            assert o in done, f"{o} was acknowledged, and would come back after a restart"
        exists = {o for first, last in self.log for o in range(first, last + 1)}
        for o in done & exists:
            is_failed = o in (self.copied if self.limits.has_dead_letters else self.failed)
            assert o in self.accepted or o in self.excused or is_failed, f"{o} would be lost by a restart"

    def compare(self) -> None:
        partition, model = self.partition, self.model
        in_flight = partition.in_flight
        seen = {}
        held: dict[Lock, int] = {}
        previous_last = -1
        for batch in in_flight.batches:
            assert batch.first > previous_last
            previous_last = batch.last
            assert batch.runs
            assert batch.runs[0].first == max(batch.first, in_flight.start_offset)
            assert batch.runs[-1].last == batch.last
            before = None
            for run in batch.runs:
                assert run.first <= run.last
                if before is not None:
                    assert run.first == before.last + 1
                    assert not run.goes_on(before), "neighbours in equal state are one run"
                before = run
                if run.lock is not None:
                    held[run.lock] = held.get(run.lock, 0) + run.last - run.first + 1
                    assert run.lock.first <= run.first <= run.last <= run.lock.last
                assert (run.state is ACQUIRED) == (run.lock is not None and run.write is None)
                for o in range(run.first, run.last + 1):
                    seen[o] = (
                        (batch.first, batch.last),
                        run.state,
                        run.lock.member if run.lock is not None else None,
                        run.lock.until_ms if run.lock is not None else 0,
                        run.write.token if run.write is not None else None,
                        run.ready_ms,
                        -1 if run.is_done and run.write is None else run.delivery_count,
                    )
        expected = {
            o: (
                it.bounds,
                it.state,
                it.member,
                it.until_ms,
                it.token,
                it.ready_ms,
                it.count_that_matters,
            )
            for o, it in model.records.items()
        }
        assert seen == expected
        assert all(lock.held == count for lock, count in held.items())
        assert {lock for locks in partition._locks.values() for lock in locks} == set(held)
        assert (partition.start_offset, partition.end_offset) == (model.start, model.end)
        assert partition.delivery_complete_count == model.complete
        assert partition.next_fetch_offset == model.next_fetch_offset
        assert in_flight.count == model.count
        assert partition.start_offset >= self.furthest_start, "the start offset went back"
        self.furthest_start = partition.start_offset
        due = [it.until_ms for it in model.records.values() if it.state is ACQUIRED]
        due += [it.ready_ms for it in model.records.values() if it.ready_ms]
        deadline_ms = partition.next_deadline_ms()
        if due:
            assert deadline_ms is not None
            assert deadline_ms <= min(due)
        if deadline_ms is not None and deadline_ms > self.now_ms:
            assert not any(it <= self.now_ms for it in due)

    def settle(self) -> None:
        """Nothing goes wrong any more: everything is delivered at least once, or excused, and the group is through."""
        self.limits = attrs.evolve(self.limits, max_in_flight_records=30)
        self.partition.limits = self.model.limits = self.limits
        for _ in range(60 + 12 * self.log_end):
            while self.sent:
                self.persist(may_fail=False)
                self.hear()
            while self.letters:
                self.copy_letter()
            if self.log and self.partition.start_offset > self.log[-1][1] and not self.sent:
                break
            for member in MEMBERS:
                held = self.model.held(member)
                if held:
                    self._acknowledge(member, [AcknowledgementBatch(o, o, [1]) for o in held])
            self.now_ms += 50
            deadline_ms = self.partition.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                self._expire()
            self.fetch()
        assert self.partition.start_offset > self.log[-1][1], "it does not come to an end"
        exists = {o for first, last in self.log for o in range(first, last + 1)}
        for o in exists:
            assert o in self.delivered or o in self.excused, f"{o} was never delivered"
            assert o in self.accepted or o in self.excused or o in self.failed, f"{o} is done by nobody"
            if o in self.failed and self.limits.has_dead_letters and o not in self.accepted | self.excused:
                assert o in self.copied, f"{o} never came to the dead-letter topic"

    STEPS: tuple[Callable[[World], None], ...] = ()


World.STEPS = (
    *[World.fetch] * 16,
    *[World.acknowledge] * 14,
    *[World.acknowledge_each] * 4,
    *[World.acknowledge_wrongly] * 2,
    *[World.release] * 2,
    *[World.wait] * 6,
    *[World.persist] * 10,
    *[World.hear] * 8,
    *[World.copy_letter] * 4,
    *[World.append] * 6,
    World.compact,
    World.trim,
    World.change_limits,
    World.restart,
    World.fence,
)


def live(seed: int, *, steps: int = 120) -> None:
    """Runs one world of a seed. Raises AssertionError, or another error, if a promise is not kept."""
    pick = Seeded(random.Random(seed))
    world = World(pick)
    for _ in range(steps):
        world.of(World.STEPS)(world)
    world.settle()

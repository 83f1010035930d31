"""Runs a coordinator's shards: appends their records, delivers their replies, and wakes them at their deadlines.

Kafka's `CoordinatorRuntime`. The hash of a name (of a group, for example) selects a partition of the coordinator's
internal topic. That partition stores the state, and each has its own state machine, a shard. A shard is loaded when
this node leads the partition: at start, or when the first request finds that the topic exists; `loading.py` has its
states. Only FindCoordinator creates the topic. Before that, any other request is answered with NOT_COORDINATOR, as in
Kafka.

One task sleeps until the earliest deadline of all shards; a request that sets an earlier deadline wakes it. Another
task loads shards, in slices.

**Deadlines come before requests.** Looking up a shard for a request first carries out what is due in it, and returns
the time until which that is done: the request is performed at that time (`find`, `all_shards`, `for_each`). So the
records of an expiry come before those of the request, even if the task wakes up late. If the records of an expiry
cannot be appended, nothing has changed, and the request is performed on the old state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.errors import CorruptLogError

from kwire.coordinators.durations import Durations
from kwire.coordinators.effects import Append, Effect, Now, Reply, lasts, response_error
from kwire.coordinators.internal_topic import InternalTopic
from kwire.coordinators.loading import (
    AT_ONCE_MS,
    SLICE_MS,
    Active,
    Elsewhere,
    Load,
    Loading,
    S,
    Slice,
    State,
    Unavailable,
    Unloading,
)
from kwire.coordinators.timekeeper import Timekeeper
from kwire.replicas.roles import NO_LEADER
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future
from kwire.runtime.garbage import lasting

log = logging.getLogger(__name__)

Response = TypeVar("Response")

MAX_REMEMBERED_NAME_LENGTH = 256
"""Hashes of longer names are not cached, so that such names cannot fill the memory."""

_NOT_LED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH})
"""The errors of an append if this node does not lead the partition, or not in the epoch that was loaded."""


def java_hash(text: str) -> int:
    """The absolute value of Java's String.hashCode, as in Kafka (0 for Integer.MIN_VALUE, which has none)."""
    return _java_hash(text) if len(text) <= MAX_REMEMBERED_NAME_LENGTH else _java_hash.__wrapped__(text)


@lru_cache(maxsize=4_096)
def _java_hash(text: str) -> int:
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code if code < 1 << 31 else ((1 << 32) - code) & 0x7FFFFFFF


def _no_other(_index: int, effect: Effect) -> list[Effect]:
    raise AssertionError(f"no handler for {effect}")


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic. Raises KafkaError if there is no coordinator for a name.

    `what` names what they coordinate, for log lines. `make_shard` creates the empty shard of a partition. `do_other`
    carries out the effects that only this coordinator has, and returns the effects that follow.
    """

    def __init__(
        self,
        topic: InternalTopic,
        clock: Clock,
        what: str,
        make_shard: Callable[[int], S],
        do_other: Callable[[int, Effect], Iterable[Effect]] = _no_other,
    ) -> None:
        self.topic = topic
        self.clock = clock
        self._what = what
        self._make_shard = make_shard
        self._do_other = do_other
        self._states: list[State[S]] = []
        """The state of each partition. Empty while the topic does not exist, or before the first request."""
        self._refusing: dict[int, int | None] = {}
        """The partitions that refused the last append -> the monotonic time since which they refuse all records, or
        None if they refused only that one."""
        self._time = Timekeeper(clock)
        self.now = self._time.now
        """Returns the time of the shards. A request uses the time that is returned with its shard instead."""
        self._to_load = trio.Event()
        self.load_times = Durations()

    def start(self) -> None:
        """Begins to load the shards. Call it once, when their effects can be carried out.

        Shards that load quickly are active when this returns; `run` loads the rest.
        """
        if self.topic.exists:
            self._begin_all()

    async def coordinator_of(self, name: str) -> int:
        """The node that leads the partition of the name; the topic is created if it does not exist.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE).
        """
        index = await self.partition_of(name)
        leader_id = self.topic.role(index).leader_id
        is_unreadable = isinstance(self._state(index), Unavailable) or self.topic.is_offline(index)
        if is_unreadable and leader_id in (NO_LEADER, self.topic.partitions.node_id):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic.name}-{index} cannot be read")
        return leader_id

    async def partition_of(self, name: str) -> int:
        """The partition of the name; the topic is created if it does not exist.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE).
        """
        await self.topic.ensure()
        return java_hash(name) % self.topic.partition_count

    def find(self, name: str) -> tuple[int, S, Now]:
        """The partition of the name, its shard, and the time at which the shard's next call has to be.

        Nothing is due in the shard at that time.

        Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS; NOT_COORDINATOR if the topic does not exist, the partition
        cannot be read, or another node leads it.
        """
        if not self._states:
            if not self.topic.exists:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic.name} does not exist yet")
            self._begin_all()
        index = java_hash(name) % len(self._states)
        state = self._states[index]
        now = self.now()
        if type(state) is Active:
            deadline_ms = state.shard.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now.monotonic_ms:
                return index, state.shard, now
            self._expire_due(index, now)
            state = self._states[index]  # an append may have detected that another node leads
            if type(state) is Active:
                return index, state.shard, now
        if isinstance(state, Loading):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic.name}-{index} is being loaded")
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic.name}-{index} is not coordinated here")

    def shard_at(self, index: int) -> S | None:
        """The shard of a partition; None if it is not active here."""
        try:
            state = self._states[index]
        except IndexError:
            return None
        return state.shard if type(state) is Active else None

    def is_loading(self, index: int) -> bool:
        return isinstance(self._state(index), Loading)

    def states(self) -> Sequence[State[S]]:
        """The states of all partitions, by index. Empty while the topic does not exist, or before the first request."""
        return self._states

    def in_service(self) -> list[tuple[int, S]]:
        """The partitions with an active coordinator, and their shards."""
        return [(index, state.shard) for index, state in enumerate(self._states) if isinstance(state, Active)]

    def all_shards(self) -> tuple[list[S], Now]:
        """Every shard of this node, and the time of the next call; nothing is due at that time.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while one is being loaded.
        """
        if any(isinstance(state, Loading) for state in self._states):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic.name} is being loaded")
        now = self.now()
        for index, _ in self.in_service():
            self._expire_due(index, now)
        return [shard for _, shard in self.in_service()], now

    def for_each(self, step: Callable[[S, Now], list[Effect]]) -> None:
        """Calls `step` for every shard, with the time; for a loading shard as soon as it is active."""
        for index, state in enumerate(self._states):
            if isinstance(state, Active):
                now = self.now()
                self._expire_due(index, now)
                self.perform(index, step(state.shard, now))
            elif isinstance(state, Loading):
                state.then.append(step)

    async def run(self) -> None:
        """Loads shards and wakes them at their deadlines, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._load_in_slices)
            await self._time.run(self.settle, self._deadlines_ms)

    def settle(self) -> None:
        """Carries out what is due, and unloads shards where necessary."""
        now = self.now()
        for index, state in enumerate(self._states):
            if isinstance(state, Unloading):
                self._deliver(state.shard.unload(now=now))
                self._begin(index)
            elif isinstance(state, Active):
                self._expire_due(index, now)

    def perform(self, index: int, effects: Iterable[Effect]) -> None:
        """Carries out a shard's effects, and everything that became due by them."""
        self._do(index, effects)
        shard = self.shard_at(index)
        if shard is not None:
            deadline_ms = shard.next_deadline_ms()
            if deadline_ms is not None and deadline_ms < self._time.awaited_ms:
                self._expire_due(index, self.now())
                self._time.wake()

    def deadline_moved(self, shard: S) -> None:
        """Wakes the task that waits for deadlines if the shard has one that is earlier than the awaited one."""
        deadline_ms = shard.next_deadline_ms()
        if deadline_ms is not None and deadline_ms < self._time.awaited_ms:
            self._time.wake()

    def answer(
        self, index: int, effects: Iterable[Effect], future: Future[Response]
    ) -> Response | Coroutine[Future[Any], None, Response]:
        """Carries out the effects. Returns the reply itself if nothing is to wait for; else like `durable`.

        A reply that changes nothing may still rest on records that another node, elected now, would not have. Kafka's
        `CoordinatorRuntime` lets it wait for them too.
        """
        self.perform(index, effects)
        if future.is_set and self.shard_at(index) is not None and self.topic.when_committed(index) is None:
            return future.value
        return self.durable(index, future)

    async def durable(self, index: int, future: Future[Response]) -> Response:
        """Returns the reply once its records are as durable as flush.messages requires. Raises KafkaError."""
        response = await future
        try:
            await self.topic.committed(index)
        except KafkaError as error:
            raise KafkaError(response_error(error.code), error.message) from error
        return response

    # Elections, and ends

    def follow_leader(self, index: int) -> None:
        """Unloads or loads the partition if its leader or leader epoch has changed.

        Waiting requests are answered by `run`, because this may be called in the middle of a shard's step.
        """
        if not self._states:
            # No request has come yet, but the partition may have work that is due without one.
            self._begin_all()
            return
        state, epoch = self._state(index), self.topic.leader_epoch(index)
        if isinstance(state, (Active, Loading)) and state.leader_epoch != epoch:
            self._unload(index)
        elif isinstance(state, Elsewhere) and epoch is not None:
            self._begin(index)

    def forget_topic(self) -> None:
        """The internal topic is deleted: waiting requests get an error, and a new topic begins empty."""
        states, self._states = self._states, []
        for state in states:
            if isinstance(state, (Active, Unloading)):
                self._deliver(state.shard.unload(now=self.now()))

    def forget_partitions(self, indexes: Iterable[int]) -> None:
        """The logs of these partitions are offline: they have no coordinator until the next start.

        Waiting requests are answered by `run`, because this may be called in the middle of a shard's step.
        """
        for index in indexes:
            self._unload(index)

    def _unload(self, index: int) -> None:
        state = self._state(index)
        if isinstance(state, Active):
            self._states[index] = Unloading(state.shard)
            self._refusing.pop(index, None)
            self._time.wake()
        elif isinstance(state, Loading):
            self._begin(index)

    # Loading

    def _state(self, index: int) -> State[S] | None:
        return self._states[index] if index < len(self._states) else None

    def _begin_all(self) -> None:
        self._states = [Elsewhere()] * self.topic.partition_count
        at_once = Slice(self.clock, AT_ONCE_MS)
        for index in range(len(self._states)):
            self._begin(index)
        for index in range(len(self._states)):
            if not self._advance(index, at_once):
                break

    def _begin(self, index: int) -> None:
        """Loads the partition if this node leads it."""
        epoch = self.topic.leader_epoch(index)
        if self.topic.is_offline(index):
            self._states[index] = Unavailable(f"the log dir of {self.topic.name}-{index} is out of service")
        elif epoch is None:
            self._states[index] = Elsewhere()
        else:
            self.topic.watch_markers(index, partial(self._marked, index))
            self._states[index] = Loading(
                epoch, Load(self.topic, index, self._make_shard(index)), self.clock.monotonic_ms()
            )
            self._to_load.set()

    def _advance(self, index: int, time: Slice) -> bool:
        """Continues the partition's load, if it is loading. Returns False if the time is up before the load is done."""
        state = self._state(index)
        if not isinstance(state, Loading):
            return True
        try:
            if not state.load.advance(time.is_over):
                return False
        except (CorruptLogError, OSError) as error:
            log.error("the %s of %s-%d have no coordinator: %s", self._what, self.topic.name, index, error)
            self._states[index] = Unavailable(str(error))
            if isinstance(error, OSError):
                self.topic.unreadable(index, error)
            return True
        shard = state.load.shard
        self._states[index] = Active(state.leader_epoch, shard)
        self.load_times.add(self.clock.monotonic_ms() - state.began_ms)
        self.perform(index, shard.loaded(now=self.now()))
        for step in state.then:
            now = self.now()
            self._expire_due(index, now)
            self.perform(index, step(shard, now))
        return True

    async def _load_in_slices(self) -> None:
        while True:
            await self._to_load.wait()
            self._to_load = trio.Event()
            for index in range(len(self._states)):
                # Only loads that take several slices are large. A broker that is elected for many small partitions,
                # again and again, would otherwise keep all garbage that exists at each of these moments.
                is_large = False
                while self.is_loading(index):
                    with lasting() if is_large else nullcontext():
                        is_large = not self._advance(index, Slice(self.clock, SLICE_MS))
                    await trio.lowlevel.checkpoint()

    def _marked(self, index: int, producer_id: int, committed: bool) -> None:
        """Passes a transaction marker to an active shard. A loading partition reads the marker from the log."""
        shard = self.shard_at(index)
        if shard is not None:
            shard.end_transaction(producer_id, committed=committed)

    # Effects and time

    def _do(self, index: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.token, Future)
                effect.token.set(effect.response)
            elif isinstance(effect, Append):
                error = self._append(index, effect)
                self._do(index, effect.done(error, now=self.now()))
            else:
                self._do(index, self._do_other(index, effect))

    def _append(self, index: int, append: Append) -> ErrorCode:
        state = self._states[index]
        if not isinstance(state, Active):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            append.base_offset = self.topic.append(
                index, append.records, producer=append.producer, leader_epoch=state.leader_epoch
            )
        except KafkaError as error:
            if error.code in _NOT_LED:
                self._unload(index)
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._append_failed(index, error)
            return error.code
        if self._refusing:
            self._append_succeeded(index, state.shard, append)
        return ErrorCode.NONE

    def _append_failed(self, index: int, error: KafkaError) -> None:
        """Logs the error once until an append succeeds, since commits are frequent. A fenced producer is not logged."""
        if lasts(error.code):
            if self._refusing.get(index) is None:
                log.warning(
                    "cannot append to %s-%d: %s; what has to be recorded there is tried again, with growing pauses",
                    self.topic.name,
                    index,
                    error,
                )
                self._refusing[index] = self.clock.monotonic_ms()
        elif index not in self._refusing and error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
            log.warning("cannot append to %s-%d: %s", self.topic.name, index, error)
            self._refusing[index] = None

    def _append_succeeded(self, index: int, shard: S, append: Append) -> None:
        since_ms = self._refusing.get(index)
        if since_ms is None:
            self._refusing.pop(index, None)
        # A full disk takes tombstones only, since they free space: see `InternalTopic.append`.
        elif any(value is not None for _, value in append.records):
            del self._refusing[index]
            lasted_s = (self.clock.monotonic_ms() - since_ms) / 1000
            log.info("can append to %s-%d again, after %.1f s", self.topic.name, index, lasted_s)
            shard.appends_succeed()

    def _expire_due(self, index: int, now: Now) -> None:
        while (
            (shard := self.shard_at(index)) is not None
            and (deadline_ms := shard.next_deadline_ms()) is not None
            and deadline_ms <= now.monotonic_ms
        ):
            self._do(index, shard.expire(now=now))

    def _deliver(self, effects: Iterable[Effect]) -> None:
        """Delivers only the replies of a shard that cannot append any more."""
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.token, Future)
                effect.token.set(effect.response)

    def _deadlines_ms(self) -> Iterator[int | None]:
        return (shard.next_deadline_ms() for _, shard in self.in_service())

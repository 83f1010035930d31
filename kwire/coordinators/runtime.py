"""The driver of a coordinator's machines: appends their records, delivers their replies, wakes them at their deadlines.

Kafka's `CoordinatorRuntime`. What a coordinator knows lives in the partition of its internal topic that the hash of the
name (of a group, say) points to, one machine, a shard, for each. It is loaded when this node leads the partition: at
start, or when the first request finds that the topic is there; `loading.py` has its states. Only looking for a
coordinator creates the topic; any other request before that is told NOT_COORDINATOR, as by Kafka.

One task sleeps until the earliest deadline of all shards; a request that brings an earlier one wakes it. Another one
loads what is to be loaded, a slice at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Generic, TypeVar

import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.errors import CorruptLogError

from kwire.clock import Clock
from kwire.coordinators.effects import Append, Effect, Now, Reply, response_error
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
    lasting,
)
from kwire.waits import Slot

log = logging.getLogger(__name__)

Response = TypeVar("Response")

MAX_REMEMBERED_NAME_LENGTH = 256
"""Hashes of longer names are computed each time, so that they cannot fill the memory."""

_NOT_LED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH})
"""What an append is refused with when the partition is not led, or not in the epoch that was loaded."""


def java_hash(text: str) -> int:
    """Java's String.hashCode without its sign, as Kafka takes it (and 0 for the one value that has no opposite)."""
    return _java_hash(text) if len(text) <= MAX_REMEMBERED_NAME_LENGTH else _java_hash.__wrapped__(text)


@lru_cache(maxsize=4_096)
def _java_hash(text: str) -> int:
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code if code < 1 << 31 else ((1 << 32) - code) & 0x7FFFFFFF


def _no_other(_index: int, effect: Effect) -> list[Effect]:
    raise AssertionError(f"nobody does {effect}")


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic. Raises KafkaError where there is no coordinator for a name.

    `what` is what they coordinate, for the log; `make_shard` makes the machine of a partition that was not replayed
    yet. `do_other` does effects of a kind that only this coordinator has, and returns what follows from it.
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
        """One for each partition; empty as long as the topic is not there, or nobody has asked."""
        self._unwritable: set[int] = set()
        """The partitions that refused the last append."""
        self._sleeps_until_ms: int | None = None
        self._wake = trio.Event()
        self._to_load = trio.Event()

    def now(self) -> Now:
        return Now(self.clock.now_ms(), self.clock.monotonic_ms())

    def start(self) -> None:
        """Begins to load what there is. To be called once, when the shards can do what they ask for.

        What can be loaded quickly is active when this returns; `run` loads the rest.
        """
        if self.topic.exists:
            self._begin_all()

    async def coordinator_of(self, name: str) -> int:
        """The node that leads the partition of the name; the topic is created if it does not exist.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE).
        """
        index = await self.partition_of(name)
        if isinstance(self._state(index), Unavailable) or self.topic.is_offline(index):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic.name}-{index} cannot be read")
        return self.topic.role(index).leader_id

    async def partition_of(self, name: str) -> int:
        """The partition of the name; the topic is created if it does not exist.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE).
        """
        await self.topic.ensure()
        return java_hash(name) % self.topic.partition_count

    def find(self, name: str) -> tuple[int, S]:
        """The partition of the name and its shard.

        Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS; NOT_COORDINATOR where the topic does not exist, the partition
        cannot be read, or another node leads it.
        """
        if not self._states:
            if not self.topic.exists:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic.name} does not exist yet")
            self._begin_all()
        index = java_hash(name) % len(self._states)
        state = self._states[index]
        if type(state) is Active:
            return index, state.shard
        if isinstance(state, Loading):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic.name}-{index} is being loaded")
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic.name}-{index} is not coordinated here")

    def shard_at(self, index: int) -> S | None:
        """The shard of a partition; None when it has no coordinator here, or not yet."""
        states = self._states
        if index >= len(states):
            return None
        state = states[index]
        return state.shard if type(state) is Active else None

    def is_loading(self, index: int) -> bool:
        return isinstance(self._state(index), Loading)

    def in_service(self) -> list[tuple[int, S]]:
        """The partitions that have a coordinator, and their shards."""
        return [(index, state.shard) for index, state in enumerate(self._states) if isinstance(state, Active)]

    def all_shards(self) -> list[S]:
        """Every shard of this node. Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while one is not complete."""
        if any(isinstance(state, Loading) for state in self._states):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic.name} is being loaded")
        return [shard for _, shard in self.in_service()]

    def for_each(self, step: Callable[[S], list[Effect]]) -> None:
        """Takes the step with every shard: with those that are loading as soon as they are active."""
        for index, state in enumerate(self._states):
            if isinstance(state, Active):
                self.perform(index, step(state.shard))
            elif isinstance(state, Loading):
                state.then.append(step)

    async def run(self) -> None:
        """Loads what is to be loaded and wakes the shards at their deadlines, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._load_in_slices)
            while True:
                self.settle()
                self._sleeps_until_ms = self._next_deadline_ms()
                self._wake = trio.Event()
                if self._sleeps_until_ms is None:
                    await self._wake.wait()
                else:
                    with trio.move_on_after(max(0, self._sleeps_until_ms - self.clock.monotonic_ms()) / 1000):
                        await self._wake.wait()

    def settle(self) -> None:
        """Does what is due, and ends what is to be unloaded."""
        for index, state in enumerate(self._states):
            if isinstance(state, Unloading):
                self._deliver(state.shard.unload(now=self.now()))
                self._begin(index)
            else:
                self._expire_due(index)

    def perform(self, index: int, effects: Iterable[Effect]) -> None:
        """Does what a shard asks for, and what has become due by that."""
        self._do(index, effects)
        if self._wants_attention(index):
            self._expire_due(index)
            if self._wants_attention(index):
                self._wake.set()

    def _wants_attention(self, index: int) -> bool:
        """Whether the shard has a deadline before `run` looks again."""
        shard = self.shard_at(index)
        if shard is None:
            return False
        deadline_ms = shard.next_deadline_ms()
        return deadline_ms is not None and (self._sleeps_until_ms is None or deadline_ms < self._sleeps_until_ms)

    async def durable(self, index: int, slot: Slot[Response]) -> Response:
        """The reply, when what it rests on is as durable as the topic's flush.messages asks. Raises KafkaError."""
        response = await slot
        try:
            await self.topic.committed(index)
        except KafkaError as error:
            raise KafkaError(response_error(error.code), error.message) from error
        return response

    # Elections, and ends

    def follow_leader(self, index: int) -> None:
        """The partition's leader, or its epoch, may have changed.

        Whoever waits for an answer gets it from `run`, since this may be called in the middle of a shard's step.
        """
        state, epoch = self._state(index), self.topic.leader_epoch(index)
        if isinstance(state, (Active, Loading)) and state.leader_epoch != epoch:
            self._unload(index)
        elif isinstance(state, Elsewhere) and epoch is not None:
            self._begin(index)

    def forget_topic(self) -> None:
        """The internal topic is deleted: whoever waits is sent elsewhere, and a new topic begins with nothing."""
        states, self._states = self._states, []
        for state in states:
            if isinstance(state, (Active, Unloading)):
                self._deliver(state.shard.unload(now=self.now()))

    def forget_partitions(self, indexes: Iterable[int]) -> None:
        """The logs of these partitions are offline: there is no coordinator for them until the next start.

        Whoever waits for an answer gets it from `run`, since this may be called in the middle of a shard's step.
        """
        for index in indexes:
            self._unload(index)

    def _unload(self, index: int) -> None:
        state = self._state(index)
        if isinstance(state, Active):
            self._states[index] = Unloading(state.shard)
            self._wake.set()
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
            self._states[index] = Loading(epoch, Load(self.topic, index, self._make_shard(index)))
            self._to_load.set()

    def _advance(self, index: int, time: Slice) -> bool:
        """Goes on with the partition's load, if it is loading; False when the time is over before the load is."""
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
        self.perform(index, shard.loaded(now=self.now()))
        for step in state.then:
            self.perform(index, step(shard))
        return True

    async def _load_in_slices(self) -> None:
        while True:
            await self._to_load.wait()
            self._to_load = trio.Event()
            for index in range(len(self._states)):
                while self.is_loading(index):
                    with lasting():
                        self._advance(index, Slice(self.clock, SLICE_MS))
                    await trio.lowlevel.checkpoint()

    def _marked(self, index: int, producer_id: int, committed: bool) -> None:
        """Where the partition is loading, the load comes upon the marker."""
        shard = self.shard_at(index)
        if shard is not None:
            shard.end_transaction(producer_id, committed=committed)

    # Effects and time

    def _do(self, index: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(token, response):
                    assert isinstance(token, Slot)
                    token.set(response)
                case Append():
                    error = self._append(index, effect)
                    self._do(index, effect.done(error, now=self.now()))
                case _:
                    self._do(index, self._do_other(index, effect))

    def _append(self, index: int, append: Append) -> ErrorCode:
        state = self._states[index]
        if not isinstance(state, Active):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            self.topic.append(index, append.records, producer=append.producer, leader_epoch=state.leader_epoch)
        except KafkaError as error:
            if error.code in _NOT_LED:
                self._unload(index)
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            # Once, until it works again: groups commit many times a second. A fenced producer is told, and no fault.
            if index not in self._unwritable and error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                log.warning("cannot append to %s-%d: %s", self.topic.name, index, error)
                self._unwritable.add(index)
            return error.code
        if self._unwritable:
            self._unwritable.discard(index)
        return ErrorCode.NONE

    def _expire_due(self, index: int) -> None:
        now = self.now()
        while (
            (shard := self.shard_at(index)) is not None
            and (deadline_ms := shard.next_deadline_ms()) is not None
            and deadline_ms <= now.monotonic_ms
        ):
            self._do(index, shard.expire(now=now))

    def _deliver(self, effects: Iterable[Effect]) -> None:
        """Delivers the replies of a shard that has nowhere to append to any more."""
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.token, Slot)
                effect.token.set(effect.response)

    def _next_deadline_ms(self) -> int | None:
        deadlines = [shard.next_deadline_ms() for _, shard in self.in_service()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

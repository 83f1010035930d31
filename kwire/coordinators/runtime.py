"""The driver of a coordinator's machines: appends their records, delivers their replies, wakes them at their deadlines.

Kafka's `CoordinatorRuntime`. What a coordinator knows lives in the partition of its internal topic that the hash of the
name (of a group, say) points to, one machine, a shard, for each. The shards are made when the topic is there: at
start, or when the first request needs them. Only looking for a coordinator creates the topic; any other request before
that is told NOT_COORDINATOR, as by Kafka. One task sleeps until the earliest deadline of all shards; a request that
brings an earlier one wakes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Generic, Protocol, TypeVar

import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import ProtocolError, UnsupportedVersion
from kwire_storage.errors import CorruptLogError

from kwire.clock import Clock
from kwire.coordinators.effects import Append, Effect, Now, Reply, response_error
from kwire.coordinators.internal_topic import EndedTransaction, InternalTopic
from kwire.waits import Slot

log = logging.getLogger(__name__)

Response = TypeVar("Response")

MAX_REMEMBERED_NAME_LENGTH = 256
"""Hashes of longer names are computed each time, so that they cannot fill the memory."""


class Shard(Protocol):
    """The machine of one partition; see `effects.py` for what its methods return."""

    def apply(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Replays one record, of that producer's transaction unless it is -1.

        Raises ProtocolError or UnsupportedVersion on bytes that it cannot read.
        """

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A marker is in the partition, at the replay or now: the producer's transaction counts, or does not."""

    def loaded(self, *, now: Now) -> list[Effect]:
        """After the replay."""

    def next_deadline_ms(self) -> int | None:
        """Nothing is due before it."""

    def expire(self, *, now: Now) -> list[Effect]:
        """Does what is due, up to the first append; called again while `next_deadline_ms` is not after `now`."""

    def unload(self, *, now: Now) -> list[Effect]:
        """The partition is no longer here: answers whoever waits. No call follows."""


S = TypeVar("S", bound=Shard)


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
        self._shards: list[S] = []
        self._lost: set[int] = set()
        """Partitions that are offline, or whose records are not all there: they have no coordinator."""
        self._unwritable: set[int] = set()
        """The partitions that refused the last append."""
        self._sleeps_until_ms: int | None = None
        self._wake = trio.Event()

    def now(self) -> Now:
        return Now(self.clock.now_ms(), self.clock.monotonic_ms())

    def start(self) -> None:
        """Replays what there is. To be called once, when the shards can do what they ask for."""
        if self.topic.exists:
            self._load()

    def coordinator_of(self, name: str) -> int:
        """The node that leads the partition of the name; the topic is created if it does not exist.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE).
        """
        index = self.partition_of(name)
        if index in self._lost:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic.name}-{index} cannot be read")
        return self.topic.partitions.find(self.topic.name, index).role.leader_id

    def partition_of(self, name: str) -> int:
        """The partition of the name; the topic is created if it does not exist.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE).
        """
        self.topic.ensure()
        return java_hash(name) % self.topic.partition_count

    def find(self, name: str) -> tuple[int, S]:
        """The partition of the name and its shard; makes the shards if they are not there yet.

        Raises KafkaError(NOT_COORDINATOR): the topic does not exist, or the partition cannot be read.
        """
        if not self._shards:
            if not self.topic.exists:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic.name} does not exist yet")
            self._load()
        index = java_hash(name) % len(self._shards)
        if index in self._lost:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic.name}-{index} cannot be read")
        return index, self._shards[index]

    def shard_at(self, index: int) -> S | None:
        """The shard of a partition that had one; None when it has no coordinator any more."""
        return None if index in self._lost or index >= len(self._shards) else self._shards[index]

    def in_service(self) -> list[tuple[int, S]]:
        """The partitions that have a coordinator, and their shards."""
        return [(index, shard) for index, shard in enumerate(self._shards) if index not in self._lost]

    async def run(self) -> None:
        """Wakes the shards at their deadlines, until cancelled."""
        while True:
            for index in range(len(self._shards)):
                if index in self._lost:
                    self._deliver(self._shards[index].unload(now=self.now()))
                else:
                    self._expire_due(index)
            self._sleeps_until_ms = self._next_deadline_ms()
            self._wake = trio.Event()
            if self._sleeps_until_ms is None:
                await self._wake.wait()
            else:
                with trio.move_on_after(max(0, self._sleeps_until_ms - self.clock.monotonic_ms()) / 1000):
                    await self._wake.wait()

    def perform(self, index: int, effects: Iterable[Effect]) -> None:
        """Does what a shard asks for, and what has become due by that."""
        self._do(index, effects)
        self._expire_due(index)
        deadline_ms = self._shards[index].next_deadline_ms()
        if deadline_ms is not None and (self._sleeps_until_ms is None or deadline_ms < self._sleeps_until_ms):
            self._wake.set()

    async def durable(self, index: int, slot: Slot[Response]) -> Response:
        """The reply, when what it rests on is as durable as the topic's flush.messages asks. Raises KafkaError."""
        response = await slot
        try:
            await self.topic.committed(index)
        except KafkaError as error:
            raise KafkaError(response_error(error.code), error.message) from error
        return response

    def forget_topic(self) -> None:
        """The internal topic is deleted: whoever waits is sent elsewhere, and a new topic begins with nothing."""
        shards, self._shards = self._shards, []
        self._lost.clear()
        now = self.now()
        for shard in shards:
            self._deliver(shard.unload(now=now))

    def forget_partitions(self, indexes: Iterable[int]) -> None:
        """The logs of these partitions are offline: there is no coordinator for them until the next start.

        Whoever waits for an answer gets it from `run`, since this may be called in the middle of a shard's step.
        """
        self._lost.update(indexes)
        self._wake.set()

    # Shards

    def _load(self) -> None:
        shards = []
        for index in range(self.topic.partition_count):
            shard = self._make_shard(index)
            if self.topic.is_offline(index):
                self._lost.add(index)
                shards.append(shard)
                continue
            try:
                self._replay(index, shard)
            except CorruptLogError as error:
                log.error("the %s of %s-%d have no coordinator: %s", self._what, self.topic.name, index, error)
                self._lost.add(index)
                shard = self._make_shard(index)
            self.topic.watch_markers(index, partial(self._marked, index))
            shards.append(shard)
        self._shards = shards
        now = self.now()
        for index, shard in self.in_service():
            self.perform(index, shard.loaded(now=now))

    def _replay(self, index: int, shard: S) -> None:
        for logged in self.topic.replay(index):
            if isinstance(logged, EndedTransaction):
                shard.end_transaction(logged.producer_id, committed=logged.committed)
                continue
            try:
                shard.apply(logged.key, logged.value, logged.producer_id)
            except (ProtocolError, UnsupportedVersion) as error:
                log.error("%s-%d, offset %d: not a record: %s", self.topic.name, index, logged.offset, error)

    def _marked(self, index: int, producer_id: int, committed: bool) -> None:
        if self._shards and index not in self._lost:
            self._shards[index].end_transaction(producer_id, committed=committed)

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
        try:
            self.topic.append(index, append.records, producer=append.producer)
        except KafkaError as error:
            # Once, until it works again: groups commit many times a second. A fenced producer is told, and no fault.
            if index not in self._unwritable and error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                log.warning("cannot append to %s-%d: %s", self.topic.name, index, error)
                self._unwritable.add(index)
            return error.code
        if self._unwritable:
            self._unwritable.discard(index)
        return ErrorCode.NONE

    def _expire_due(self, index: int) -> None:
        shard, now = self._shards[index], self.now()
        while (deadline_ms := shard.next_deadline_ms()) is not None and deadline_ms <= now.monotonic_ms:
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

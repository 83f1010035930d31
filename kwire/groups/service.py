"""The driver of the group machines: appends their records, delivers their replies, and wakes them at their deadlines.

A group lives in the partition of `__consumer_offsets` that its name's hash points to, one `GroupShard` for each. The
shards are made when the topic is there: at start, or when the first request needs them, which creates the topic. One
task sleeps until the earliest deadline of all shards; a request that brings an earlier one wakes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_groups import DeletableGroupResult
from kwire_protocol.messages.describe_groups import DescribedGroup
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kwire_protocol.messages.list_groups import ListedGroup
from kwire_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kwire_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kwire_protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire_protocol.wire import NULL_UUID, ProtocolError, UnsupportedVersion, Uuid
from kwire_storage.errors import CorruptLogError

from kwire.clock import Clock
from kwire.config import ServerConfig
from kwire.context import Context
from kwire.groups.config import GroupConfig
from kwire.groups.effects import Append, Effect, Reply, response_error
from kwire.groups.joining import MemberContext
from kwire.groups.shard import GroupShard
from kwire.internal_topic import InternalTopic
from kwire.waits import Slot

log = logging.getLogger(__name__)

Response = TypeVar("Response")

MAX_REMEMBERED_NAME_LENGTH = 256
"""Hashes of longer group names are computed each time, so that they cannot fill the memory."""


def group_config(config: ServerConfig) -> GroupConfig:
    return GroupConfig(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        offset_metadata_max_length=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_ms,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )


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


class GroupService:
    """Every group that this broker coordinates. All methods raise KafkaError where there is no coordinator for it.

    What may have to wait is a coroutine for the handler: it awaits the reply, and that what the reply rests on is as
    durable as the topic's flush.messages asks.
    """

    def __init__(self, config: ServerConfig, topic: InternalTopic, clock: Clock) -> None:
        self._config = group_config(config)
        self._topic = topic
        self._clock = clock
        self._shards: list[GroupShard] = []
        self._lost: set[int] = set()
        """Partitions that are offline, or whose records are not all there: their groups have no coordinator."""
        self._unwritable: set[int] = set()
        """The partitions that refused the last append."""
        self._sleeps_until_ms: int | None = None
        self._wake = trio.Event()
        if topic.exists:
            self._load()

    def coordinator_of(self, group_id: str) -> int:
        """The node that leads the group's partition."""
        index = java_hash(group_id) % self._topic.partition_count
        if index in self._lost:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group's partition cannot be read")
        return self._topic.partitions.find(self._topic.name, index).leader_id

    async def run(self) -> None:
        """Wakes the shards at their deadlines, until cancelled."""
        while True:
            for index in range(len(self._shards)):
                if index in self._lost:
                    self._deliver(self._shards[index].unload(now_ms=self._clock.now_ms()))
                else:
                    self._expire_due(index)
            self._sleeps_until_ms = self._next_deadline_ms()
            self._wake = trio.Event()
            if self._sleeps_until_ms is None:
                await self._wake.wait()
            else:
                with trio.move_on_after(max(0, self._sleeps_until_ms - self._clock.now_ms()) / 1000):
                    await self._wake.wait()

    # Requests

    async def join(self, request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
        index, shard = self._find(request.group_id)
        slot: Slot[JoinGroupResponse] = Slot()
        member = MemberContext(context.client_id or "", f"/{context.client_host}", context.api_version)
        self._perform(
            index,
            shard.join(request, member, slot, member_uuid=_uuid_text(self._clock.uuid()), now_ms=self._clock.now_ms()),
        )
        return await self._durable(index, slot)

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        index, shard = self._find(request.group_id)
        slot: Slot[SyncGroupResponse] = Slot()
        self._perform(index, shard.sync(request, slot, now_ms=self._clock.now_ms()))
        return await self._durable(index, slot)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        _, shard = self._find(request.group_id)
        return shard.heartbeat(request, now_ms=self._clock.now_ms())

    async def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        index, shard = self._find(request.group_id)
        slot: Slot[LeaveGroupResponse] = Slot()
        self._perform(index, shard.leave(request, slot, now_ms=self._clock.now_ms()))
        return await self._durable(index, slot)

    async def commit(self, request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
        index, shard = self._find(request.group_id)
        slot: Slot[OffsetCommitResponse] = Slot()
        self._perform(
            index,
            shard.commit(request, slot, api_version=context.api_version, now_ms=self._clock.now_ms()),
        )
        return await self._durable(index, slot)

    def fetch_offsets(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        _, shard = self._find(request.group_id)
        return shard.fetch_offsets(request)

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        index, shard = self._find(request.group_id)
        slot: Slot[OffsetDeleteResponse] = Slot()
        self._perform(index, shard.delete_offsets(request, slot, now_ms=self._clock.now_ms()))
        return await self._durable(index, slot)

    def describe(self, group_id: str, *, api_version: int) -> DescribedGroup:
        _, shard = self._find(group_id)
        return shard.describe([group_id], api_version=api_version)[0]

    def list_groups(self, *, states: Sequence[str], types: Sequence[str]) -> list[ListedGroup]:
        return [group for _, shard in self._in_service() for group in shard.list_groups(states=states, types=types)]

    async def delete_group(self, group_id: str) -> list[DeletableGroupResult]:
        index, shard = self._find(group_id)
        slot: Slot[list[DeletableGroupResult]] = Slot()
        self._perform(index, shard.delete_groups([group_id], slot, now_ms=self._clock.now_ms()))
        return await self._durable(index, slot)

    def forget_topic(self, name: str, topic_id: Uuid = NULL_UUID) -> None:
        """The topic is deleted, and with it what groups had committed for it."""
        now_ms = self._clock.now_ms()
        if name == self._topic.name:
            shards, self._shards = self._shards, []
            self._lost.clear()
            for shard in shards:
                self._deliver(shard.unload(now_ms=now_ms))
            return
        for index, shard in self._in_service():
            self._perform(index, shard.topics_deleted({name: topic_id}, now_ms=now_ms))

    def forget_partitions(self, indexes: Iterable[int]) -> None:
        """The logs of these partitions are offline: their groups have no coordinator until the next start.

        Members that wait for an answer get it from `run`, since this may be called in the middle of a group's step.
        """
        self._lost.update(indexes)
        self._wake.set()

    # Shards

    def _find(self, group_id: str) -> tuple[int, GroupShard]:
        """The group's partition and shard; makes the shards if they are not there yet.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR (the partition cannot be read).
        """
        if not self._shards:
            self._topic.ensure()
            self._load()
        index = java_hash(group_id) % len(self._shards)
        if index in self._lost:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._topic.name}-{index} cannot be read")
        return index, self._shards[index]

    def _in_service(self) -> list[tuple[int, GroupShard]]:
        return [(index, shard) for index, shard in enumerate(self._shards) if index not in self._lost]

    def _load(self) -> None:
        shards = []
        for index in range(self._topic.partition_count):
            shard = GroupShard(self._config)
            if self._topic.is_offline(index):
                self._lost.add(index)
                shards.append(shard)
                continue
            try:
                self._replay(index, shard)
            except CorruptLogError as error:
                log.error("the groups of %s-%d have no coordinator: %s", self._topic.name, index, error)
                self._lost.add(index)
                shard = GroupShard(self._config)
            shards.append(shard)
        self._shards = shards
        now_ms = self._clock.now_ms()
        for index, shard in self._in_service():
            self._perform(index, shard.loaded(now_ms=now_ms))

    def _replay(self, index: int, shard: GroupShard) -> None:
        for record in self._topic.replay(index):
            try:
                shard.apply(bytes(record.key or b""), None if record.value is None else bytes(record.value))
            except (ProtocolError, UnsupportedVersion) as error:
                log.error("%s-%d, offset %d: not a record: %s", self._topic.name, index, record.offset, error)

    # Effects and time

    def _perform(self, index: int, effects: Iterable[Effect]) -> None:
        """Does what a shard asks for, and what has become due by that."""
        self._do(index, effects)
        self._expire_due(index)
        deadline_ms = self._shards[index].next_deadline_ms()
        if deadline_ms is not None and (self._sleeps_until_ms is None or deadline_ms < self._sleeps_until_ms):
            self._wake.set()

    def _do(self, index: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(token, response):
                    assert isinstance(token, Slot)
                    token.set(response)
                case Append():
                    error = self._append(index, effect)
                    self._do(index, effect.done(error, now_ms=self._clock.now_ms()))

    async def _durable(self, index: int, slot: Slot[Response]) -> Response:
        response = await slot
        try:
            await self._topic.flushed(index)
        except KafkaError as error:
            raise KafkaError(response_error(error.code), error.message) from error
        return response

    def _append(self, index: int, append: Append) -> ErrorCode:
        try:
            self._topic.append(index, append.records)
        except KafkaError as error:
            # Once, until it works again: groups commit many times a second.
            if index not in self._unwritable:
                log.warning("cannot append to %s-%d: %s", self._topic.name, index, error)
                self._unwritable.add(index)
            return error.code
        if self._unwritable:
            self._unwritable.discard(index)
        return ErrorCode.NONE

    def _expire_due(self, index: int) -> None:
        shard, now_ms = self._shards[index], self._clock.now_ms()
        while (deadline_ms := shard.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            self._do(index, shard.expire(now_ms=now_ms))

    def _deliver(self, effects: Iterable[Effect]) -> None:
        """Delivers the replies of a shard that has nowhere to append to any more."""
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.token, Slot)
                effect.token.set(effect.response)

    def _next_deadline_ms(self) -> int | None:
        deadlines = [shard.next_deadline_ms() for _, shard in self._in_service()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)


def _uuid_text(raw: bytes) -> str:
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

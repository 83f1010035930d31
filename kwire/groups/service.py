"""Every group that this broker coordinates. Passes requests to the shards of `__consumer_offsets`.

`kwire.coordinators.runtime` drives the shards, one `GroupShard` for each partition.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid, uuid_to_text

from kwire.config.server import ServerConfig
from kwire.coordinators.effects import Effect, Now
from kwire.coordinators.internal_topic import InternalTopic
from kwire.coordinators.runtime import CoordinatorRuntime
from kwire.coordinators.service import CoordinatorService
from kwire.groups.config import GroupConfig, MigrationPolicy
from kwire.groups.counts import GroupCounts
from kwire.groups.group import MemberContext
from kwire.groups.settings import GroupSettings
from kwire.groups.share_states import (
    AlterationBegun,
    Initialize,
    OffsetDeletionBegun,
    Outcome,
    StateKeeper,
    StatesToInitialize,
    ToDelete,
    failure,
)
from kwire.groups.streams_topics import Answer, CreateTopics, InternalTopicCreation
from kwire.groups.streams_topics import InternalTopic as StreamsTopic
from kwire.groups.topics import Topics
from kwire.groups.topology_descriptions import DescriptionStore
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future, drive
from kwire.runtime.loop import Loop

if TYPE_CHECKING:
    from kwire_protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponseTopic,
    )
    from kwire_protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
    from kwire_protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from kwire_protocol.messages.delete_groups import DeletableGroupResult
    from kwire_protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponseTopic,
    )
    from kwire_protocol.messages.describe_groups import DescribedGroup
    from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from kwire_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from kwire_protocol.messages.list_groups import ListedGroup
    from kwire_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from kwire_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from kwire_protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
    from kwire_protocol.messages.share_group_describe import DescribedGroup as DescribedShareGroup
    from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
    from kwire_protocol.messages.streams_group_describe import DescribedGroup as DescribedStreamsGroup
    from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
    from kwire_protocol.messages.streams_group_topology_description_update import (
        StreamsGroupTopologyDescriptionUpdateRequest,
    )
    from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from kwire_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

    from kwire.groups.shard import GroupShard

log = logging.getLogger(__name__)


def group_config(config: ServerConfig) -> GroupConfig:
    return GroupConfig(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        consumer_max_size=config.group_consumer_max_size,
        consumer_assignors=config.group_consumer_assignors,
        consumer_migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
        consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        share_max_size=config.group_share_max_size,
        share_initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
        streams_max_size=config.group_streams_max_size,
        offset_metadata_max_length=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_ms,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )


class GroupService(CoordinatorService["GroupShard"]):
    """Every group that this broker coordinates. All methods raise KafkaError if there is no coordinator for the group.

    A method that may have to wait is a coroutine for the handler. It awaits the reply, and until the records behind the
    reply are as durable as the topic's flush.messages requires.
    """

    def __init__(
        self,
        config: ServerConfig,
        topic: InternalTopic,
        clock: Clock,
        topics: Topics,
        settings: GroupSettings,
        persister: StateKeeper,
        loop: Loop,
        create_topics: CreateTopics,
    ) -> None:
        shard_config = group_config(config)
        self.counts = GroupCounts()
        plugin = config.group_streams_topology_description_plugin_class
        self._descriptions = descriptions = None if plugin is None else DescriptionStore()

        def make_shard(_: int) -> GroupShard:
            # Here, because a broker that has no groups yet starts without their machines.
            from kwire.groups.shard import GroupShard

            return GroupShard(
                shard_config,
                topics,
                settings.of_consumer_group,
                settings.of_share_group,
                settings.of_streams_group,
                self.counts,
                descriptions,
            )

        self.runtime = CoordinatorRuntime(topic, clock, "groups", make_shard, self._do_other)
        self._persister = persister
        self._initializing: set[tuple[str, Uuid, int]] = set()
        """The states that are being initialized: group id, topic id, partition."""
        self._loop = loop
        self._clock = clock
        self._settings = settings
        self._internal_topics = InternalTopicCreation(create_topics, loop, clock.monotonic_ms)

    # Requests

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, member: MemberContext
    ) -> ConsumerGroupHeartbeatResponse | Coroutine[Future[Any], None, ConsumerGroupHeartbeatResponse]:
        """Most heartbeats change nothing, and are answered without a wait if the state they depend on is committed."""
        index, shard, now = self._find_named(request.group_id)
        future: Future[ConsumerGroupHeartbeatResponse] = Future()
        member_id = request.member_id or uuid_to_text(self._clock.uuid())
        effects = shard.consumer_heartbeat(request, member, future, member_id=member_id, now=now)
        return self.runtime.answer(index, effects, future)

    def confirm_consumer(
        self, group_id: str, member_id: str, member_epoch: int, client_id: str, client_host: str
    ) -> int | None:
        """Restarts the session of a member whose heartbeat has only its id and its epoch, if that changes nothing.

        Returns the heartbeat interval in ms. None if `consumer_heartbeat` must answer, which waits until the state that
        the reply depends on is committed.
        """
        index, shard, now = self._find_named(group_id)
        if not self.runtime.topic.is_committed(index):
            return None
        interval_ms = shard.confirm_consumer(group_id, member_id, member_epoch, client_id, client_host, now=now)
        if interval_ms is not None:
            self.runtime.deadline_moved(shard)
        return interval_ms

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, member: MemberContext
    ) -> ShareGroupHeartbeatResponse | Coroutine[Future[Any], None, ShareGroupHeartbeatResponse]:
        """Most heartbeats change nothing, and are answered without a wait if the state they depend on is committed."""
        index, shard, now = self._find_named(request.group_id)
        future: Future[ShareGroupHeartbeatResponse] = Future()
        effects = shard.share_heartbeat(request, member, future, now=now)
        return self.runtime.answer(index, effects, future)

    def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, member: MemberContext
    ) -> Answer | Coroutine[Future[Any], None, Answer]:
        """Most heartbeats change nothing, and are answered without a wait if the state they depend on is committed."""
        index, shard, now = self._find_named(request.group_id)
        future: Future[Answer] = Future()
        effects = shard.streams_heartbeat(request, member, future, now=now)
        return self.runtime.answer(index, effects, future)

    @property
    def describes_topologies(self) -> bool:
        """True if streams groups may describe their topologies (KIP-1331)."""
        return self._descriptions is not None

    async def update_topology_description(self, request: StreamsGroupTopologyDescriptionUpdateRequest) -> None:
        """Stores a description, only if `describes_topologies`. Raises the KafkaErrors of `Descriptions.update`."""
        index, shard, now = self._find_named(request.group_id)
        future: Future[KafkaError | None] = Future()
        self.runtime.perform(index, shard.update_topology_description(request, future, now=now))
        failed = await self.runtime.durable(index, future)
        if failed is not None:
            raise failed

    def create_internal_topics(self, group_id: str, topics: Sequence[StreamsTopic]) -> Mapping[str, str]:
        """Creates the topics of an `Answer` in the background. Returns the errors of recent failures by topic."""
        interval_ms = self._settings.of_streams_group(group_id).heartbeat_interval_ms
        self._internal_topics.begin(topics, retry_after_ms=2 * interval_ms)
        return self._internal_topics.failures([it.name for it in topics])

    async def join(self, request: JoinGroupRequest, member: MemberContext) -> JoinGroupResponse:
        index, shard, now = self._find_named(request.group_id)
        future: Future[JoinGroupResponse] = Future()
        self.runtime.perform(
            index,
            shard.join(request, member, future, member_uuid=_uuid_text(self._clock.uuid()), now=now),
        )
        return await self.runtime.durable(index, future)

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        index, shard, now = self._find_named(request.group_id)
        future: Future[SyncGroupResponse] = Future()
        self.runtime.perform(index, shard.sync(request, future, now=now))
        return await self.runtime.durable(index, future)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        index, shard, now = self._find_named(request.group_id)
        response = shard.heartbeat(request, now=now)
        self.runtime.perform(index, ())  # It may have set a deadline: to rejoin, in a consumer group.
        return response

    async def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        index, shard, now = self._find_named(request.group_id)
        future: Future[LeaveGroupResponse] = Future()
        self.runtime.perform(index, shard.leave(request, future, now=now))
        return await self.runtime.durable(index, future)

    async def commit(self, request: OffsetCommitRequest, *, api_version: int) -> OffsetCommitResponse:
        index, shard, now = self.runtime.find(request.group_id)
        future: Future[OffsetCommitResponse] = Future()
        self.runtime.perform(
            index,
            shard.commit(request, future, api_version=api_version, now=now),
        )
        return await self.runtime.durable(index, future)

    async def partition_of(self, group_id: str) -> tuple[str, int]:
        """Topic and index of the group's partition. Creates the topic if it does not exist."""
        return self.runtime.topic.name, await self.runtime.partition_of(group_id)

    def find_partition(self, group_id: str) -> tuple[str, int]:
        """Topic and index of the group's partition, if the topic exists.

        Raises KafkaError: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
        """
        if not self.runtime.topic.exists and group_id:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.runtime.topic.name} does not exist yet")
        index, _, _ = self._find_named(group_id)
        return self.runtime.topic.name, index

    async def commit_transactional(
        self, request: TxnOffsetCommitRequest, *, api_version: int
    ) -> TxnOffsetCommitResponse:
        """The group's partition must be part of the transaction."""
        index, shard, now = self.runtime.find(request.group_id)
        future: Future[TxnOffsetCommitResponse] = Future()
        self.runtime.perform(
            index,
            shard.commit_transactional(request, future, api_version=api_version, now=now),
        )
        return await self.runtime.durable(index, future)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """Returns the group's appended offsets. Wait for `when_committed` before replying to a client."""
        _, shard, _ = self.runtime.find(request.group_id)
        return shard.fetch_offsets(request, require_stable=require_stable)

    def when_committed(self, group_id: str) -> Future[KafkaError | None] | None:
        """None if all offsets of the group are committed; else a future that gets None when they are, or the error.

        So a reader never sees an offset that a power cut, or another leader, could undo. Like Kafka's OffsetFetch with
        require_stable; without it Kafka returns the last committed offset at once.
        """
        index, _, _ = self.runtime.find(group_id)
        return self.runtime.topic.when_committed(index)

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        index, shard, now = self._find_named(request.group_id)
        future: Future[OffsetDeleteResponse] = Future()
        self.runtime.perform(index, shard.delete_offsets(request, future, now=now))
        return await self.runtime.durable(index, future)

    def describe(self, group_id: str, *, api_version: int) -> DescribedGroup:
        _, shard, _ = self.runtime.find(group_id)
        return shard.describe([group_id], api_version=api_version)[0]

    def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        _, shard, _ = self.runtime.find(group_id)
        return shard.describe_consumer(group_id)

    def describe_share(self, group_id: str) -> DescribedShareGroup:
        _, shard, _ = self.runtime.find(group_id)
        return shard.describe_share(group_id)

    def describe_streams(self, group_id: str, *, with_description: bool) -> DescribedStreamsGroup:
        _, shard, _ = self.runtime.find(group_id)
        return shard.describe_streams(group_id, with_description=with_description)

    def list_groups(self, *, states: Sequence[str], types: Sequence[str]) -> list[ListedGroup]:
        shards, _ = self.runtime.all_shards()
        return [group for shard in shards for group in shard.list_groups(states=states, types=types)]

    async def delete_group(self, group_id: str) -> list[DeletableGroupResult]:
        """Deletes a group. The states of a share group are deleted first."""
        index, shard, now = self.runtime.find(group_id)
        begun: Future[ToDelete | KafkaError] = Future()
        self.runtime.perform(index, shard.begin_share_deletion(group_id, begun, now=now))
        to_delete = await self.runtime.durable(index, begun)
        if isinstance(to_delete, KafkaError):
            raise to_delete
        if to_delete:
            for error in (await self._persister.delete(group_id, to_delete)).values():
                if error:
                    raise KafkaError(error)
        index, shard, now = self.runtime.find(group_id)
        future: Future[list[DeletableGroupResult]] = Future()
        self.runtime.perform(index, shard.delete_groups([group_id], future, now=now))
        return await self.runtime.durable(index, future)

    def other_topic_deleted(self, topic: str, topic_id: Uuid) -> None:
        """Removes the offsets that groups have committed for a deleted topic."""
        self.runtime.for_each(lambda shard, now: shard.topics_deleted({topic: topic_id}, now=now))

    # The offsets of share groups

    async def alter_share_offsets(
        self, request: AlterShareGroupOffsetsRequest
    ) -> list[AlterShareGroupOffsetsResponseTopic]:
        index, shard, now = self._find_named(request.group_id)
        future: Future[AlterationBegun | KafkaError] = Future()
        self.runtime.perform(index, shard.begin_share_alteration(request, future, now=now))
        begun = await self.runtime.durable(index, future)
        if isinstance(begun, KafkaError):
            raise begun
        if begun.states.start_offsets:
            outcome = await self._request_initialization(index, begun.states)
            for topic in begun.answers:
                for partition in topic.partitions:
                    error = outcome.get((topic.topic_id, partition.partition_index))
                    if error and not partition.error_code:
                        partition.error_code, partition.error_message = error, failure(error)
            await self.runtime.topic.committed(index)
        return begun.answers

    async def delete_share_offsets(
        self, request: DeleteShareGroupOffsetsRequest
    ) -> list[DeleteShareGroupOffsetsResponseTopic]:
        index, shard, now = self._find_named(request.group_id)
        future: Future[OffsetDeletionBegun | KafkaError] = Future()
        self.runtime.perform(index, shard.begin_share_offset_deletion(request, future, now=now))
        begun = await self.runtime.durable(index, future)
        if isinstance(begun, KafkaError):
            raise begun
        if not begun.to_delete:
            return begun.refused
        errors = dict.fromkeys(begun.to_delete, ErrorCode.NONE)
        for (topic_id, _), error in (await self._persister.delete(request.group_id, begun.to_delete)).items():
            errors[topic_id] = errors[topic_id] or error
        index, shard, now = self._find_named(request.group_id)
        done: Future[KafkaError | None] = Future()
        gone = [topic_id for topic_id, error in errors.items() if not error]
        self.runtime.perform(index, shard.share_states_deleted(request.group_id, gone, done, now=now))
        failed = await self.runtime.durable(index, done)
        if failed is not None:
            raise failed
        from kwire_protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic

        return begun.refused + [
            DeleteShareGroupOffsetsResponseTopic(begun.names[topic_id], topic_id, error, failure(error))
            for topic_id, error in errors.items()
        ]

    def initialized_share_partitions(self, group_id: str) -> Mapping[Uuid, frozenset[int]]:
        _, shard, _ = self._find_named(group_id)
        return shard.initialized_share_partitions(group_id)

    # The states of share groups

    def _do_other(self, index: int, effect: Effect) -> Iterable[Effect]:
        assert isinstance(effect, Initialize)
        drive(self._initialize(index, effect.states))
        return []

    async def _initialize(self, index: int, states: StatesToInitialize) -> None:
        # The request is sent only once the group's own record is committed, and never in the middle of a step.
        await self._loop.next_turn()
        states = self._not_under_way(states)
        under_way = states.partitions
        self._initializing |= under_way
        try:
            await self.runtime.topic.committed(index)
            if under_way:
                await self._request_initialization(index, states)
        except KafkaError as error:
            log.error("group %a: states are not initialized: %s", states.group_id, error.message)
        finally:
            self._initializing -= under_way

    def _not_under_way(self, states: StatesToInitialize) -> StatesToInitialize:
        """Leaves out the states that are being initialized, however long that takes. A second request would reset a
        state that members may use by then."""
        left: dict[Uuid, dict[int, int]] = {}
        for topic_id, offsets in states.start_offsets.items():
            for partition, offset in offsets.items():
                if (states.group_id, topic_id, partition) not in self._initializing:
                    left.setdefault(topic_id, {})[partition] = offset
        return attrs.evolve(states, start_offsets=left)

    async def _request_initialization(self, index: int, states: StatesToInitialize) -> Outcome:
        outcome = await self._persister.initialize(
            states.group_id,
            {
                topic_id: [(partition, states.state_epoch, offset) for partition, offset in start_offsets.items()]
                for topic_id, start_offsets in states.start_offsets.items()
            },
        )
        shard = self.runtime.shard_at(index)
        if shard is not None:
            effects = shard.share_states_initialized(states.group_id, outcome, now=self.runtime.now())
            self.runtime.perform(index, effects)
        return outcome

    def _find_named(self, group_id: str) -> tuple[int, GroupShard, Now]:
        """Calls `CoordinatorRuntime.find` for requests that need a group id: INVALID_GROUP_ID without one."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
        return self.runtime.find(group_id)


def _uuid_text(raw: bytes) -> str:
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

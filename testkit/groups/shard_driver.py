"""A driver for the group machine without a loop, a log file or a clock: a list of records and a dictionary of replies.

Time is a number that a test moves. `append_error` makes appends fail. Every reply is checked to be the only one to its
token, and to be one that the wire can carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kwire_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire_protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kwire_protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kwire_protocol.wire import NULL_UUID, ApiMessage, Uuid, Writer

from kwire.coordinators.effects import Append, Effect, Now, Reply
from kwire.coordinators.internal_topic import EndedTransaction, LoggedRecord
from kwire.groups.classic.group import ClassicGroup
from kwire.groups.classic.groups import ClassicGroups
from kwire.groups.classic.records import RECORD_TYPE, read_group
from kwire.groups.config import ConsumerGroupSettings, GroupConfig, ShareGroupSettings, StreamsGroupSettings
from kwire.groups.counts import GroupCounts
from kwire.groups.group import MemberContext
from kwire.groups.records import read_head
from kwire.groups.shard import GroupShard
from kwire.groups.share_states import Initialize, StatesToInitialize
from kwire.groups.topology_descriptions import DescriptionStore
from testkit.groups.topics import FakeTopics

GROUP = "readers"
LATEST_JOIN_VERSION = 9


def subscription(*topics: str) -> bytes:
    """Returns the metadata that a consumer of `topics` sends for every assignor."""
    w = Writer()
    w.int16(0)
    w.count(len(topics))
    for topic in topics:
        w.string(topic)
    w.nullable_blob(None)
    return w.getvalue()


@contextmanager
def left_as_it_is(request: ApiMessage, version: int) -> Iterator[None]:
    """The same request object may be handled again (`kwire.network.decoding`)."""
    before = _bytes(request, version)
    yield
    assert _bytes(request, version) == before


def _bytes(message: ApiMessage, version: int) -> bytes:
    writer = Writer()
    message.write(writer, version)
    return writer.getvalue()


class ShardDriver:
    def __init__(self, config: GroupConfig | None = None, topics: FakeTopics | None = None) -> None:
        self.config = config or GroupConfig()
        self.topics = topics or FakeTopics()
        self.settings = ConsumerGroupSettings()
        """The settings of all consumer groups."""
        self.share_settings = ShareGroupSettings()
        """The settings of all share groups."""
        self.streams_settings = StreamsGroupSettings()
        """The settings of all streams groups."""
        self.counts = GroupCounts()
        self.descriptions: DescriptionStore | None = None
        """The descriptions of streams groups. None if the broker does not request them."""
        self.shard = self.new_shard(None)
        self.now_ms = 0
        """The time by the monotonic clock."""
        self.wall_ahead_ms = 0
        """The milliseconds by which the wall clock is ahead: a test may set that clock."""
        self.log: list[LoggedRecord | EndedTransaction] = []
        self.append_error = ErrorCode.NONE
        self.failed_appends = 0
        """The number of failed appends since the last successful one."""
        self.unrecorded: set[str] = set()
        """Groups whose latest own record could not be appended."""
        self.replies: dict[object, Any] = {}
        self.to_initialize: list[StatesToInitialize] = []
        """The requests to share coordinators that have no response yet."""
        self.tokens: set[object] = set()
        self._uuids = 0
        self.run(self.shard.loaded(now=self.now))

    def new_shard(self, descriptions: DescriptionStore | None) -> GroupShard:
        return GroupShard(
            self.config,
            self.topics,
            lambda _: self.settings,
            lambda _: self.share_settings,
            lambda _: self.streams_settings,
            self.counts,
            descriptions,
        )

    def replayed(
        self,
        log: Iterable[LoggedRecord | EndedTransaction] | None = None,
        descriptions: DescriptionStore | None = None,
    ) -> GroupShard:
        """Another shard, from the driver's log or another one."""
        shard = self.new_shard(descriptions)
        for logged in self.log if log is None else log:
            if isinstance(logged, EndedTransaction):
                shard.end_transaction(logged.producer_id, committed=logged.committed)
            else:
                shard.apply(logged.key, logged.value, logged.producer_id)
        return shard

    @property
    def now(self) -> Now:
        return Now(self.now_ms + self.wall_ahead_ms, self.now_ms)

    # The loop of a driver

    def run(self, effects: list[Effect]) -> None:
        todo = list(reversed(effects))
        while todo:
            match todo.pop():
                case Append() as append:
                    changed = {
                        read_group(*record).group_id
                        for record in append.records
                        if read_head(record[0])[0] == RECORD_TYPE
                    }
                    if self.append_error is ErrorCode.NONE:
                        if self.failed_appends:
                            self.failed_appends = 0
                            self.shard.appends_succeed()
                        producer_id = -1 if append.producer is None else append.producer.producer_id
                        self.log += [LoggedRecord(-1, key, value, producer_id) for key, value in append.records]
                        self.unrecorded -= changed
                    else:
                        self.failed_appends += 1
                        self.unrecorded |= changed
                    todo += reversed(append.done(self.append_error, now=self.now))
                case Reply(token, response):
                    assert token in self.tokens, "a reply to nobody"
                    assert token not in self.replies, "a second reply to the same request"
                    if isinstance(response, (JoinGroupResponse, SyncGroupResponse)):
                        response.write(Writer(), response.versions[-1])
                    self.replies[token] = response
                case Initialize(states):
                    self.to_initialize.append(states)

    def advance_to(self, now_ms: int) -> None:
        """Moves the time, stopping at every deadline on the way as a real driver does."""
        assert now_ms >= self.now_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run(self.shard.expire(now=self.now))
        self.now_ms = now_ms

    def advance(self, by_ms: int) -> None:
        self.advance_to(self.now_ms + by_ms)

    def restart(self) -> None:
        """Makes a new shard from the log; parked requests are dropped, as at the death of the process."""
        if self.descriptions is not None:
            self.descriptions = DescriptionStore(self.descriptions.max_bytes)
        self.shard = self.replayed(descriptions=self.descriptions)
        self.tokens &= set(self.replies)
        self.unrecorded.clear()
        self.run(self.shard.loaded(now=self.now))

    def token(self) -> object:
        token = object()
        self.tokens.add(token)
        return token

    # Requests

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        version: int = LATEST_JOIN_VERSION,
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        protocol_type: str = "consumer",
        protocols: dict[str, bytes] | None = None,
        client_id: str = "app",
    ) -> object:
        """Sends JoinGroup and returns its token."""
        token = self.token()
        self._uuids += 1
        offered = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in offered.items()],
        )
        context = MemberContext(client_id=client_id, client_host="/127.0.0.1", api_version=version)
        self.run(self.shard.join(request, context, token, member_uuid=f"uuid{self._uuids}", now=self.now))
        return token

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = None,
    ) -> object:
        token = self.token()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[SyncGroupRequestAssignment(who, what) for who, what in (assignments or {}).items()],
        )
        self.run(self.shard.sync(request, token, now=self.now))
        return token

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance_id: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(group, generation, member_id, instance_id)
        return ErrorCode(self.shard.heartbeat(request, now=self.now).error_code)

    def leave(self, *members: str | tuple[str, str | None], group: str = GROUP) -> LeaveGroupResponse:
        token = self.token()
        identities = [
            MemberIdentity(member) if isinstance(member, str) else MemberIdentity(member[0], member[1])
            for member in members
        ]
        self.run(self.shard.leave(LeaveGroupRequest(group_id=group, members=identities), token, now=self.now))
        response = self.replies[token]
        assert isinstance(response, LeaveGroupResponse)
        return response

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        group: str = GROUP,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        version: int = 9,
        metadata: str | None = "",
        retention_ms: int = -1,
        topic_id: Uuid = NULL_UUID,
    ) -> list[ErrorCode]:
        """Commits and returns the partitions' error codes in the order of `offsets`."""
        token = self.token()
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, topic_id=topic_id))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        self.run(self.shard.commit(request, token, api_version=version, now=self.now))
        response = self.replies[token]
        assert isinstance(response, OffsetCommitResponse)
        return [ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions]

    def commit_transactional(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        producer_id: int = 1,
        group: str = GROUP,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        version: int = 5,
        metadata: str | None = "",
        topic_id: Uuid = NULL_UUID,
    ) -> list[ErrorCode]:
        """Commits in the producer's transaction and returns the partitions' error codes in the order of `offsets`."""
        token = self.token()
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name, topic_id=topic_id))
            topic.partitions.append(TxnOffsetCommitRequestPartition(partition, offset, committed_metadata=metadata))
        request = TxnOffsetCommitRequest(
            transactional_id=f"t{producer_id}",
            group_id=group,
            producer_id=producer_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=list(topics.values()),
        )
        self.run(self.shard.commit_transactional(request, token, api_version=version, now=self.now))
        response = self.replies[token]
        assert isinstance(response, TxnOffsetCommitResponse)
        return [ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions]

    def end_transaction(self, producer_id: int = 1, *, committed: bool) -> None:
        """Appends the marker, regardless of `append_error`."""
        self.log.append(EndedTransaction(producer_id, committed))
        self.shard.end_transaction(producer_id, committed=committed)

    def delete_offsets(self, *partitions: tuple[str, int], group: str = GROUP) -> list[ErrorCode] | ErrorCode:
        """The partitions' error codes, or the one that refuses the whole request."""
        token = self.token()
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for name, partition in partitions:
            topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
            topic.partitions.append(OffsetDeleteRequestPartition(partition))
        request = OffsetDeleteRequest(group_id=group, topics=list(topics.values()))
        self.run(self.shard.delete_offsets(request, token, now=self.now))
        response = self.replies[token]
        if response.error_code:
            return ErrorCode(response.error_code)
        return [ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions]

    def delete_groups(self, *group_ids: str) -> list[ErrorCode]:
        token = self.token()
        self.run(self.shard.delete_groups(group_ids, token, now=self.now))
        return [ErrorCode(result.error_code) for result in self.replies[token]]

    # What can be seen

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        return classic_groups(self.shard)

    def joined(self, token: object) -> JoinGroupResponse:
        """The answer to a JoinGroup, which must be there."""
        response = self.replies[token]
        assert isinstance(response, JoinGroupResponse)
        return response

    def synced(self, token: object) -> SyncGroupResponse:
        response = self.replies[token]
        assert isinstance(response, SyncGroupResponse)
        return response

    def is_answered(self, token: object) -> bool:
        return token in self.replies

    def offset(self, topic: str, partition: int, *, group: str = GROUP, topic_id: Uuid = NULL_UUID) -> int:
        wanted = OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[partition])
        answer = self.shard.fetch_offsets(OffsetFetchRequestGroup(group_id=group, topics=[wanted]))
        assert answer.error_code == ErrorCode.NONE
        return answer.topics[0].partitions[0].committed_offset

    def stable_offset(self, topic: str, partition: int, *, group: str = GROUP) -> int | ErrorCode:
        """Returns the answer to a client with `require_stable`: the offset, or the partition's error."""
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
        request = OffsetFetchRequestGroup(group_id=group, topics=[wanted])
        found = self.shard.fetch_offsets(request, require_stable=True).topics[0].partitions[0]
        assert found.error_code == ErrorCode.NONE or found.committed_offset == -1
        return ErrorCode(found.error_code) if found.error_code else found.committed_offset

    def state(self, group: str = GROUP, *, version: int = 5) -> str:
        return self.shard.describe([group], api_version=version)[0].group_state

    def stable_group(self, *names: str, **join: Any) -> list[str]:
        """Makes a stable group in which each member is assigned its own name; returns their ids, the leader's first.

        They join with v3, which spares the detour over MEMBER_ID_REQUIRED.
        """
        tokens = [self.join(version=3, client_id=name, **join) for name in names]
        self.advance(self.config.initial_rebalance_delay_ms * (len(names) + 1))
        leader = self.joined(tokens[0]).leader
        ids = [self.joined(token).member_id for token in tokens]
        generation = self.joined(tokens[0]).generation_id
        assignments = {member_id: name.encode() for member_id, name in zip(ids, names, strict=True)}
        ids.sort(key=lambda member_id: member_id != leader)
        for member_id in reversed(ids):
            self.sync(
                member_id,
                generation,
                assignments,
                group=join.get("group", GROUP),
                protocol_type=join.get("protocol_type", "consumer"),
            )
        return ids


def classic_groups(shard: GroupShard) -> dict[str, ClassicGroup]:
    return {group.group_id: group for group in ClassicGroups(shard.groups)}

"""Committed offsets: who may commit, what is stored, and when it is forgotten.

A commit becomes an offset when the log has it: `commit` checks and records, the append's outcome stores and answers.
A commit for a group that nobody ever joined makes a *simple* group: Empty, without a protocol, there only because it
has offsets.

Offsets are forgotten (KIP-211) once the group does not read the topic and their retention is over, counted
* from when the group became empty, for a group that had members;
* from the commit, for a simple group, and for topics that a stable consumer group is not subscribed to (any more);
* not at all otherwise. A client up to v4 could give its own date, which counts instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.coordinators.effects import Token, Turn
from kwire.groups.classic_group import ClassicGroup, GroupState
from kwire.groups.config import GroupConfig
from kwire.groups.rebalance import Rebalancing
from kwire.groups.records import NO_EXPIRY, CommittedOffset, OffsetChange

NO_OFFSET = -1
LATEST_EXPIRY_MS = 2**63 - 1
NO_EPOCH = -1
NO_RETENTION_GIVEN = -1
FIRST_VERSION_TOLD_OF_MISSING_GROUP = 9

GroupOffsets = dict[str, dict[int, CommittedOffset]]
"""Topic -> partition -> what was committed."""


@attrs.define(eq=False)
class OffsetStore:
    """Offsets by group, topic and partition; no empty dictionary is kept."""

    by_group: dict[str, GroupOffsets] = attrs.field(factory=dict)

    def apply(self, change: OffsetChange) -> None:
        if change.offset is not None:
            topics = self.by_group.setdefault(change.group_id, {})
            topics.setdefault(change.topic, {})[change.partition] = change.offset
            return
        topics = self.by_group.get(change.group_id, {})
        partitions = topics.get(change.topic, {})
        partitions.pop(change.partition, None)
        if not partitions:
            topics.pop(change.topic, None)
        if not topics:
            self.by_group.pop(change.group_id, None)

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self.by_group.get(group_id, {}).items():
            for partition, offset in partitions.items():
                yield topic, partition, offset


@attrs.define(eq=False)
class Offsets:
    """The offsets of all groups of a shard."""

    config: GroupConfig
    groups: dict[str, ClassicGroup]
    rebalancing: Rebalancing
    store: OffsetStore = attrs.field(factory=OffsetStore)

    # OffsetCommit

    def commit(self, turn: Turn, request: OffsetCommitRequest, api_version: int, token: Token) -> None:
        try:
            self._check_commit(turn, request, api_version)
        except KafkaError as refused:
            turn.reply(token, commit_error(request, refused.code))
            return
        expire_ms = NO_EXPIRY
        if request.retention_time_ms != NO_RETENTION_GIVEN:
            expire_ms = min(turn.now_ms + request.retention_time_ms, LATEST_EXPIRY_MS)
        changes: list[OffsetChange] = []
        answers: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            partitions: list[OffsetCommitResponsePartition] = []
            for partition in topic.partitions:
                error = ErrorCode.NONE
                if _java_length(partition.committed_metadata) > self.config.offset_metadata_max_length:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    offset = _committed(partition, topic.topic_id, turn.now_ms, expire_ms)
                    changes.append(OffsetChange(request.group_id, topic.name, partition.partition_index, offset))
                partitions.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                )
            answers.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        self._append(turn, changes)
        turn.reply_when_appended(
            token, OffsetCommitResponse(topics=answers), lambda error: commit_error(request, error)
        )

    def _check_commit(self, turn: Turn, request: OffsetCommitRequest, api_version: int) -> None:
        generation = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        if group is None:
            if generation < 0:
                return  # a simple group comes into being with its first offset
            if api_version >= FIRST_VERSION_TOLD_OF_MISSING_GROUP:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        group.check_commit(request.member_id, request.group_instance_id, generation)
        if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self.rebalancing.start_session(turn, group, group.members[request.member_id])

    # OffsetFetch

    def fetch(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """The offsets asked for; -1 without an error where there is none, be it the offset, the topic or the group.

        `topics` of None asks for all. A topic id other than the one committed for means another topic of that name.
        """
        stored = self.store.by_group.get(request.group_id, {})
        topics: list[OffsetFetchResponseTopics] = []
        if request.topics is None:
            for name, offsets in stored.items():
                found = [_fetched(partition, offset) for partition, offset in offsets.items()]
                topics.append(OffsetFetchResponseTopics(name=name, partitions=found))
        else:
            for topic in request.topics:
                offsets = stored.get(topic.name, {})
                found = []
                for partition in topic.partition_indexes:
                    offset = offsets.get(partition)
                    if offset is not None and _other_topic(offset.topic_id, topic.topic_id):
                        offset = None
                    found.append(_fetched(partition, offset))
                topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=found))
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    # OffsetDelete

    def delete(self, turn: Turn, request: OffsetDeleteRequest, token: Token) -> None:
        try:
            group = self._check_delete(request)
        except KafkaError as refused:
            turn.reply(token, OffsetDeleteResponse(error_code=refused.code))
            return
        stored = self.store.by_group.get(request.group_id, {})
        changes: list[OffsetChange] = []
        topics: list[OffsetDeleteResponseTopic] = []
        for topic in request.topics:
            in_use = group.reads(topic.name)
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
                if not in_use and index in stored.get(topic.name, {}):
                    changes.append(OffsetChange(request.group_id, topic.name, index, None))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        self._append(turn, changes)
        turn.reply_when_appended(
            token, OffsetDeleteResponse(topics=topics), lambda error: OffsetDeleteResponse(error_code=error)
        )

    def _check_delete(self, request: OffsetDeleteRequest) -> ClassicGroup:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_offset_delete()
        return group

    def _append(self, turn: Turn, changes: list[OffsetChange]) -> None:
        if not changes:
            return

        def appended(_: Turn, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for change in changes:
                    self.apply(change)

        turn.append([change.record() for change in changes], appended)

    def apply(self, change: OffsetChange) -> None:
        """What a record says, live and at start. The first offset of a group that nobody joined makes the group."""
        if change.offset is not None and change.group_id not in self.groups:
            self.groups[change.group_id] = ClassicGroup(
                change.group_id, state_timestamp_ms=change.offset.commit_timestamp_ms
            )
        self.store.apply(change)

    # Forgetting

    def removals_of_group(self, group_id: str) -> list[OffsetChange]:
        return [OffsetChange(group_id, topic, partition, None) for topic, partition, _ in self.store.of_group(group_id)]

    def removals_of_topics(self, topics: dict[str, Uuid]) -> list[OffsetChange]:
        """The offsets of deleted topics (name -> id), in whichever group, unless committed for another topic's id."""
        return [
            OffsetChange(group_id, topic, partition, None)
            for group_id, offsets in self.store.by_group.items()
            for topic, topic_id in topics.items()
            for partition, offset in offsets.get(topic, {}).items()
            if not _other_topic(offset.topic_id, topic_id)
        ]

    def expired(self, group: ClassicGroup, now_ms: int) -> tuple[list[OffsetChange], bool]:
        """The group's expired offsets, and whether it has none but those."""
        retention_ms = self.config.offsets_retention_ms
        expired: list[OffsetChange] = []
        kept = 0
        for topic, partition, offset in self.store.of_group(group.group_id):
            since_ms = _unused_since_ms(group, offset)
            if since_ms is None or group.reads(topic):
                kept += 1
            elif now_ms >= (
                since_ms + retention_ms if offset.expire_timestamp_ms == NO_EXPIRY else offset.expire_timestamp_ms
            ):
                expired.append(OffsetChange(group.group_id, topic, partition, None))
            else:
                kept += 1
        return expired, kept == 0


def commit_error(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The response that refuses the whole request: it has no place for an error but beside each partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _committed(partition: OffsetCommitRequestPartition, topic_id: Uuid, now_ms: int, expire_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expire_ms,
        topic_id=topic_id,
    )


def _fetched(partition: int, offset: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if offset is None:
        return OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=NO_OFFSET, committed_leader_epoch=NO_EPOCH, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _other_topic(committed_for: Uuid, asked_for: Uuid) -> bool:
    """Whether the name has changed hands. Clients that go by name commit and ask without an id."""
    return committed_for != NULL_UUID and asked_for != NULL_UUID and committed_for != asked_for


def _unused_since_ms(group: ClassicGroup, offset: CommittedOffset) -> int | None:
    """From when the offset's retention counts if the group does not read its topic; None when it does not count."""
    if group.protocol_type is None:
        return offset.commit_timestamp_ms
    if group.state is GroupState.EMPTY:
        return offset.commit_timestamp_ms if group.state_timestamp_ms == -1 else group.state_timestamp_ms
    if group.state is GroupState.STABLE and group.topics is not None:
        return offset.commit_timestamp_ms
    return None


def _java_length(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2

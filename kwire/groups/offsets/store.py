"""Stores committed offsets, answers fetches, and expires offsets. `committing.py` checks the commits.

A commit takes effect when it is in the log: the append's outcome stores the offset and sends the reply. A commit for a
group that no member ever joined creates a *simple* group: Empty, without a protocol, existing only because of its
offsets. Offsets committed in a transaction are pending until it ends (`pending.py`).

Offsets expire (KIP-211) once the group does not read the topic and their retention is over. The group determines when
the retention starts (`Group.offset_unused_since_ms`). A client up to v4 could set its own retention, which then applies
instead. An offset does not expire while another is pending for its partition. A group stays while any offset is pending
for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
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
from kwire_protocol.records import NO_PRODUCER_ID
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.coordinators.effects import ProducerIdAndEpoch, Step, Token
from kwire.groups.config import GroupConfig
from kwire.groups.counts import GroupCounts
from kwire.groups.group import Group
from kwire.groups.offsets.pending import PendingOffsets
from kwire.groups.offsets.records import NO_EXPIRY, CommittedOffset, OffsetChange

NO_OFFSET = -1
NO_EPOCH = -1

GroupOffsets = dict[str, dict[int, CommittedOffset]]
"""Topic -> partition -> its committed offset."""


@attrs.define(eq=False)
class OffsetStore:
    """Offsets by group, topic and partition; empty dictionaries are removed."""

    by_group: dict[str, GroupOffsets] = attrs.field(factory=dict)
    count: int = 0
    """The number of offsets."""

    def apply(self, change: OffsetChange) -> None:
        if change.offset is not None:
            topics = self.by_group.setdefault(change.group_id, {})
            partitions = topics.setdefault(change.topic, {})
            self.count += change.partition not in partitions
            partitions[change.partition] = change.offset
            return
        topics = self.by_group.get(change.group_id, {})
        partitions = topics.get(change.topic, {})
        self.count -= partitions.pop(change.partition, None) is not None
        if not partitions:
            topics.pop(change.topic, None)
        if not topics:
            self.by_group.pop(change.group_id, None)

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self.by_group.get(group_id, {}).items():
            for partition, offset in partitions.items():
                yield topic, partition, offset


class MakeSimpleGroup(Protocol):
    def __call__(self, group_id: str, *, commit_timestamp_ms: int) -> None: ...


@attrs.define(eq=False)
class Offsets:
    """The offsets of all groups of a shard. `make_simple_group` creates the group for an id that has none."""

    config: GroupConfig
    groups: dict[str, Group]
    make_simple_group: MakeSimpleGroup
    counts: GroupCounts
    store: OffsetStore = attrs.field(factory=OffsetStore)
    pending: PendingOffsets = attrs.field(factory=PendingOffsets)

    # OffsetFetch

    def fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool = False) -> OffsetFetchResponseGroup:
        """The requested offsets; -1 without an error if there is no such offset, topic or group.

        `topics` of None requests all. A topic id other than the committed one means another topic with that name. With
        `require_stable` a partition with a pending offset is UNSTABLE_OFFSET_COMMIT instead. Raises KafkaError if the
        requesting member may not read them.
        """
        group_id = request.group_id
        group = self.groups.get(group_id)
        if group is not None:
            group.check_fetch(request.member_id, request.member_epoch)
        stored = self.store.by_group.get(group_id, {})
        if require_stable and not self.pending.has_group(group_id):
            require_stable = False
        topics: list[OffsetFetchResponseTopics] = []
        if request.topics is None:
            for name, offsets in stored.items():
                found = [
                    _unstable(partition)
                    if require_stable and self.pending.has(group_id, name, partition)
                    else _fetched(partition, offset)
                    for partition, offset in offsets.items()
                ]
                topics.append(OffsetFetchResponseTopics(name=name, partitions=found))
        else:
            for topic in request.topics:
                offsets = stored.get(topic.name, {})
                found = []
                for partition in topic.partition_indexes:
                    if require_stable and self.pending.has(group_id, topic.name, partition):
                        found.append(_unstable(partition))
                        continue
                    offset = offsets.get(partition)
                    if offset is not None and _other_topic(offset.topic_id, topic.topic_id):
                        offset = None
                    found.append(_fetched(partition, offset))
                topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=found))
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    # OffsetDelete

    def delete(self, step: Step, request: OffsetDeleteRequest, token: Token) -> None:
        try:
            group = self._check_delete(request)
        except KafkaError as refused:
            step.reply(token, OffsetDeleteResponse(error_code=refused.code))
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
                if not in_use and (
                    index in stored.get(topic.name, {}) or self.pending.has(request.group_id, topic.name, index)
                ):
                    changes.append(OffsetChange(request.group_id, topic.name, index, None))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        self.append(step, changes)
        self.counts.offset_deletions += len(changes)
        step.reply_when_appended(
            token, OffsetDeleteResponse(topics=topics), lambda error: OffsetDeleteResponse(error_code=error)
        )

    def _check_delete(self, request: OffsetDeleteRequest) -> Group:
        group = self.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_offset_delete()
        return group

    def append(self, step: Step, changes: list[OffsetChange], producer: ProducerIdAndEpoch | None = None) -> None:
        """Records the changes, in the producer's transaction if one is given, and then applies them."""
        if not changes:
            return
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id

        def appended(_: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for change in changes:
                    self.apply(change, producer_id)

        step.append([change.record() for change in changes], appended, producer=producer)

    def apply(self, change: OffsetChange, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies a record, live or at the start. With a `producer_id` it is part of that producer's transaction.

        The first offset for an unknown group id creates the group, even if the transaction is then aborted.
        """
        group_id, topic, partition, offset = change.group_id, change.topic, change.partition, change.offset
        if offset is None:
            self.store.apply(change)
            self.pending.remove(group_id, topic, partition)
            return
        if group_id not in self.groups:
            self.make_simple_group(group_id, commit_timestamp_ms=offset.commit_timestamp_ms)
        if producer_id == NO_PRODUCER_ID:
            self.store.apply(change)
            self.pending.outdate(group_id, topic, partition)
        else:
            self.pending.add(producer_id, change)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker is written: the producer's pending offsets are committed or dropped."""
        for change in self.pending.end(producer_id, committed=committed):
            self.store.apply(change)

    # Removal

    def removals_of_group(self, group_id: str) -> list[OffsetChange]:
        """One removal for each partition with an offset or a pending offset."""
        keys = {(topic, partition): None for topic, partition, _ in self.store.of_group(group_id)}
        keys.update(dict.fromkeys(self.pending.of_group(group_id)))
        return [OffsetChange(group_id, topic, partition, None) for topic, partition in keys]

    def removals_of_topics(self, topics: dict[str, Uuid]) -> list[OffsetChange]:
        """Returns removals of the offsets of deleted topics (name -> id) in all groups, unless for another topic's id.

        Includes their pending offsets.
        """
        keys = {
            (group_id, topic, partition): None
            for group_id, offsets in self.store.by_group.items()
            for topic, topic_id in topics.items()
            for partition, offset in offsets.get(topic, {}).items()
            if not _other_topic(offset.topic_id, topic_id)
        }
        for topic, topic_id in topics.items():
            for group_id, partition, committed_for in self.pending.topic_ids(topic):
                if not _other_topic(committed_for, topic_id):
                    keys[group_id, topic, partition] = None
        return [OffsetChange(group_id, topic, partition, None) for group_id, topic, partition in keys]

    def expired(self, group: Group, now_ms: int) -> tuple[list[OffsetChange], bool]:
        """Returns removals of the group's expired offsets, and True if it has no others and none pending."""
        retention_ms = self.config.offsets_retention_ms
        expired: list[OffsetChange] = []
        unexpired = 0
        for topic, partition, offset in self.store.of_group(group.group_id):
            since_ms = group.offset_unused_since_ms(offset.commit_timestamp_ms)
            if since_ms is None or group.reads(topic) or self.pending.has(group.group_id, topic, partition):
                unexpired += 1
            elif now_ms >= (
                since_ms + retention_ms if offset.expire_timestamp_ms == NO_EXPIRY else offset.expire_timestamp_ms
            ):
                expired.append(OffsetChange(group.group_id, topic, partition, None))
            else:
                unexpired += 1
        return expired, unexpired == 0 and not self.pending.has_group(group.group_id)


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_EPOCH,
        metadata="",
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
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


def _other_topic(committed_for: Uuid, requested_for: Uuid) -> bool:
    """True if the name belongs to another topic now. Clients that use names commit and fetch without an id."""
    return committed_for != NULL_UUID and requested_for != NULL_UUID and committed_for != requested_for

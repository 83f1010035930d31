"""Sets the offsets of a group that has no members, by the rules of Kafka's ConsumerGroupCommand and ShareGroupCommand.

A reset is planned first, which changes nothing: each partition with its offset before and after. An offset outside of
the log becomes the nearest one inside. A time without a later record means the end of the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)

from kwire.admin.groups import SHARE, GroupDescription, GroupNotEmpty, GroupNotFound
from kwire.admin.groups_offsets import Position, positions
from kwire.admin.partitions import by_topic, look_up_partitions
from kwire.client.cluster import Cluster, CoordinatorKind, TopicPartition
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError, UnknownTopic, refused
from kwire.client.groups import commit_offsets
from kwire.client.offsets import EARLIEST, LATEST, list_offsets


@attrs.frozen
class ToEarliest:
    pass


@attrs.frozen
class ToLatest:
    pass


@attrs.frozen
class ToOffset:
    offset: int


@attrs.frozen
class ShiftBy:
    """Shifts the current offset by `count` records; backwards if negative."""

    count: int


@attrs.frozen
class ToTime:
    """Resets to the first record with this timestamp or a later one."""

    timestamp_ms: int


ResetTarget: TypeAlias = ToEarliest | ToLatest | ToOffset | ShiftBy | ToTime

Scope: TypeAlias = Mapping[str, Collection[int] | None]
"""Topics, each with some of its partitions, or None for all."""


@attrs.frozen
class PlannedReset:
    at: TopicPartition
    before: int | None
    after: int
    wanted: int
    """The requested offset. Differs from `after` if it is not in the log."""


@attrs.frozen
class Bounds:
    """The first offset and the end offset of a partition's log."""

    first: int
    end: int

    def nearest(self, offset: int) -> int:
        return min(max(offset, self.first), self.end)


class NothingCommitted(ClientError):
    """There is no offset to shift."""


def new_offset(target: ResetTarget, *, before: int | None, bounds: Bounds, at_time: int | None) -> int:
    """Returns the requested offset, in the log or not. Raises NothingCommitted.

    `at_time`: the offset of the first record at or after the time of ToTime, if there is one.
    """
    match target:
        case ToEarliest():
            return bounds.first
        case ToLatest():
            return bounds.end
        case ToOffset(offset):
            return offset
        case ShiftBy(count):
            if before is None:
                raise NothingCommitted("there is no committed offset to shift")
            return before + count
        case ToTime():
            return bounds.end if at_time is None else at_time


def plan_reset(
    cluster: Cluster, group: GroupDescription, scope: Scope | None, target: ResetTarget
) -> list[PlannedReset]:
    """Returns the planned resets by topic and number. Without a scope: all partitions in which the group has an offset.

    Raises UnknownTopic, NothingCommitted, and other ClientErrors. Does not check that the group has no members.
    """
    found = positions(cluster, group)
    chosen = [at for at, it in found.items() if it.offset is not None] if scope is None else _in(cluster, scope)
    planned = []
    for topic, indexes in sorted(by_topic(sorted(chosen)).items()):
        first = list_offsets(cluster, topic, EARLIEST, partitions=indexes)
        end = list_offsets(cluster, topic, LATEST, partitions=indexes)
        at_time: dict[int, int] = {}
        if isinstance(target, ToTime):
            at_time = list_offsets(cluster, topic, target.timestamp_ms, partitions=indexes)
        for index in indexes:
            at, bounds = TopicPartition(topic, index), Bounds(first[index], end[index])
            before = found.get(at, Position(None)).offset
            try:
                wanted = new_offset(target, before=before, bounds=bounds, at_time=at_time.get(index))
            except NothingCommitted as error:
                raise NothingCommitted(f"{at}: {error.message}") from None
            planned.append(PlannedReset(at, before, bounds.nearest(wanted), wanted))
    return planned


def check_inactive(group: GroupDescription) -> None:
    """Raises GroupNotEmpty: members would continue from their own positions, and commit those."""
    if group.members or not group.is_inactive:
        count = f", members: {len(group.members)}" if group.members else ""
        raise GroupNotEmpty(
            f"group {quoted(group.group_id)} is active (state {group.state}{count}): "
            "offsets can be reset only while it has no members, so stop them first"
        )


def execute_reset(cluster: Cluster, group: GroupDescription, planned: Sequence[PlannedReset]) -> None:
    """Raises GroupNotEmpty, GroupHasMembers, and other ClientErrors; some offsets may then be set."""
    check_inactive(group)
    if group.kind == SHARE:
        _alter_share_offsets(cluster, group.group_id, planned)
    else:
        commit_offsets(cluster, group.group_id, {it.at: it.after for it in planned})


def _in(cluster: Cluster, scope: Scope) -> list[TopicPartition]:
    known = look_up_partitions(cluster, scope.keys())
    found = []
    for topic, indexes in scope.items():
        all_of_it = [at.partition for at in known if at.topic == topic]
        for index in all_of_it if indexes is None else indexes:
            if index not in all_of_it:
                raise UnknownTopic(
                    f"partition {index} of topic {quoted(topic)} not found: it has {len(all_of_it)}, from 0"
                )
            found.append(TopicPartition(topic, index))
    return found


def _alter_share_offsets(cluster: Cluster, group_id: str, planned: Sequence[PlannedReset]) -> None:
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = defaultdict(list)
    for it in planned:
        topics[it.at.topic].append(AlterShareGroupOffsetsRequestPartition(it.at.partition, it.after))
    request = AlterShareGroupOffsetsRequest(
        group_id, [AlterShareGroupOffsetsRequestTopic(name, partitions) for name, partitions in topics.items()]
    )

    def call(coordinator: BrokerConnection) -> None:
        answer: AlterShareGroupOffsetsResponse = coordinator.call(request)
        what = f"the offsets of group {quoted(group_id)} are not reset"
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise GroupNotFound(group_id)
        if answer.error_code == ErrorCode.NON_EMPTY_GROUP:
            raise GroupNotEmpty(f"{what}: it has members (NON_EMPTY_GROUP)")
        if answer.error_code:
            raise refused(what, answer.error_code, answer.error_message)
        for it in (it for topic in answer.responses for it in topic.partitions):
            if it.error_code:
                raise refused(what, it.error_code, it.error_message)

    cluster.call_coordinator(CoordinatorKind.GROUP, group_id, call)

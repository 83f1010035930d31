"""OffsetCommit and TxnOffsetCommit: which commits are accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import ProducerIdAndEpoch, Step, Token
from kwire.groups.config import GroupConfig
from kwire.groups.counts import GroupCounts
from kwire.groups.group import CheckPartition, Committer, Group, accept_all
from kwire.groups.offsets.records import NO_EXPIRY, CommittedOffset, OffsetChange
from kwire.groups.offsets.store import Offsets

LATEST_EXPIRY_MS = 2**63 - 1
NO_RETENTION_GIVEN = -1
FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9
FIRST_TXN_VERSION_WITH_GROUP_ID_NOT_FOUND = 6


@attrs.define(eq=False)
class Committing:
    """Offset commits of a shard's groups. Calls `committed_by` for each accepted commit, with its group and member."""

    config: GroupConfig
    groups: dict[str, Group]
    offsets: Offsets
    committed_by: Callable[[Step, Group, str], None]
    counts: GroupCounts

    def commit(self, step: Step, request: OffsetCommitRequest, api_version: int, token: Token) -> None:
        try:
            check = self._check_commit(step, request, api_version)
        except KafkaError as refused:
            step.reply(token, commit_error(request, refused.code))
            return
        expire_ms = NO_EXPIRY
        if request.retention_time_ms != NO_RETENTION_GIVEN:
            expire_ms = min(step.now.wall_ms + request.retention_time_ms, LATEST_EXPIRY_MS)
        changes: list[OffsetChange] = []
        answers = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(index, error)
                    for index, error in self._take(request.group_id, topic, step.now.wall_ms, expire_ms, check, changes)
                ],
            )
            for topic in request.topics
        ]
        self.offsets.append(step, changes)
        self.counts.offset_commits += len(changes)
        step.reply_when_appended(
            token, OffsetCommitResponse(topics=answers), lambda error: commit_error(request, error)
        )

    def commit_transactional(self, step: Step, request: TxnOffsetCommitRequest, api_version: int, token: Token) -> None:
        try:
            check = self._check_transactional_commit(request, api_version)
        except KafkaError as refused:
            step.reply(token, txn_commit_error(request, refused.code))
            return
        changes: list[OffsetChange] = []
        answers = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(index, error)
                    for index, error in self._take(request.group_id, topic, step.now.wall_ms, NO_EXPIRY, check, changes)
                ],
            )
            for topic in request.topics
        ]
        self.counts.offset_commits += len(changes)
        self.offsets.append(step, changes, ProducerIdAndEpoch(request.producer_id, request.producer_epoch))
        step.reply_when_appended(
            token, TxnOffsetCommitResponse(topics=answers), lambda error: txn_commit_error(request, error)
        )

    def _take(
        self,
        group_id: str,
        topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
        now_ms: int,
        expire_ms: int,
        check: CheckPartition,
        changes: list[OffsetChange],
    ) -> Iterator[tuple[int, ErrorCode]]:
        """Returns each partition of the topic with its error. Partitions without an error are added to `changes`."""
        for partition in topic.partitions:
            if _java_length(partition.committed_metadata) > self.config.offset_metadata_max_length:
                yield partition.partition_index, ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif error := check(topic.name, topic.topic_id, partition.partition_index):
                yield partition.partition_index, error
            else:
                offset = _committed(partition, topic.topic_id, now_ms, expire_ms)
                changes.append(OffsetChange(group_id, topic.name, partition.partition_index, offset))
                yield partition.partition_index, ErrorCode.NONE

    def _check_commit(self, step: Step, request: OffsetCommitRequest, api_version: int) -> CheckPartition:
        generation = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        if group is None:
            if generation < 0:
                return accept_all  # a simple group is created by its first offset
            if api_version >= FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        check = group.check_commit(Committer(request.member_id, request.group_instance_id, generation, api_version))
        self.committed_by(step, group, request.member_id)
        return check

    def _check_transactional_commit(self, request: TxnOffsetCommitRequest, api_version: int) -> CheckPartition:
        """It does not count as a heartbeat: only OffsetCommit extends the session."""
        group = self.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is not None:
            return group.check_transactional_commit(
                Committer(request.member_id, request.group_instance_id, generation, api_version)
            )
        if generation >= 0:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND
                if api_version >= FIRST_TXN_VERSION_WITH_GROUP_ID_NOT_FOUND
                else ErrorCode.ILLEGAL_GENERATION
            )
        return accept_all


def commit_error(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Returns the response that refuses the whole request. It has no error of its own, so each partition has it."""
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


def txn_commit_error(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """Returns a TxnOffsetCommit response with the error for each partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition.partition_index, error) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _committed(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: Uuid,
    now_ms: int,
    expire_ms: int,
) -> CommittedOffset:
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=expire_ms,
        topic_id=topic_id,
    )


def _java_length(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2

"""The reading half of Fetch: finds ranges of segment files for the partitions that a client fetches.

Nothing here waits or decodes records. Each partition takes two look-ups (segment, sparse index), which give a range of
whole batches. The first batch of an answer is returned even if it is larger than every limit, so that a consumer always
makes progress.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)

from kwire.replicas.closest import closest_follower
from kwire.replicas.fetch_sessions import CachedPartition, FetchContext, TopicKey
from kwire.replicas.partition import CONSUMER, Partition
from kwire.replicas.roles import NO_EPOCH, Leader, NotLeaderError

if TYPE_CHECKING:
    from kwire.replicas.table import TopicRef

    Find = Callable[[TopicRef, int], Partition]

_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
NO_RECORDS = b""
NO_PREFERRED_REPLICA = -1
FIRST_VERSION_WITH_IDS = 13
LEADERS_TOLD_SINCE = 16
"""The field exists from v12 on. Consumers use it since KIP-951 (v16), and Kafka fills it in only for them."""


@attrs.define(eq=False)
class FollowersFetch:
    """When a follower fetches (monotonic), and in which broker epoch (KIP-903, since v15)."""

    now_ms: int = 0
    broker_epoch: int = NO_EPOCH


@attrs.define(eq=False)
class FetchLimits:
    """How much one request may read, and which records; sizes in bytes.

    `bound` gives the offset below which it reads a partition (`kwire.replicas.partition.read_bound`). With
    `any_replica` followers serve it too; `is_near` says which brokers are in the reader's rack, if the leader is not.
    """

    version: int
    max_bytes: int
    committed: bool
    bound: Callable[[Partition], int]
    replica_id: int = CONSUMER
    follower: FollowersFetch | None = None
    any_replica: bool = False
    is_near: Callable[[int], bool] | None = None


@attrs.define(eq=False)
class FetchResult:
    """The answers, in the order of the request, and what decides whether the fetch waits for more."""

    answers: list[tuple[CachedPartition, PartitionData]]
    found: list[tuple[CachedPartition, Partition]]
    size: int = 0
    is_urgent: bool = False
    """Whether the reader must learn something at once: an error, a divergence, a better replica."""
    leader_moved: bool = False


def read_partitions(find: Find, wanted: list[CachedPartition], limits: FetchLimits) -> FetchResult:
    """Reads every partition once, in order, until `limits.max_bytes` are used up. `find` as `PartitionTable.find`."""
    result = FetchResult([], [])
    left = limits.max_bytes
    by_id = limits.version >= FIRST_VERSION_WITH_IDS
    for followed in wanted:
        partition: Partition | None = None
        name, topic_id = followed.topic
        try:
            partition = find(topic_id if by_id else name, followed.index)
            result.found.append((followed, partition))
            answer, size = _read(partition, followed, limits, left, first=result.size == 0)
        except (KafkaError, OSError) as failure:
            error = _refusal(partition, failure)
            result.is_urgent = True
            answer = PartitionData(followed.index, error.code, -1, records=NO_RECORDS)
            if error.code not in _UNKNOWN:
                # As in Kafka: null for a partition that could not be read, empty for one that does not exist.
                answer.aborted_transactions = None
            if limits.version >= LEADERS_TOLD_SINCE and isinstance(error, NotLeaderError):
                result.leader_moved = True
                answer.current_leader = LeaderIdAndEpoch(error.leader_id, error.leader_epoch)
        else:
            result.size += size
            left -= size
            result.is_urgent = result.is_urgent or _is_urgent(answer) or _has_to_delete(followed, answer, limits)
        result.answers.append((followed, answer))
    return result


def _refusal(partition: Partition | None, failure: KafkaError | OSError) -> KafkaError:
    if isinstance(failure, KafkaError):
        return failure
    assert partition is not None, "only a partition that was found is read"
    return partition.storage_error(failure)


def _read(
    partition: Partition, followed: CachedPartition, limits: FetchLimits, left: int, *, first: bool
) -> tuple[PartitionData, int]:
    """The answer for one partition, and the size of its records in bytes."""
    if limits.any_replica:
        role = partition.readable(followed.current_leader_epoch)
    else:
        role = leader = partition.leader(followed.current_leader_epoch)
        if limits.replica_id != CONSUMER and not leader.follows(limits.replica_id):
            raise NotLeaderError(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.leader_id, leader.leader_epoch)
    answer = PartitionData(
        followed.index,
        0,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        aborted_transactions=[] if limits.committed else None,
        records=NO_RECORDS,
    )
    offset = followed.fetch_offset
    if limits.is_near is not None and type(role) is Leader:
        preferred = closest_follower(role, offset, limits.is_near)
        if preferred is not None:
            answer.preferred_read_replica = preferred
            answer.aborted_transactions = None
            return answer, 0
    if followed.last_fetched_epoch != NO_EPOCH:
        answer.diverging_epoch = _divergence(partition, followed)
        if answer.diverging_epoch is not None:
            return answer, 0
    bound = limits.bound(partition)
    if limits.replica_id != CONSUMER:
        partition.check_offset(offset)
        follower = limits.follower or FollowersFetch()
        partition.note_fetch(
            limits.replica_id,
            offset,
            start_offset=followed.log_start_offset,
            now_ms=follower.now_ms,
            broker_epoch=follower.broker_epoch,
        )
        answer.high_watermark, answer.last_stable_offset = partition.high_watermark, partition.last_stable_offset
    if offset == bound:
        return answer, 0  # a reader that has caught up: most of them, most of the time
    max_bytes = min(followed.max_bytes, left)
    if max_bytes <= 0 and not first:
        # No bytes are left: the answer still has the partition's offsets, and the fetch offset is still checked.
        partition.check_offset(offset)
        return answer, 0
    piece = partition.read(offset, max_bytes=max(max_bytes, 0), max_offset=bound, min_one_batch=first)
    if piece.size:
        answer.records = piece
        if limits.committed:
            answer.aborted_transactions = [
                AbortedTransaction(aborted.producer_id, aborted.first_offset)
                for aborted in partition.aborted_transactions(offset, piece)
            ]
    return answer, piece.size


def _is_urgent(answer: PartitionData) -> bool:
    return (
        answer.error_code != 0
        or answer.diverging_epoch is not None
        or answer.preferred_read_replica != NO_PREFERRED_REPLICA
    )


def _has_to_delete(followed: CachedPartition, answer: PartitionData, limits: FetchLimits) -> bool:
    """Whether a follower has records that the leader has deleted, and was not told so. DeleteRecords waits for it."""
    return (
        limits.follower is not None
        and followed.log_start_offset < answer.log_start_offset
        and followed.told_log_start_offset != answer.log_start_offset
    )


def _divergence(partition: Partition, followed: CachedPartition) -> EpochEndOffset | None:
    """KIP-595: where the reader's log diverged from ours, if it did. KafkaError(OFFSET_OUT_OF_RANGE) if unknown."""
    epoch, end_offset = partition.log.end_offset_for_epoch(followed.last_fetched_epoch)
    if end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < followed.last_fetched_epoch or end_offset < followed.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None


def to_response(fetch: FetchContext, result: FetchResult) -> FetchResponse:
    """Groups the answers by topic. An incremental response leaves out partitions without news."""
    session = fetch.session
    topics: list[FetchableTopicResponse] = []
    current: TopicKey | None = None
    for followed, answer in result.answers:
        if session is not None:
            has_records = answer.records is not NO_RECORDS
            news = followed.is_news(
                has_records=has_records,
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                is_urgent=_is_urgent(answer),
            )
            if fetch.incremental:
                if not news:
                    continue
                if has_records:
                    session.serve_last(followed)
        if followed.topic != current:
            current = followed.topic
            topics.append(FetchableTopicResponse(current[0], current[1]))
        topics[-1].partitions.append(answer)
    return FetchResponse(session_id=fetch.session_id, responses=topics)

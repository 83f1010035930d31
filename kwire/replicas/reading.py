"""The reads of Fetch: finds ranges of segment files for the partitions that a client fetches.

Nothing here decodes records. Each partition takes two look-ups (segment, sparse index), which give a range of whole
batches; `await_late` waits for logs whose bytes are elsewhere. The first batch of an answer is returned even if it is
larger than every limit, so that a consumer always makes progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from kwire_storage.log.slices import LogSlice

from kwire.replicas.closest import closest_follower
from kwire.replicas.fetch_sessions import CachedPartition, FetchContext, TopicKey
from kwire.replicas.partition import CONSUMER, Partition
from kwire.replicas.partition_log import LogRead
from kwire.replicas.quotas import ReplicationQuota, no_quota
from kwire.replicas.roles import NO_EPOCH, Leader, NotLeaderError

if TYPE_CHECKING:
    from kwire.replicas.table import TopicRef

    Find = Callable[[TopicRef, int], Partition]

_UNKNOWN_OR_UNAUTHORIZED = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
NO_RECORDS = b""
NO_PREFERRED_REPLICA = -1
FIRST_VERSION_OF_ANY_REPLICA = 11
"""Earlier consumers do not expect a follower's response."""
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_CURRENT_LEADER = 16
"""The field exists from v12 on. Consumers use it since KIP-951 (v16), and Kafka fills it in only for them."""


@attrs.define(eq=False)
class FollowersFetch:
    """The time of a follower's fetch (monotonic), and its broker epoch (KIP-903, since v15).

    `quota` is for the partitions whose leaders are throttled (KIP-73).
    """

    now_ms: int = 0
    broker_epoch: int = NO_EPOCH
    quota: ReplicationQuota = attrs.field(factory=no_quota)
    _throttled_bytes: int = 0
    """The throttled bytes found so far for this answer."""

    def read_again(self, now_ms: int) -> None:
        """Resets the counted bytes, because the records are not sent, and the partitions are read again."""
        self.now_ms, self._throttled_bytes = now_ms, 0

    def has_to_wait(self, partition: Partition, leader: Leader, replica_id: int) -> bool:
        """True if it gets no records of the partition now. A follower that is in sync never waits."""
        return replica_id not in leader.isr and partition.is_leader_throttled and self.quota.is_exceeded(self.now_ms)

    def found(self, partition: Partition, size: int) -> None:
        if partition.is_leader_throttled:
            self._throttled_bytes += size

    def sent(self) -> None:
        """Counts the throttled bytes in the answer, also for followers that are in sync."""
        if self._throttled_bytes:
            self.quota.record(self._throttled_bytes, self.now_ms)


@attrs.define(eq=False)
class FetchLimits:
    """The limits on how much one request may read, and on which records; sizes in bytes.

    `bound` gives the offset below which it reads a partition (`kwire.replicas.partition.read_bound`).
    `is_near` returns True for a broker in the reader's rack; it is None if this one is.
    """

    version: int
    max_bytes: int
    committed: bool
    bound: Callable[[Partition], int]
    replica_id: int = CONSUMER
    follower: FollowersFetch | None = None
    is_near: Callable[[int], bool] | None = None
    may_rest: bool = False
    """True if the request belongs to a session, which reads only what has changed."""


@attrs.frozen
class LateRead:
    """A read from `offset` on. `FetchResult.size` counts `max_bytes` until the slice is there."""

    answer_index: int
    """The index of the answer in `FetchResult.answers`."""
    partition: Partition
    offset: int
    max_bytes: int
    piece: LogRead


@attrs.define(eq=False)
class FetchResult:
    """The answers, in the order of the request, and the facts that decide if the fetch waits for more."""

    answers: list[tuple[CachedPartition, PartitionData]]
    found: list[tuple[CachedPartition, Partition]]
    late: list[LateRead]
    """The reads whose logs must wait for the bytes: `await_late` completes their answers."""
    size: int = 0
    is_urgent: bool = False
    """True if the reader must get the answer at once: an error, a divergence, a better replica."""
    leader_moved: bool = False


def read_partitions(find: Find, wanted: Iterable[CachedPartition], limits: FetchLimits) -> FetchResult:
    """Reads every partition once, in order, until `limits.max_bytes` are used up. `find` as `PartitionTable.find`."""
    result = FetchResult([], [], [])
    by_id = limits.version >= FIRST_VERSION_WITH_IDS
    for followed in wanted:
        partition: Partition | None = None
        name, topic_id = followed.topic
        try:
            partition = find(topic_id if by_id else name, followed.index)
            result.found.append((followed, partition))
            answer = _read(partition, followed, limits, result)
        except (KafkaError, OSError) as failure:
            error = _refusal(partition, failure)
            result.is_urgent = True
            answer = _refused(followed, error)
            if limits.version >= FIRST_VERSION_WITH_CURRENT_LEADER and isinstance(error, NotLeaderError):
                result.leader_moved = True
                answer.current_leader = LeaderIdAndEpoch(error.leader_id, error.leader_epoch)
        result.answers.append((followed, answer))
    return result


def _refusal(partition: Partition | None, failure: KafkaError | OSError) -> KafkaError:
    if isinstance(failure, KafkaError):
        return failure
    assert partition is not None, "only a partition that was found is read"
    return partition.storage_error(failure)


def _read(partition: Partition, followed: CachedPartition, limits: FetchLimits, result: FetchResult) -> PartitionData:
    """The answer for one partition. Adds the size of its records to the result's, and notes what is urgent."""
    replica_id = limits.replica_id
    if replica_id == CONSUMER and limits.version >= FIRST_VERSION_OF_ANY_REPLICA:
        role = partition.readable(followed.current_leader_epoch)
    else:
        role = leader = partition.leader(followed.current_leader_epoch)
        if replica_id != CONSUMER and not leader.follows(replica_id):
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
            result.is_urgent = True
            answer.preferred_read_replica = preferred
            answer.aborted_transactions = None
            return answer
    if followed.last_fetched_epoch != NO_EPOCH:
        answer.diverging_epoch = _divergence(partition, followed)
        if answer.diverging_epoch is not None:
            # A reader whose log has diverged from ours must get that at once, like an error.
            result.is_urgent = True
            return answer
    bound = limits.bound(partition)
    if replica_id != CONSUMER:
        partition.check_offset(offset)
        _note_follower(partition, followed, limits)
        answer.high_watermark, answer.last_stable_offset = partition.high_watermark, partition.last_stable_offset
        if followed.log_start_offset < answer.log_start_offset != followed.sent_log_start_offset:
            result.is_urgent = True  # it has records that are deleted here, and DeleteRecords waits for it
        if limits.follower is not None and limits.follower.has_to_wait(partition, leader, replica_id):
            return answer
    if offset == bound:  # a reader that has caught up: most of them, most of the time
        if limits.may_rest:
            _rest(partition, followed, limits)
        return answer
    left, is_first = limits.max_bytes - result.size, not result.size
    max_bytes = max(min(followed.max_bytes, left), 0)
    if not max_bytes and not is_first:
        # No bytes are left: the answer still has the partition's offsets, and the fetch offset is still checked.
        partition.check_offset(offset)
        return answer
    piece = partition.read(offset, max_bytes=max_bytes, max_offset=bound, min_one_batch=is_first)
    if type(piece) is not LogSlice:
        result.late.append(LateRead(len(result.answers), partition, offset, max_bytes, piece))
        result.size += max_bytes
    elif piece.size:
        result.size += piece.size
        if limits.follower is not None:
            limits.follower.found(partition, piece.size)
        answer.records = piece
        if limits.committed:
            answer.aborted_transactions = _aborted(partition, offset, piece)
    return answer


def _aborted(partition: Partition, offset: int, piece: LogSlice) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(aborted.producer_id, aborted.first_offset)
        for aborted in partition.aborted_transactions(offset, piece)
    ]


async def await_late(limits: FetchLimits, result: FetchResult) -> None:
    """Waits for the reads that could not be answered at once, and completes their answers."""
    for read in result.late:
        partition = read.partition
        result.size -= read.max_bytes
        followed, answer = result.answers[read.answer_index]
        try:
            piece = await partition.arrived(read.piece)
            if piece.size:
                if limits.committed:
                    answer.aborted_transactions = _aborted(partition, read.offset, piece)
                answer.records = piece
                result.size += piece.size
                if limits.follower is not None:
                    limits.follower.found(partition, piece.size)
        except KafkaError as error:
            result.is_urgent = True
            result.answers[read.answer_index] = followed, _refused(followed, error)
    result.late.clear()


def _refused(followed: CachedPartition, error: KafkaError) -> PartitionData:
    answer = PartitionData(followed.index, error.code, -1, records=NO_RECORDS)
    if error.code not in _UNKNOWN_OR_UNAUTHORIZED:
        # Null, as in Kafka, for a partition that could not be read, empty for one that does not exist or whose topic
        # the client may not read.
        answer.aborted_transactions = None
    return answer


def _note_follower(partition: Partition, followed: CachedPartition, limits: FetchLimits) -> None:
    follower = limits.follower or FollowersFetch()
    partition.note_fetch(
        limits.replica_id,
        followed.fetch_offset,
        start_offset=followed.log_start_offset,
        now_ms=follower.now_ms,
        broker_epoch=follower.broker_epoch,
    )


def _rest(partition: Partition, followed: CachedPartition, limits: FetchLimits) -> None:
    """Lets a partition rest whose reader has everything: its session reads it again only after a change."""
    if limits.replica_id == CONSUMER:
        followed.rest(partition, None)
        return
    leader = partition.leader()
    if limits.replica_id in leader.isr:  # each fetch of another one may let it join
        followed.rest(partition, leader.followers[limits.replica_id])


def _divergence(partition: Partition, followed: CachedPartition) -> EpochEndOffset | None:
    """The point at which the reader's log diverged from ours (KIP-595); None if it did not.
    KafkaError(OFFSET_OUT_OF_RANGE) if unknown."""
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
                is_urgent=answer.error_code != 0
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica != NO_PREFERRED_REPLICA,
            )
            session.update_due(followed, has_records=has_records)
            if fetch.incremental and not news:
                continue
        if followed.topic != current:
            current = followed.topic
            topics.append(FetchableTopicResponse(current[0], current[1]))
        topics[-1].partitions.append(answer)
    return FetchResponse(session_id=fetch.session_id, responses=topics)

"""The follower's side of replication: the requests to one leader node, and the processing of its responses. Pure.

    request = fetcher.next_request(now_ms)      a Fetch, seldom a ListOffsets, or None: see `next_deadline_ms`
    fetcher.received(response, now_ms)          the response to it
    fetcher.disconnected(now_ms)                or there is none

One request is in flight at a time. Each partition continues at the end of its log, and names the leader epoch of its
last record, so that the leader can find the point where the two logs diverge (KIP-595):

    records             appended unchanged, after a check of every batch
    diverging epoch     the log is cut to the end of the last epoch that both have, and no further
    OFFSET_OUT_OF_RANGE the end and start of the leader's log are requested; the log is cut, or restarts there.
                        If it is in that range, and of a later epoch than the leader's, its epoch is cut
    any other error     the partition waits for replica.fetch.backoff.ms, or for the metadata

An answer counts only if its request was sent in the leader epoch that is followed now. The leader is not trusted: an
answer that contradicts itself or the log makes the partition wait, with one line in the log.

A throttled replica that is not in sync is left out of requests while more than the quota has been fetched (KIP-73).

Requests belong to an incremental session (KIP-227): after the first one they name only changed partitions. As in
Kafka's AbstractFetcherThread and FetchSessionHandler.

Partitions join the session a few at a time. The first records of a partition cost a follower the most: it opens the
log's files. After a restart, those of its partitions that are in sync already would wait while it opens all the others.
So only as many join with a request as the follower processes in a few milliseconds.
"""

from __future__ import annotations

import logging
import math
from typing import Final, Protocol

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kwire_protocol.record_batch import check_batch
from kwire_protocol.records import InvalidBatch, iter_headers
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.backoff import Backoff
from kwire.replicas.quotas import ReplicationQuota, no_quota

log = logging.getLogger(__name__)

LEAST_FETCH_VERSION, MOST_FETCH_VERSION = 15, 17
"""v15 has the broker epoch (KIP-903). v17 has the directory id; v18 lets the leader delay the high watermark."""
LEAST_LIST_OFFSETS_VERSION: Final = 4
"""v4 has the leader epoch."""

LATEST, EARLIEST = -1, -2
"""Timestamps of ListOffsets."""

_NO_SESSION, _INITIAL_EPOCH, _MAX_EPOCH = 0, 0, 2**31 - 1

LARGEST_OFFSET: Final = 2**63 - 1

FIRST_PAUSE_MS: Final = 5
"""The first pause after an election. One of two nodes gets its metadata first, the other soon afterwards. So a
partition is fetched again after this time, after twice the time, and so on up to replica.fetch.backoff.ms."""

LEAST_NEWCOMERS, MOST_NEWCOMERS = 3, 640
"""The number of partitions that join the session with one request: half as many after an answer that took
long, twice as many after one that did not."""
LONG_MS: Final = 4
"""The time from a response's arrival to the append of its records above which it counts as long."""

PartitionKey = tuple[Uuid, int]
"""Topic id and partition index."""


class FollowedLog(Protocol):
    """This node's replica. The methods raise KafkaError if the replica does not follow in this leader epoch, or cannot
    be written; then nothing has changed."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def is_gone(self) -> bool:
        """True if the replica is out of service, or was deleted."""
        ...

    @property
    def is_held(self) -> bool:
        """True if the end of the log waits for a flush. A fetch would claim that it is durable."""
        ...

    @property
    def is_throttled(self) -> bool:
        """True if follower.replication.throttled.replicas names this replica."""
        ...

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last record; -1 if there is none."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and the offset where the next one begins; (-1, -1) if unknown."""
        ...

    def append_fetched(self, records: memoryview, *, leader_epoch: int) -> None:
        """Appends whole, checked batches, from the log end on."""

    def follow_leader(self, *, leader_epoch: int, high_watermark: int, log_start_offset: int) -> None:
        """Copies the leader's offsets, as far as the log reaches."""

    def truncate(self, offset: int, *, leader_epoch: int) -> None:
        """Removes the records from the offset on, and the leader epochs that begin there."""

    def start_afresh(self, offset: int, *, leader_epoch: int) -> None:
        """Removes all records; the log continues at the offset."""


@attrs.frozen
class FetchSettings:
    """replica.fetch.max.bytes, .response.max.bytes, .min.bytes, .wait.max.ms and .backoff.ms."""

    max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    min_bytes: int = 1
    max_wait_ms: int = 500
    backoff_ms: int = 1000


@attrs.define(eq=False)
class _Followed:
    """A followed partition. With `is_sent`, the request in flight or the session has its current state."""

    key: PartitionKey
    topic: str
    leader_epoch: int
    log: FollowedLog
    directory_id: Uuid
    is_sent: bool = False
    fetch_offset: int = -1
    has_all: bool = True
    """True if it had all that was committed at the leader's last answer. It is assumed until the first answer: after an
    election, producers wait for those in sync."""
    complaint: str = ""
    """The error that was logged last, until it is over."""
    failures: int = 0
    """The number of consecutive answers for which the leader, or this node, has yet to get an election's metadata."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.key[1]}"


class _Garbage(Exception):
    """The leader's answer contradicts itself, or the log."""


@attrs.define(eq=False)
class Fetcher:
    """Follows `leader_id` with some partitions. `replica_id` is this node; `broker_epoch` that of its registration."""

    leader_id: int
    replica_id: int
    broker_epoch: int
    settings: FetchSettings
    quota: ReplicationQuota = attrs.field(factory=no_quota)
    """Shared by all fetchers of this node."""
    _followed: dict[PartitionKey, _Followed] = attrs.field(factory=dict)
    """In the order in which a full request names them."""
    _changed: dict[PartitionKey, None] = attrs.field(factory=dict)
    """Partitions whose current state the session does not have; all that are not sent and not left out are here."""
    _forgotten: dict[PartitionKey, None] = attrs.field(factory=dict)
    """Partitions that the session has, and that are not to be fetched."""
    _waiting: dict[PartitionKey, int] = attrs.field(factory=dict)
    """The times until which partitions are not fetched, in ms."""
    _held: dict[PartitionKey, None] = attrs.field(factory=dict)
    """Partitions that wait for a flush."""
    _throttled: dict[PartitionKey, None] = attrs.field(factory=dict)
    """Partitions that wait until the quota is no longer exceeded."""
    _lost: dict[PartitionKey, int] = attrs.field(factory=dict)
    """Partitions that are not in the leader's range, each with the timestamp of the next ListOffsets."""
    _in_flight: FetchRequest | ListOffsetsRequest | None = None
    _offsets_in_flight: dict[PartitionKey, _Followed] = attrs.field(factory=dict)
    """The partitions of the ListOffsets in flight."""
    _session_id: int = _NO_SESSION
    _session_epoch: int = _INITIAL_EPOCH
    _quiet_until_ms: int = 0
    _newcomers: int = LEAST_NEWCOMERS
    """The maximum number of partitions that join the session with the next request."""
    _taken_at_ms: int | None = None
    """The time at which the last answer arrived, until `next_request` is called after it."""

    def __len__(self) -> int:
        return len(self._followed)

    # Partitions

    def follow(
        self, key: PartitionKey, topic: str, leader_epoch: int, log: FollowedLog, directory_id: Uuid = NULL_UUID
    ) -> None:
        """Follows a partition from now on, in this leader epoch; responses to earlier requests are dropped."""
        self.forget(key)
        followed = self._followed[key] = _Followed(key, topic, leader_epoch, log, directory_id)
        self._mark_changed(followed)

    def forget(self, key: PartitionKey) -> None:
        """Stops following the partition, if it is followed."""
        followed = self._followed.get(key)
        if followed is not None:
            self._leave_out(followed)
            del self._followed[key]

    def release(self, key: PartitionKey) -> None:
        """Resumes the partition after the flush that it waits for, if it waits for one."""
        if key in self._held:
            del self._held[key]
            self._mark_changed(self._followed[key])

    def epoch_of(self, key: PartitionKey) -> int | None:
        """The leader epoch in which a partition is followed; None if it is not."""
        followed = self._followed.get(key)
        return None if followed is None else followed.leader_epoch

    # Requests

    @property
    def has_request_in_flight(self) -> bool:
        """True if a request is in flight."""
        return self._in_flight is not None

    @property
    def should_hurry(self) -> bool:
        """True if the leader may wait for data now, although the next request has changes for it."""
        request = self._in_flight
        return isinstance(request, FetchRequest) and request.max_wait_ms > 0 and bool(self._changed or self._forgotten)

    def next_deadline_ms(self) -> float:
        """The time at which `next_request` may have a request, if nothing else happens; infinity if never."""
        if self._in_flight is not None or not self._followed:
            return math.inf
        if self._lost or self._has_ready:
            return self._quiet_until_ms
        waits_until_ms = self.next_pause_ends_ms()
        if self._throttled:
            waits_until_ms = min(waits_until_ms, self.quota.free_at_ms())
        return max(self._quiet_until_ms, waits_until_ms)

    def next_pause_ends_ms(self) -> float:
        """The time at which the next partition that waits may be fetched again; infinity if none waits."""
        return min(self._waiting.values(), default=math.inf)

    def end_pauses(self, now_ms: int) -> None:
        """Ends the pauses that are over, so that the next request names those partitions."""
        if self._waiting:
            for key in [key for key, until_ms in self._waiting.items() if until_ms <= now_ms]:
                del self._waiting[key]
                self._mark_changed(self._followed[key])

    @property
    def _has_ready(self) -> bool:
        left_out = len(self._waiting) + len(self._held) + len(self._throttled) + len(self._lost)
        return left_out < len(self._followed)

    def next_request(self, now_ms: int) -> FetchRequest | ListOffsetsRequest | None:
        """Returns the next request; None if one is in flight, or if there is nothing to request now."""
        self._pace(now_ms)
        if self._in_flight is not None or now_ms < self._quiet_until_ms:
            return None
        self.end_pauses(now_ms)
        self._throttle(now_ms)
        if self._lost:
            self._in_flight = self._offsets_request()
        elif self._has_ready:
            self._in_flight = self._fetch_request()
        return self._in_flight

    def _pace(self, now_ms: int) -> None:
        """Adapts `_newcomers` to the time that the last answer took to process, at the first call after it."""
        if self._taken_at_ms is not None:
            took_long = now_ms - self._taken_at_ms >= LONG_MS
            self._taken_at_ms = None
            wanted = self._newcomers // 2 if took_long else self._newcomers * 2
            self._newcomers = min(max(wanted, LEAST_NEWCOMERS), MOST_NEWCOMERS)

    def _throttle(self, now_ms: int) -> None:
        """Leaves out the throttled partitions, or takes them in again. One that is in sync stays so (Kafka's
        `shouldFollowerThrottle`)."""
        if not self.quota.is_exceeded(now_ms):
            throttled, self._throttled = self._throttled, {}
            for key in throttled:
                self._mark_changed(self._followed[key])
            return
        for key, followed in self._followed.items():
            if not followed.has_all and followed.log.is_throttled and not self._is_left_out(key):
                self._leave_out(followed)
                self._throttled[key] = None

    def _is_left_out(self, key: PartitionKey) -> bool:
        return key in self._waiting or key in self._held or key in self._throttled or key in self._lost

    def _fetch_request(self) -> FetchRequest:
        request = FetchRequest(
            replica_state=ReplicaState(self.replica_id, self.broker_epoch),
            max_wait_ms=self.settings.max_wait_ms,
            min_bytes=self.settings.min_bytes,
            max_bytes=self.settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
        )
        if self._session_epoch == _INITIAL_EPOCH:
            keys = [key for key in self._followed if not self._is_left_out(key)]
        else:
            keys = list(self._changed)
            for topic_id, index in self._forgotten:
                if not request.forgotten_topics_data or request.forgotten_topics_data[-1].topic_id != topic_id:
                    request.forgotten_topics_data.append(ForgottenTopic(topic_id=topic_id))
                request.forgotten_topics_data[-1].partitions.append(index)
        newcomers = 0
        for key in keys:
            followed = self._followed[key]
            if not followed.is_sent:
                newcomers += 1
                if newcomers > self._newcomers:
                    request.max_wait_ms = 0
                    continue
            if not request.topics or request.topics[-1].topic_id != key[0]:
                request.topics.append(FetchTopic(topic_id=key[0]))
            request.topics[-1].partitions.append(self._fetch_partition(followed))
            followed.is_sent = True
            self._changed.pop(key, None)
        self._forgotten.clear()
        return request

    def _fetch_partition(self, followed: _Followed) -> FetchPartition:
        partition_log = followed.log
        followed.fetch_offset = partition_log.log_end_offset
        return FetchPartition(
            followed.key[1],
            followed.leader_epoch,
            followed.fetch_offset,
            partition_log.latest_epoch,
            partition_log.log_start_offset,
            self.settings.max_bytes,
            followed.directory_id,
        )

    def _offsets_request(self) -> ListOffsetsRequest:
        request = ListOffsetsRequest(self.replica_id)
        self._offsets_in_flight = {}
        for key, timestamp in self._lost.items():
            followed = self._offsets_in_flight[key] = self._followed[key]
            if not request.topics or request.topics[-1].name != followed.topic:
                request.topics.append(ListOffsetsTopic(followed.topic))
            request.topics[-1].partitions.append(ListOffsetsPartition(key[1], followed.leader_epoch, timestamp))
        return request

    # Answers

    def received(self, response: FetchResponse | ListOffsetsResponse, now_ms: int) -> None:
        """Processes the response to the request in flight."""
        self._in_flight, self._taken_at_ms = None, now_ms
        if isinstance(response, FetchResponse):
            self._take_fetch(response, now_ms)
        else:
            self._take_offsets(response, now_ms)

    def disconnected(self, now_ms: int) -> None:
        """Handles a lost or failed connection: waits for the back-off, and begins with a full request."""
        self._in_flight = self._taken_at_ms = None
        self._offsets_in_flight = {}
        self._begin_session(_NO_SESSION)
        self._quiet_until_ms = now_ms + self.settings.backoff_ms

    def _begin_session(self, closed_id: int) -> None:
        """Begins a session with the next request, which names all partitions, and closes that session."""
        self._session_id, self._session_epoch = closed_id, _INITIAL_EPOCH
        self._forgotten.clear()
        for key, followed in self._followed.items():
            followed.is_sent = False
            if not self._is_left_out(key):
                self._changed[key] = None

    def _take_fetch(self, response: FetchResponse, now_ms: int) -> None:
        error = response.error_code
        if error:
            # An unknown session cannot be closed.
            self._begin_session(_NO_SESSION if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND else self._session_id)
            if error not in _SESSION_ERRORS:
                log.warning("node %d refuses the fetch of a follower: %s", self.leader_id, _known(error).name)
                self._quiet_until_ms = now_ms + self.settings.backoff_ms
            return
        is_full = self._session_epoch == _INITIAL_EPOCH
        if is_full and response.session_id == _NO_SESSION:
            self._session_id = _NO_SESSION
        elif is_full or response.session_id == self._session_id:
            self._session_id = response.session_id
            self._session_epoch = 1 if self._session_epoch == _MAX_EPOCH else self._session_epoch + 1
        else:
            self._begin_session(self._session_id)
            return
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.get((topic.topic_id, data.partition_index))
                # If it is not sent, it was requested in another epoch, or is named twice in this response.
                if followed is None or not followed.is_sent:
                    continue
                if followed.fetch_offset == followed.log.log_end_offset:
                    self._take_partition(followed, data, now_ms)
                else:
                    self._mark_changed(followed)

    def _take_partition(self, followed: _Followed, data: PartitionData, now_ms: int) -> None:
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._leave_out(followed)
                self._lost[followed.key] = LATEST
                return
            if data.error_code:
                raise _error(data.error_code)
            if data.diverging_epoch is not None:
                self._cut(followed, data.diverging_epoch)
            else:
                self._append(followed, data, now_ms)
        except (KafkaError, InvalidBatch, _Garbage) as error:
            if isinstance(error, KafkaError) and error.code in _WHILE_LEADERS_CHANGE:
                self._wait_for_metadata(followed, now_ms)
            else:
                self._wait(followed, str(error), now_ms)
        else:
            followed.complaint = ""
            followed.failures = 0

    def _append(self, followed: _Followed, data: PartitionData, now_ms: int) -> None:
        partition_log, epoch = followed.log, followed.leader_epoch
        records = data.records
        if isinstance(records, (bytes, bytearray, memoryview)) and len(records):
            if partition_log.is_throttled:
                self.quota.record(len(records), now_ms)
            checked = self._checked(followed, memoryview(records))
            partition_log.append_fetched(checked, leader_epoch=epoch)
            if partition_log.is_held:
                self._leave_out(followed)
                self._held[followed.key] = None
            else:
                self._mark_changed(followed)
            # After records it is named last in the next full request, so that a busy partition does not starve others.
            self._followed[followed.key] = self._followed.pop(followed.key)
        start_before = partition_log.log_start_offset
        partition_log.follow_leader(
            leader_epoch=epoch,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
        )
        followed.has_all = data.high_watermark <= partition_log.log_end_offset
        if partition_log.log_start_offset != start_before and followed.key not in self._held:
            self._mark_changed(followed)

    def _checked(self, followed: _Followed, records: memoryview) -> memoryview:
        """Returns the whole batches, after all checks. Raises InvalidBatch, _Garbage, KafkaError."""
        end_offset, epoch = followed.log.log_end_offset, followed.log.latest_epoch
        end = 0
        starts_at: int | None = None
        for position, header in iter_headers(records):
            check_batch(records, header, position)
            if header.base_offset < end_offset:
                # The leader's log may start in the middle of a batch, after DeleteRecords.
                is_empty = not position and followed.log.log_start_offset == end_offset
                if not is_empty or header.next_offset <= end_offset or header.base_offset < 0:
                    raise _Garbage(f"a batch at offset {header.base_offset} where the log continues at {end_offset}")
                starts_at = header.base_offset
            if not max(epoch, 0) <= header.partition_leader_epoch <= followed.leader_epoch:
                raise _Garbage(
                    f"a batch of leader epoch {header.partition_leader_epoch} after one of epoch {epoch}, "
                    f"from the leader of epoch {followed.leader_epoch}"
                )
            if header.next_offset > LARGEST_OFFSET:
                raise _Garbage(f"a batch that ends at offset {header.last_offset}")
            end_offset, epoch = header.next_offset, header.partition_leader_epoch
            end = position + header.size_in_bytes
        if not end:
            raise _Garbage(f"{len(records)} bytes that hold no whole batch")
        if starts_at is not None:
            followed.log.start_afresh(starts_at, leader_epoch=followed.leader_epoch)
        return records[:end]

    def _cut(self, followed: _Followed, diverging: EpochEndOffset) -> None:
        """Cuts the log where it diverges from the leader's. As in Kafka's `getOffsetTruncationState`."""
        partition_log = followed.log
        before, epoch_before = partition_log.log_end_offset, partition_log.latest_epoch
        if diverging.end_offset < 0 or diverging.epoch < 0:
            raise _Garbage(f"the logs part at offset {diverging.end_offset} of epoch {diverging.epoch}")
        own_epoch, own_end_offset = partition_log.end_offset_for_epoch(diverging.epoch)
        if own_end_offset < 0:
            # It has nothing of that epoch or an earlier one, so the leader's end is all that is known.
            offset = min(diverging.end_offset, before)
        elif own_epoch != diverging.epoch:
            # The next answer names an earlier epoch, if that is not the last one that both have.
            offset = min(own_end_offset, before)
        else:
            offset = min(own_end_offset, diverging.end_offset, before)
        partition_log.truncate(offset, leader_epoch=followed.leader_epoch)
        end_offset = partition_log.log_end_offset
        if end_offset < before:
            log.info(
                "%s: cut from offset %d to %d, where the log of leader %d goes another way",
                followed.name,
                before,
                end_offset,
                self.leader_id,
            )
        elif partition_log.latest_epoch == epoch_before:
            raise _Garbage(f"the logs part at offset {diverging.end_offset}, where there is nothing to cut")
        self._mark_changed(followed)

    def _take_offsets(self, response: ListOffsetsResponse, now_ms: int) -> None:
        requested, self._offsets_in_flight = self._offsets_in_flight, {}
        ids = {followed.topic: followed.key[0] for followed in requested.values()}
        for topic in response.topics:
            for answer in topic.partitions:
                followed = requested.pop((ids.get(topic.name, NULL_UUID), answer.partition_index), None)
                if followed is None or self._followed.get(followed.key) is not followed:
                    continue
                try:
                    if answer.error_code:
                        raise _error(answer.error_code)
                    if answer.offset < 0:
                        raise _Garbage(f"the leader's log has the offset {answer.offset}")
                    self._find_back(followed, answer.offset, now_ms)
                except (KafkaError, _Garbage) as error:
                    self._wait(followed, str(error), now_ms)
        for followed in requested.values():
            if self._followed.get(followed.key) is followed:
                self._wait(followed, "the leader does not return its offsets", now_ms)

    def _find_back(self, followed: _Followed, offset: int, now_ms: int) -> None:
        """Cuts or restarts the log, by the end or start of the leader's log. As in Kafka's `fetchOffsetAndTruncate`."""
        partition_log, epoch = followed.log, followed.leader_epoch
        end_offset = partition_log.log_end_offset
        if self._lost[followed.key] == LATEST:
            if offset >= end_offset:
                self._lost[followed.key] = EARLIEST
                return
            log.warning(
                "%s: cut from offset %d to %d, where the log of leader %d ends",
                followed.name,
                end_offset,
                offset,
                self.leader_id,
            )
            partition_log.truncate(offset, leader_epoch=epoch)
        elif offset > end_offset:
            log.info("%s: continues at offset %d, where the leader's log begins", followed.name, offset)
            partition_log.start_afresh(offset, leader_epoch=epoch)
        elif partition_log.latest_epoch > epoch:
            self._drop_unknown_epoch(followed)
        else:
            # The offset is in the leader's range by now.
            self._wait(followed, "", now_ms)
            return
        del self._lost[followed.key]
        self._mark_changed(followed)

    def _drop_unknown_epoch(self, followed: _Followed) -> None:
        """Cuts the records of a leader epoch later than the one that is followed: no leader has them."""
        partition_log = followed.log
        before, unknown = partition_log.log_end_offset, partition_log.latest_epoch
        _, begins_at = partition_log.end_offset_for_epoch(unknown - 1)
        offset = max(begins_at, partition_log.log_start_offset)
        log.warning(
            "%s: cut from offset %d to %d: leader %d does not have leader epoch %d",
            followed.name,
            before,
            offset,
            self.leader_id,
            unknown,
        )
        partition_log.truncate(offset, leader_epoch=followed.leader_epoch)

    # Selection

    def _mark_changed(self, followed: _Followed) -> None:
        self._changed[followed.key] = None
        self._forgotten.pop(followed.key, None)

    def _leave_out(self, followed: _Followed) -> None:
        """Stops fetching the partition, until it is marked as changed."""
        key = followed.key
        self._changed.pop(key, None)
        self._waiting.pop(key, None)
        self._held.pop(key, None)
        self._throttled.pop(key, None)
        self._lost.pop(key, None)
        if followed.is_sent:
            followed.is_sent = False
            self._forgotten[key] = None

    def _wait_for_metadata(self, followed: _Followed, now_ms: int) -> None:
        followed.failures += 1
        pause_ms = Backoff(FIRST_PAUSE_MS, self.settings.backoff_ms).after(followed.failures)
        if pause_ms == self.settings.backoff_ms:
            self._wait(followed, "the leader does not have this leader epoch, or a later one", now_ms)
            return
        self._leave_out(followed)
        self._waiting[followed.key] = now_ms + pause_ms

    def _wait(self, followed: _Followed, reason: str, now_ms: int) -> None:
        if followed.log.is_gone:
            self.forget(followed.key)
            return
        self._leave_out(followed)
        self._waiting[followed.key] = now_ms + self.settings.backoff_ms
        if reason and reason != followed.complaint:
            followed.complaint = reason
            log.warning("%s: cannot follow leader %d, and tries again: %s", followed.name, self.leader_id, reason)


_WHILE_LEADERS_CHANGE: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

_MAY_NOT_FOLLOW: Final = "the principal with which nodes reach each other has to be in the leader's super.users"

_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The errors that a full request resolves."""


def _error(code: int) -> KafkaError:
    known = _known(code)
    if known is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return KafkaError(known, f"{known.name}: {_MAY_NOT_FOLLOW}")
    return KafkaError(known)


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR

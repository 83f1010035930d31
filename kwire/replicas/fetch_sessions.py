"""Incremental fetch sessions (KIP-227), pure.

A consumer of many partitions names them once. Later requests carry only what changed, and later responses only the
partitions that have something new. This file is the server side:

    request (session_id, session_epoch)     meaning
    (0, -1)                                 no session: all partitions in the request, all in the answer
    (0, 0)                                  open a session with the partitions of this request
    (id, 0)                                 close `id`, open another
    (id, -1)                                close `id`, answer like (0, -1)
    (id, n > 0)                             go on: the request holds what was added, changed, forgotten

The cache has a bounded number of slots (max.incremental.fetch.session.cache.slots). A full cache evicts a session that
was unused for two minutes. If there is none, the new session gets no slot and the response has session id 0, which
tells the client to send a full request again. After a restart every id is unknown: clients get
FETCH_SESSION_ID_NOT_FOUND and start over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import NULL_UUID, Uuid

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
MAX_EPOCH = 2**31 - 1
MIN_EVICTION_MS = 120_000

TopicKey = tuple[str, Uuid]
"""The topic as the client names it: (name, NULL_UUID) before v13, ("", topic id) from then on."""


@attrs.define(eq=False)
class CachedPartition:
    """What a client requested of one partition, and what it was last told about it."""

    topic: TopicKey
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    """Of a follower's replica."""
    told_high_watermark: int = -1
    told_log_start_offset: int = -1

    def is_news(self, *, has_records: bool, high_watermark: int, log_start_offset: int, is_urgent: bool) -> bool:
        """Returns whether an incremental response must include this partition, and remembers what it says."""
        news = (
            has_records
            or is_urgent
            or high_watermark != self.told_high_watermark
            or log_start_offset != self.told_log_start_offset
        )
        # An error, or what else is urgent, is not remembered, so it is repeated until it is gone.
        self.told_high_watermark = -1 if is_urgent else high_watermark
        self.told_log_start_offset = -1 if is_urgent else log_start_offset
        return news


PartitionKey = tuple[TopicKey, int]


@attrs.define(eq=False)
class FetchSession:
    """The partitions of one consumer, in the order in which they are served."""

    session_id: int
    epoch: int
    partitions: OrderedDict[PartitionKey, CachedPartition]
    last_used_ms: int

    def serve_last(self, partition: CachedPartition) -> None:
        """Moves partitions that got records to the back, so that a busy partition does not starve the others.

        Another connection may have used the session and forgotten the partition while this fetch waited.
        """
        key = partition.topic, partition.index
        if key in self.partitions:
            self.partitions.move_to_end(key)


@attrs.define(eq=False)
class FetchContext:
    """One request's view: what to read, and the session, if any, that the response belongs to."""

    partitions: list[CachedPartition]
    session: FetchSession | None
    incremental: bool

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


@attrs.define(eq=False)
class FetchSessions:
    """All sessions of this broker. `new_id` returns random positive 31-bit numbers."""

    slots: int
    new_id: Callable[[], int]
    _sessions: OrderedDict[int, FetchSession] = attrs.field(factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        session_epoch: int,
        wanted: list[CachedPartition],
        forgotten: list[PartitionKey],
        *,
        now_ms: int,
    ) -> FetchContext:
        """Finds, opens or closes the session that a request names.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            session = self._open(wanted, now_ms) if session_epoch == INITIAL_EPOCH else None
            return FetchContext(wanted, session, incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self._go_on(session, wanted, forgotten, now_ms)
        return FetchContext(list(session.partitions.values()), session, incremental=True)

    def _open(self, wanted: list[CachedPartition], now_ms: int) -> FetchSession | None:
        if not wanted or not self._make_room(now_ms):
            return None
        session_id = self.new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self.new_id()
        partitions = OrderedDict(((p.topic, p.index), p) for p in wanted)
        session = FetchSession(session_id, 1, partitions, now_ms)
        self._sessions[session_id] = session
        return session

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self.slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms <= MIN_EVICTION_MS:
            return False
        del self._sessions[oldest.session_id]
        return True

    def _go_on(
        self, session: FetchSession, wanted: list[CachedPartition], forgotten: list[PartitionKey], now_ms: int
    ) -> None:
        partitions = session.partitions
        uses_ids = bool(partitions) and next(iter(partitions))[0][1] != NULL_UUID
        for partition in wanted:
            if partitions and (partition.topic[1] != NULL_UUID) != uses_ids:
                raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
            known = partitions.get((partition.topic, partition.index))
            if known is None:
                partitions[partition.topic, partition.index] = partition
            else:
                known.fetch_offset = partition.fetch_offset
                known.max_bytes = partition.max_bytes
                known.current_leader_epoch = partition.current_leader_epoch
                known.last_fetched_epoch = partition.last_fetched_epoch
                known.log_start_offset = partition.log_start_offset
        for key in forgotten:
            partitions.pop(key, None)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        if partitions:
            self._sessions.move_to_end(session.session_id)
        else:
            # Kafka closes a session that has no partitions left.
            del self._sessions[session.session_id]

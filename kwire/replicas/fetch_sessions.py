"""Incremental fetch sessions (KIP-227), pure.

A consumer of many partitions names them once. Later requests have only the changed partitions, and later responses only
the partitions with news. This file is the server side:

    request (session_id, session_epoch)     meaning
    (0, -1)                                 no session: all partitions in the request, all in the answer
    (0, 0)                                  open a session with the partitions of this request
    (id, 0)                                 close `id`, open another
    (id, -1)                                close `id`, answer like (0, -1)
    (id, n > 0)                             continue: the request has added, changed and forgotten partitions

The cost of a session depends on the changes, not on its number of partitions. A partition whose reader has everything,
and was sent the current offsets, *rests*: it is one of the partition's waiters, and is not read again before the
partition wakes it. `due` has the others. Each request of a follower also confirms, for all that rest, that the follower
still has everything (`LastFetch`).

The cache has a bounded number of slots (max.incremental.fetch.session.cache.slots). A full cache evicts a session that
was unused for two minutes. If there is none, the new session gets no slot and the response has session id 0, which
makes the client send a full request again. After a restart every id is unknown: clients get FETCH_SESSION_ID_NOT_FOUND
and start over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Protocol

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.replicas.roles import FollowerState, LastFetch
from kwire.runtime.futures import ParkedFetch, Waiter

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
MAX_EPOCH = 2**31 - 1
MIN_EVICTION_MS = 120_000

_NOBODY: Final = object()
"""A value that differs from every reader."""

TopicKey = tuple[str, Uuid]
"""The topic as the client names it: (name, NULL_UUID) before v13, ("", topic id) from then on."""


class Waited(Protocol):
    """The object that a partition of a session waits for: a `Partition`."""

    waiters: dict[Waiter, None]


@attrs.define(eq=False)
class CachedPartition:
    """A client's request for one partition, and the offsets that it was last sent. A `Waiter` while it rests."""

    topic: TopicKey
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    """The log start offset of a follower's replica."""
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1
    session: FetchSession | None = None
    _rests_at: Waited | None = None
    _follower: FollowerState | None = None
    """The leader's state of the reader, if that is a follower."""

    @property
    def rests(self) -> bool:
        return self._rests_at is not None

    def rest(self, partition: Waited, follower: FollowerState | None) -> None:
        """Rests until the partition wakes it: the reader has everything that it may read."""
        session = self.session
        if session is not None:  # otherwise it was forgotten while the fetch waited
            self._rests_at = partition
            partition.waiters[self] = None
            if follower is not None:
                self._follower = follower
                follower.rest(session.last_fetch)

    def stir(self) -> None:
        """Ends the rest: the partition must be read again."""
        if self._rests_at is not None:
            self._rests_at.waiters.pop(self, None)
            self._rests_at = None
            if self._follower is not None and self.session is not None:
                self._follower.stir(self.session.last_fetch)
                self._follower = None

    def wake(self) -> None:
        self.stir()
        session = self.session
        assert session is not None
        session.due[self] = None
        if session.parked is not None:
            session.parked.wake()

    def is_news(self, *, has_records: bool, high_watermark: int, log_start_offset: int, is_urgent: bool) -> bool:
        """Returns True if an incremental response must include this partition, and stores the offsets that it sends."""
        news = (
            has_records
            or is_urgent
            or high_watermark != self.sent_high_watermark
            or log_start_offset != self.sent_log_start_offset
        )
        # The offsets of an urgent response, such as an error, are not stored, so it is repeated until it is over.
        self.sent_high_watermark = -1 if is_urgent else high_watermark
        self.sent_log_start_offset = -1 if is_urgent else log_start_offset
        return news

    def named_again(self, wanted: CachedPartition) -> None:
        """Handles a request that names it again. If the reader has dropped the last response, that is repeated.

        A follower drops a response if its log was cut, or its leader epoch has changed, while the request was in
        flight.
        """
        if wanted.current_leader_epoch != self.current_leader_epoch or wanted.fetch_offset <= self.fetch_offset:
            self.sent_high_watermark = self.sent_log_start_offset = -1
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset


PartitionKey = tuple[TopicKey, int]


@attrs.define(eq=False)
class FetchSession:
    """The partitions of one reader. `reader` is its identity and its permissions, which the responses depend on."""

    session_id: int
    epoch: int
    partitions: dict[PartitionKey, CachedPartition]
    last_used_ms: int
    reader: Hashable
    due: dict[CachedPartition, None] = attrs.field(factory=dict)
    """The partitions to be read for the next answer, in the order in which they are served."""
    parked: ParkedFetch | None = None
    """The request of this session that waits."""
    last_fetch: LastFetch = attrs.field(factory=LastFetch)

    def add(self, partition: CachedPartition) -> None:
        """Adds a partition. One that is named twice counts once, and the last one is valid."""
        key = partition.topic, partition.index
        self.forget(key)
        partition.session = self
        self.partitions[key] = partition
        self.due[partition] = None

    def forget(self, key: PartitionKey) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self._release(partition)

    def close(self) -> None:
        """Ends all waits for its partitions."""
        for partition in self.partitions.values():
            self._release(partition)
        if self.parked is not None:
            self.parked.give_up()

    def _release(self, partition: CachedPartition) -> None:
        partition.stir()
        partition.session = None
        self.due.pop(partition, None)

    def read_again(self, partition: CachedPartition) -> None:
        partition.stir()
        self.due[partition] = None

    def update_due(self, partition: CachedPartition, *, has_records: bool) -> None:
        """Updates `due` after a response with this partition: if it rests, it need not be read again.

        One that had records is served last next time, so that a busy partition does not starve the others. Another
        connection may have used the session and forgotten the partition while this fetch waited.
        """
        if has_records:
            if partition in self.due:
                del self.due[partition]
                self.due[partition] = None
        elif partition.rests:
            self.due.pop(partition, None)


@attrs.define(eq=False)
class FetchContext:
    """The partitions of one request, and the session, if any, that the response belongs to."""

    wanted: list[CachedPartition]
    session: FetchSession | None
    incremental: bool

    @property
    def partitions(self) -> Iterable[CachedPartition]:
        """The partitions to read now."""
        return list(self.session.due) if self.session is not None else self.wanted

    @property
    def is_empty(self) -> bool:
        """True if it reads no partition at all, now or later."""
        return not self.session.partitions if self.session is not None else not self.wanted

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
        reader: Hashable = None,
    ) -> FetchContext:
        """Finds, opens or closes the session of a request. If another `reader` continues it, all partitions are read
        again.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self.close(session_id)
            session = self._open(wanted, now_ms, reader) if session_epoch == INITIAL_EPOCH else None
            return FetchContext(wanted, session, incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.parked is not None:
            session.parked.give_up()  # it waits on another connection, and one request is answered at a time
        if session.reader != reader:
            session.reader = reader
            for partition in session.partitions.values():
                session.read_again(partition)
        self._continue(session, wanted, forgotten, now_ms)
        return FetchContext(wanted, session, incremental=True)

    def read_all_again(self) -> None:
        """Makes each session read all of its partitions again with its next request, after a change of permissions."""
        for session in self._sessions.values():
            session.reader = _NOBODY

    def close(self, session_id: int) -> None:
        """Closes a session that its reader has left, or never receives."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _open(self, wanted: list[CachedPartition], now_ms: int, reader: Hashable) -> FetchSession | None:
        if not wanted or not self._make_room(now_ms):
            return None
        session_id = self.new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self.new_id()
        session = self._sessions[session_id] = FetchSession(session_id, 1, {}, now_ms, reader)
        for partition in wanted:
            session.add(partition)
        return session

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self.slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms <= MIN_EVICTION_MS:
            return False
        self.close(oldest.session_id)
        return True

    def _continue(
        self, session: FetchSession, wanted: list[CachedPartition], forgotten: list[PartitionKey], now_ms: int
    ) -> None:
        partitions = session.partitions
        uses_ids = bool(partitions) and next(iter(partitions))[0][1] != NULL_UUID
        for partition in wanted:
            if partitions and (partition.topic[1] != NULL_UUID) != uses_ids:
                raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
            known = partitions.get((partition.topic, partition.index))
            if known is None:
                session.add(partition)
            else:
                session.read_again(known)
                known.named_again(partition)
        for key in forgotten:
            session.forget(key)
        self.advance(session, now_ms)
        if not partitions:
            # Kafka closes a session that has no partitions left.
            del self._sessions[session.session_id]

    def find(self, session_id: int, session_epoch: int, reader: Hashable) -> FetchSession | None:
        """Returns the session that the next request of the same reader continues, if none of its requests waits."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != session_epoch or session.parked is not None or session.reader != reader:
            return None
        return session

    def advance(self, session: FetchSession, now_ms: int) -> None:
        """Notes a request that continues the session."""
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)

"""Share sessions (KIP-932), pure: the partitions that a member of a share group fetches from this broker.

A session belongs to a member of a group, and is opened on a connection. The member sends a partition once, and later
only added and forgotten ones:

    epoch       ShareFetch                                          ShareAcknowledge
    0           opens a session, and replaces an older one          INVALID_SHARE_SESSION_EPOCH
    n > 0       continues: added and forgotten partitions           continues
    -1          the last request: acknowledges, then closes         the last request

A request that continues must have the session's epoch; after it the session has the next epoch.

The number of sessions is limited (group.share.max.share.sessions). A full cache evicts no session: a new one is refused
with SHARE_SESSION_LIMIT_REACHED. A session ends with the member's last request, when its connection is lost, or when
another one replaces it. Kafka 4.3.1 evicts for no other reason (ShareSessionCache).

A connection has one session. (Kafka stores only the latest one of a connection, and keeps the earlier ones for ever;
here an earlier one is closed and returned to the caller.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1


class SharedPartition(NamedTuple):
    """A partition by its topic's id."""

    topic_id: Uuid
    partition: int


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


@attrs.define(eq=False)
class ShareSession:
    """`partitions` are in the order in which they are served; the value is True if the next response must have it."""

    key: SessionKey
    connection: Hashable
    epoch: int
    partitions: dict[SharedPartition, bool]

    def update(self, wanted: Iterable[SharedPartition], forgotten: Iterable[SharedPartition]) -> None:
        for partition in wanted:
            self.partitions.setdefault(partition, True)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def go_on(self, epoch: int) -> None:
        """Moves to the next epoch. Raises KafkaError: INVALID_SHARE_SESSION_EPOCH."""
        if self.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        self.epoch = 1 if epoch == MAX_EPOCH else epoch + 1


@attrs.define(eq=False)
class ShareContext:
    """The session of one ShareFetch."""

    session: ShareSession | None
    """The session; None in the last request, which fetches nothing."""
    is_first: bool = False
    ended: Sequence[ShareSession] = ()
    """The sessions that it replaces. Kafka leaves the records of the same member's older one locked until time-out."""

    @property
    def partitions(self) -> list[SharedPartition]:
        return [] if self.session is None else list(self.session.partitions)

    def must_respond(self, partition: SharedPartition, *, has_records: bool, has_error: bool) -> bool:
        """Returns True if the response must have this partition, and stores its content for the next response.

        A first response has all. A later one has those with records, with an error, and those that are new to the
        session or had an error last time. A partition with records is served last next time. (Kafka's
        CachedSharePartition.)
        """
        session = self.session
        if session is None or self.is_first or partition not in session.partitions:
            return True
        is_due = session.partitions[partition]
        if has_records:
            del session.partitions[partition]
        session.partitions[partition] = has_error
        return has_records or has_error or is_due


class Disconnected(NamedTuple):
    """The result of a lost connection: the session that ended, and the group that has no session here any more."""

    session: ShareSession | None
    empty_group: str | None


@attrs.define(eq=False)
class ShareSessions:
    """All share sessions of this broker."""

    max_sessions: int
    _sessions: dict[SessionKey, ShareSession] = attrs.field(factory=dict)
    _connections: dict[Hashable, SessionKey] = attrs.field(factory=dict)
    """The session that was opened last on each connection; it may have ended since."""
    _members: dict[str, int] = attrs.field(factory=dict)
    """The number of sessions of each group."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions of all sessions: a partition counts in each of them."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get(SessionKey(group_id, member_id))

    def begin(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        wanted: Iterable[SharedPartition],
        forgotten: Iterable[SharedPartition] = (),
        *,
        connection: Hashable,
        has_acknowledgements: bool = False,
    ) -> ShareContext:
        """Finds or opens the session of a ShareFetch. In the last request the caller closes it, after the rest.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED,
        INVALID_REQUEST (acknowledgements in a first request).
        """
        key = SessionKey(group_id, member_id)
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            return self._open(key, wanted, connection)
        session = self._find(key)
        if epoch == FINAL_EPOCH:
            return ShareContext(None)
        session.go_on(epoch)
        session.update(wanted, forgotten)
        return ShareContext(session)

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> None:
        """Checks, and moves, the session of a ShareAcknowledge. In the last request the caller closes it.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = self._find(SessionKey(group_id, member_id))
        if epoch != FINAL_EPOCH:
            session.go_on(epoch)

    def close(self, group_id: str, member_id: str) -> ShareSession:
        """Closes a session after its last request; the caller releases the member's records of its partitions.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND.
        """
        session = self._find(SessionKey(group_id, member_id))
        self._remove(session)
        return session

    def disconnected(self, connection: Hashable) -> Disconnected:
        """Closes the session of a lost connection, unless it has ended or is open on another one."""
        key = self._connections.pop(connection, None)
        if key is None:
            return Disconnected(None, None)
        session = self._sessions.get(key)
        if session is not None and session.connection == connection:
            self._remove(session)
        else:
            session = None
        is_empty = key.group_id not in self._members
        return Disconnected(session, key.group_id if is_empty else None)

    def close_all(self) -> list[ShareSession]:
        """Ends all sessions, and returns them: the caller releases their members' records."""
        ended = list(self._sessions.values())
        for session in ended:
            self._remove(session)
        return ended

    def _find(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _open(self, key: SessionKey, wanted: Iterable[SharedPartition], connection: Hashable) -> ShareContext:
        ended = [it for it in (self._sessions.get(key), self._session_on(connection)) if it is not None]
        for session in dict.fromkeys(ended):
            self._remove(session)
        if len(self._sessions) >= self.max_sessions:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(key, connection, INITIAL_EPOCH + 1, dict.fromkeys(wanted, False))
        self._sessions[key] = session
        self._connections[connection] = key
        self._members[key.group_id] = self._members.get(key.group_id, 0) + 1
        return ShareContext(session, is_first=True, ended=list(dict.fromkeys(ended)))

    def _session_on(self, connection: Hashable) -> ShareSession | None:
        key = self._connections.get(connection)
        session = None if key is None else self._sessions.get(key)
        return session if session is not None and session.connection == connection else None

    def _remove(self, session: ShareSession) -> None:
        del self._sessions[session.key]
        count = self._members[session.key.group_id] - 1
        if count:
            self._members[session.key.group_id] = count
        else:
            del self._members[session.key.group_id]

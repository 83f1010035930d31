"""This process as a node of a cluster whose nodes share ZooKeeper: the `Membership` of that form."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Self

import attrs
import trio
from kwire_storage.errors import CorruptLogError

from kwire.cluster.membership import NO_CONTROLLER, MembershipEnded
from kwire.cluster.zookeeper import cluster_nodes, log_nodes
from kwire.cluster.zookeeper.cluster_nodes import Members
from kwire.cluster.zookeeper.keeper import (
    ConnectionLostError,
    RefusedError,
    SessionEndedError,
    ZooKeeperError,
    patiently,
)
from kwire.cluster.zookeeper.metadata_log import ZooKeeperLog
from kwire.cluster.zookeeper.session import Session
from kwire.config.listeners import Listener
from kwire.config.zookeeper import ZooKeeperConfig
from kwire.runtime import workers
from kwire.runtime.callbacks import ignore
from kwire.runtime.clock import Clock
from kwire.runtime.loop import Loop
from kwire.runtime.workers import Worker

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class ZooKeeperNode:
    """Join with `join`, and `leave` at the end. A process that is killed has left when its session has timed out."""

    node_id: int
    cluster_id: str
    log: ZooKeeperLog
    _session: Session
    _now_ms: Callable[[], int]
    _created: int
    """The number of this node in `Members.alive`, as long as it is alive."""
    _members: Members
    _watched: frozenset[int] = frozenset()
    _connection_changes: int = 0
    """The session's `connection_changes` at the last update."""

    @classmethod
    def join(
        cls,
        config: ZooKeeperConfig,
        node_id: int,
        endpoints: Sequence[Listener],
        *,
        clock: Clock,
        rack: str | None = None,
        cluster_id: str | None = None,
        loop: Loop | None = None,
    ) -> Self:
        """Joins the cluster. `endpoints` are the addresses of this node for others. The first node's `cluster_id`
        counts, or a random one.

        Blocks. Raises ZooKeeperError, if ZooKeeper cannot be reached, refuses access, or has another cluster than
        `cluster_id`; NodeIdTakenError, CorruptLogError.
        """
        session = Session.open(config, clock.monotonic_ms)
        try:
            cluster_nodes.create_folders(session)
            found_id = cluster_nodes.join_cluster(session, cluster_id or _random_id(clock))
            if cluster_id not in (None, found_id):
                raise ZooKeeperError(
                    f"zookeeper.connect leads to the cluster {found_id}, and this node belongs to {cluster_id}"
                )
            content = cluster_nodes.registration(endpoints, rack, clock.now_ms())
            created = cluster_nodes.create_broker_node(session, node_id, content)
            metadata_log = ZooKeeperLog.open(session, clock.now_ms, clock.uuid, loop)
            members = patiently(session, lambda: cluster_nodes.read_members(session, node_id, clock.now_ms()))
        except RefusedError as error:
            session.close()
            raise ZooKeeperError(f"somebody else changes the nodes of the cluster in ZooKeeper: {error}") from error
        except BaseException:
            session.close()
            raise
        return cls(
            node_id,
            found_id,
            metadata_log,
            session,
            clock.now_ms,
            created,
            members,
            connection_changes=session.connection_changes,
        )

    @property
    def controller_id(self) -> int:
        return self._members.controller_id if self._session.is_connected else NO_CONTROLLER

    def is_alive(self, node_id: int) -> bool:
        return node_id in self._members.alive

    def watch(self, node_ids: Collection[int]) -> None:
        self._watched = frozenset(node_ids)

    async def run(self, on_change: Callable[[], None]) -> None:
        sender, receiver = trio.open_memory_channel[None](1)
        loop = trio.lowlevel.current_trio_token()

        def schedule_refresh() -> None:
            with suppress(trio.WouldBlock):  # News is waiting already, which is enough.
                sender.send_nowait(None)

        def hand_over() -> None:
            with suppress(trio.RunFinishedError):
                loop.run_sync_soon(schedule_refresh, idempotent=True)

        self._session.on_news = hand_over
        try:
            schedule_refresh()  # News before this was not handed over.
            async for _ in receiver:
                if not await self._refresh(on_change):
                    schedule_refresh()
        finally:
            self._session.on_news = ignore

    async def _refresh(self, on_change: Callable[[], None]) -> bool:
        """Updates the members and the log. Returns False if it must be called again without further news."""
        # In this order: a change in between is seen the next time.
        connection_changes = self._session.connection_changes
        is_connected = self._session.is_connected
        members, has_refreshed = self._members, False
        if is_connected:
            try:
                members, has_refreshed = await self._read_members(), True
            except RefusedError as error:
                raise MembershipEnded(f"a node that the cluster needs in ZooKeeper is gone: {error}") from error
            except (ConnectionLostError, SessionEndedError):
                pass  # The session's state is read below.
            except (ZooKeeperError, CorruptLogError) as error:
                raise MembershipEnded(f"ZooKeeper cannot be used any more: {error}") from error
        self._update(members, connection_changes, on_change)
        if self._session.ended is not None:
            raise MembershipEnded(f"the session of node {self.node_id} with ZooKeeper is over: {self._session.ended}")
        if members.alive.get(self.node_id) != self._created:
            raise MembershipEnded(f"{cluster_nodes.BROKER_IDS}/{self.node_id} in ZooKeeper was removed")
        return has_refreshed or not self._session.is_connected

    async def _read_members(self) -> Members:
        read_members = partial(cluster_nodes.read_members, self._session, self.node_id, self._now_ms())
        members = await workers.run(Worker.ZOOKEEPER, read_members)
        follow_log = partial(log_nodes.follow, self._session, self.log.end_offset)
        self.log.ends_at(await workers.run(Worker.ZOOKEEPER, follow_log))
        return members

    def _update(self, members: Members, connection_changes: int, on_change: Callable[[], None]) -> None:
        # While the connection was lost, `controller_id` was another one, however short that was.
        was_lost = connection_changes != self._connection_changes
        restarted = {it for it in self._watched if self._members.alive.get(it) != members.alive.get(it)}
        has_changed = (
            self._members.controller_id != members.controller_id
            or self._members.alive.keys() != members.alive.keys()
            or bool(restarted)
        )
        self._members, self._connection_changes = members, connection_changes
        if was_lost:
            what = "is connected to ZooKeeper again" if self._session.is_connected else "has lost ZooKeeper"
            log.warning("node %d %s", self.node_id, what)
            self.log.notify_watchers()
        if was_lost or has_changed:
            on_change()

    def leave(self) -> None:
        self._session.close()


def _random_id(clock: Clock) -> str:
    return base64.urlsafe_b64encode(clock.uuid()).decode().rstrip("=")

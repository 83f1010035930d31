"""This broker as a member of its cluster: from its registration, fenced, over its service, to its clean shutdown.

    register          at the start: it is fenced, because it cannot serve clients yet
    serve             clients can connect: it is unfenced, and leads again
    shut_down         others lead; it completes what is under way, and stops
    (controller)      the node that is the controller, by the membership, fences nodes that have ended

Each step is a decision of `metadata/controller/brokers.py`. `reconcile` compares the metadata with the actual state,
and decides until both agree. So it may be called for any event, and a missed one does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import attrs
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.cluster.membership import Membership
from kwire.cluster.offline_partitions import OfflinePartitions
from kwire.metadata.controller.brokers import (
    begin_shutdown,
    fence,
    fence_incarnation,
    give_up_replicas,
    register_at_start,
    unfence,
)
from kwire.metadata.controller.deciding import Decision
from kwire.metadata.controller.partitions.leader_elections import balance_leaders
from kwire.metadata.image import BrokerRegistration, Changes
from kwire.metadata.service import MetadataService
from kwire.runtime.callbacks import ignore
from kwire.runtime.futures import at_once, drive

log = logging.getLogger(__name__)

UNREGISTERED: Final = -1


@attrs.define(eq=False)
class ClusterMember:
    """`on_replaced` is called, with a sentence, if by the metadata this process is not the broker any more.

    `on_failed` is called when something could not be recorded: call `reconcile` again after a while. Otherwise,
    until something else happens, a node that is alive would stay fenced, one that has ended would stay in service, and
    the replicas of a failed log dir would stay in sync.
    """

    membership: Membership
    metadata: MetadataService
    on_replaced: Callable[[str], None] = ignore
    on_failed: Callable[[], None] = ignore
    _offline: OfflinePartitions = attrs.field(init=False)
    _broker_epoch: int = UNREGISTERED
    _given_up: list[tuple[Uuid, int]] = attrs.field(factory=list)
    """Replicas of failed log dirs, by topic id and index: not recorded yet."""
    _is_serving: bool = False
    _is_reconciling: bool = False
    _has_news: bool = False

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of this start: the offset of its registration."""
        return self._broker_epoch

    def register(self, log_dirs: Sequence[Uuid], *, stopped_epoch: int) -> None:
        """Registers this broker, before the logs are opened. `stopped_epoch` is that of the last clean stop, from the
        log dirs.

        Raises OSError.
        """
        self._broker_epoch = at_once(self.metadata.decide(Decision(register_at_start, (log_dirs, stopped_epoch))))
        self._offline = OfflinePartitions.of(self.metadata.image)
        self.metadata.watch(self._follow)

    def serve(self) -> None:
        """Unfences this broker, as clients can connect now."""
        self._is_serving = True
        self.reconcile()

    async def shut_down(self) -> None:
        """Returns when other brokers lead what they can lead. Raises KafkaError if that cannot be recorded."""
        self._is_serving = False
        await self.metadata.change(begin_shutdown, self.metadata.node_id, self._broker_epoch)

    def give_up_replicas(self, replicas: Sequence[tuple[Uuid, int]]) -> None:
        """Gives up the replicas of a failed log dir, given by topic id and index: other brokers lead them."""
        self._given_up += replicas
        self.reconcile()

    def balance_leaders(self) -> None:
        """Gives partitions back to their preferred leaders, if this node is the controller."""
        if self.is_controller:
            drive(self._balance_leaders())

    @property
    def is_controller(self) -> bool:
        """True if this node does the work of the controller."""
        return self._is_serving and self.membership.controller_id == self.metadata.node_id

    async def _balance_leaders(self) -> None:
        try:
            await self.metadata.change(balance_leaders)
        except KafkaError as error:
            log.error("the leaders of partitions cannot be balanced: %s", error.message)

    def leave(self) -> None:
        """Records, after the server has ended, that this broker has stopped, so that others need not detect it."""
        self._is_serving = False
        node_id = self.metadata.node_id
        try:
            at_once(self.metadata.change(fence_incarnation, node_id, self._broker_epoch))
        except KafkaError as error:
            log.warning("node %d could not record that it stops: %s", node_id, error.message)
        self.membership.leave()

    def reconcile(self) -> None:
        """Reacts to a change: of a node's liveness, of the controller, or of the brokers in the metadata."""
        self._has_news = True
        if not self._is_reconciling:
            drive(self._reconcile())

    def _follow(self, changes: Changes) -> None:
        self._offline.follow(changes, should_log=self.membership.controller_id == self.metadata.node_id)
        if changes.brokers:
            self.reconcile()

    async def _reconcile(self) -> None:
        self._is_reconciling = True
        try:
            while self._has_news:
                self._has_news = False
                await self._record_given_up()
                await self._record_lives()
        except KafkaError as error:
            log.error("the cluster's metadata cannot be changed: %s", error.message)
            self.on_failed()
        finally:
            self._is_reconciling = False

    async def _record_given_up(self) -> None:
        given_up = tuple(self._given_up)
        if given_up and self._is_serving:
            await self.metadata.change(give_up_replicas, self.metadata.node_id, self._broker_epoch, given_up)
            del self._given_up[: len(given_up)]

    async def _record_lives(self) -> None:
        """Unfences this broker and, if this node is the controller, fences others that have ended."""
        registration = self._registration() if self._is_serving else None
        if registration is None:
            return
        ended = self._ended()
        if registration.fenced:
            await self.metadata.change(unfence, registration.broker_id, registration.broker_epoch)
        if ended:
            fenced = await self.metadata.change(fence, ended)
            if fenced:
                log.info("fenced nodes that have ended: %s", ", ".join(map(str, fenced)))

    def _registration(self) -> BrokerRegistration | None:
        """The registration of this start; None if this broker does not serve any more."""
        node_id = self.metadata.node_id
        registration = self.metadata.image.brokers.get(node_id)
        if registration is not None and registration.broker_epoch == self._broker_epoch:
            return registration
        self._is_serving = False
        what = "was unregistered" if registration is None else "was registered by another process"
        self.on_replaced(f"node {node_id} {what}: this broker is no longer part of the cluster")
        return None

    def _ended(self) -> list[int]:
        """The other nodes in service that have ended, if this node is the controller."""
        node_id = self.metadata.node_id
        if self.membership.controller_id != node_id:
            return []
        brokers = self.metadata.image.brokers.values()
        others = [it.broker_id for it in brokers if not it.fenced and it.broker_id != node_id]
        self.membership.watch(others)
        return [it for it in others if not self.membership.is_alive(it)]

"""This broker as a member of its cluster: from its registration, fenced, over its service, to its end in good order.

    register          at the start: it is fenced, because it cannot serve clients yet
    serve             clients can connect: it is unfenced, and leads again
    shut_down         others lead; it completes what is under way, and stops
    (controller)      the node that the membership names as the controller fences nodes that have ended

Each step is a decision of `metadata/controller/brokers.py`. `reconcile` compares the metadata with what is so, and
decides until both agree. So it does not matter which event it was called for, or whether one was missed.
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
from kwire.metadata.controller.brokers import begin_shutdown, fence, give_up_replicas, unfence
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.partitions.leader_elections import balance_leaders
from kwire.metadata.image import BrokerRegistration, Changes
from kwire.metadata.service import MetadataService
from kwire.runtime.callbacks import ignore
from kwire.runtime.futures import at_once, drive

log = logging.getLogger(__name__)

UNREGISTERED: Final = -1

Decide = Callable[[ClusterState], tuple[Records, list[int]]]
"""With the nodes that it fences."""


@attrs.define(eq=False)
class ClusterMember:
    """`on_replaced` is called, with a sentence, when the metadata say that this process is not the broker any more.

    `on_failed` is called when something could not be recorded: `reconcile` is to be called again in a while. Otherwise,
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
        """Of this start: the offset of its registration."""
        return self._broker_epoch

    def register(self, log_dirs: Sequence[Uuid], *, stopped_epoch: int) -> None:
        """At the start, before the logs are opened. `stopped_epoch` is what the last clean stop has left in them.

        Raises OSError.
        """
        self._broker_epoch = at_once(self.metadata.register_in_cluster(log_dirs, stopped_epoch=stopped_epoch))
        self._offline = OfflinePartitions.of(self.metadata.image)
        self.metadata.watch(self._follow)

    def serve(self) -> None:
        """Clients can connect."""
        self._is_serving = True
        self.reconcile()

    async def shut_down(self) -> None:
        """Returns when other brokers lead what they can lead. Raises KafkaError if that cannot be recorded."""
        self._is_serving = False
        node_id, epoch = self.metadata.node_id, self._broker_epoch
        await self.metadata.change(lambda state: (begin_shutdown(state, node_id, epoch), None))

    def give_up_replicas(self, replicas: Sequence[tuple[Uuid, int]]) -> None:
        """A log dir with these replicas, given by topic id and index, has failed: others lead them."""
        self._given_up += replicas
        self.reconcile()

    def balance_leaders(self) -> None:
        """Gives partitions back to their preferred leaders, if this node is the controller."""
        if self.is_controller:
            drive(self._balance_leaders())

    @property
    def is_controller(self) -> bool:
        """Whether this node does what one of the nodes has to do."""
        return self._is_serving and self.membership.controller_id == self.metadata.node_id

    async def _balance_leaders(self) -> None:
        try:
            await self.metadata.change(lambda state: (balance_leaders(state), None))
        except KafkaError as error:
            log.error("the leaders of partitions cannot be balanced: %s", error.message)

    def leave(self) -> None:
        """After the server has ended. Records that this broker has stopped, so that others need not detect it."""
        self._is_serving = False
        node_id = self.metadata.node_id
        try:
            at_once(self.metadata.change(lambda state: fence(state, [node_id] if self._is_current(state) else [])))
        except KafkaError as error:
            log.warning("node %d could not record that it stops: %s", node_id, error.message)
        self.membership.leave()

    def reconcile(self) -> None:
        """Something has changed: a life, the controller, or what the metadata say about brokers."""
        self._has_news = True
        if not self._is_reconciling:
            drive(self._reconcile())

    def _follow(self, changes: Changes) -> None:
        self._offline.follow(changes, tells=self.membership.controller_id == self.metadata.node_id)
        if changes.brokers:
            self.reconcile()

    async def _reconcile(self) -> None:
        self._is_reconciling = True
        try:
            while self._has_news:
                self._has_news = False
                await self._record_given_up()
                for decide in self._due():
                    fenced = await self.metadata.change(decide)
                    if fenced:
                        log.info("fenced nodes that have ended: %s", ", ".join(map(str, fenced)))
        except KafkaError as error:
            log.error("the cluster's metadata cannot be changed: %s", error.message)
            self.on_failed()
        finally:
            self._is_reconciling = False

    async def _record_given_up(self) -> None:
        given_up = tuple(self._given_up)
        if given_up and self._is_serving:
            node_id, epoch = self.metadata.node_id, self._broker_epoch
            await self.metadata.change(lambda state: (give_up_replicas(state, node_id, epoch, given_up), None))
            del self._given_up[: len(given_up)]

    def _due(self) -> list[Decide]:
        if not self._is_serving:
            return []
        node_id, epoch = self.metadata.node_id, self._broker_epoch
        brokers = self.metadata.image.brokers
        registered = brokers.get(node_id)
        if registered is None or registered.broker_epoch != epoch:
            self._is_serving = False
            what = "was unregistered" if registered is None else "was registered by another process"
            self.on_replaced(f"node {node_id} {what}: this broker is no longer part of the cluster")
            return []
        due: list[Decide] = []
        if registered.fenced:
            due.append(lambda state: (unfence(state, node_id, epoch), []))
        if self.membership.controller_id == node_id:
            due += self._due_as_controller([it for it in brokers.values() if not it.fenced and it.broker_id != node_id])
        return due

    def _due_as_controller(self, others: list[BrokerRegistration]) -> list[Decide]:
        self.membership.watch([it.broker_id for it in others])
        ended = [it.broker_id for it in others if not self.membership.is_alive(it.broker_id)]
        return [lambda state: fence(state, ended)] if ended else []

    def _is_current(self, state: ClusterState) -> bool:
        registered = state.image.brokers.get(self.metadata.node_id)
        return registered is not None and registered.broker_epoch == self._broker_epoch

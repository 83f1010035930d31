"""Brokers of one cluster without sockets and processes: the test decides which nodes are alive, and which is the
controller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.cluster.local.metadata_log import SharedMetadataLog
from kwire.config.server import load_config
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.node.broker import Broker
from kwire.runtime.clock import Clock, SystemClock
from testkit.basics.futures import at_once
from testkit.metadata.harness import CLUSTER_ID


@attrs.define(eq=False)
class ScriptedCluster:
    """The shared state of the nodes. `announce` of a log reaches all others at once."""

    disk: MemoryDisk = attrs.field(factory=MemoryDisk)
    alive: set[int] = attrs.field(factory=set)
    controller_id: int = 1
    members: dict[int, ScriptedMember] = attrs.field(factory=dict)
    brokers: dict[int, Broker] = attrs.field(factory=dict)

    def open(
        self, node_id: int, *settings: str, log_dirs: int = 1, serves: bool = True, clock: Clock | None = None
    ) -> Broker:
        """A broker with so many new log dirs in memory, in service."""
        disks = {f"/{node_id}/{number}": FaultyDisk() for number in range(log_dirs)}
        config = load_config(data_dirs=list(disks), settings=[f"node.id={node_id}", *settings])
        clock = clock or SystemClock()
        log = SharedMetadataLog.open(self.disk, node_id, clock.now_ms)
        log.announce = lambda: self.notify(node_id)
        self.alive.add(node_id)
        member = self.members[node_id] = ScriptedMember(node_id, self, log)
        broker = self.brokers[node_id] = Broker.open(config, dict(disks), clock, membership=member)
        assert broker.member is not None
        member.on_change = broker.member.reconcile
        if serves:
            broker.member.serve()
        return broker

    def notify(self, sender: int) -> None:
        for node_id, member in self.members.items():
            if node_id != sender and node_id in self.alive and node_id in self.brokers:
                at_once(member.log.refresh())

    def kill(self, node_id: int) -> None:
        """All others learn of its end at once."""
        self.alive.discard(node_id)
        self.brokers.pop(node_id)
        for broker in self.brokers.values():
            assert broker.member is not None
            broker.member.reconcile()


def create(broker: Broker, name: str, partitions: int, replication_factor: int = 1) -> None:
    request = CreateTopicsRequest([CreatableTopic(name, partitions, replication_factor)])
    assert [it.error_code for it in at_once(broker.metadata.change(create_topics, request)).topics] == [0]


def _ignore() -> None: ...


@attrs.define(eq=False)
class ScriptedMember:
    node_id: int
    cluster: ScriptedCluster
    log: SharedMetadataLog
    on_change: Callable[[], None] = _ignore

    @property
    def cluster_id(self) -> str:
        return CLUSTER_ID

    @property
    def controller_id(self) -> int:
        return self.cluster.controller_id

    def is_alive(self, node_id: int) -> bool:
        return node_id in self.cluster.alive

    def watch(self, node_ids: Collection[int]) -> None:
        pass

    async def run(self, on_change: Callable[[], None]) -> None:
        pass

    def leave(self) -> None:
        self.cluster.alive.discard(self.node_id)

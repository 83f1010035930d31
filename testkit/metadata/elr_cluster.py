"""The same cluster with eligible leader replicas."""

from __future__ import annotations

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_brokers import RegisterBrokerRecord
from kwire_protocol.internal.metadata_configs import ConfigRecord, FeatureLevelRecord

from kwire.metadata.controller import brokers
from kwire.metadata.controller.partitions.isr_changes import IsrProposal, change_isrs
from kwire.metadata.features import ELR_VERSION
from kwire.metadata.image import ConfigResourceType
from testkit.metadata.image_cluster import NODES, TOPIC_ID, Cluster

MIN_ISR = "min.insync.replicas"


@attrs.define
class ElrCluster(Cluster):
    """A cluster with eligible leader replicas and min.insync.replicas 2, whose starts report how the last run ended."""

    min_isr: int = 2

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.take([FeatureLevelRecord(ELR_VERSION, 1)])
        self.set_min_isr(self.min_isr)

    def set_min_isr(self, value: int) -> None:
        self.take([ConfigRecord(ConfigResourceType.TOPIC, "t", MIN_ISR, str(value))])

    def start(self, broker_id: int, *, clean: bool) -> None:
        epoch = self.image.brokers[broker_id].broker_epoch if broker_id in self.image.brokers else 0
        registration = RegisterBrokerRecord(
            broker_id=broker_id, rack=None, fenced=True, broker_epoch=self.image.offset + 1
        )
        self.take(brokers.register(self.state, registration, stopped_epoch=epoch if clean else brokers.NOT_CLEAN))
        self.unfence(broker_id)

    def propose(self, *isr: int, index: int = 0) -> ErrorCode:
        it = self.partitions[index]
        epochs = {node: self.image.brokers[node].broker_epoch for node in isr}
        proposal = IsrProposal(TOPIC_ID, index, it.leader_epoch, it.partition_epoch, epochs)
        records, [code] = change_isrs(self.state, it.leader, [proposal])
        self.take(records)
        return code

    def now(self) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Leader, ISR, ELR, last known leader."""
        it = self.partitions[0]
        return it.leader, it.isr, it.eligible_leader_replicas, it.last_known_elr


def cluster(*replicas: int, min_isr: int = 2) -> ElrCluster:
    made = ElrCluster(min_isr=min_isr)
    made.add(*(replicas or NODES))
    return made

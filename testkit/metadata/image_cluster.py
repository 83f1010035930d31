"""A cluster as an image that applies each decision at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from kwire_protocol.internal.metadata_brokers import RegisterBrokerRecord
from kwire_protocol.internal.metadata_configs import ConfigRecord
from kwire_protocol.internal.metadata_topics import PartitionRecord, TopicRecord

from kwire.config.resolution import ConfigResolver
from kwire.config.server import ServerConfig
from kwire.metadata.controller import brokers
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.image import ConfigResourceType, MetadataImage, PartitionRegistration

NODES = (1, 2, 3)


TOPIC_ID = b"t" * 16


@attrs.define
class Cluster:
    """Three brokers in service and a topic, in an image that takes each decision at once."""

    image: MetadataImage = attrs.field(factory=MetadataImage)
    static: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.take([RegisterBrokerRecord(broker_id=it, rack=None, fenced=False) for it in NODES])
        self.take([TopicRecord("t", TOPIC_ID)])

    @property
    def state(self) -> ClusterState:
        config = ServerConfig.from_properties(self.static)
        return ClusterState(self.image, config, ConfigResolver(self.static), lambda: TOPIC_ID, now_ms=0, end_offset=0)

    @property
    def partitions(self) -> list[PartitionRegistration]:
        return self.image.topics["t"].partitions

    def take(self, records: Records) -> None:
        for record in records:
            self.image.apply(record, offset=self.image.offset + 1)

    def add(self, *replicas: int, isr: Sequence[int] | None = None) -> None:
        leader = next(iter(isr if isr is not None else replicas))
        self.take(
            [
                PartitionRecord(
                    partition_id=len(self.partitions),
                    topic_id=TOPIC_ID,
                    replicas=list(replicas),
                    isr=list(replicas if isr is None else isr),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                )
            ]
        )

    def allow_unclean_election(self) -> None:
        self.take([ConfigRecord(ConfigResourceType.TOPIC, "t", "unclean.leader.election.enable", "true")])

    def fence(self, *broker_ids: int) -> list[int]:
        records, fenced = brokers.fence(self.state, broker_ids)
        self.take(records)
        return fenced

    def unfence(self, broker_id: int) -> None:
        self.take(brokers.unfence(self.state, broker_id, self.image.brokers[broker_id].broker_epoch))

    def register(self, broker_id: int) -> None:
        registration = RegisterBrokerRecord(
            broker_id=broker_id, rack=None, fenced=True, broker_epoch=self.image.offset + 1
        )
        self.take(brokers.register(self.state, registration))

    def shut_down(self, broker_id: int) -> None:
        self.take(brokers.begin_shutdown(self.state, broker_id, self.image.brokers[broker_id].broker_epoch))

    def leaders(self) -> list[int]:
        return [it.leader for it in self.partitions]

    def isrs(self) -> list[tuple[int, ...]]:
        return [it.isr for it in self.partitions]

"""The metadata as the server uses it: the image, and the one way to change it.

`commit` appends records, durably, then applies them to the image, then tells the watchers what changed: a change that
was answered is visible to the next request on any connection. At the start the same `apply` replays the log. The first
start writes who this node is and which features the cluster has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs
from kwire_protocol.internal.metadata_brokers import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from kwire_protocol.internal.metadata_configs import FeatureLevelRecord, ProducerIdsRecord
from kwire_protocol.wire import Uuid

from kwire.clock import Clock
from kwire.config import ServerConfig
from kwire.configs.definition import Value
from kwire.configs.listeners import SECURITY_PROTOCOLS
from kwire.configs.resolution import ConfigResolver
from kwire.metadata.controller import ClusterState, Records
from kwire.metadata.image import Changes, MetadataImage, ResourceType
from kwire.metadata.log import MetadataLog
from kwire.metadata.records import decode_record, encode_record

METADATA_VERSION: Final = "metadata.version"
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {METADATA_VERSION: (7, 30)}
"""Feature name -> lowest and highest level. 7 is Kafka 3.3-IV3, the first of KRaft; 30 is Kafka 4.3-IV0."""

PRODUCER_ID_BLOCK: Final = 1000
"""Ids are reserved in the log by the block (Kafka's ProducerIdsBlock); what a stop leaves of one is never used."""

Watcher = Callable[[Changes], None]


@attrs.define(eq=False)
class MetadataService:
    """See the module; create one with `MetadataService.open`."""

    config: ServerConfig
    cluster_id: str
    log: MetadataLog
    clock: Clock
    image: MetadataImage
    configs: ConfigResolver
    supported_features: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES
    _watchers: list[Watcher] = attrs.field(factory=list)
    _next_producer_id: int = 0
    _producer_ids_end: int = 0

    @classmethod
    def open(
        cls, config: ServerConfig, *, cluster_id: str, directory_id: Uuid, log: MetadataLog, clock: Clock
    ) -> MetadataService:
        """Replays `log`; at the first start, and when this node's listeners changed, records who it is.

        Raises StorageError, and ProtocolError for records that this version does not know.
        """
        service = cls(config, cluster_id, log, clock, MetadataImage(), ConfigResolver(config.properties))
        for offset, value in log.read_from(0):
            service.image.apply(decode_record(value), offset=offset)
        service._refresh_configs()
        records: Records = []
        if METADATA_VERSION not in service.image.features:
            records.append(FeatureLevelRecord(METADATA_VERSION, SUPPORTED_FEATURES[METADATA_VERSION][1]))
        if not service._is_registered(directory_id):
            records.append(service._registration(directory_id))
        if records:
            service.commit(records)
        return service

    # -- reading

    @property
    def state(self) -> ClusterState:
        """What a decision of the controller's looks at."""
        return ClusterState(
            image=self.image,
            configs=self.configs,
            node_id=self.config.node_id,
            num_partitions=self._number("num.partitions"),
            default_replication_factor=self._number("default.replication.factor"),
            new_id=self.clock.uuid,
        )

    def topic_values(self, topic: str) -> Mapping[str, Value]:
        """The effective configuration of a topic, by Kafka's names."""
        overrides = self.image.config(ResourceType.TOPIC, topic)
        return self.configs.topic_values(overrides) if overrides else self.configs.topic_defaults()

    def watch(self, watcher: Watcher) -> None:
        """`watcher` is called after each commit, with what it changed."""
        self._watchers.append(watcher)

    # -- changing

    def commit(self, records: Records) -> None:
        """Appends and applies `records`, all or none. Raises StorageError."""
        if not records:
            return
        expected = self.log.end_offset
        self.log.append([encode_record(record) for record in records], expected)
        changes = Changes()
        offset = self.log.end_offset - len(records)
        for record in records:
            self.image.apply(record, offset=offset, changes=changes)
            offset += 1
        if any(resource == ResourceType.BROKER for resource, _ in changes.configs):
            self._refresh_configs()
        for watcher in self._watchers:
            watcher(changes)

    def next_producer_id(self) -> int:
        """A producer id that was never given out before, nor will be again. Raises StorageError."""
        if self._next_producer_id == self._producer_ids_end:
            first = self.image.next_producer_id
            end = first + PRODUCER_ID_BLOCK
            self.commit([ProducerIdsRecord(self.config.node_id, self._broker_epoch, end)])
            self._next_producer_id, self._producer_ids_end = first, end
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    # -- this node

    @property
    def _broker_epoch(self) -> int:
        return self.image.brokers[self.config.node_id].broker_epoch

    def _number(self, name: str) -> int:
        value = self.configs.value(name)
        assert isinstance(value, int)
        return value

    def _refresh_configs(self) -> None:
        self.configs.update(
            dynamic_default=self.image.config(ResourceType.BROKER, ""),
            dynamic_broker=self.image.config(ResourceType.BROKER, str(self.config.node_id)),
        )

    def _end_points(self) -> list[BrokerEndpoint]:
        listeners = self.config.advertised_listeners or self.config.listeners
        return [
            BrokerEndpoint(it.name, it.host, it.port, SECURITY_PROTOCOLS.index(it.security_protocol))
            for it in listeners
        ]

    def _is_registered(self, directory_id: Uuid) -> bool:
        known = self.image.brokers.get(self.config.node_id)
        return (
            known is not None
            and known.log_dirs == (directory_id,)
            and known.rack == self.config.broker_rack
            and known.features == SUPPORTED_FEATURES
            and {name: (it.host, it.port) for name, it in known.endpoints.items()}
            == {it.name: (it.host, it.port) for it in self._end_points()}
        )

    def _registration(self, directory_id: Uuid) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.config.node_id,
            incarnation_id=self.clock.uuid(),
            # As in KRaft: the offset that the record itself will have, or will nearly have.
            broker_epoch=self.log.end_offset,
            end_points=self._end_points(),
            features=[BrokerFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
            rack=self.config.broker_rack,
            fenced=False,
            log_dirs=[directory_id],
        )

"""The metadata image: the state after all metadata records, built by one `apply`.

Live changes and the replay at start use the same `apply`, so a restarted broker has exactly the same state. `Changes`
collects the changes by a batch of records, and so the logs that the server must create, delete or configure.

Look-ups are plain dictionaries: `topics` by name, `topics_by_id` by id. `epoch` grows with every applied record: a
response made from the image is valid until it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from itertools import chain, repeat
from typing import Final

import attrs
from kwire_protocol.internal.metadata_brokers import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from kwire_protocol.internal.metadata_configs import ConfigRecord, FeatureLevelRecord, ProducerIdsRecord
from kwire_protocol.internal.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from kwire_protocol.internal.metadata_topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.metadata.access import AccessChanges, AccessImage
from kwire.metadata.records import MetadataRecord
from kwire.names.topic_names import has_collision_chars, unified_name

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2


@attrs.frozen
class PartitionRegistration:
    """The registration of one partition. `replicas` and `isr` are node ids, preferred leader first.

    The ISR may be empty, if the cluster has eligible leader replicas."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    """A `LeaderRecoveryState`."""
    eligible_leader_replicas: tuple[int, ...] = ()
    """The replicas that are not in sync, but have everything that was committed (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """The one broker that led last, while the partition has no leader."""

    def directory_of(self, node_id: int) -> Uuid:
        """The directory id of the log dir in which that node has its replica; NULL_UUID when none is assigned."""
        return dict(zip(self.replicas, self.directories, strict=False)).get(node_id, NULL_UUID)

    def with_directory(self, node_id: int, directory_id: Uuid) -> list[Uuid]:
        """Returns the new `directories`, with that node's replica in another folder."""
        return [directory_id if replica == node_id else self.directory_of(replica) for replica in self.replicas]


@attrs.define
class TopicImage:
    """A topic; `partitions[i]` is partition i."""

    name: str
    topic_id: Uuid
    partitions: list[PartitionRegistration] = attrs.Factory(list)


@attrs.frozen
class BrokerEndpointImage:
    host: str
    port: int
    security_protocol: int


@attrs.frozen
class BrokerRegistration:
    broker_id: int
    broker_epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, BrokerEndpointImage]
    """By listener name."""
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]

    @property
    def is_live(self) -> bool:
        """True if it may lead."""
        return not self.fenced and not self.in_controlled_shutdown


class LeaderRecoveryState(IntEnum):
    """The state of a partition: RECOVERING after an unclean election, until its leader has changed the ISR."""

    RECOVERED = 0
    RECOVERING = 1


class ConfigResourceType(IntEnum):
    """Resource types with configurations, by their number in requests and records."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


ConfigKey = tuple[int, str]
"""A resource's type (a ConfigResourceType) and name."""


@attrs.frozen
class UncleanElection:
    """An election whose leader may lack acknowledged records. `last_leader` has led before, or is NO_LEADER."""

    topic: str
    partition: int
    leader: int
    last_leader: int


@attrs.define
class Changes:
    """The net changes by some records: a topic that they create and delete is in neither list.

    Partitions of a created topic are not listed separately. `configs` are the resources whose configuration changed,
    including created and deleted topics.
    """

    topics_created: list[TopicImage] = attrs.Factory(list)
    topics_deleted: list[TopicImage] = attrs.Factory(list)
    partitions_added: list[tuple[TopicImage, int]] = attrs.Factory(list)
    partitions_changed: list[tuple[TopicImage, int]] = attrs.Factory(list)
    unclean_elections: list[UncleanElection] = attrs.Factory(list)
    configs: set[ConfigKey] = attrs.Factory(set)
    brokers: bool = False
    features: bool = False
    access: AccessChanges = attrs.Factory(AccessChanges)

    def configures_this_broker(self, node_id: int) -> bool:
        """True if a configuration of this broker changed, and so perhaps the defaults of every topic."""
        return any((ConfigResourceType.BROKER, name) in self.configs for name in ("", str(node_id)))

    def configured_topics(self) -> list[str]:
        """The topics whose own configuration changed."""
        return [name for resource_type, name in self.configs if resource_type == ConfigResourceType.TOPIC]


@attrs.define
class MetadataImage:
    topics: dict[str, TopicImage] = attrs.Factory(dict)
    topics_by_id: dict[Uuid, TopicImage] = attrs.Factory(dict)
    configs: dict[ConfigKey, dict[str, str]] = attrs.Factory(dict)
    brokers: dict[int, BrokerRegistration] = attrs.Factory(dict)
    features: dict[str, int] = attrs.Factory(dict)
    """Levels by name. 0 is a feature that was turned off: like an absent one, but no start turns it on again."""
    colliding_names: dict[str, set[str]] = attrs.Factory(dict)
    """Topics whose names differ at most in `.` and `_`, which are the same in metrics, by the name with all `_`."""
    access: AccessImage = attrs.Factory(AccessImage)
    next_producer_id: int = 0
    offset: int = -1
    """The offset of the last record applied."""
    epoch: int = 0
    is_whole: bool = True
    """False after a record that the image cannot store: the image cannot replace the log any more."""
    _transaction: list[MetadataRecord] | None = None
    _arriving: dict[Uuid, TopicImage] = attrs.Factory(dict)
    """New topics that are not published yet."""

    def apply(self, record: MetadataRecord, *, offset: int, changes: Changes | None = None) -> None:
        """Applies the record at `offset` of the log, and adds its changes to `changes`.

        With `changes`, new topics are not visible before `publish`. Records of a metadata transaction take effect at
        its end. Records that this image does not store (no-ops) only advance the offset.
        """
        noted = Changes() if changes is None else changes
        self.offset = offset
        self.epoch += 1
        match record:
            case BeginTransactionRecord():
                self._transaction = []
            case AbortTransactionRecord():
                self._transaction = None
            case EndTransactionRecord():
                records, self._transaction = self._transaction or [], None
                for pending in records:
                    self._apply(pending, noted)
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record, noted)
        if changes is None:
            self.publish(noted)

    def publish(self, changes: Changes) -> None:
        """Makes the new topics visible, completely. Changed permissions are in force from now on."""
        for topic in changes.topics_created:
            del self._arriving[topic.topic_id]
            self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic
            self.epoch += 1
        if changes.access.acls_added or changes.access.acls_removed:
            self.epoch += 1  # responses were made since the record was applied, with the earlier permissions

    def _topic(self, topic_id: Uuid) -> TopicImage:
        arriving = self._arriving.get(topic_id)
        return self.topics_by_id[topic_id] if arriving is None else arriving

    @property
    def can_be_recorded(self) -> bool:
        """True if records of the image's contents represent it completely, as a snapshot needs."""
        return self.is_whole and self._transaction is None

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def is_arriving(self, topic_id: Uuid) -> bool:
        """True if the topic is recorded, and not published yet."""
        return topic_id in self._arriving

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The configurations that were set on a resource; empty if none were."""
        return self.configs.get((resource_type, name), {})

    def offline_replicas(self, partition: PartitionRegistration, listener_name: str) -> list[int]:
        """The replicas that a client of that listener cannot reach, or whose log dir is out of service."""
        directories = chain(partition.directories, repeat(NULL_UUID))
        return [
            node_id
            for node_id, directory_id in zip(partition.replicas, directories, strict=False)
            if not self.is_online(node_id, directory_id) or listener_name not in self.brokers[node_id].endpoints
        ]

    def is_online(self, node_id: int, directory_id: Uuid) -> bool:
        """True if that broker is in service, and so is its log dir, if the replica is assigned to one."""
        broker = self.brokers.get(node_id)
        if broker is None or broker.fenced:
            return False
        return directory_id == NULL_UUID or directory_id in broker.log_dirs

    def live_brokers(self) -> list[BrokerRegistration]:
        """The brokers that may lead, by node id."""
        return [broker for _, broker in sorted(self.brokers.items()) if broker.is_live]

    def _apply(self, record: MetadataRecord, changes: Changes) -> None:
        match record:
            case TopicRecord():
                topic = TopicImage(record.name, record.topic_id)
                self._arriving[topic.topic_id] = topic
                if has_collision_chars(topic.name):
                    self.colliding_names.setdefault(unified_name(topic.name), set()).add(topic.name)
                changes.topics_created.append(topic)
            case PartitionRecord():
                self._add_partition(record, changes)
            case PartitionChangeRecord():
                topic = self._topic(record.topic_id)
                before = topic.partitions[record.partition_id]
                topic.partitions[record.partition_id] = changed_partition(before, record)
                changes.partitions_changed.append((topic, record.partition_id))
                if record.leader >= 0 and record.leader not in (*before.isr, *before.eligible_leader_replicas):
                    known = (before.leader, *before.last_known_elr, *before.isr)
                    last_leader = next((it for it in known if it != NO_LEADER), NO_LEADER)
                    election = UncleanElection(topic.name, record.partition_id, record.leader, last_leader)
                    changes.unclean_elections.append(election)
            case ClearElrRecord():
                self._clear_elr(record, changes)
            case RemoveTopicRecord():
                self._remove_topic(self._topic(record.topic_id), changes)
            case ConfigRecord():
                self._configure(record, changes)
            case FeatureLevelRecord():
                self.features[record.name] = record.feature_level
                changes.features = True
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case _:
                self._apply_other(record, changes)

    def _add_partition(self, record: PartitionRecord, changes: Changes) -> None:
        topic = self._topic(record.topic_id)
        registration = PartitionRegistration(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )
        # Kafka's controller writes a topic's partitions in order; a record for a known partition replaces it.
        if record.partition_id < len(topic.partitions):
            topic.partitions[record.partition_id] = registration
            changes.partitions_changed.append((topic, record.partition_id))
            return
        assert record.partition_id == len(topic.partitions), "the partitions of a topic are recorded in order"
        topic.partitions.append(registration)
        if not any(it is topic for it in reversed(changes.topics_created)):
            changes.partitions_added.append((topic, record.partition_id))

    def _clear_elr(self, record: ClearElrRecord, changes: Changes) -> None:
        """Applies the record of Kafka's controller for a changed min.insync.replicas; without a name for all topics."""
        for topic in self.topics.values():
            if record.topic_name in ("", topic.name):
                for index, it in enumerate(topic.partitions):
                    if it.eligible_leader_replicas or it.last_known_elr:
                        topic.partitions[index] = attrs.evolve(it, eligible_leader_replicas=(), last_known_elr=())
                        changes.partitions_changed.append((topic, index))

    def _remove_topic(self, topic: TopicImage, changes: Changes) -> None:
        if self._arriving.pop(topic.topic_id, None) is None:
            del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        if has_collision_chars(topic.name):
            names = self.colliding_names[unified_name(topic.name)]
            names.discard(topic.name)
            if not names:
                del self.colliding_names[unified_name(topic.name)]
        if self.configs.pop((ConfigResourceType.TOPIC, topic.name), None) is not None:
            changes.configs.add((ConfigResourceType.TOPIC, topic.name))
        changes.partitions_added = [(it, index) for it, index in changes.partitions_added if it is not topic]
        changes.partitions_changed = [(it, index) for it, index in changes.partitions_changed if it is not topic]
        if any(it is topic for it in changes.topics_created):
            changes.topics_created = [it for it in changes.topics_created if it is not topic]
        else:
            changes.topics_deleted.append(topic)

    def _configure(self, record: ConfigRecord, changes: Changes) -> None:
        key = (record.resource_type, record.resource_name)
        if record.value is not None:
            self.configs.setdefault(key, {})[record.name] = record.value
        else:
            configured = self.configs.get(key, {})
            configured.pop(record.name, None)
            if not configured:
                self.configs.pop(key, None)
        changes.configs.add(key)

    def _apply_other(self, record: MetadataRecord, changes: Changes) -> None:
        match record:
            case RegisterBrokerRecord():
                self.brokers[record.broker_id] = BrokerRegistration(
                    broker_id=record.broker_id,
                    broker_epoch=record.broker_epoch,
                    incarnation_id=record.incarnation_id,
                    endpoints={
                        it.name: BrokerEndpointImage(it.host, it.port, it.security_protocol) for it in record.end_points
                    },
                    features={it.name: (it.min_supported_version, it.max_supported_version) for it in record.features},
                    rack=record.rack,
                    fenced=record.fenced,
                    in_controlled_shutdown=record.in_controlled_shutdown,
                    log_dirs=tuple(record.log_dirs),
                )
            case BrokerRegistrationChangeRecord():
                # 1 sets it, -1 clears it, 0 leaves it.
                broker = self.brokers[record.broker_id]
                self.brokers[record.broker_id] = attrs.evolve(
                    broker,
                    fenced=record.fenced > 0 if record.fenced else broker.fenced,
                    in_controlled_shutdown=record.in_controlled_shutdown > 0 or broker.in_controlled_shutdown,
                    log_dirs=tuple(record.log_dirs) or broker.log_dirs,
                )
            case FenceBrokerRecord():
                self.brokers[record.id] = attrs.evolve(self.brokers[record.id], fenced=True)
            case UnfenceBrokerRecord():
                self.brokers[record.id] = attrs.evolve(self.brokers[record.id], fenced=False)
            case UnregisterBrokerRecord():
                del self.brokers[record.broker_id]
            case NoOpRecord():
                return
            case _ if self.access.apply(record, changes.access):
                return
            case _:
                self.is_whole = False
                return
        changes.brokers = True


def changed_partition(old: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """Applies a change; fields with their defaults are unchanged, and a named leader means a new leader epoch."""

    def updated(new: list[int] | None, before: tuple[int, ...]) -> tuple[int, ...]:
        return before if new is None else tuple(new)

    elected = record.leader != NO_LEADER_CHANGE
    return PartitionRegistration(
        leader=record.leader if elected else old.leader,
        leader_epoch=old.leader_epoch + 1 if elected else old.leader_epoch,
        replicas=updated(record.replicas, old.replicas),
        isr=updated(record.isr, old.isr),
        partition_epoch=old.partition_epoch + 1,
        directories=old.directories if record.directories is None else tuple(record.directories),
        removing_replicas=updated(record.removing_replicas, old.removing_replicas),
        adding_replicas=updated(record.adding_replicas, old.adding_replicas),
        leader_recovery_state=(
            old.leader_recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state
        ),
        eligible_leader_replicas=updated(record.eligible_leader_replicas, old.eligible_leader_replicas),
        last_known_elr=updated(record.last_known_elr, old.last_known_elr),
    )

"""Eligible leader replicas (KIP-966): replicas with everything acknowledged, while too few are in sync.

While fewer replicas are in sync than min.insync.replicas requires, nothing new is committed. So a replica that leaves
the ISR then still has everything committed: it is an eligible leader replica (ELR), and may lead when no replica is in
sync any more. The ISR may be empty.

    in sync --- leaves, and fewer than min.insync.replicas are left ---> eligible
    eligible --- enough are in sync again, and commit more ---> not eligible
    in sync, eligible --- its broker starts again, and its last stop was not clean ---> neither

A broker that did not stop cleanly may have lost records that were not on its disk. It proves a clean stop by the broker
epoch that it wrote into its log dirs then (`.kafka_cleanshutdown`). If no eligible replica is left either, the last
leader is elected when it is back (`last_known_elr`, which has that one broker).

The feature `eligible.leader.replicas.version` turns this on. The controller and the leader must agree on
min.insync.replicas, so no broker has its own value then, and the one for all is recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ConfigRecord
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.controller.deciding import MIN_ISR, ClusterState, Records, min_isr_for_everybody
from kwire.metadata.image import NO_LEADER, ConfigResourceType, PartitionRegistration

if TYPE_CHECKING:
    from kwire_protocol.wire import Uuid

_ALL_BROKERS: Final = ""


def eligible(
    before: PartitionRegistration, replicas: Collection[int], isr: Collection[int], unclean: Collection[int]
) -> tuple[int, ...]:
    """Returns the ELR if too few are in sync: those that were in sync or eligible before, except the unclean ones."""
    had_everything = {*before.isr, *before.eligible_leader_replicas} - {*isr} - {*unclean}
    return tuple(it for it in replicas if it in had_everything)


def turn_on(state: ClusterState) -> Records:
    """Returns the records that the feature requires. The last member of an ISR without a leader becomes eligible."""
    records = min_isr_for_everybody(state)
    for (kind, name), configs in state.image.configs.items():
        if kind == ConfigResourceType.BROKER and name != _ALL_BROKERS and MIN_ISR in configs:
            records.append(ConfigRecord(kind, name, MIN_ISR, None))
    for topic_id, index, it in _partitions(state):
        if it.leader == NO_LEADER and it.isr:
            isr = list(it.isr)
            records.append(_change(topic_id, index, isr=[], elr=isr, last_known=isr[:1]))
    return records


def turn_off(state: ClusterState) -> Records:
    """Returns the records that level 0 requires. The replicas that could lead next are the ISR again."""
    records: Records = []
    for topic_id, index, it in _partitions(state):
        if not it.isr:
            isr = list(it.eligible_leader_replicas or it.last_known_elr)
            records.append(_change(topic_id, index, isr=isr, elr=[], last_known=[]))
        elif it.eligible_leader_replicas or it.last_known_elr:
            records.append(_change(topic_id, index, elr=[], last_known=[]))
    return records


def cleared_by(state: ClusterState, config_changes: Records) -> Records:
    """Empties the ELRs of the topics whose min.insync.replicas changes: with a lower value, more may be committed.

    A partition without a leader commits nothing, and keeps its ELR.
    """
    if not state.has_elr:
        return []
    changed = [it for it in config_changes if isinstance(it, ConfigRecord) and it.name == MIN_ISR]
    if not changed:
        return []
    names = {it.resource_name for it in changed if it.resource_type == ConfigResourceType.TOPIC}
    of_all = any(it.resource_type == ConfigResourceType.BROKER for it in changed)
    topics = {topic.topic_id for name, topic in state.image.topics.items() if of_all or name in names}
    return [
        _change(topic_id, index, elr=[])
        for topic_id, index, it in _partitions(state)
        if topic_id in topics and it.leader != NO_LEADER and it.eligible_leader_replicas
    ]


def check_min_isr(state: ClusterState, resource_name: str, *, is_named: bool, is_left: bool) -> None:
    """Checks a change of a broker's configuration, or of that for all brokers (the empty name).

    `is_named` is True if the change names min.insync.replicas, `is_left` if it is set afterwards. Raises
    KafkaError(INVALID_CONFIG).
    """
    if not state.has_elr:
        return
    if resource_name and is_named:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled: set it for all."
        )
    if not resource_name and not is_left:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled: set it to another value.",
        )


def _partitions(state: ClusterState) -> Iterator[tuple[Uuid, int, PartitionRegistration]]:
    for topic in state.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            yield topic.topic_id, index, partition


def _change(
    topic_id: Uuid,
    index: int,
    *,
    elr: list[int],
    isr: list[int] | None = None,
    last_known: list[int] | None = None,
) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=index, topic_id=topic_id, isr=isr, eligible_leader_replicas=elr, last_known_elr=last_known
    )

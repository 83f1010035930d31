"""One partition's next registration, as a record: a new ISR, new replicas, and the leader that follows from them.

Every decision that changes the ISR, the replicas or the leader of a partition makes its record here, so that each of
them elects a leader, updates the eligible leader replicas, and completes a reassignment whose replicas are all in sync.
Kafka's `PartitionChangeBuilder`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.metadata.controller.deciding import ClusterState
from kwire.metadata.controller.partitions.elections import Election, MayLead, elect
from kwire.metadata.controller.partitions.eligible_replicas import eligible
from kwire.metadata.image import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    LeaderRecoveryState,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)


@attrs.frozen
class Replicas:
    """The replicas of a partition, and those that a current reassignment adds and removes."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, partition: PartitionRegistration) -> Replicas:
        return cls(partition.replicas, partition.isr, partition.adding_replicas, partition.removing_replicas)

    def completed(self) -> Replicas:
        """Returns these without the removed ones, if all others are in sync: the reassignment is complete then."""
        if not self.adding and not self.removing:
            return self
        replicas = tuple(it for it in self.replicas if it not in self.removing)
        isr = tuple(it for it in self.isr if it not in self.removing)
        return Replicas(replicas, isr) if replicas and set(isr) >= set(replicas) else self


def partition_change(
    state: ClusterState,
    topic: TopicImage,
    index: int,
    *,
    may_lead: MayLead,
    wanted: Replicas | None = None,
    isr: Sequence[int] | None = None,
    unclean: Collection[int] = (),
    is_recovered: bool = False,
    election: Election = Election.ONLINE,
) -> PartitionChangeRecord | None:
    """Returns the record of a change to the replicas `wanted`, or only to this `isr`; None if nothing changes.

    `unclean` are brokers that may have lost records: they are not eligible. `is_recovered`: the leader has
    recovered from an unclean election. Without eligible leader replicas, an empty `isr` leaves the ISR unchanged, and
    the partition without a leader.
    """
    before = topic.partitions[index]
    wanted = wanted or Replicas.of(before)
    if isr is not None:
        wanted = attrs.evolve(wanted, isr=tuple(isr))
    after = wanted.completed()
    elr = eligible(before, after.replicas, after.isr, unclean) if _lacks_replicas(state, topic, after) else ()
    last_known = before.last_known_elr
    elected = elect(
        before.leader,
        after.replicas,
        after.isr,
        may_lead,
        election,
        elr=elr,
        last_leader=last_known[0] if state.has_elr and last_known else NO_LEADER,
    )
    has_leader = elected.leader != NO_LEADER
    if has_leader and elected.leader not in after.isr:
        after = attrs.evolve(after, isr=(elected.leader,))
    elif not after.isr and not state.has_elr:
        after = attrs.evolve(after, isr=before.isr)
    elr = () if elected.is_unclean or not _lacks_replicas(state, topic, after) else elr
    if has_leader or not state.has_elr:
        last_known = ()
    elif before.leader != NO_LEADER:
        last_known = (before.leader,)
    record = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id)
    if elected.leader != before.leader:
        record.leader = elected.leader
        if elected.is_unclean and before.leader_recovery_state != LeaderRecoveryState.RECOVERING:
            record.leader_recovery_state = LeaderRecoveryState.RECOVERING
    if is_recovered and before.leader_recovery_state != LeaderRecoveryState.RECOVERED:
        record.leader_recovery_state = LeaderRecoveryState.RECOVERED
    if after.isr != before.isr:
        record.isr = list(after.isr)
    if (new_elr := tuple(it for it in elr if it not in after.isr)) != before.eligible_leader_replicas:
        record.eligible_leader_replicas = list(new_elr)
    if last_known != before.last_known_elr:
        record.last_known_elr = list(last_known)
    if after.replicas != before.replicas:
        record.replicas = list(after.replicas)
        record.directories = [_directory(state.image, before, it) for it in after.replicas]
        if record.leader == NO_LEADER_CHANGE and not set(before.replicas) <= set(after.replicas):
            # A new leader epoch, in which the fetches of a removed replica no longer count.
            record.leader = before.leader
    if after.adding != before.adding_replicas:
        record.adding_replicas = list(after.adding)
    if after.removing != before.removing_replicas:
        record.removing_replicas = list(after.removing)
    return None if record == PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id) else record


def _lacks_replicas(state: ClusterState, topic: TopicImage, it: Replicas) -> bool:
    """True if so few are in sync that nothing is committed, and others are eligible."""
    return state.has_elr and len(it.isr) < state.min_isr(topic.name, len(it.replicas))


def _directory(image: MetadataImage, before: PartitionRegistration, broker_id: int) -> Uuid:
    """The log dir of a replica. A new one is in the only log dir of its broker, or the broker chooses it (KIP-858)."""
    if broker_id in before.replicas:
        return before.directory_of(broker_id)
    registered = image.brokers.get(broker_id)
    return registered.log_dirs[0] if registered is not None and len(registered.log_dirs) == 1 else NULL_UUID

"""One partition's next registration, as a record: a new ISR, new replicas, and the leader that follows from them.

Every decision that changes the ISR, the replicas or the leader of a partition makes its record here, so that each of
them elects a leader and completes a reassignment whose replicas are all in sync. Kafka's `PartitionChangeBuilder`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.metadata.controller.elections import Election, MayLead, elect
from kwire.metadata.image import NO_LEADER_CHANGE, MetadataImage, PartitionRegistration


@attrs.frozen
class Replicas:
    """The replicas of a partition, and a reassignment under way: all of them, and those that come and go."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, partition: PartitionRegistration) -> Replicas:
        return cls(partition.replicas, partition.isr, partition.adding_replicas, partition.removing_replicas)

    def completed(self) -> Replicas:
        """Without those that go, if all that stay are in sync: the reassignment is complete then."""
        if not self.adding and not self.removing:
            return self
        replicas = tuple(it for it in self.replicas if it not in self.removing)
        isr = tuple(it for it in self.isr if it not in self.removing)
        return Replicas(replicas, isr) if replicas and set(isr) >= set(replicas) else self


def partition_change(
    image: MetadataImage,
    topic_id: Uuid,
    index: int,
    *,
    may_lead: MayLead,
    wanted: Replicas | None = None,
    isr: Sequence[int] | None = None,
    election: Election = Election.ONLINE,
) -> PartitionChangeRecord | None:
    """The record that gives the partition the replicas `wanted`, or only this `isr`; None if nothing changes.

    An empty `isr` leaves the ISR as it is, and nobody leads.
    """
    before = image.topics_by_id[topic_id].partitions[index]
    wanted = wanted or Replicas.of(before)
    if isr is not None:
        wanted = attrs.evolve(wanted, isr=tuple(isr))
    after = wanted.completed()
    elected = elect(before.leader, after.replicas, after.isr, may_lead, election)
    new_isr = (elected.leader,) if elected.is_unclean else after.isr or before.isr
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    if elected.leader != before.leader:
        record.leader = elected.leader
    if new_isr != before.isr:
        record.isr = list(new_isr)
    if after.replicas != before.replicas:
        record.replicas = list(after.replicas)
        record.directories = [_directory(image, before, it) for it in after.replicas]
        if record.leader == NO_LEADER_CHANGE and not set(before.replicas) <= set(after.replicas):
            # A new leader epoch, in which a fetch of a replica that is gone counts no more.
            record.leader = before.leader
    if after.adding != before.adding_replicas:
        record.adding_replicas = list(after.adding)
    if after.removing != before.removing_replicas:
        record.removing_replicas = list(after.removing)
    return None if record == PartitionChangeRecord(partition_id=index, topic_id=topic_id) else record


def _directory(image: MetadataImage, before: PartitionRegistration, broker_id: int) -> Uuid:
    """The log dir of a replica. A new one is in the only log dir of its broker, or where that says (KIP-858)."""
    if broker_id in before.replicas:
        return before.directory_of(broker_id)
    registered = image.brokers.get(broker_id)
    return registered.log_dirs[0] if registered is not None and len(registered.log_dirs) == 1 else NULL_UUID

"""The life cycle of brokers: registration, fencing, unfencing, controlled shutdown, and the elections that these cause.

    registered, fenced ---> in service ---> shutting down
           ^                    |                |         its process has ended, or restarts
           +--------------------+----------------+

A fenced broker does not lead, and is in no ISR; without eligible leader replicas, it may be the last member of one.
In Kafka the controller makes these decisions (`ReplicationControlManager`). Here any broker may make them, because each
is made on the state that it changes: a broker registers itself, and the controller fences those that have died.
`partitions/states.py` has the states of partitions and replicas that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.bootstrap import registration_record
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.partitions.elections import Election, MayLead
from kwire.metadata.controller.partitions.partition_changes import partition_change
from kwire.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage

if TYPE_CHECKING:
    from collections.abc import Collection, Set

    from kwire_protocol.wire import Uuid

_SET, _CLEARED = 1, -1
"""The values of `fenced` and `in_controlled_shutdown` in a BrokerRegistrationChangeRecord."""

NOT_CLEAN: Final = -1
"""The epoch of a broker that did not stop cleanly, or has never run."""


def register(state: ClusterState, registration: RegisterBrokerRecord, *, stopped_epoch: int = NOT_CLEAN) -> Records:
    """Registers a broker that has just started, fenced. Its former process has ended, so it leads nothing.

    `stopped_epoch` is the broker epoch that it had at its last clean stop. If that is not the registered one, it may
    have lost records since, and must copy the missing ones before it counts again (KIP-966).
    """
    broker_id = registration.broker_id
    known = state.image.brokers.get(broker_id)
    is_clean = known is not None and known.broker_epoch == stopped_epoch
    unclean = {broker_id} if state.has_elr and not is_clean else set[int]()
    return [registration, *_without(state, {broker_id}, unclean)]


def register_at_start(state: ClusterState, log_dirs: Sequence[Uuid], stopped_epoch: int) -> tuple[Records, int]:
    """Registers the deciding broker, as `register` does, at its start in a cluster. Returns its broker epoch.

    `log_dirs` are the directory ids of its log dirs.
    """
    registration = registration_record(state, log_dirs, fenced=True)
    return register(state, registration, stopped_epoch=stopped_epoch), registration.broker_epoch


def fence(state: ClusterState, broker_ids: Collection[int]) -> tuple[Records, list[int]]:
    """Fences brokers that have ended. Returns the newly fenced ones; the others were fenced, or not registered."""
    ended = {it for it in broker_ids if (known := state.image.brokers.get(it)) is not None and not known.fenced}
    changes: Records = [_change(state.image.brokers[it], fenced=_SET) for it in sorted(ended)]
    return [*changes, *_without(state, ended)], sorted(ended)


def fence_incarnation(state: ClusterState, broker_id: int, broker_epoch: int) -> tuple[Records, list[int]]:
    """Fences a broker that has ended, unless it has registered again since this epoch. Returns the same as `fence`."""
    registered = state.image.brokers.get(broker_id)
    return fence(state, [broker_id] if registered is not None and registered.broker_epoch == broker_epoch else [])


def unfence(state: ClusterState, broker_id: int, broker_epoch: int) -> Records:
    """Unfences a broker: it serves clients, and leads partitions that it alone can lead.

    Returns no records if it is shutting down, or was registered again meanwhile.
    """
    registered = state.image.brokers.get(broker_id)
    if registered is None or registered.broker_epoch != broker_epoch:
        return []
    if not registered.fenced or registered.in_controlled_shutdown:
        return []
    may_lead = brokers_that_may_lead(state.image, added=broker_id)
    records: Records = [_change(registered, fenced=_CLEARED)]
    for topic, index, partition in _partitions(state.image, lambda it: it.leader == NO_LEADER):
        if broker_id in partition.replicas:
            # Brokers that ended together with the last leader are still in the ISR: the new leader would wait for them.
            serving = [it for it in partition.isr if it == broker_id or _serves(state.image, it)]
            records += _changed(state, topic, index, isr=serving or partition.isr, may_lead=may_lead)
    return records


def begin_shutdown(state: ClusterState, broker_id: int, broker_epoch: int) -> Records:
    """Begins a controlled shutdown: other brokers lead its partitions before it stops."""
    registered = state.image.brokers.get(broker_id)
    if registered is None or registered.broker_epoch != broker_epoch or registered.in_controlled_shutdown:
        return []
    return [_change(registered, in_controlled_shutdown=_SET), *_without(state, {broker_id})]


def give_up_replicas(
    state: ClusterState, broker_id: int, broker_epoch: int, replicas: Collection[tuple[Uuid, int]]
) -> Records:
    """Gives up the replicas in a failed log dir (KIP-858), given by topic id and index: other brokers lead them.

    Its replicas are neither in sync nor eligible any more. A partition that no other broker can lead
    stays as it is: only this broker can lead it, after a repair.
    """
    registered = state.image.brokers.get(broker_id)
    if registered is None or registered.broker_epoch != broker_epoch:
        return []
    may_lead = brokers_that_may_lead(state.image, removed={broker_id})
    records: Records = []
    for topic_id, index in replicas:
        topic = state.image.topics_by_id.get(topic_id)
        if topic is None:
            continue
        partition = topic.partitions[index]
        others = [it for it in partition.isr if it != broker_id]
        heirs = others or [it for it in partition.eligible_leader_replicas if it != broker_id]
        if any(map(may_lead, heirs)):
            records += _changed(state, topic, index, isr=others, may_lead=may_lead, unclean={broker_id})
    return records


def _serves(image: MetadataImage, broker_id: int) -> bool:
    registered = image.brokers.get(broker_id)
    return registered is not None and not registered.fenced


def _change(
    registered: BrokerRegistration, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=registered.broker_id,
        broker_epoch=registered.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


def _without(state: ClusterState, ended: Set[int], unclean: Set[int] = frozenset()) -> Iterator[PartitionChangeRecord]:
    """Changes the partitions with an ended broker as leader or in the ISR, or with an unclean one in the ELR."""
    may_lead = brokers_that_may_lead(state.image, removed=ended)

    def is_concerned(it: PartitionRegistration) -> bool:
        return it.leader in ended or not ended.isdisjoint(it.isr) or not unclean.isdisjoint(it.eligible_leader_replicas)

    for topic, index, partition in _partitions(state.image, is_concerned):
        isr = [it for it in partition.isr if it not in ended]
        yield from _changed(state, topic, index, isr=isr, may_lead=may_lead, unclean=unclean)


def _changed(
    state: ClusterState,
    topic: TopicImage,
    index: int,
    *,
    isr: Collection[int],
    may_lead: MayLead,
    unclean: Set[int] = frozenset(),
) -> Iterator[PartitionChangeRecord]:
    needs_unclean = not any(map(may_lead, isr)) and state.allows_unclean_election(topic.name)
    election = Election.UNCLEAN if needs_unclean else Election.ONLINE
    record = partition_change(state, topic, index, isr=list(isr), may_lead=may_lead, election=election, unclean=unclean)
    if record is not None:
        yield record


def unregister(state: ClusterState, broker_id: int) -> Records:
    """Removes a broker's registration. Partitions that only it can lead are not changed, and come back with it.

    Raises KafkaError: BROKER_ID_NOT_REGISTERED, INVALID_REQUEST (it is in service, which Kafka does not check).
    """
    registered = state.image.brokers.get(broker_id)
    if registered is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    if not registered.fenced:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is in service: stop it before it is unregistered"
        )
    return [*_without(state, {broker_id}), UnregisterBrokerRecord(broker_id, registered.broker_epoch)]


def brokers_that_may_lead(image: MetadataImage, *, added: int | None = None, removed: Collection[int] = ()) -> MayLead:
    """Returns a test for the brokers in service, with `added` and without `removed`."""
    able = {it.broker_id for it in image.live_brokers()} - set(removed)
    if added is not None:
        able.add(added)
    return able.__contains__


def _partitions(
    image: MetadataImage, is_wanted: Callable[[PartitionRegistration], bool]
) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if is_wanted(partition):
                yield topic, index, partition

"""What follows from the life of brokers: registration, fencing, unfencing, shutdown, and the elections that they cause.

    registered, fenced ---> in service ---> shutting down
           ^                    |                |         its process has ended, or begins anew
           +--------------------+----------------+

A fenced broker does not lead, and is in no ISR, except as its last member. Kafka's `ReplicationControlManager`, whose
decisions the controller makes. Here any broker may make them, because each is made on the state that it changes: a
broker registers itself, and the controller fences those that have died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.elections import Election, MayLead
from kwire.metadata.controller.partition_changes import partition_change
from kwire.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage

if TYPE_CHECKING:
    from collections.abc import Collection, Set

    from kwire_protocol.wire import Uuid

UNCLEAN: Final = "unclean.leader.election.enable"

_SO, _NOT_SO = 1, -1
"""In a BrokerRegistrationChangeRecord."""


def register(state: ClusterState, registration: RegisterBrokerRecord) -> Records:
    """Registers a broker that has just started, fenced. Its former process has ended, so nothing is led by it."""
    return [registration, *_without(state, {registration.broker_id})]


def fence(state: ClusterState, broker_ids: Collection[int]) -> tuple[Records, list[int]]:
    """These brokers have ended. Returns the ones that are fenced by this; the others were fenced already."""
    ended = {it for it in broker_ids if (known := state.image.brokers.get(it)) is not None and not known.fenced}
    changes: Records = [_change(state.image.brokers[it], fenced=_SO) for it in sorted(ended)]
    return [*changes, *_without(state, ended)], sorted(ended)


def unfence(state: ClusterState, broker_id: int, broker_epoch: int) -> Records:
    """The broker serves clients, and leads what it alone can lead.

    Nothing, if it shuts down, or was registered anew meanwhile.
    """
    registered = state.image.brokers.get(broker_id)
    if registered is None or registered.broker_epoch != broker_epoch:
        return []
    if not registered.fenced or registered.in_controlled_shutdown:
        return []
    may_lead = brokers_that_may_lead(state.image, added=broker_id)
    records: Records = [_change(registered, fenced=_NOT_SO)]
    for topic, index, partition in _partitions(state.image, lambda it: it.leader == NO_LEADER):
        if broker_id in partition.replicas:
            records += _changed(state, topic, index, isr=partition.isr, may_lead=may_lead)
    return records


def begin_shutdown(state: ClusterState, broker_id: int, broker_epoch: int) -> Records:
    """A controlled shutdown: others lead before the broker stops."""
    registered = state.image.brokers.get(broker_id)
    if registered is None or registered.broker_epoch != broker_epoch or registered.in_controlled_shutdown:
        return []
    return [_change(registered, in_controlled_shutdown=_SO), *_without(state, {broker_id})]


def give_up_replicas(
    state: ClusterState, broker_id: int, broker_epoch: int, replicas: Collection[tuple[Uuid, int]]
) -> Records:
    """A log dir of the broker has failed (KIP-858): others lead its partitions, given by topic id and index.

    What no other broker can lead stays as it is, since there is nobody to lead it but this one, after a repair.
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
        isr = [it for it in partition.isr if it != broker_id]
        if broker_id in partition.isr and any(map(may_lead, isr)):
            records += _changed(state, topic, index, isr=isr, may_lead=may_lead)
    return records


def _change(
    registered: BrokerRegistration, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=registered.broker_id,
        broker_epoch=registered.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


def _without(state: ClusterState, ended: Set[int]) -> Iterator[PartitionChangeRecord]:
    """The partitions that these brokers lead, or in whose ISR they are."""
    may_lead = brokers_that_may_lead(state.image, removed=ended)
    for topic, index, partition in _partitions(
        state.image, lambda it: it.leader in ended or not ended.isdisjoint(it.isr)
    ):
        isr = [it for it in partition.isr if it not in ended]
        yield from _changed(state, topic, index, isr=isr, may_lead=may_lead)


def _changed(
    state: ClusterState,
    topic: TopicImage,
    index: int,
    *,
    isr: Collection[int],
    may_lead: MayLead,
) -> Iterator[PartitionChangeRecord]:
    needs_unclean = not any(map(may_lead, isr)) and bool(state.topic_values(topic.name)[UNCLEAN])
    election = Election.UNCLEAN if needs_unclean else Election.ONLINE
    record = partition_change(state.image, topic.topic_id, index, isr=list(isr), may_lead=may_lead, election=election)
    if record is not None:
        yield record


def unregister(state: ClusterState, broker_id: int) -> Records:
    """Forgets a broker. What only it has stays its own, and comes back with it.

    Raises KafkaError: BROKER_ID_NOT_REGISTERED, INVALID_REQUEST (it is in service, where Kafka would not look).
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
    """Those in service, with and without these."""
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

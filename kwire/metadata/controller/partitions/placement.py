"""Which brokers get the replicas of new partitions.

Leaders go round the brokers, one rack after the other. The followers of a partition are the brokers that come next,
from as many other racks as there are. Where they begin is shifted with each round, so that the partitions of a broker
that fails get their new leaders on all others, and not on its neighbour. Like Kafka's `StripedReplicaPlacer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_topics import PartitionRecord
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.metadata.image import BrokerRegistration, MetadataImage
from kwire.metadata.records import MetadataRecord

Rack = str | int
_ASSIGNMENT: Final = "The manual partition assignment includes"


def place(image: MetadataImage, *, first_partition: int, count: int, replication_factor: int) -> list[list[int]]:
    """The replicas of `count` partitions from `first_partition` on. Raises KafkaError(INVALID_REPLICATION_FACTOR)."""
    brokers = _in_turns(image.live_brokers())
    if not brokers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced. Try again when one has started."
        )
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)} "
            "broker(s) are registered. Ask for fewer replicas, or start more brokers.",
        )
    # Topics start at different brokers, so that many topics of one partition do not all land on the first.
    start = len(image.topics) + first_partition
    return [_replicas(brokers, start + partition, replication_factor) for partition in range(count)]


def _in_turns(brokers: Iterable[BrokerRegistration]) -> list[tuple[int, Rack]]:
    """The brokers with their racks: one of each rack, then the next one of each, and so on."""
    racks: dict[Rack, list[tuple[int, Rack]]] = {}
    for broker in brokers:
        # A broker that does not say where it is counts as a rack of its own.
        rack = broker.broker_id if broker.rack is None else broker.rack
        racks.setdefault(rack, []).append((broker.broker_id, rack))
    return [it for turn in zip_longest(*racks.values()) for it in turn if it is not None]


def _replicas(brokers: list[tuple[int, Rack]], number: int, replication_factor: int) -> list[int]:
    """The replicas of the partition of that number, the leader first."""
    count = len(brokers)
    shift = number // count % max(count - 1, 1)
    order = [brokers[number % count]]
    order += [brokers[(number + 1 + (shift + it) % (count - 1)) % count] for it in range(count - 1)]
    chosen: list[int] = []
    while len(chosen) < replication_factor:
        # As many racks as there are, then each of them once more.
        used: set[Rack] = set()
        for broker_id, rack in order:
            if broker_id not in chosen and rack not in used and len(chosen) < replication_factor:
                chosen.append(broker_id)
                used.add(rack)
    return chosen


def check_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Checks a client's own choice of replicas. Raises KafkaError(INVALID_REPLICA_ASSIGNMENT)."""
    if not replicas:
        raise _refused(f"{_ASSIGNMENT} an empty replica list. Name at least one broker for each partition.")
    previous: int | None = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _refused(f"{_ASSIGNMENT} broker {broker_id}, but no such broker is registered.")
        if broker_id == previous:
            raise _refused(f"{_ASSIGNMENT} the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refused(
            f"{_ASSIGNMENT} a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def partition_record(image: MetadataImage, topic_id: Uuid, index: int, replicas: Sequence[int]) -> PartitionRecord:
    """A new partition: the live replicas are in sync, the first of them leads."""
    live = {broker.broker_id for broker in image.live_brokers()}
    isr = [broker_id for broker_id in replicas if broker_id in live]
    if not isr:
        raise _refused(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced: "
            f"{quoted(list(replicas))}. Name one that is not."
        )
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[_directory(image, broker_id) for broker_id in replicas],
    )


def assign_directories(
    records: Sequence[MetadataRecord], node_id: int, choose: Callable[[int], Sequence[Uuid]]
) -> None:
    """Assigns a log dir to every new replica of that node: `choose(count)` returns one for each without one."""
    new = [it for it in records if isinstance(it, PartitionRecord) and node_id in it.replicas and it.directories]
    places = [(it, it.replicas.index(node_id)) for it in new]
    unassigned = [(it, place) for it, place in places if it.directories[place] == NULL_UUID]
    if unassigned:
        for (record, place), directory_id in zip(unassigned, choose(len(unassigned)), strict=True):
            record.directories[place] = directory_id


def _directory(image: MetadataImage, broker_id: int) -> Uuid:
    log_dirs = image.brokers[broker_id].log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else NULL_UUID


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

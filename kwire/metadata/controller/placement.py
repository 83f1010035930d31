"""Which brokers get the replicas of new partitions.

Replicas are striped: partition p's replicas are consecutive brokers, starting one after partition p-1's, so that
leaders and followers are spread evenly. All live brokers are equal (racks are not considered).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_topics import PartitionRecord
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.metadata.image import MetadataImage
from kwire.metadata.records import MetadataRecord

_ASSIGNMENT: Final = "The manual partition assignment includes"


def place(image: MetadataImage, *, first_partition: int, count: int, replication_factor: int) -> list[list[int]]:
    """The replicas of `count` partitions from `first_partition` on. Raises KafkaError(INVALID_REPLICATION_FACTOR)."""
    brokers = [broker.broker_id for broker in image.live_brokers()]
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
    return [
        [brokers[(start + partition + replica) % len(brokers)] for replica in range(replication_factor)]
        for partition in range(count)
    ]


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

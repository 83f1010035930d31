"""The placement of new partitions: the brokers that get their replicas.

Leaders alternate between the brokers in service, and between their racks. Each topic continues after the last one. The
followers of a partition are in as many other racks as possible, and there on the brokers with the fewest replicas: of
the topic, then of all topics. If several have as few, the choice is shifted with each round, so that the partitions of
a broker that fails get their new leaders on all others, and not on the next one.

Leaders are not chosen by such a count: a broker that has just joined would lead all new partitions.

A broker out of service gets replicas if its rack has no other, or if there are too few other brokers. It copies them
when it is back. Like Kafka's `StripedReplicaPlacer`, which counts all registered brokers, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, Self

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord, PartitionRecord
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from kwire.metadata.records import MetadataRecord

_ASSIGNMENT: Final = "The manual partition assignment includes"


@attrs.define(eq=False)
class Placer:
    """Places the partitions of one decision, which may be for several topics."""

    _brokers: list[BrokerRegistration]
    """All registered brokers: one of each rack, then the next one of each, and so on."""
    _leaders: list[int]
    """The indexes in `_brokers` of those that are in service, and may lead."""
    _number: int
    """The number of the next partition: the count of partitions that the cluster has."""
    _image: MetadataImage
    _held: list[int] | None = None
    """The number of replicas that each of `_brokers` has; counted when it is first needed."""

    @classmethod
    def of(cls, image: MetadataImage) -> Self:
        brokers = _rack_alternated(broker for _, broker in sorted(image.brokers.items()))
        leaders = [position for position, broker in enumerate(brokers) if broker.is_live]
        return cls(brokers, leaders, sum(len(topic.partitions) for topic in image.topics.values()), image)

    def place(self, *, count: int, replication_factor: int) -> list[list[int]]:
        """Places a new topic's partitions, each with the leader first. Raises
        KafkaError(INVALID_REPLICATION_FACTOR)."""
        self._check(replication_factor)
        first = self._number
        self._number += count
        return self._replicas(first, count, replication_factor, Counter())

    def place_additional(
        self, existing: Sequence[PartitionRegistration], *, count: int, replication_factor: int
    ) -> list[list[int]]:
        """Places additional partitions of a topic. Raises KafkaError(INVALID_REPLICATION_FACTOR)."""
        self._check(replication_factor)
        self._number += count
        # After the last leader, as if all had been placed together.
        first = len(existing)
        last = existing[-1].replicas[0]
        for turn, position in enumerate(self._leaders, start=1):
            if self._brokers[position].broker_id == last:
                first += (turn - first) % len(self._leaders)
        there = Counter(broker_id for partition in existing for broker_id in partition.replicas)
        return self._replicas(first, count, replication_factor, there)

    def _check(self, replication_factor: int) -> None:
        if not self._leaders:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "All brokers are currently fenced. Try again when one has started.",
            )
        if replication_factor > len(self._brokers):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{len(self._brokers)} broker(s) are registered. Ask for fewer replicas, or start more brokers.",
            )

    def _replicas(self, first: int, count: int, replication_factor: int, there: Counter[int]) -> list[list[int]]:
        """The replicas of partitions with the numbers from `first` on; `there` counts those that each broker has."""
        leaders = [self._leaders[number % len(self._leaders)] for number in range(first, first + count)]
        if len(self._brokers) == 1:
            return [[self._brokers[0].broker_id] for _ in leaders]
        held = self._counted()
        of_topic = [there[broker.broker_id] for broker in self._brokers]
        for leader in leaders:  # Known beforehand, so they count from the beginning.
            of_topic[leader] += 1
            held[leader] += 1
        others = len(self._brokers) - 1
        assignment = []
        for number, leader in enumerate(leaders, start=first):
            chosen = [leader]
            shift = number // len(self._leaders)
            # The brokers after the leader, beginning further behind it with each round.
            order = [(leader + 1 + (shift + step) % others) % (others + 1) for step in range(others)]
            for _ in range(replication_factor - 1):
                racks = [self._brokers[position].rack for position in chosen]
                follower = min(
                    (position for position in order if position not in chosen),
                    key=lambda position: (  # Of those that are alike, the first in order.
                        racks.count(self._brokers[position].rack),
                        not self._brokers[position].is_live,
                        of_topic[position],
                        held[position],
                    ),
                )
                of_topic[follower] += 1
                held[follower] += 1
                chosen.append(follower)
            assignment.append([self._brokers[position].broker_id for position in chosen])
        return assignment

    def _counted(self) -> list[int]:
        if self._held is None:
            held = Counter(
                broker_id
                for topic in self._image.topics.values()
                for partition in topic.partitions
                for broker_id in partition.replicas
            )
            self._held = [held[broker.broker_id] for broker in self._brokers]
        return self._held


def _rack_alternated(brokers: Iterable[BrokerRegistration]) -> list[BrokerRegistration]:
    # Brokers without broker.rack count as one rack, as in Kafka.
    racks: dict[str | None, list[BrokerRegistration]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker)
    return [it for turn in zip_longest(*racks.values()) for it in turn if it is not None]


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
    """Returns the record of a new partition: the live replicas are in sync, the first of them leads."""
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
    new_replicas = [(it, it.replicas.index(node_id)) for it in new]
    unassigned = [(it, position) for it, position in new_replicas if it.directories[position] == NULL_UUID]
    if unassigned:
        for (record, position), directory_id in zip(unassigned, choose(len(unassigned)), strict=True):
            record.directories[position] = directory_id


def move_replicas(state: ClusterState, directories: Mapping[tuple[Uuid, int], Uuid]) -> Records:
    """Records the log dirs of the deciding broker that have these partitions from now on, given by topic id and index.

    Partitions of topics that were deleted meanwhile are left out.
    """
    topics = state.image.topics_by_id
    return [
        PartitionChangeRecord(
            partition_id=index,
            topic_id=topic_id,
            directories=topics[topic_id].partitions[index].with_directory(state.node_id, directory_id),
        )
        for (topic_id, index), directory_id in directories.items()
        if topic_id in topics
    ]


def _directory(image: MetadataImage, broker_id: int) -> Uuid:
    log_dirs = image.brokers[broker_id].log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else NULL_UUID


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

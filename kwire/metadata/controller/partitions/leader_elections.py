"""Decides on ElectLeaders: the preferred leader, or any leader if there is none; and the balance of leaders.

Kafka's `ReplicationControlManager.electLeaders` and `maybeBalancePartitionLeaders`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from kwire.metadata.controller.brokers import brokers_that_may_lead
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.partitions.elections import Election
from kwire.metadata.controller.partitions.partition_changes import partition_change
from kwire.metadata.image import NO_LEADER, TopicImage
from kwire.names.topic_names import no_such_topic

MOST_BALANCED_AT_ONCE: Final = 1000
"""The maximum number of partitions that get their preferred leader in one decision; the next one continues."""

_ELECTIONS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
"""The elections by the type in the request."""


def elect_leaders(state: ClusterState, request: ElectLeadersRequest) -> tuple[Records, ElectLeadersResponse]:
    """Elects leaders, for each partition independently. A request for all partitions gets results of those that needed
    it.

    Raises KafkaError(INVALID_REQUEST) for an unknown type of election.
    """
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"There is no election type {request.election_type}: 0 is preferred, 1 unclean."
        )
    records: Records = []
    response = ElectLeadersResponse()
    if request.topic_partitions is None:
        requested = [(topic.name, list(range(len(topic.partitions)))) for topic in state.image.topics.values()]
    else:
        requested = [(it.topic, it.partitions) for it in request.topic_partitions]
    for name, indexes in requested:
        results = []
        for index in indexes:
            result = PartitionResult(index, error_message=None)
            try:
                records += _elect(state, name, index, election)
            except KafkaError as error:
                if error.code is ErrorCode.ELECTION_NOT_NEEDED and request.topic_partitions is None:
                    continue
                result.error_code, result.error_message = error.code, error.message
            results.append(result)
        if results:
            response.replica_election_results.append(ReplicaElectionResult(name, results))
    return records, response


def balance_leaders(state: ClusterState) -> Records:
    """Elects the preferred leaders of partitions that others lead, if the preferred ones are in sync."""
    may_lead = brokers_that_may_lead(state.image)
    records: Records = []
    for topic, index in _led_by_others(state):
        record = partition_change(state, topic, index, may_lead=may_lead, election=Election.PREFERRED)
        if record is not None:
            records.append(record)
            if len(records) == MOST_BALANCED_AT_ONCE:
                break
    return records


def _led_by_others(state: ClusterState) -> Iterator[tuple[TopicImage, int]]:
    for topic in state.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.leader not in (NO_LEADER, partition.replicas[0]) and partition.replicas[0] in partition.isr:
                yield topic, index


def _elect(state: ClusterState, name: str, index: int, election: Election) -> Records:
    topic = state.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, no_such_topic(name))
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name!r} exists, but it has no partition {index}."
        )
    partition = topic.partitions[index]
    if partition.leader == partition.replicas[0] if election is Election.PREFERRED else partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is led by broker {partition.leader} already.")
    record = partition_change(state, topic, index, may_lead=brokers_that_may_lead(state.image), election=election)
    if record is not None:
        return [record]
    if election is Election.PREFERRED:
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"Broker {partition.replicas[0]} is not in sync, or is not in service: it cannot lead {name}-{index}.",
        )
    raise KafkaError(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"No broker with a replica of {name}-{index} is in service."
    )

"""Deciding on CreatePartitions: more partitions for topics that exist."""

from __future__ import annotations

from collections import Counter

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

from kwire.metadata.controller import MAX_PARTITIONS_PER_REQUEST, ClusterState, Records
from kwire.metadata.placement import check_assignment, partition_record, place


def create_partitions(
    state: ClusterState, request: CreatePartitionsRequest
) -> tuple[Records, CreatePartitionsResponse]:
    """Each topic succeeds or fails for itself."""
    named = Counter(topic.name for topic in request.topics)
    records: Records = []
    results = [
        CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in named.items()
        if count > 1
    ]
    for topic in request.topics:
        if named[topic.name] > 1:
            continue
        try:
            added = _create_partitions(state, topic)
            if len(records) + len(added) > MAX_PARTITIONS_PER_REQUEST:
                raise _too_many()
            records += added
            results.append(CreatePartitionsTopicResult(topic.name))
        except KafkaError as error:
            results.append(CreatePartitionsTopicResult(topic.name, error.code, error.message))
    return [] if request.validate_only else records, CreatePartitionsResponse(results=results)


def _create_partitions(state: ClusterState, topic: CreatePartitionsTopic) -> Records:
    image = state.image.topics.get(topic.name)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = len(image.partitions)
    if topic.count == existing:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    if topic.count < existing:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {existing} partition(s); {topic.count} would not be an increase.",
        )
    additional = topic.count - existing
    if additional > MAX_PARTITIONS_PER_REQUEST:
        raise _too_many()
    replication_factor = len(image.partitions[0].replicas)
    if topic.assignments is None:
        assignment = place(
            state.image, first_partition=existing, count=additional, replication_factor=replication_factor
        )
    else:
        if len(topic.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
                "assignment(s) were specified.",
            )
        assignment = [given.broker_ids for given in topic.assignments]
        for replicas in assignment:
            check_assignment(state.image, replicas, replication_factor)
    return [
        partition_record(state.image, image.topic_id, index, replicas)
        for index, replicas in enumerate(assignment, start=existing)
    ]


def _too_many() -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")

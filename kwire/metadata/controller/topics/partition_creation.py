"""Decides on CreatePartitions: more partitions for topics that exist."""

from __future__ import annotations

from collections import Counter

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

from kwire.metadata.controller.deciding import (
    ANY_MUTATIONS,
    MAX_PARTITIONS_PER_REQUEST,
    ClusterState,
    Mutations,
    Records,
    repeated,
    too_many,
)
from kwire.metadata.controller.partitions.placement import Placer, check_assignment, partition_record
from kwire.names.topic_names import no_such_topic


def create_partitions(
    state: ClusterState, request: CreatePartitionsRequest, mutations: Mutations = ANY_MUTATIONS
) -> tuple[Records, CreatePartitionsResponse]:
    """Creates partitions; each topic succeeds or fails independently."""
    mutations.begin()
    named = Counter(topic.name for topic in request.topics)
    records: Records = []
    results = [
        CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, repeated(f"topic name {quoted(name)}"))
        for name, count in named.items()
        if count > 1
    ]
    placer = Placer.of(state.image)
    for topic in request.topics:
        if named[topic.name] > 1:
            continue
        try:
            added = _create_partitions(state, topic, placer, mutations)
            if len(records) + len(added) > MAX_PARTITIONS_PER_REQUEST:
                raise _too_many(len(records) + len(added))
            records += added
            results.append(CreatePartitionsTopicResult(topic.name))
        except KafkaError as error:
            results.append(CreatePartitionsTopicResult(topic.name, error.code, error.message))
    return [] if request.validate_only else records, CreatePartitionsResponse(results=results)


def _create_partitions(
    state: ClusterState, topic: CreatePartitionsTopic, placer: Placer, mutations: Mutations
) -> Records:
    image = state.image.topics.get(topic.name)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, no_such_topic(topic.name))
    existing = len(image.partitions)
    if topic.count == existing:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic {topic.name!r} already has {existing} partition(s).")
    if topic.count < existing:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {topic.name!r} currently has {existing} partition(s); {topic.count} would not be an increase.",
        )
    additional = topic.count - existing
    if additional > MAX_PARTITIONS_PER_REQUEST:
        raise _too_many(additional)
    replication_factor = len(image.partitions[0].replicas)
    if topic.assignments is None:
        assignment = placer.place_additional(image.partitions, count=additional, replication_factor=replication_factor)
    else:
        if len(topic.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s) to topic {topic.name!r}, but "
                f"{len(topic.assignments)} assignment(s) were specified. Give one for each new partition, or none.",
            )
        assignment = [given.broker_ids for given in topic.assignments]
        for replicas in assignment:
            check_assignment(state.image, replicas, replication_factor)
    mutations.take(additional)
    return [
        partition_record(state.image, image.topic_id, index, replicas)
        for index, replicas in enumerate(assignment, start=existing)
    ]


def _too_many(count: int) -> KafkaError:
    """The error for too many partitions. Kafka does not catch it, so its code is less precise than in CreateTopics."""
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR, too_many(count, "new partitions", MAX_PARTITIONS_PER_REQUEST).message
    )

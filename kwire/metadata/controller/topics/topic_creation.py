"""Decides on CreateTopics, and on topics that brokers create themselves: Kafka's checks, in Kafka's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

from kwire.config.definition import to_text
from kwire.config.tables.topic import TOPIC_CONFIGS
from kwire.metadata.controller.configs.config_checks import check_topic_configs, no_value_for
from kwire.metadata.controller.deciding import (
    ANY_MUTATIONS,
    MAX_PARTITIONS_PER_REQUEST,
    ClusterState,
    Mutations,
    Records,
    check_batch_size,
    repeated,
    too_many,
)
from kwire.metadata.controller.partitions.placement import Placer, check_assignment
from kwire.metadata.controller.topics.new_topics import check_new_name, clamped_replication_factor, topic_records

DEFAULT = -1

Describe = Callable[[tuple[tuple[str, str], ...]], list[CreatableTopicConfigs]]
"""Returns the response's configurations of a new topic whose own configurations are these."""


def create_topics(
    state: ClusterState, request: CreateTopicsRequest, mutations: Mutations = ANY_MUTATIONS
) -> tuple[Records, CreateTopicsResponse]:
    """Creates topics, each independently; only a request that is too large fails as a whole."""
    mutations.begin()
    named = Counter(topic.name for topic in request.topics)
    topics = [topic for topic in request.topics if named[topic.name] == 1]
    records: Records = []
    results: list[CreatableTopicResult] = []
    # A request for hundreds of topics has the same configuration for most, and its checks take the longest.
    describe = cache(lambda configs: _described(state, dict(configs)))
    placer = Placer.of(state.image)
    try:
        _check_partition_count(state, topics)
        for topic in topics:
            try:
                topic_records, result = _create_topic(state, topic, placer, describe, mutations)
                records += topic_records
            except KafkaError as error:
                result = _failed(topic.name, error)
            results.append(result)
        check_batch_size(records)
    except KafkaError as error:
        records, results = [], [_failed(topic.name, error) for topic in topics]
    results += [
        _failed(name, KafkaError(ErrorCode.INVALID_REQUEST, repeated(f"topic name {quoted(name)}")))
        for name, count in named.items()
        if count > 1
    ]
    return [] if request.validate_only else records, CreateTopicsResponse(topics=results)


def _check_partition_count(state: ClusterState, topics: Sequence[CreatableTopic]) -> None:
    count = 0
    for topic in topics:
        if topic.assignments:
            count += len(topic.assignments)
        else:
            count += state.config.num_partitions if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0)
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise too_many(count, "partitions", MAX_PARTITIONS_PER_REQUEST)


def _create_topic(
    state: ClusterState, topic: CreatableTopic, placer: Placer, describe: Describe, mutations: Mutations
) -> tuple[Records, CreatableTopicResult]:
    check_new_name(state, topic.name)
    configs = _configs_of(topic)
    check_topic_configs(configs, state.configs)
    assignment = _assignment(state, topic, placer)
    mutations.take(len(assignment))
    topic_id = state.new_id()
    records = topic_records(state, topic.name, topic_id, configs, assignment)
    return records, CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(assignment),
        replication_factor=len(assignment[0]),
        configs=describe(tuple(configs.items())),
    )


def _configs_of(topic: CreatableTopic) -> dict[str, str]:
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        raise KafkaError(ErrorCode.INVALID_CONFIG, no_value_for(without_value))
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _assignment(state: ClusterState, topic: CreatableTopic, placer: Placer) -> list[list[int]]:
    if topic.assignments:
        return _manual_assignment(state, topic)
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the broker's default.replication.factor: "
            f"topic {topic.name!r} cannot have {topic.replication_factor}.",
        )
    if topic.num_partitions < DEFAULT or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions was set to an invalid non-positive value: topic {topic.name!r} cannot have "
            f"{topic.num_partitions}. Give 1 or more, or -1 to use the broker's num.partitions.",
        )
    count = state.config.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions
    replicas = topic.replication_factor
    if replicas == DEFAULT:
        # A default of three must not keep a single broker from working; a request for three gets three or an error.
        replicas = clamped_replication_factor(state, state.config.default_replication_factor)
    return placer.place(count=count, replication_factor=replicas)


def _manual_assignment(state: ClusterState, topic: CreatableTopic) -> list[list[int]]:
    if topic.replication_factor != DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1: "
            f"topic {topic.name!r} has {topic.replication_factor}.",
        )
    if topic.num_partitions != DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1: "
            f"topic {topic.name!r} has {topic.num_partitions}.",
        )
    by_index: dict[int, list[int]] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}.",
            )
        check_assignment(state.image, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        by_index[assignment.partition_index] = assignment.broker_ids
    missing = [index for index in range(len(by_index)) if index not in by_index]
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "In a manual partition assignment, partitions should be a consecutive 0-based integer sequence: "
            f"partition {missing[0]} is missing.",
        )
    return [by_index[index] for index in range(len(by_index))]


def _described(state: ClusterState, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    """Describes every configuration of the new topic. As in Kafka, values from the request are unchanged."""
    values = state.configs.topic_values(configs)
    return [
        CreatableTopicConfigs(
            name,
            configs.get(name, to_text(values[name])),
            read_only=False,
            config_source=state.configs.topic_source(name, configs),
            is_sensitive=False,
        )
        for name, definition in sorted(TOPIC_CONFIGS.items())
        if not definition.internal or name in configs
    ]


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)

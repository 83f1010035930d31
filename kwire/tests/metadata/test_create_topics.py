"""CreateTopics: refusals and their codes were read off Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)

from kwire.config.definition import ConfigSource
from kwire.handlers.apis import bound
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.image import ConfigResourceType
from kwire.metadata.service import MetadataService
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import DIRECTORY_ID, FakeBroker, context, lacks, service

E = ErrorCode


def topic(
    name: str = "t",
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: list[tuple[int, list[int]]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        replicas,
        [CreatableReplicaAssignment(index, ids) for index, ids in assignments or []],
        [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
    )


def create(
    metadata: MetadataService, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    from kwire.handlers.create_topics import handle

    broker: Any = FakeBroker(metadata)
    request = CreateTopicsRequest(list(topics), 1000, validate_only)
    return answered(bound(handle, broker)(request, context(7))).topics


def manual(*assignments: tuple[int, list[int]]) -> CreatableTopic:
    return topic(partitions=-1, replicas=-1, assignments=list(assignments))


def test_created_topic_is_visible_at_once_and_led() -> None:
    metadata = service()
    (result,) = create(metadata, topic("t", 3))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (E.NONE, 3, 1)
    assert result.error_message is None
    created = metadata.image.topics_by_id[result.topic_id]
    assert created is metadata.image.topics["t"]
    assert [(it.leader, it.replicas, it.isr, it.leader_epoch, it.directories) for it in created.partitions] == [
        (1, (1,), (1,), 0, (DIRECTORY_ID,))
    ] * 3


def test_answer_has_the_effective_configuration_with_sources() -> None:
    metadata = service({"log.retention.hours": "100"})
    (result,) = create(metadata, topic(configs={"segment.bytes": "2097152", "internal.segment.bytes": "1000"}))
    assert result.configs is not None
    configs = {it.name: (it.value, it.config_source) for it in result.configs}
    assert len(configs) == 35
    assert [it.name for it in result.configs] == sorted(configs)
    assert configs["segment.bytes"] == ("2097152", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert configs["internal.segment.bytes"] == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert configs["retention.ms"] == ("360000000", ConfigSource.STATIC_BROKER_CONFIG)
    assert configs["cleanup.policy"] == ("delete", ConfigSource.DEFAULT_CONFIG)
    assert metadata.topic_values("t")["segment.bytes"] == 2_097_152


# compat_tests/test_words_of_errors.py and test_config_answers.py have those that Apache Kafka puts in the same words.
REFUSALS = [
    (topic("."), E.INVALID_TOPIC_EXCEPTION, ("'.'",)),
    (
        topic("a" * 250),
        E.INVALID_TOPIC_EXCEPTION,
        ("249", "250"),
    ),
    (topic(partitions=-2), E.INVALID_PARTITIONS, ("'t' cannot have -2", "num.partitions")),
    (
        topic(replicas=0),
        E.INVALID_REPLICATION_FACTOR,
        ("'t' cannot have 0", "default.replication.factor"),
    ),
    (
        topic(partitions=10_001),
        E.POLICY_VIOLATION,
        ("partitions per request: 10001", "10000"),
    ),
    (topic(partitions=2**31 - 1), E.POLICY_VIOLATION, ("partitions per request: 2147483647", "10000")),
    (
        topic(partitions=10_000),
        E.POLICY_VIOLATION,
        ("topics, partitions and configurations per request: 10001", "10000"),
    ),
    (
        topic(assignments=[(0, [1])]),
        E.INVALID_REQUEST,
        ("'t' has 1", "replication factor was not set to -1"),
    ),
    (
        topic(replicas=-1, assignments=[(0, [1])]),
        E.INVALID_REQUEST,
        ("'t' has 1", "numPartitions was not set to -1"),
    ),
    (
        manual((1, [1])),
        E.INVALID_REPLICA_ASSIGNMENT,
        ("partition 0 is missing",),
    ),
    (topic(configs={"nonsense": "1"}), E.INVALID_CONFIG, ("Unknown topic config name: nonsense",)),
    (
        topic(configs={"remote.storage.enable": "true"}),
        E.INVALID_CONFIG,
        ("remote.storage.enable", "false"),
    ),
]


@pytest.mark.parametrize(("creatable", "code", "facts"), REFUSALS, ids=lambda value: str(value)[:40])
def test_refusals(creatable: CreatableTopic, code: ErrorCode, facts: tuple[str, ...]) -> None:
    metadata = service()
    before = metadata.image.offset
    (result,) = create(metadata, creatable)
    assert ErrorCode(result.error_code) == code
    assert lacks(result.error_message, *facts) == []
    assert metadata.image.offset == before


@pytest.mark.parametrize(
    "creatable", [topic("/" * 32_767), topic(configs={"\0" * 32_767: "1"})], ids=["name", "config"]
)
def test_the_refusal_of_the_longest_name_fits_into_a_response(creatable: CreatableTopic) -> None:
    for count in (1, 2):
        (result,) = create(service(), *[creatable] * count)
        assert result.error_code != E.NONE
        assert len(result.error_message or "") < 1000


def test_one_bad_topic_does_not_hinder_the_others() -> None:
    metadata = service()
    results = create(metadata, topic("a"), topic("/"), topic("b"), topic("twice"), topic("twice"))
    assert [(it.name, ErrorCode(it.error_code)) for it in results] == [
        ("a", E.NONE),
        ("/", E.INVALID_TOPIC_EXCEPTION),
        ("b", E.NONE),
        ("twice", E.INVALID_REQUEST),
    ]
    assert lacks(results[-1].error_message, "'twice'", "more than once") == []
    assert sorted(metadata.image.topics) == ["a", "b"]


def test_too_many_partitions_over_all_topics_fail_the_request() -> None:
    metadata = service()
    results = create(metadata, *(topic(f"t{number}", 2000) for number in range(6)))
    assert {ErrorCode(it.error_code) for it in results} == {E.POLICY_VIOLATION}
    assert metadata.image.topics == {}


def test_validate_only_answers_as_if_and_changes_nothing() -> None:
    metadata = service()
    before = metadata.image.offset
    good, bad = create(metadata, topic("good", 2), topic("bad", 0), validate_only=True)
    assert (good.error_code, good.num_partitions) == (E.NONE, 2)
    assert bad.error_code == E.INVALID_PARTITIONS
    assert metadata.image.offset == before


def test_defaults_fill_in_and_the_default_factor_fits_itself_to_the_cluster() -> None:
    metadata = service({"num.partitions": "4", "default.replication.factor": "3"})
    (result,) = create(metadata, topic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 1)
    three = service({"default.replication.factor": "3"}, brokers=4)
    (result,) = create(three, topic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (1, 3)


def test_replicas_are_spread() -> None:
    metadata = service(brokers=3)
    create(metadata, topic("t", 3, 2))
    partitions = metadata.image.topics["t"].partitions
    assert {it.leader for it in partitions} == {1, 2, 3}
    assert all(len(set(it.replicas)) == 2 and it.leader == it.replicas[0] for it in partitions)


def test_manual_assignment_is_taken_as_given() -> None:
    metadata = service(brokers=3)
    (result,) = create(metadata, manual((1, [3, 1]), (0, [2, 3])))
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    assert [it.replicas for it in metadata.image.topics["t"].partitions] == [(2, 3), (3, 1)]
    (refused,) = create(metadata, topic("u", -1, -1, assignments=[(0, [1, 2]), (1, [1])]))
    assert refused.error_code == E.INVALID_REPLICA_ASSIGNMENT
    assert lacks(refused.error_message, "have 2 replica(s)", "with 1 replica(s)") == []


def test_a_recreated_topic_has_a_new_id_and_no_old_configuration() -> None:
    from kwire_protocol.messages.delete_topics import DeleteTopicsRequest

    metadata = service()
    (first,) = create(metadata, topic(configs={"retention.ms": "5"}))
    answered(metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
    (second,) = create(metadata, topic())
    assert first.topic_id != second.topic_id
    assert metadata.image.config(ConfigResourceType.TOPIC, "t") == {}
    assert metadata.topic_values("t")["retention.ms"] == 604_800_000


def test_internal_topics_have_their_own_sizes_and_configurations() -> None:
    metadata = service({"offsets.topic.num.partitions": "5", "transaction.state.log.segment.bytes": "1000"})
    answered(metadata.change(auto_create_topic, "__consumer_offsets"))
    answered(metadata.change(auto_create_topic, "__transaction_state"))
    assert len(metadata.image.topics["__consumer_offsets"].partitions) == 5
    assert metadata.image.config(ConfigResourceType.TOPIC, "__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert len(metadata.image.topics["__transaction_state"].partitions) == 50
    assert metadata.topic_values("__transaction_state")["internal.segment.bytes"] == 1000
    assert metadata.topic_values("__transaction_state")["cleanup.policy"] == ("compact",)

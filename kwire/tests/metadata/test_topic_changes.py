"""DeleteTopics and CreatePartitions: the refusals and their words were read off Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.metadata.image import Changes
from kwire.metadata.service import MetadataService
from kwire.tests.metadata.harness import FakeBroker, context, run, service

E = ErrorCode
OTHER_ID = b"o" * 16


def with_topics(*topics: CreatableTopic, brokers: int = 1, **settings: str) -> MetadataService:
    metadata = service({name.replace("_", "."): value for name, value in settings.items()}, brokers=brokers)
    metadata.create_topics(CreateTopicsRequest(list(topics)))
    return metadata


def delete(metadata: MetadataService, *topics: str | tuple[str | None, Uuid], version: int = 6) -> DeleteTopicsResponse:
    from kwire.handlers.delete_topics import handle

    names = [it for it in topics if isinstance(it, str)]
    states = [DeleteTopicState(*it) for it in topics if not isinstance(it, str)]
    broker: Any = FakeBroker(metadata)
    return run(handle(broker, DeleteTopicsRequest(topics=states, topic_names=names), context(version)))


def answers(response: DeleteTopicsResponse) -> list[tuple[str | None, ErrorCode, str | None]]:
    return [(it.name, ErrorCode(it.error_code), it.error_message) for it in response.responses]


def test_deleted_topic_is_gone_at_once_and_watchers_are_told() -> None:
    metadata = with_topics(CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1))
    told: list[Changes] = []
    metadata.watch(told.append)
    topic_id = metadata.image.topics["b"].topic_id
    assert answers(delete(metadata, "a", version=5)) == [("a", E.NONE, None)]
    assert answers(delete(metadata, (None, topic_id))) == [("b", E.NONE, None)]
    assert metadata.image.topics == {}
    assert [[topic.name for topic in changes.topics_deleted] for changes in told] == [["a"], ["b"]]


def test_deletion_refusals() -> None:
    metadata = with_topics(CreatableTopic("t", 1, 1))
    topic_id = metadata.image.topics["t"].topic_id
    unknown = "This server does not host this topic-partition."
    assert answers(delete(metadata, "nope")) == [("nope", E.UNKNOWN_TOPIC_OR_PARTITION, unknown)]
    assert answers(delete(metadata, "t", "t")) == [("t", E.INVALID_REQUEST, "Duplicate topic name.")]
    assert answers(delete(metadata, ("t", topic_id))) == [
        ("t", E.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    ]
    assert answers(delete(metadata, (None, NULL_UUID))) == [
        (None, E.INVALID_REQUEST, "Neither topic name nor id were specified.")
    ]
    assert answers(delete(metadata, (None, OTHER_ID))) == [
        (None, E.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    ]
    assert answers(delete(metadata, (None, topic_id), (None, topic_id))) == [
        (None, E.INVALID_REQUEST, "Duplicate topic id.")
    ]
    assert answers(delete(metadata, (None, topic_id), ("t", NULL_UUID))) == [
        ("t", E.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
    ]
    assert list(metadata.image.topics) == ["t"]


@pytest.mark.parametrize(("version", "code"), [(2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    metadata = with_topics(CreatableTopic("t", 1, 1), delete_topic_enable="false")
    assert [it[1] for it in answers(delete(metadata, "t", version=version))] == [code]
    assert list(metadata.image.topics) == ["t"]


def add(
    metadata: MetadataService,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    from kwire.handlers.create_partitions import handle

    given = None if assignments is None else [CreatePartitionsAssignment(ids) for ids in assignments]
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, given)], 1000, validate_only)
    broker: Any = FakeBroker(metadata)
    (result,) = run(handle(broker, request, context(3))).results
    return ErrorCode(result.error_code), result.error_message


def test_partitions_are_added_and_watchers_are_told() -> None:
    metadata = with_topics(CreatableTopic("t", 2, 1))
    told: list[Changes] = []
    metadata.watch(told.append)
    assert add(metadata, "t", 4) == (E.NONE, None)
    assert len(metadata.image.topics["t"].partitions) == 4
    assert [index for _, index in told[0].partitions_added] == [2, 3]


def test_added_partitions_have_as_many_replicas_as_the_others() -> None:
    metadata = with_topics(CreatableTopic("t", 1, 2), brokers=3)
    assert add(metadata, "t", 3) == (E.NONE, None)
    assert all(len(it.replicas) == 2 for it in metadata.image.topics["t"].partitions)
    assert add(metadata, "t", 4, [[3, 1]]) == (E.NONE, None)
    assert metadata.image.topics["t"].partitions[3].replicas == (3, 1)
    assert add(metadata, "t", 5, [[3]])[0] == E.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "message"),
    [
        ("nope", 3, None, E.UNKNOWN_TOPIC_OR_PARTITION, None),
        ("t", 2, None, E.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        ("t", -1, None, E.INVALID_PARTITIONS, "The topic t currently has 2 partition(s); -1 would not be an increase."),
        (
            "t",
            5,
            [[1]],
            E.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 3 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            "t",
            3,
            [[2]],
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            "t",
            3,
            [[1, 1]],
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            "t",
            3,
            [[]],
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        ("t", 10_003, None, E.POLICY_VIOLATION, "Unable to perform excessively large batch operation."),
        ("t", 2**31 - 1, None, E.POLICY_VIOLATION, "Unable to perform excessively large batch operation."),
    ],
)
def test_partition_refusals(
    name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode, message: str | None
) -> None:
    metadata = with_topics(CreatableTopic("t", 2, 1))
    assert add(metadata, name, count, assignments) == (code, message)
    assert len(metadata.image.topics["t"].partitions) == 2


def test_partitions_validate_only_changes_nothing() -> None:
    metadata = with_topics(CreatableTopic("t", 2, 1))
    assert add(metadata, "t", 4, validate_only=True) == (E.NONE, None)
    assert len(metadata.image.topics["t"].partitions) == 2


def test_duplicate_topics_add_nothing() -> None:
    metadata = with_topics(CreatableTopic("t", 2, 1))
    wanted = CreatePartitionsTopic("t", 3, None)
    (result,) = metadata.create_partitions(CreatePartitionsRequest([wanted, wanted])).results
    assert (result.error_code, result.error_message) == (E.INVALID_REQUEST, "Duplicate topic name.")
    assert len(metadata.image.topics["t"].partitions) == 2

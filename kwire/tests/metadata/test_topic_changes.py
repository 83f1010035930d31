"""DeleteTopics and CreatePartitions: refusals and their codes were read off Apache Kafka 4.3.1."""

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
from kwire_protocol.wire import NULL_UUID, Uuid, uuid_to_text

from kwire.handlers.apis import bound
from kwire.metadata.controller.topics.partition_creation import create_partitions
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.image import Changes
from kwire.metadata.service import MetadataService
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import FakeBroker, context, lacks, service

E = ErrorCode
OTHER_ID = b"o" * 16


def with_topics(*topics: CreatableTopic, brokers: int = 1, **settings: str) -> MetadataService:
    metadata = service({name.replace("_", "."): value for name, value in settings.items()}, brokers=brokers)
    answered(metadata.change(create_topics, CreateTopicsRequest(list(topics))))
    return metadata


def delete(metadata: MetadataService, *topics: str | tuple[str | None, Uuid], version: int = 6) -> DeleteTopicsResponse:
    from kwire.handlers.delete_topics import handle

    names = [it for it in topics if isinstance(it, str)]
    states = [DeleteTopicState(*it) for it in topics if not isinstance(it, str)]
    broker: Any = FakeBroker(metadata)
    return answered(bound(handle, broker)(DeleteTopicsRequest(topics=states, topic_names=names), context(version)))


def answers(response: DeleteTopicsResponse) -> list[tuple[str | None, ErrorCode, str | None]]:
    return [(it.name, ErrorCode(it.error_code), it.error_message) for it in response.responses]


def test_deleted_topic_is_gone_at_once_and_watchers_are_notified() -> None:
    metadata = with_topics(CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1))
    notified: list[Changes] = []
    metadata.watch(notified.append)
    topic_id = metadata.image.topics["b"].topic_id
    assert answers(delete(metadata, "a", version=5)) == [("a", E.NONE, None)]
    assert answers(delete(metadata, (None, topic_id))) == [("b", E.NONE, None)]
    assert metadata.image.topics == {}
    assert [[topic.name for topic in it.topics_deleted] for it in notified if it.topics_deleted] == [["a"], ["b"]]


def test_deletion_refusals() -> None:
    metadata = with_topics(CreatableTopic("t", 1, 1))
    topic_id = metadata.image.topics["t"].topic_id

    def refused(*topics: str | tuple[str | None, Uuid], facts: tuple[str, ...]) -> tuple[str | None, ErrorCode]:
        ((name, code, message),) = answers(delete(metadata, *topics))
        assert lacks(message, *facts) == []
        return name, code

    assert refused("nope", facts=("topic 'nope' not found",)) == ("nope", E.UNKNOWN_TOPIC_OR_PARTITION)
    assert refused("t", "t", facts=("'t'", "more than once")) == ("t", E.INVALID_REQUEST)
    assert refused(("t", topic_id), facts=("'t'", "both topic name and topic id")) == ("t", E.INVALID_REQUEST)
    assert refused((None, NULL_UUID), facts=("Neither topic name nor id",)) == (None, E.INVALID_REQUEST)
    assert refused((None, OTHER_ID), facts=("not found", uuid_to_text(OTHER_ID))) == (None, E.UNKNOWN_TOPIC_ID)
    twice = (None, topic_id), (None, topic_id)
    assert refused(*twice, facts=(uuid_to_text(topic_id), "more than once")) == (None, E.INVALID_REQUEST)
    both = (None, topic_id), ("t", NULL_UUID)
    assert refused(*both, facts=("'t'", "already supplied")) == ("t", E.INVALID_REQUEST)
    assert list(metadata.image.topics) == ["t"]


@pytest.mark.parametrize(("version", "code"), [(2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    metadata = with_topics(CreatableTopic("t", 1, 1), delete_topic_enable="false")
    ((_, answered, message),) = answers(delete(metadata, "t", version=version))
    assert answered == code
    assert lacks(message, "delete.topic.enable") == []
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
    (result,) = answered(bound(handle, broker)(request, context(3))).results
    return ErrorCode(result.error_code), result.error_message


def test_partitions_are_added_and_watchers_are_notified() -> None:
    metadata = with_topics(CreatableTopic("t", 2, 1))
    notified: list[Changes] = []
    metadata.watch(notified.append)
    assert add(metadata, "t", 4) == (E.NONE, None)
    assert len(metadata.image.topics["t"].partitions) == 4
    assert [index for changes in notified for _, index in changes.partitions_added] == [2, 3]


def test_added_partitions_have_as_many_replicas_as_the_others() -> None:
    metadata = with_topics(CreatableTopic("t", 1, 2), brokers=3)
    assert add(metadata, "t", 3) == (E.NONE, None)
    assert all(len(it.replicas) == 2 for it in metadata.image.topics["t"].partitions)
    assert add(metadata, "t", 4, [[3, 1]]) == (E.NONE, None)
    assert metadata.image.topics["t"].partitions[3].replicas == (3, 1)
    assert add(metadata, "t", 5, [[3]])[0] == E.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "facts"),
    [
        ("nope", 3, None, E.UNKNOWN_TOPIC_OR_PARTITION, ("topic 'nope' not found",)),
        ("t", 2, None, E.INVALID_PARTITIONS, ("'t' already has 2 partition(s)",)),
        ("t", -1, None, E.INVALID_PARTITIONS, ("'t' currently has 2 partition(s); -1 would",)),
        (
            "t",
            5,
            [[1]],
            E.INVALID_REPLICA_ASSIGNMENT,
            ("'t'", "add 3 additional", "1 assignment(s)"),
        ),
        (
            "t",
            3,
            [[1, 1]],
            E.INVALID_REPLICA_ASSIGNMENT,
            ("broker 1 more than once",),
        ),
        ("t", 10_003, None, E.UNKNOWN_SERVER_ERROR, ("new partitions per request: 10001", "10000")),
        ("t", 2**31 - 1, None, E.UNKNOWN_SERVER_ERROR, ("new partitions per request: 2147483645", "10000")),
    ],
)
def test_partition_refusals(
    name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode, facts: tuple[str, ...]
) -> None:
    metadata = with_topics(CreatableTopic("t", 2, 1))
    answered, message = add(metadata, name, count, assignments)
    assert answered == code
    assert lacks(message, *facts) == []
    assert len(metadata.image.topics["t"].partitions) == 2


def test_partitions_validate_only_changes_nothing() -> None:
    metadata = with_topics(CreatableTopic("t", 2, 1))
    assert add(metadata, "t", 4, validate_only=True) == (E.NONE, None)
    assert len(metadata.image.topics["t"].partitions) == 2


def test_duplicate_topics_add_nothing() -> None:
    metadata = with_topics(CreatableTopic("t", 2, 1))
    wanted = CreatePartitionsTopic("t", 3, None)
    (result,) = answered(metadata.change(create_partitions, CreatePartitionsRequest([wanted, wanted]))).results
    assert result.error_code == E.INVALID_REQUEST
    assert lacks(result.error_message, "'t'", "more than once") == []
    assert len(metadata.image.topics["t"].partitions) == 2

"""The words of error messages that tools print and scripts look for; the whole sentences are each broker's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kwire_protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import NULL_UUID, Uuid

from testkit.raw.client import RawClient
from testkit.servers.brokers import NODES, Broker

E = ErrorCode
TIMEOUT_MS = 10_000
EXISTING = "words-existing"
DOTTED = "words.dotted"
NO_SUCH_ID: Uuid = b"n" * 16
DEFAULT = -1
FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2

pytestmark = pytest.mark.asks_one_node

Failure = tuple[int, str | None]


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        connected.call(CreateTopicsRequest([CreatableTopic(it, 1, 1) for it in (EXISTING, DOTTED)], TIMEOUT_MS), 7)
        yield connected


def check(failures: list[Failure], code: ErrorCode, *words: str) -> None:
    for error_code, message in failures:
        assert error_code == code
        assert message is not None
        assert [it for it in words if it not in message] == [], message


# CreateTopics


def new(name: str = "new", partitions: int = 1, factor: int = 1, *replicas: tuple[int, list[int]]) -> CreatableTopic:
    return CreatableTopic(name, partitions, factor, [CreatableReplicaAssignment(*it) for it in replicas])


def assigned(*replicas: tuple[int, list[int]]) -> CreatableTopic:
    return new("new", DEFAULT, DEFAULT, *replicas)


@pytest.mark.parametrize(
    ("topics", "code", "words"),
    [
        ([new(EXISTING)], E.TOPIC_ALREADY_EXISTS, [f"Topic '{EXISTING}' already exists"]),
        ([new("__cluster_metadata")], E.INVALID_REQUEST, ["internal topic __cluster_metadata", "is prohibited"]),
        ([new("words_dotted")], E.INVALID_TOPIC_EXCEPTION, ["'words_dotted' collides with existing topic", DOTTED]),
        ([new("")], E.INVALID_TOPIC_EXCEPTION, ["Topic name is invalid", "the empty string is not allowed"]),
        ([new("..")], E.INVALID_TOPIC_EXCEPTION, ["Topic name is invalid", "'..' is not allowed"]),
        (
            [new("x" * 250)],
            E.INVALID_TOPIC_EXCEPTION,
            ["Topic name is invalid", "the max allowed length 249"],
        ),
        ([new("a b")], E.INVALID_TOPIC_EXCEPTION, ["Topic name is invalid", "'a b' contains", "ASCII alphanumerics"]),
        ([new(factor=0)], E.INVALID_REPLICATION_FACTOR, ["Replication factor must be larger than 0, or -1"]),
        (
            [new(factor=len(NODES) + 1)],
            E.INVALID_REPLICATION_FACTOR,
            [f"replication factor of {len(NODES) + 1} cannot be reached", f"only {len(NODES)} broker"],
        ),
        ([new(partitions=0)], E.INVALID_PARTITIONS, ["Number of partitions", "invalid non-positive value"]),
        ([new(), new()], E.INVALID_REQUEST, ["Duplicate topic name"]),
        ([new(partitions=10_001)], E.POLICY_VIOLATION, ["Excessively large number of partitions per request"]),
        (
            [new("new", DEFAULT, 1, (0, [1]))],
            E.INVALID_REQUEST,
            ["manual partition assignment was specified", "replication factor was not set to -1"],
        ),
        (
            [new("new", 1, DEFAULT, (0, [1]))],
            E.INVALID_REQUEST,
            ["manual partition assignment was specified", "numPartitions was not set to -1"],
        ),
        (
            [assigned((0, [1]), (0, [1]))],
            E.INVALID_REPLICA_ASSIGNMENT,
            ["multiple manual partition assignments for partition 0"],
        ),
        ([assigned((0, [1]), (2, [1]))], E.INVALID_REPLICA_ASSIGNMENT, ["consecutive 0-based integer sequence"]),
        ([assigned((0, []))], E.INVALID_REPLICA_ASSIGNMENT, ["an empty replica list"]),
        ([assigned((0, [9]))], E.INVALID_REPLICA_ASSIGNMENT, ["includes broker 9", "no such broker is registered"]),
        ([assigned((0, [1, 1]))], E.INVALID_REPLICA_ASSIGNMENT, ["the broker 1 more than once"]),
    ],
)
def test_a_topic_that_cannot_be_created(
    client: RawClient, topics: list[CreatableTopic], code: ErrorCode, words: list[str]
) -> None:
    answer = client.call(CreateTopicsRequest(topics, TIMEOUT_MS), 7)
    check([(it.error_code, it.error_message) for it in answer.topics], code, *words)


# CreatePartitions


@pytest.mark.parametrize(
    ("topic", "count", "replicas", "code", "words"),
    [
        (EXISTING, 1, None, E.INVALID_PARTITIONS, ["already has 1 partition(s)"]),
        (
            EXISTING,
            0,
            None,
            E.INVALID_PARTITIONS,
            ["currently has 1 partition(s); 0 would not be an increase"],
        ),
        (
            EXISTING,
            3,
            [[1]],
            E.INVALID_REPLICA_ASSIGNMENT,
            ["Attempted to add 2 additional partition(s)", "1 assignment(s) were specified"],
        ),
        (EXISTING, 2, [[9]], E.INVALID_REPLICA_ASSIGNMENT, ["includes broker 9", "no such broker is registered"]),
        (EXISTING, 2, [[]], E.INVALID_REPLICA_ASSIGNMENT, ["an empty replica list"]),
    ],
)
def test_partitions_that_cannot_be_created(
    client: RawClient, topic: str, count: int, replicas: list[list[int]] | None, code: ErrorCode, words: list[str]
) -> None:
    assignments = None if replicas is None else [CreatePartitionsAssignment(it) for it in replicas]
    wanted = CreatePartitionsTopic(topic, count, assignments)
    answer = client.call(CreatePartitionsRequest([wanted], TIMEOUT_MS), 3)
    check([(it.error_code, it.error_message) for it in answer.results], code, *words)


# DeleteTopics


@pytest.mark.parametrize(
    ("topics", "code", "words"),
    [
        ([DeleteTopicState("nope")], E.UNKNOWN_TOPIC_OR_PARTITION, ["This server does not host this topic-partition"]),
        ([DeleteTopicState(None, NO_SUCH_ID)], E.UNKNOWN_TOPIC_ID, ["This server does not host this topic ID"]),
        ([DeleteTopicState(None, NULL_UUID)], E.INVALID_REQUEST, ["Neither topic name nor id were specified"]),
        ([DeleteTopicState("a", NO_SUCH_ID)], E.INVALID_REQUEST, ["not specify both topic name and topic id"]),
        ([DeleteTopicState("nope")] * 2, E.INVALID_REQUEST, ["Duplicate topic name"]),
        ([DeleteTopicState(None, NO_SUCH_ID)] * 2, E.INVALID_REQUEST, ["Duplicate topic id"]),
    ],
)
def test_a_topic_that_cannot_be_deleted(
    client: RawClient, topics: list[DeleteTopicState], code: ErrorCode, words: list[str]
) -> None:
    answer = client.call(DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 6)
    check([(it.error_code, it.error_message) for it in answer.responses], code, *words)


def test_a_topic_that_is_to_be_deleted_by_its_name_and_by_its_id(client: RawClient) -> None:
    found = client.call(MetadataRequest([MetadataRequestTopic(name=EXISTING)]), 12).topics[0].topic_id
    topics = [DeleteTopicState(EXISTING), DeleteTopicState(None, found)]
    answer = client.call(DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 6)
    failures = [(it.error_code, it.error_message) for it in answer.responses]
    check(failures, E.INVALID_REQUEST, "maps to an ID that was already supplied")


# Produce


def sequenced(base_sequence: int, *, epoch: int) -> bytes:
    return bytes(build_batch([Record()], producer_id=77, producer_epoch=epoch, base_sequence=base_sequence))


def produced(client: RawClient, topic: str, batch: bytes) -> PartitionProduceResponse:
    data = PartitionProduceData(0, batch)
    request = ProduceRequest(None, -1, TIMEOUT_MS, [TopicProduceData(topic, partition_data=[data])])
    answer: PartitionProduceResponse = client.call(request, 11).responses[0].partition_responses[0]
    return answer


def test_records_without_a_key_in_a_compacted_topic(client: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"cleanup.policy": "compact"})
    answer = produced(client, topic, build_batch([Record(key=b"k"), Record(offset=1), Record(offset=2)]))
    check([(answer.error_code, answer.error_message)], E.INVALID_RECORD, "One or more records have been rejected")
    assert [it.batch_index for it in answer.record_errors] == [1, 2]
    for each in answer.record_errors:
        assert "Compacted topic cannot accept message without key" in (each.batch_index_error_message or "")


def test_records_of_another_time(client: RawClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"message.timestamp.before.max.ms": "60000"})
    now_ms = int(time.time() * 1000)
    answer = produced(client, topic, build_batch([Record(timestamp=1000), Record(offset=1, timestamp=now_ms)]))
    check(
        [(answer.error_code, answer.error_message)],
        E.INVALID_TIMESTAMP,
        "records have been rejected",
        "invalid timestamp",
    )
    (each,) = answer.record_errors
    assert each.batch_index == 0
    message = each.batch_index_error_message or ""
    assert "Timestamp 1000 " in message
    assert "is out of range. The timestamp should be within [" in message


@pytest.mark.parametrize(
    ("batch", "code", "words"),
    [
        (build_batch([Record(value=bytes(1000))]), E.MESSAGE_TOO_LARGE, "message larger than the max message size"),
        (sequenced(9, epoch=1), E.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order sequence number"),
        (sequenced(1, epoch=0), E.INVALID_PRODUCER_EPOCH, "attempted to produce with an old epoch"),
    ],
)
def test_a_message_that_the_client_has_where_the_broker_sends_none(
    client: RawClient, new_topic: Callable[..., str], batch: bytes, code: ErrorCode, words: str
) -> None:
    topic = new_topic(config={"max.message.bytes": "500"})
    assert produced(client, topic, sequenced(0, epoch=1)).error_code == E.NONE
    answer = produced(client, topic, batch)
    assert answer.error_code == code
    assert answer.error_message is None or words in answer.error_message


# UpdateFeatures, DescribeGroups


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (
            FeatureUpdateKey("nope", 1, upgrade_type=UPGRADE),
            ["update version 1", "does not support this feature"],
        ),
        (FeatureUpdateKey(FEATURE, 9, upgrade_type=UPGRADE), ["update version 9", "only supports versions 0-2"]),
        (FeatureUpdateKey(FEATURE, 0, upgrade_type=UPGRADE), ["Can't downgrade", "safe or unsafe downgrade"]),
        (FeatureUpdateKey(FEATURE, -1, upgrade_type=UPGRADE), ["A feature version cannot be less than 0"]),
    ],
)
def test_a_feature_that_cannot_be_updated(client: RawClient, update: FeatureUpdateKey, words: list[str]) -> None:
    answer = client.call(UpdateFeaturesRequest(TIMEOUT_MS, [update]), 1)
    check([(answer.error_code, answer.error_message)], E.INVALID_UPDATE_VERSION, *words)


def test_a_group_that_does_not_exist(client: RawClient, group: str) -> None:
    (answer,) = client.call(DescribeGroupsRequest([group]), 6).groups
    check([(answer.error_code, answer.error_message)], E.GROUP_ID_NOT_FOUND, group, "not found")

"""Responses to requests that clients hardly ever send, or never: wrong ones, and the small print of right ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kwire_protocol.messages.describe_acls import DescribeAclsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import NULL_UUID, Uuid

from devtools.suite.cases import naming
from testkit.basics.waiting import eventually
from testkit.clients import confluent
from testkit.raw import topics
from testkit.raw.client import RawClient
from testkit.raw.nodes import NODE
from testkit.raw.topic_ids import topic_id
from testkit.servers.brokers import Broker

E = ErrorCode
LATEST = -1
NO_SUCH_TOPIC = "there-is-no-such-topic"
NO_SUCH_ID: Uuid = b"n" * 16
NOBODY = 99
"""An id that no broker has."""

pytestmark = pytest.mark.asks_one_node


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def new_topic(client: RawClient, new_topic: Callable[..., str]) -> Callable[..., str]:
    """Creates a topic. Apache Kafka leads a partition in its metadata a little before it serves it; clients retry."""

    def create(*, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = new_topic(partitions=partitions, config=config)
        wanted = [(name, index) for index in range(partitions)]
        empty = dict.fromkeys(wanted, (E.NONE, 0))
        eventually(lambda: list_offsets(client, *wanted) == empty, f"{name} is served")
        return name

    return create


# Produce


def batch(count: int = 1, **how: Any) -> bytes:
    return bytes(build_batch([Record(offset=index, key=b"k", value=b"v") for index in range(count)], **how))


def with_byte(data: bytes, position: int, value: int) -> bytes:
    return data[:position] + bytes([value]) + data[position + 1 :]


def sequenced(base_sequence: int, *, epoch: int = 1) -> bytes:
    return batch(producer_id=77, producer_epoch=epoch, base_sequence=base_sequence)


def produce(
    client: RawClient,
    *sent: tuple[str | Uuid, int, bytes],
    version: int = 11,
    transactional_id: str | None = None,
) -> dict[tuple[str | Uuid, int], PartitionProduceResponse]:
    """Sends batches as (topic, partition, bytes), and gives the answers by topic and partition, none of them twice."""
    request = ProduceRequest(transactional_id, -1, 10_000, [])
    for topic, batches in itertools.groupby(sent, key=lambda it: it[0]):
        data = TopicProduceData(partition_data=[PartitionProduceData(index, records) for _, index, records in batches])
        if isinstance(topic, str):
            data.name = topic
        else:
            data.topic_id = topic
        request.topic_data.append(data)
    response = client.call(request, version)
    answers = [
        ((topic.topic_id if version >= 13 else topic.name, answer.index), answer)
        for topic in response.responses
        for answer in topic.partition_responses
    ]
    assert len(dict(answers)) == len(answers)
    return dict(answers)


@pytest.mark.parametrize(
    ("sent", "code", "log_start_offset"),
    [
        pytest.param(sequenced(9), E.OUT_OF_ORDER_SEQUENCE_NUMBER, 4, id="sequence"),
        pytest.param(sequenced(1, epoch=0), E.INVALID_PRODUCER_EPOCH, 4, id="epoch"),
        pytest.param(batch(base_offset=7), E.INVALID_RECORD, 4, id="base offset"),
        pytest.param(batch(control=True), E.INVALID_RECORD, 4, id="control batch"),
        pytest.param(
            bytes(build_batch([Record(timestamp=4_000_000_000_000)])), E.INVALID_TIMESTAMP, 4, id="far future"
        ),
        pytest.param(b"", E.INVALID_RECORD, -1, id="nothing"),
        pytest.param(batch()[:-1], E.INVALID_RECORD, -1, id="cut short"),
        pytest.param(with_byte(batch(), 16, 1), E.INVALID_RECORD, -1, id="old format"),
        pytest.param(batch() + batch(), E.INVALID_RECORD, -1, id="two batches"),
        pytest.param(with_byte(batch(), 65, 0xFF), E.CORRUPT_MESSAGE, -1, id="CRC"),
        pytest.param(batch(200), E.MESSAGE_TOO_LARGE, -1, id="too large"),
    ],
)
def test_the_log_start_is_returned_when_the_log_refuses_a_batch_and_not_when_it_is_refused_before(
    broker: Broker,
    client: RawClient,
    new_topic: Callable[..., str],
    sent: bytes,
    code: ErrorCode,
    log_start_offset: int,
) -> None:
    topic = new_topic(config={"max.message.bytes": "500"})
    confluent.fill(broker.bootstrap, topic, [b"x"] * 6)
    topics.delete_records(broker.bootstrap, topic, 4)
    (accepted,) = produce(client, (topic, 0, sequenced(0))).values()
    assert (accepted.error_code, accepted.log_start_offset) == (E.NONE, 4)
    (refused,) = produce(client, (topic, 0, sent)).values()
    assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (code, -1, log_start_offset)


@pytest.mark.parametrize("version", [3, 8, 11, 12])
def test_an_empty_topic_name_is_one_that_is_unknown(client: RawClient, version: int) -> None:
    (produced,) = produce(client, ("", 0, batch()), version=version).values()
    assert produced.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("unknown", [NULL_UUID, NO_SUCH_ID])
def test_an_unknown_topic_id_is_called_that(client: RawClient, unknown: Uuid) -> None:
    (produced,) = produce(client, (unknown, 0, batch()), version=13).values()
    assert produced.error_code == E.UNKNOWN_TOPIC_ID
    assert fetch_once(client, unknown, 18).error_code == E.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [3, 8, 11, 13])
def test_a_transactional_batch_needs_a_transactional_id(client: RawClient, topic: str, version: int) -> None:
    sent = batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    ref = topic_id(client, topic) if version >= 13 else topic
    (refused,) = produce(client, (ref, 0, sent), version=version).values()
    assert (refused.error_code, refused.log_start_offset) == (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


def test_of_two_batches_for_a_partition_the_last_one_counts(client: RawClient, new_topic: Callable[..., str]) -> None:
    first, second = new_topic(partitions=2), new_topic()
    answers = produce(
        client,
        (first, 0, batch(2)),
        (second, 0, batch(1)),
        (first, 1, batch(4)),
        (first, 1, batch(3)),
        (first, 0, batch(5)),
        (NO_SUCH_TOPIC, 0, batch()),
        (NO_SUCH_TOPIC, 0, batch()),
    )
    assert {key: (answer.error_code, answer.base_offset) for key, answer in answers.items()} == {
        (first, 0): (E.NONE, 0),
        (first, 1): (E.NONE, 0),
        (second, 0): (E.NONE, 0),
        (NO_SUCH_TOPIC, 0): (E.UNKNOWN_TOPIC_OR_PARTITION, -1),
    }
    ends = list_offsets(client, (first, 0), (first, 1), (second, 0))
    assert ends == {(first, 0): (E.NONE, 5), (first, 1): (E.NONE, 3), (second, 0): (E.NONE, 1)}


# ListOffsets


def list_offsets(
    client: RawClient, *wanted: tuple[str, int], version: int = 11
) -> dict[tuple[str, int], tuple[int, int]]:
    """Error and end of each partition, of which none may be there twice."""
    named: dict[str, ListOffsetsTopic] = {}
    for topic, index in wanted:
        named.setdefault(topic, ListOffsetsTopic(topic)).partitions.append(ListOffsetsPartition(index, -1, LATEST))
    response = client.call(ListOffsetsRequest(-1, 0, list(named.values())), version)
    answers = [
        ((topic.name, answer.partition_index), (answer.error_code, answer.offset))
        for topic in response.topics
        for answer in topic.partitions
    ]
    assert len(dict(answers)) == len(answers)
    return dict(answers)


@pytest.mark.parametrize("version", [1, 5, 11])
def test_offsets_of_an_empty_topic_name_are_those_of_an_unknown_topic(client: RawClient, version: int) -> None:
    assert list_offsets(client, ("", 0), version=version) == {("", 0): (E.UNKNOWN_TOPIC_OR_PARTITION, -1)}


@pytest.mark.parametrize("version", [1, 5, 11])
def test_offsets_requested_twice_are_refused_once(
    client: RawClient, new_topic: Callable[..., str], version: int
) -> None:
    topic = new_topic(partitions=2)
    wanted = [(topic, 0), (topic, 1), (topic, 0), (NO_SUCH_TOPIC, 0), (NO_SUCH_TOPIC, 0)]
    assert list_offsets(client, *wanted, version=version) == {
        (topic, 0): (E.INVALID_REQUEST, -1),
        (topic, 1): (E.NONE, 0),
        (NO_SUCH_TOPIC, 0): (E.INVALID_REQUEST, -1),
    }


@pytest.mark.parametrize(
    ("timestamp", "first_version", "offset"),
    [
        pytest.param(-1, 1, 2, id="latest"),
        pytest.param(-2, 1, 0, id="earliest"),
        pytest.param(-3, 7, 1, id="max timestamp"),
        pytest.param(-4, 8, 0, id="earliest local"),
        pytest.param(-5, 9, -1, id="latest tiered"),
        pytest.param(-6, 11, -1, id="earliest pending upload"),
        pytest.param(-7, 99, -1, id="unassigned"),
    ],
)
def test_each_special_timestamp_has_a_first_version(
    client: RawClient, topic: str, timestamp: int, first_version: int, offset: int
) -> None:
    produce(client, (topic, 0, bytes(build_batch([Record(offset=n, timestamp=1000 + n) for n in range(2)]))))
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])
    for version in range(1, 12):
        with naming(f"v{version}"):
            (answer,) = client.call(ListOffsetsRequest(-1, 0, [wanted]), version).topics[0].partitions
            known = (E.NONE, offset) if version >= first_version else (E.UNSUPPORTED_VERSION, -1)
            assert (answer.error_code, answer.offset) == known


# Fetch


def fetch_once(
    client: RawClient,
    topic: str | Uuid,
    version: int,
    *,
    offset: int = 0,
    leader_epoch: int = -1,
    isolation_level: int = 0,
    replica_id: int = -1,
) -> PartitionData:
    partition = FetchPartition(0, leader_epoch, offset, partition_max_bytes=1000)
    named = FetchTopic(partitions=[partition])
    if isinstance(topic, str):
        named.topic = topic
    else:
        named.topic_id = topic
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1000, isolation_level=isolation_level, session_epoch=-1, topics=[named]
    )
    if version >= 15:
        request.replica_state = ReplicaState(replica_id, -1)
    else:
        request.replica_id = replica_id
    response = client.call(request, version)
    assert response.node_endpoints == []
    answer: PartitionData = response.responses[0].partitions[0]
    return answer


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_aborted_transactions_are_null_for_a_partition_that_cannot_be_read(
    client: RawClient, topic: str, isolation_level: int
) -> None:
    def fetched(topic: str, **wrong: int) -> tuple[int, object]:
        answer = fetch_once(client, topic, 12, isolation_level=isolation_level, **wrong)
        return answer.error_code, answer.aborted_transactions

    assert fetched(topic) == (E.NONE, [] if isolation_level else None)
    assert fetched(topic, offset=9) == (E.OFFSET_OUT_OF_RANGE, None)
    assert fetched(topic, leader_epoch=5) == (E.UNKNOWN_LEADER_EPOCH, None)
    assert fetched(NO_SUCH_TOPIC) == (E.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert fetched("") == (E.UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.mark.parametrize("replica_id", [NODE, NOBODY])
def test_a_replica_that_is_no_follower_gets_the_leader_from_v16_on(
    client: RawClient, topic: str, replica_id: int
) -> None:
    by_id = topic_id(client, topic)
    for version in range(4, 19):
        with naming(f"v{version}"):
            answer = fetch_once(client, by_id if version >= 13 else topic, version, replica_id=replica_id)
            assert answer.error_code == E.NOT_LEADER_OR_FOLLOWER
            assert answer.aborted_transactions is None
            assert (answer.current_leader is None) == (version < 16)


# Groups


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found_without_an_error_message(client: RawClient, group: str, version: int) -> None:
    if version >= 4:
        (answer,) = client.call(FindCoordinatorRequest(coordinator_keys=[group]), version).coordinators
    else:
        answer = client.call(FindCoordinatorRequest(key=group), version)
    assert answer.error_code == E.NONE
    assert answer.error_message == ("NONE" if 1 <= version <= 3 else "")


# CreateTopics


def test_configurations_of_a_new_topic_are_returned_as_they_were_sent(
    client: RawClient, unique: Callable[[str], str]
) -> None:
    sent = {"cleanup.policy": "compact, delete", "preallocate": "TRUE", "retention.ms": " 5 "}
    sent |= {"min.cleanable.dirty.ratio": ".5", "max.message.bytes": "+0100000", "compression.type": " gzip"}
    topic = CreatableTopic(unique("topic"), 1, 1, [], [CreatableTopicConfig(*it) for it in sent.items()])
    (created,) = client.call(CreateTopicsRequest([topic], 10_000, validate_only=True), 7).topics
    assert created.error_code == E.NONE
    returned = {config.name: config.value for config in created.configs}
    assert {name: returned[name] for name in sent} == sent
    assert returned["segment.bytes"] == "1073741824"


# Metadata


@pytest.mark.parametrize("version", range(14))
def test_a_topic_is_unknown_to_the_request_that_creates_it(
    client: RawClient, unique: Callable[[str], str], version: int
) -> None:
    name = unique("topic")

    def found() -> tuple[int, int]:
        (topic,) = client.call(MetadataRequest([MetadataRequestTopic(name=name)]), version).topics
        return topic.error_code, len(topic.partitions)

    assert found() == (E.UNKNOWN_TOPIC_OR_PARTITION, 0)
    eventually(lambda: found() == (E.NONE, 1), f"{name} is created")


def test_some_names_are_never_created(client: RawClient) -> None:
    names = ["", "..", "a b", "x" * 250, "__cluster_metadata"]
    for _ in range(2):
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
        answers = {topic.name: topic.error_code for topic in client.call(request, 12).topics}
        unknown = answers.pop("__cluster_metadata")
        assert (unknown, set(answers.values())) == (E.UNKNOWN_TOPIC_OR_PARTITION, {E.INVALID_TOPIC_EXCEPTION})


# ACLs


@pytest.mark.parametrize("version", range(1, 4))
def test_acls_are_refused_without_an_authorizer(client: RawClient, version: int) -> None:
    refused = (E.SECURITY_DISABLED, "No Authorizer is configured.")
    topic, literal, read, allow = 2, 3, 3, 3
    described = client.call(DescribeAclsRequest(topic, "t", literal, None, None, read, allow), version)
    assert (described.error_code, described.resources) == (E.SECURITY_DISABLED, [])
    assert "No Authorizer is configured" in described.error_message
    creation = AclCreation(topic, "t", literal, "User:a", "*", read, allow)
    created = client.call(CreateAclsRequest([creation] * 2), version)
    assert [(it.error_code, it.error_message) for it in created.results] == [refused] * 2
    wanted = DeleteAclsFilter(topic, "t", literal, None, None, read, allow)
    deleted = client.call(DeleteAclsRequest([wanted] * 3), version)
    assert [(it.error_code, it.error_message) for it in deleted.filter_results] == [refused] * 3


def test_the_acl_apis_are_listed(client: RawClient) -> None:
    answer = client.call(ApiVersionsRequest("tests", "1.0"), 4)
    listed = {it.api_key: (it.min_version, it.max_version) for it in answer.api_keys}
    assert {key: listed[key] for key in (29, 30, 31)} == dict.fromkeys((29, 30, 31), (1, 3))

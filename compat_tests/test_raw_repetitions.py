"""Requests that name the same thing twice, and numbers that nothing has: Kafka's answer to each, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kwire_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kwire_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kwire_protocol.records import Record, build_batch

from testkit.basics.waiting import eventually
from testkit.clients.transactions.raw import RawProducer
from testkit.raw.client import RawClient
from testkit.servers.brokers import Broker

LATEST = -1
TOPIC_CONFIGS = 2
NOT_ASKED_FOR = -(1 << 31)
BATCH = bytes(build_batch([Record(value=b"v")]))

pytestmark = pytest.mark.asks_one_node


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient, new_topic: Callable[..., str]) -> str:
    """A topic with two partitions that are served: Apache Kafka answers a little before they are."""
    name = new_topic(partitions=2)
    ends = ListOffsetsTopic(name, [ListOffsetsPartition(index, timestamp=LATEST) for index in range(2)])

    def is_served() -> bool:
        (result,) = client.call(ListOffsetsRequest(-1, 0, [ends]), 7).topics
        return all(it.error_code == E.NONE for it in result.partitions)

    eventually(is_served, f"{name} is served")
    return name


def results_of(topics: list[AddPartitionsToTxnTopicResult]) -> list[list[tuple[int, int]]]:
    return [[(it.partition_index, it.partition_error_code) for it in topic.results_by_partition] for topic in topics]


@pytest.mark.parametrize("version", range(6))
def test_a_partition_that_is_added_twice_has_two_results(
    client: RawClient, transactional_id: str, topic: str, version: int
) -> None:
    producer = RawProducer.initialized(client, transactional_id)
    topics = [AddPartitionsToTxnTopic(topic, [0, 1, 0]), AddPartitionsToTxnTopic(topic, [1])]
    if version < 4:
        request = AddPartitionsToTxnRequest([], transactional_id, producer.producer_id, producer.epoch, topics)
        results = client.call(request, version).results_by_topic_v3_and_below
    else:
        one = AddPartitionsToTxnTransaction(
            transactional_id, producer.producer_id, producer.epoch, verify_only=False, topics=topics
        )
        (result,) = client.call(AddPartitionsToTxnRequest([one]), version).results_by_transaction
        results = result.topic_results
    assert results_of(results) == [[(0, E.NONE), (1, E.NONE), (0, E.NONE)], [(1, E.NONE)]]


def test_a_feature_that_is_updated_twice_has_two_results(client: RawClient) -> None:
    update = FeatureUpdateKey("transaction.version", 2, upgrade_type=1)
    answer = client.call(UpdateFeaturesRequest(10_000, [update, update], validate_only=True), 1)
    assert [(it.feature, it.error_code) for it in answer.results] == [("transaction.version", E.NONE)] * 2


@pytest.mark.parametrize("version", [4, 12])
def test_a_partition_that_is_fetched_twice_outside_of_a_session_is_read_once_as_wanted_last(
    client: RawClient, topic: str, version: int
) -> None:
    wanted = [FetchPartition(index, -1, offset, partition_max_bytes=1000) for index, offset in ((0, 9), (1, 0), (0, 0))]
    topics = [FetchTopic(topic, partitions=wanted)]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, topics=topics)
    (result,) = client.call(request, version).responses
    assert [(it.partition_index, it.error_code) for it in result.partitions] == [(0, E.NONE), (1, E.NONE)]


@pytest.mark.parametrize("isolation_level", [-1, 2])
@pytest.mark.parametrize("version", [4, 12])
def test_nothing_is_fetched_in_an_isolation_level_that_does_not_exist(
    client: RawClient, topic: str, version: int, isolation_level: int
) -> None:
    topics = [FetchTopic(topic, partitions=[FetchPartition(0, partition_max_bytes=1000)])]
    request = FetchRequest(max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=topics)
    request.isolation_level = isolation_level
    (result,) = client.call(request, version).responses[0].partitions
    assert (result.error_code, result.high_watermark) == (E.UNKNOWN_SERVER_ERROR, -1)


@pytest.mark.parametrize("isolation_level", [-1, 2])
@pytest.mark.parametrize("version", [2, 7])
def test_no_end_is_returned_in_an_isolation_level_that_does_not_exist(
    client: RawClient, topic: str, version: int, isolation_level: int
) -> None:
    topics = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=LATEST)])]
    (result,) = client.call(ListOffsetsRequest(-1, isolation_level, topics), version).topics[0].partitions
    assert (result.error_code, result.offset) == (E.UNKNOWN_SERVER_ERROR, -1)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1)])
def test_no_marker_is_written_for_a_producer_that_cannot_be(
    client: RawClient, topic: str, producer_id: int, epoch: int
) -> None:
    marker = WritableTxnMarker(producer_id, epoch, True, [WritableTxnMarkerTopic(topic, [0])])
    (result,) = client.call(WriteTxnMarkersRequest([marker]), 1).markers[0].topics[0].partitions
    assert result.error_code == E.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("version", [10, 12, 13])
def test_metadata_of_a_topic_without_a_name_fails_as_a_whole(client: RawClient, topic: str, version: int) -> None:
    named = [MetadataRequestTopic(name=None), MetadataRequestTopic(name=topic)]
    answer = client.call(MetadataRequest(named), version)
    code = E.UNKNOWN_SERVER_ERROR if version >= 12 else E.INVALID_REQUEST
    assert [it.error_code for it in answer.topics] == [code] * 2
    assert answer.error_code == (E.UNKNOWN_SERVER_ERROR if version >= 13 else E.NONE)


def test_no_topic_is_described_beside_one_whose_name_is_empty(client: RawClient, topic: str) -> None:
    answer = client.call(DescribeTopicPartitionsRequest([TopicRequest(""), TopicRequest(topic)]), 0)
    assert [(it.name, it.error_code, it.topic_authorized_operations) for it in answer.topics] == [
        ("", E.UNKNOWN_SERVER_ERROR, NOT_ASKED_FOR),
        (topic, E.UNKNOWN_SERVER_ERROR, NOT_ASKED_FOR),
    ]


def test_an_operation_on_a_configuration_that_does_not_exist_is_refused(client: RawClient, topic: str) -> None:
    resource = AlterConfigsResource(TOPIC_CONFIGS, topic, [AlterableConfig("retention.ms", 9, "5")])
    (result,) = client.call(IncrementalAlterConfigsRequest([resource]), 1).responses
    assert result.error_code == E.UNKNOWN_SERVER_ERROR


def test_very_many_new_partitions_are_refused(client: RawClient, topic: str) -> None:
    more = CreatePartitionsRequest([CreatePartitionsTopic(topic, 20_000, None)], 10_000, validate_only=True)
    (result,) = client.call(more, 3).results
    assert result.error_code == E.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("pieces", [(b"", BATCH), (BATCH, b""), (BATCH, b"", BATCH)])
@pytest.mark.parametrize("apart", [True, False])
def test_a_partition_that_is_produced_to_twice_fails_if_one_of_the_pieces_is_no_batch(
    client: RawClient, topic: str, pieces: tuple[bytes, ...], apart: bool
) -> None:
    data = [PartitionProduceData(0, piece) for piece in pieces]
    topics = [TopicProduceData(topic, partition_data=it) for it in ([[it] for it in data] if apart else [data])]
    (result,) = client.call(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics), 9).responses
    assert [(it.index, it.error_code) for it in result.partition_responses] == [(0, E.INVALID_RECORD)]

"""The ends of transactions in a partition, and its producers, as their raw requests and Kafka's tool have them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.describe_producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kwire_protocol.records import Record, build_batch

from testkit.basics.waiting import eventually
from testkit.java import java_host as tools
from testkit.java.java_host import JavaHost
from testkit.raw.client import RawClient
from testkit.servers.brokers import Broker

pytestmark = pytest.mark.asks_one_node


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as client:
        yield client


def written(
    client: RawClient,
    topic: str,
    *indexes: int,
    producer_id: int = 7001,
    epoch: int = 3,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> dict[int, int]:
    """The error codes by partition."""
    marker = WritableTxnMarker(
        producer_id, epoch, True, [WritableTxnMarkerTopic(topic, list(indexes))], coordinator_epoch, version
    )
    response = client.call(WriteTxnMarkersRequest([marker]), 2)
    (result,) = response.markers
    assert result.producer_id == producer_id
    return {partition.partition_index: partition.error_code for partition in result.topics[0].partitions}


def produced(client: RawClient, topic: str, sequence: int, *, producer_id: int = 7001, epoch: int = 3) -> int:
    """The error code for a batch without a transaction."""
    batch = build_batch(
        [Record(value=b"v", timestamp=1_700_000_000_000)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
    answer = client.call(ProduceRequest(None, -1, 10_000, [data]), 11)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def described(client: RawClient, topic: str, index: int = 0) -> PartitionResponse:
    response = client.call(DescribeProducersRequest([TopicRequest(topic, [index])]), 0)
    (answer,) = response.topics[0].partitions
    assert isinstance(answer, PartitionResponse)
    return answer


def test_a_marker_is_written_whether_or_not_a_transaction_is_open(client: RawClient, topic: str) -> None:
    eventually(lambda: described(client, topic) == PartitionResponse(0), "the partition is led")
    assert written(client, topic, 0) == {0: E.NONE}
    assert written(client, topic, 0) == {0: E.NONE}
    (producer,) = described(client, topic).active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.coordinator_epoch) == (7001, 3, 0)
    assert (producer.last_sequence, producer.current_txn_start_offset) == (-1, -1)


def test_markers_of_old_epochs_and_old_coordinators_are_refused(client: RawClient, topic: str) -> None:
    assert written(client, topic, 0, coordinator_epoch=5) == {0: E.NONE}
    assert written(client, topic, 0, epoch=2, coordinator_epoch=5) == {0: E.INVALID_PRODUCER_EPOCH}
    assert written(client, topic, 0, epoch=2, coordinator_epoch=5, version=2) == {0: E.INVALID_PRODUCER_EPOCH}
    assert written(client, topic, 0, coordinator_epoch=4) == {0: E.TRANSACTION_COORDINATOR_FENCED}
    assert written(client, topic, 0, coordinator_epoch=5, version=2) == {0: E.NONE}
    assert written(client, topic, 0, epoch=4, coordinator_epoch=5, version=2) == {0: E.NONE}


def test_a_marker_of_a_higher_epoch_ends_the_old_one_and_the_new_begins_with_sequence_0(
    client: RawClient, topic: str
) -> None:
    assert produced(client, topic, 0) == E.NONE
    assert written(client, topic, 0, epoch=4, version=2) == {0: E.NONE}
    assert produced(client, topic, 1) == E.INVALID_PRODUCER_EPOCH
    assert produced(client, topic, 1, epoch=4) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produced(client, topic, 0, epoch=4) == E.NONE


def test_partitions_that_are_not_there(client: RawClient, topic: str) -> None:
    assert written(client, topic, 0, 9) == {0: E.NONE, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert written(client, f"{topic}-not", 0) == {0: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert described(client, topic, 9).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert described(client, f"{topic}-not").error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert described(client, f"{topic}?").error_code == E.INVALID_TOPIC_EXCEPTION


def test_every_producer_of_a_partition_is_described(client: RawClient, topic: str) -> None:
    eventually(lambda: described(client, topic) == PartitionResponse(0), "the partition is led")
    produced(client, topic, 0, producer_id=7002, epoch=0)
    produced(client, topic, 5, producer_id=7003)
    described_by_id = {it.producer_id: it for it in described(client, topic).active_producers}
    assert sorted(described_by_id) == [7002, 7003]
    producer = described_by_id[7003]
    assert (producer.producer_epoch, producer.last_sequence, producer.last_timestamp) == (3, 5, 1_700_000_000_000)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)


def test_kafkas_tool_describes_producers_and_aborts(
    broker: Broker, client: RawClient, java: JavaHost, topic: str
) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    where = ("--topic", topic, "--partition", "0")
    produced(client, topic, 4)
    seen = java.succeed(tools.TRANSACTIONS, *at, "describe-producers", *where).out
    assert re.search(r"^7001\s+3\s+-1\s+4\s+1700000000000\s+None\s*$", seen, re.MULTILINE), seen
    producer = ("--producer-id", "7001", "--producer-epoch", "3", "--coordinator-epoch", "6")
    java.succeed(tools.TRANSACTIONS, *at, "abort", *where, *producer)
    seen = java.succeed(tools.TRANSACTIONS, *at, "describe-producers", *where).out
    assert re.search(r"^7001\s+3\s+6\s+4\s+\d+\s+None\s*$", seen, re.MULTILINE), seen

"""WriteTxnMarkers and DescribeProducers over the wire, from a raw client and from Kafka's own tool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.describe_producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kwire_protocol.records import Record, build_batch
from kwire_storage.disk.files import Disk

from devtools.apache_kafka import run_tool
from kwire.config.server import ServerConfig
from kwire.node import broker as brokers
from kwire.node.running import open_broker
from kwire.runtime.futures import Future
from kwire.testing import Broker
from kwire.testing import broker as testing
from testkit.fakes.transactions import FakeTransactions
from testkit.raw.client import RawClient
from testkit.raw.stable_ends import READ_COMMITTED, stable_end
from testkit.scenes.flushing import assert_silent, broker_on, held
from testkit.storage.slow_disk import SlowDisk

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> FakeTransactions:
    """The coordinators of every broker that is started: they agree to every request, and forget it."""
    fake = FakeTransactions()

    def opened(config: ServerConfig, disk: Disk, clock: Any, listeners: Any) -> brokers.Broker:
        fake.stand_in(broker := open_broker(config, disk, clock, listeners))
        return broker

    monkeypatch.setattr(testing, "open_broker", opened)
    return fake


@pytest.fixture
def client(transactions: FakeTransactions) -> Iterator[RawClient]:
    """Makes a client of a broker with topic `t` of two partitions."""
    with Broker() as broker, RawClient(broker.address) as client:
        client.call(CreateTopicsRequest([CreatableTopic("t", 2, 1)]), 5)
        yield client


def transactional(sequence: int = 0, *, producer_id: int = 7, epoch: int = 3, index: int = 0) -> ProduceRequest:
    batch = build_batch(
        [Record(timestamp=1000, value=b"%d" % sequence)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    return ProduceRequest(
        "id", -1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(index, bytearray(batch))])]
    )


def produced(client: RawClient, request: ProduceRequest) -> tuple[int, int]:
    answer = client.call(request, 12).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def marker(
    *topics: tuple[str, list[int]],
    producer_id: int = 7,
    epoch: int = 3,
    committed: bool = True,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id,
        epoch,
        committed,
        [WritableTxnMarkerTopic(name, indexes) for name, indexes in topics],
        coordinator_epoch,
        version,
    )


def written(client: RawClient, *markers: WritableTxnMarker, version: int = 2) -> dict[tuple[int, str, int], int]:
    """Returns the error codes by producer, topic and partition."""
    response = client.call(WriteTxnMarkersRequest(list(markers)), version)
    return {
        (result.producer_id, topic.name, partition.partition_index): partition.error_code
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }


def described(client: RawClient, topic: str = "t", index: int = 0) -> PartitionResponse:
    response = client.call(DescribeProducersRequest([TopicRequest(topic, [index])]), 0)
    (answer,) = response.topics[0].partitions
    assert isinstance(answer, PartitionResponse)
    assert (response.topics[0].name, answer.partition_index) == (topic, index)
    return answer


def fetched(client: RawClient, offset: int) -> tuple[int, list[tuple[int, int]]]:
    """Returns a committed reader's byte count, and the transactions that it has to leave out."""
    wanted = [FetchTopic("t", partitions=[FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=READ_COMMITTED, topics=wanted)
    answer = client.call(request, 12).responses[0].partitions[0]
    aborted = [(it.producer_id, it.first_offset) for it in answer.aborted_transactions or []]
    return len(answer.records or b""), aborted


def test_a_transaction_is_seen_by_readers_once_its_marker_is_written(client: RawClient) -> None:
    assert produced(client, transactional(0)) == (0, 0)
    assert produced(client, transactional(1)) == (0, 1)
    assert (stable_end(client), fetched(client, 0)) == (0, (0, []))
    assert written(client, marker(("t", [0])), version=1) == {(7, "t", 0): 0}
    assert stable_end(client) == 3
    size, aborted = fetched(client, 0)
    assert size > 0
    assert aborted == []


def test_an_aborted_one_is_reported_to_readers(client: RawClient) -> None:
    produced(client, transactional(0))
    assert written(client, marker(("t", [0]), committed=False, epoch=4, version=2)) == {(7, "t", 0): 0}
    assert fetched(client, 0)[1] == [(7, 0)]


def test_each_partition_of_each_marker_has_its_answer(client: RawClient) -> None:
    produced(client, transactional(0))
    produced(client, transactional(0, producer_id=8))
    codes = written(
        client,
        marker(("t", [0, 1, 2]), ("?", [0]), epoch=2),
        marker(("t", [0]), producer_id=8, epoch=3, version=2),
        marker(("t", [1]), producer_id=-1),
        marker(("t", [1]), producer_id=9, epoch=-1),
    )
    assert codes == {
        (7, "t", 0): E.INVALID_PRODUCER_EPOCH,
        (7, "t", 1): E.NONE,
        (7, "t", 2): E.UNKNOWN_TOPIC_OR_PARTITION,
        (7, "?", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        (8, "t", 0): E.INVALID_PRODUCER_EPOCH,
        (-1, "t", 1): E.UNKNOWN_SERVER_ERROR,
        (9, "t", 1): E.UNKNOWN_SERVER_ERROR,
    }
    assert stable_end(client) == 0


def test_markers_of_one_producer_are_answered_together_and_in_a_partition_the_last_one_counts(
    client: RawClient,
) -> None:
    first = marker(("t", [0]), coordinator_epoch=5)
    second = marker(("t", [0, 1]), coordinator_epoch=4)
    response = client.call(WriteTxnMarkersRequest([first, second]), 2)
    assert len(response.markers) == len(response.markers[0].topics) == 1
    codes = [(it.partition_index, it.error_code) for it in response.markers[0].topics[0].partitions]
    assert codes == [(0, E.TRANSACTION_COORDINATOR_FENCED), (1, E.NONE)]


def test_a_request_without_markers_has_an_answer_without_any(client: RawClient) -> None:
    assert written(client) == {}
    assert written(client, marker()) == {}


def test_markers_are_written_to_the_topics_of_the_broker_itself(client: RawClient) -> None:
    client.call(CreateTopicsRequest([CreatableTopic("__consumer_offsets", 1, 1)]), 5)
    assert written(client, marker(("__consumer_offsets", [0]))) == {(7, "__consumer_offsets", 0): 0}


def test_producers_are_described_with_what_hangs(client: RawClient) -> None:
    assert described(client) == PartitionResponse(0)
    produced(client, transactional(0))
    written(client, marker(("t", [0]), coordinator_epoch=6))
    produced(client, transactional(1))
    produced(client, transactional(2))
    (producer,) = described(client).active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 2)
    assert (producer.last_timestamp, producer.coordinator_epoch, producer.current_txn_start_offset) == (1000, 6, 2)
    written(client, marker(("t", [0]), coordinator_epoch=6))
    assert described(client).active_producers[0].current_txn_start_offset == -1


def test_producers_of_a_partition_that_is_not_there(client: RawClient) -> None:
    assert described(client, "?").error_code == E.INVALID_TOPIC_EXCEPTION
    assert described(client, "not-there").error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert described(client, "t", 2).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert described(client, "t", -1).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_is_described_once_however_often_it_is_named(client: RawClient) -> None:
    named = [TopicRequest("t", [0, 1, 0]), TopicRequest("t", [0])]
    response = client.call(DescribeProducersRequest(named), 0)
    assert [[it.partition_index for it in topic.partitions] for topic in response.topics] == [[0, 1]]


def test_a_marker_is_answered_when_the_medium_has_it() -> None:
    disk = SlowDisk()
    with broker_on(disk) as broker, RawClient(broker.address) as client, RawClient(broker.address) as reader:
        with held(client, WriteTxnMarkersRequest([marker(("t", [0]))]), 2, disk):
            assert stable_end(reader) == 0
        assert client.answer().markers[0].topics[0].partitions[0].error_code == 0
        assert stable_end(reader) == 1


def test_what_a_connection_sends_behind_a_batch_that_waits_for_its_coordinator_comes_after_it(
    transactions: FakeTransactions, client: RawClient
) -> None:
    future: Future[KafkaError | None] = Future()
    transactions.answers = [future]
    transactions.on_enlistment = lambda it: future.set(None) if it.producer_id == 99 else None
    host, port = client.sock.getpeername()
    with RawClient(f"{host}:{port}") as other:
        for sequence in range(3):
            client.send_requests((transactional(sequence), 12))
        assert_silent(client)
        assert produced(other, transactional(0, producer_id=99, index=1)) == (0, 0)
        answers = [client.answer() for _ in range(3)]
    assert [it.responses[0].partition_responses[0].error_code for it in answers] == [0, 0, 0]


@pytest.mark.more
def test_kafkas_own_tool_sees_a_hanging_transaction_and_ends_it(transactions: FakeTransactions) -> None:
    with Broker() as broker, RawClient(broker.address) as client:
        client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
        at = ("--bootstrap-server", broker.address)
        where = ("--topic", "t", "--partition", "0")
        produced(client, transactional(0, producer_id=4242))
        seen = run_tool(TRANSACTIONS, *at, "describe-producers", *where).stdout
        assert re.search(r"^4242\s+3\s+-1\s+0\s+1000\s+0\s*$", seen, re.MULTILINE), seen
        run_tool(TRANSACTIONS, *at, "abort", *where, "--start-offset", "0")
        assert (stable_end(client), fetched(client, 0)[1]) == (2, [(4242, 0)])
        seen = run_tool(TRANSACTIONS, *at, "describe-producers", *where).stdout
        assert re.search(r"^4242\s+3\s+0\s+0\s+\d{13}\s+None\s*$", seen, re.MULTILINE), seen

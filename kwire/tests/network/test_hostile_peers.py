"""Attacks that need no chance: frames that never end, readers that never read, names that are paths, bombs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest
from crc32c import crc32c
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from testkit.raw.client import ConnectionClosed, RawClient, decoded_reply, framed, request_frame
from testkit.raw.fuzz.driver import SLOWEST_ROUND_S, HealthyClient, ensure_topic
from testkit.raw.fuzz.frames import compressed_bombs
from testkit.servers.broker_process import BrokerProcess

MIB = 1024 * 1024
MAX_REQUEST_BYTES = 100 * MIB
"""socket.request.max.bytes, by default."""
PATHS = ("..", ".", "a/b", "../escaped", "../../escaped", "/absolute", "a\\b", "a\0b", "line\nbreak", "", "x" * 250)
NO_SUCH_TOPIC = {
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
METADATA = request_frame(MetadataRequest([]), 9, correlation_id=7)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("hostile")) as running:
        yield running
        assert running.is_running
        assert running.bugs() == []


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        yield client


def produced(client: RawClient, topic: str, batch: bytes) -> int:
    """Returns the error code of a Produce."""
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
    ((answer,),) = (t.partition_responses for t in client.call(ProduceRequest(acks=1, topic_data=data), 9).responses)
    code: int = answer.error_code
    return code


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (4, 0), (3, 99), (3, -1), (0, 2), (1, 3)])
def test_requests_that_are_not_served_close_the_connection(client: RawClient, key: int, version: int) -> None:
    client.send(framed(key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(20)))
    with pytest.raises(ConnectionClosed):
        client.read_frame()


@pytest.mark.parametrize("version", [6, 99, -1])
def test_api_versions_of_an_unknown_version_is_answered_with_the_versions(client: RawClient, version: int) -> None:
    header = (18).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\5\xff\xff\0"
    client.send(framed(header + b"what a later Kafka asks"))
    correlation_id, answer = decoded_reply(client.read_frame(), 18, 0)
    assert (correlation_id, answer.error_code) == (5, ErrorCode.UNSUPPORTED_VERSION)
    assert {api.api_key for api in answer.api_keys} >= {0, 1, 3, 18}
    assert client.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_REQUEST_BYTES + 1, 2**31 - 1])
def test_an_impossible_size_closes_the_connection_before_anything_else_comes(client: RawClient, size: int) -> None:
    client.send(size.to_bytes(4, "big", signed=True))
    with pytest.raises(ConnectionClosed):
        client.read_frame()


def test_a_request_before_a_bad_frame_is_answered(client: RawClient) -> None:
    client.send(METADATA + framed(b"\3\xe7" + bytes(20)))
    assert decoded_reply(client.read_frame(), 3, 9)[0] == 7
    with pytest.raises(ConnectionClosed):
        client.read_frame()


def test_a_frame_may_come_byte_by_byte(client: RawClient) -> None:
    for byte in METADATA:
        client.send(bytes([byte]))
    assert decoded_reply(client.read_frame(), 3, 9)[0] == 7


def test_frames_that_are_only_begun_cost_what_has_arrived(broker: BrokerProcess) -> None:
    resident, descriptors = broker.resident_bytes(), broker.open_descriptors()
    with ExitStack() as stack:
        for _ in range(200):
            silent = stack.enter_context(RawClient(broker.address))
            silent.send(MAX_REQUEST_BYTES.to_bytes(4, "big") + METADATA[4:14] + bytes(1000))
        with HealthyClient(broker.address, "healthy-beside-silence") as healthy:
            while healthy.rounds < 20:
                assert healthy.is_alive()
        assert broker.resident_bytes() - resident < 20 * MIB
    with RawClient(broker.address) as client:
        client.call(MetadataRequest([]), 9)
    assert broker.open_descriptors() < descriptors + 20


def test_large_frames_that_are_only_begun_take_a_bounded_memory_and_give_it_back(tmp_path: Path) -> None:
    bound = MAX_REQUEST_BYTES
    with BrokerProcess(tmp_path, [f"queued.max.request.bytes={bound}"]) as broker:
        with HealthyClient(broker.address, "healthy-before") as healthy:
            while healthy.rounds < 5:
                assert healthy.is_alive()
        resident = broker.resident_bytes()
        with ExitStack() as stack:
            for _ in range(100):
                silent = stack.enter_context(RawClient(broker.address))
                silent.sock.setblocking(False)
                silent.sock.send(MAX_REQUEST_BYTES.to_bytes(4, "big") + METADATA[4:14] + bytes(2 * MIB + 100))
            with HealthyClient(broker.address, "healthy-beside-half-requests") as healthy:
                while healthy.rounds < 20:
                    assert healthy.is_alive()
            assert broker.resident_bytes() - resident < bound + 10 * MIB
        with RawClient(broker.address) as client:
            client.call(MetadataRequest([]), 9)
        assert broker.resident_bytes() - resident < 24 * MIB
        assert broker.bugs() == []


def send_for_ever(client: RawClient, data: bytes) -> NoReturn:
    while True:
        client.send(data)


def test_a_client_that_sends_and_never_reads_is_not_served_any_longer(broker: BrokerProcess) -> None:
    resident = broker.resident_bytes()
    with RawClient(broker.address) as deaf:
        deaf.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sock.settimeout(1.0)
        questions = request_frame(ApiVersionsRequest(), 0) * 1000
        with pytest.raises(TimeoutError):
            send_for_ever(deaf, questions)
        with HealthyClient(broker.address, "healthy-beside-the-deaf") as healthy:
            while healthy.rounds < 20:
                assert healthy.is_alive()
        assert broker.resident_bytes() - resident < 20 * MIB


@pytest.mark.parametrize("name", PATHS)
def test_a_topics_name_is_never_a_path(broker: BrokerProcess, client: RawClient, name: str) -> None:
    before = sorted(path.name for path in broker.data_dir.iterdir())
    (created,) = client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)]), 7).topics
    assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (described,) = client.call(request, 9).topics
    assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produced(client, name, build_batch([Record(value=b"v")])) in NO_SUCH_TOPIC
    wanted = ListOffsetsTopic(name, [ListOffsetsPartition(0, timestamp=-1)])
    (answer,) = client.call(ListOffsetsRequest(topics=[wanted]), 7).topics
    assert answer.partitions[0].error_code in NO_SUCH_TOPIC
    assert sorted(path.name for path in broker.data_dir.iterdir()) == before
    assert [path.name for path in broker.data_dir.parent.iterdir() if path.is_dir()] == ["data"]


def test_records_that_lie_are_refused_each_with_its_code(client: RawClient) -> None:
    ensure_topic(client, "spoilt")
    batch = build_batch([Record(timestamp=1, value=b"v")])
    wrong_crc = bytearray(batch)
    wrong_crc[-1] ^= 1
    assert produced(client, "spoilt", bytes(wrong_crc)) == ErrorCode.CORRUPT_MESSAGE
    wrong_count = bytearray(batch)
    wrong_count[60] = 9
    wrong_count[17:21] = crc32c(bytes(wrong_count[21:])).to_bytes(4, "big")
    assert produced(client, "spoilt", bytes(wrong_count)) == ErrorCode.INVALID_RECORD
    assert produced(client, "spoilt", batch[:-1]) == ErrorCode.INVALID_RECORD
    assert produced(client, "spoilt", batch + batch) == ErrorCode.INVALID_RECORD
    assert produced(client, "spoilt", b"") == ErrorCode.INVALID_RECORD
    assert produced(client, "spoilt", batch) == 0


def test_bombs_are_refused_with_bounded_memory_and_other_clients_are_still_served(
    broker: BrokerProcess, client: RawClient
) -> None:
    ensure_topic(client, "compacted", {"cleanup.policy": "compact"})
    client.sock.settimeout(60.0)
    bombs = compressed_bombs(512 * MIB)
    with HealthyClient(broker.address, "healthy-beside-bombs") as healthy:
        peak = broker.peak_resident_bytes()
        for name, bomb in bombs.items():
            assert len(bomb) < MIB
            code = produced(client, "compacted", bomb)
            assert code in {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD}, name
    assert healthy.slowest_s < SLOWEST_ROUND_S
    assert broker.peak_resident_bytes() - peak < 300 * MIB


def test_a_request_of_very_many_tiny_elements_is_refused_before_they_are_made(client: RawClient) -> None:
    request = ProduceRequest(None, 1, 1000, [TopicProduceData()] * 300_000)
    client.send(request_frame(request, 9))
    assert client.is_closed_by_peer()

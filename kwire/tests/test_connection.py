"""What a connection owes its client, whatever the API: order, one answer for each request, and no waiting in vain."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.headers import RequestHeader, write_request_header
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.records import iter_records
from kwire_protocol.wire import Writer

from kwire.apis import APIS
from kwire.testing import Broker
from kwire.tests.raw_client import ConnectionClosed, RawClient, decoded_reply, request_frame
from kwire.tests.simple_requests import fetch, list_end, produce

PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS = 0, 1, 2, 18
LONG_MS = 20_000


@pytest.fixture(params=[False, True], ids=["memory", "disk"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(on_disk=request.param) as running:
        with RawClient(running.address) as client:
            created = client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), 7)
            assert created.topics[0].error_code == 0
        yield running


def test_requests_that_arrive_together_are_answered_in_order(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        client.send(b"".join(request_frame(produce(b"%d" % i), 9, correlation_id=i) for i in range(200)))
        for i in range(200):
            correlation_id, answer = decoded_reply(client.read_frame(), PRODUCE, 9)
            assert correlation_id == i
            assert answer.responses[0].partition_responses[0].base_offset == i


def test_a_request_may_arrive_byte_by_byte(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        for byte in request_frame(list_end(), 6, correlation_id=7):
            client.send(bytes([byte]))
        assert decoded_reply(client.read_frame(), LIST_OFFSETS, 6)[0] == 7


def test_what_was_produced_is_fetched_whole_even_when_it_is_large(broker: Broker) -> None:
    values = [bytes([i]) * 900_000 for i in range(20)]
    with RawClient(broker.address) as client:
        for value in values:
            client.call(produce(value), 9)
        answer = client.call(fetch(0), 12)
        records = answer.responses[0].partitions[0].records
        fetched: list[bytes | None] = []
        while len(records):
            fetched += [record.value for record in iter_records(records)]
            records = records[12 + int.from_bytes(records[8:12], "big") :]
        assert fetched == values


def test_a_waiting_fetch_is_answered_by_the_append_it_waits_for(broker: Broker) -> None:
    with RawClient(broker.address) as consumer, RawClient(broker.address) as producer:
        consumer.send(request_frame(fetch(0, max_wait_ms=LONG_MS), 12))
        began = time.monotonic()
        producer.call(produce(b"news"), 9)
        answer = decoded_reply(consumer.read_frame(), FETCH, 12)[1]
        assert time.monotonic() - began < LONG_MS / 2000
        assert [record.value for record in iter_records(answer.responses[0].partitions[0].records)] == [b"news"]


def test_a_waiting_fetch_waits_for_min_bytes(broker: Broker) -> None:
    with RawClient(broker.address) as consumer, RawClient(broker.address) as producer:
        consumer.send(request_frame(fetch(0, max_wait_ms=LONG_MS, min_bytes=1000), 12))
        for _ in range(2):
            producer.call(produce(b"x" * 500), 9)
        answer = decoded_reply(consumer.read_frame(), FETCH, 12)[1]
        assert len(answer.responses[0].partitions[0].records) > 1000


def test_a_waiting_fetch_is_answered_empty_when_its_time_is_over(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        answer = client.call(fetch(0, max_wait_ms=50), 12)
        partition = answer.responses[0].partitions[0]
        assert (partition.error_code, len(partition.records), partition.high_watermark) == (0, 0, 0)


def test_a_waiting_fetch_does_not_hold_up_the_next_request_of_its_connection(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        began = time.monotonic()
        client.send(request_frame(fetch(0, max_wait_ms=LONG_MS), 12, correlation_id=1))
        client.send(request_frame(list_end(), 6, correlation_id=2))
        assert decoded_reply(client.read_frame(), FETCH, 12)[0] == 1
        assert decoded_reply(client.read_frame(), LIST_OFFSETS, 6)[0] == 2
        assert time.monotonic() - began < LONG_MS / 2000


def test_replies_before_a_waiting_fetch_are_not_held_back(broker: Broker) -> None:
    with RawClient(broker.address, timeout_s=LONG_MS / 2000) as client:
        client.send(request_frame(list_end(), 6, correlation_id=1) + request_frame(fetch(0, max_wait_ms=LONG_MS), 12))
        assert decoded_reply(client.read_frame(), LIST_OFFSETS, 6)[0] == 1


def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch_whatever_the_limits(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        client.call(produce(b"a", b"b", b"c" * 1000), 9)
        answer = client.call(fetch(1, max_bytes=1), 12)
        records = list(iter_records(answer.responses[0].partitions[0].records))
        assert [record.offset for record in records] == [0, 1, 2]


def test_a_produce_without_acknowledgement_has_no_answer(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        client.send(request_frame(produce(b"silent", acks=0), 9, correlation_id=1))
        assert client.call(list_end(), 6).topics[0].partitions[0].offset == 1


def test_a_failed_produce_without_acknowledgement_closes_the_connection(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        client.send(request_frame(produce(b"lost", topic="nowhere", acks=0), 9))
        assert client.is_closed_by_peer()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_the_list(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        writer = Writer()
        write_request_header(writer, RequestHeader(API_VERSIONS, 99, 5, "from the future"))
        client.send(len(writer.buf).to_bytes(4, "big") + writer.buf)
        correlation_id, answer = decoded_reply(client.read_frame(), API_VERSIONS, 0)
        assert correlation_id == 5
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert {key.api_key for key in answer.api_keys} == set(APIS)


def test_api_versions_lists_what_is_served_and_produce_from_version_0(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        answer: ApiVersionsResponse = client.call(ApiVersionsRequest("tests", "1.0"), 4)
        listed = {key.api_key: range(key.min_version, key.max_version + 1) for key in answer.api_keys}
        assert listed.pop(PRODUCE) == range(14)
        assert listed == {key: api.versions for key, api in APIS.items() if key != PRODUCE}


@pytest.mark.parametrize(("key", "version"), [(999, 0), (FETCH, 3), (PRODUCE, 0), (PRODUCE, 99), (FETCH, -1)])
def test_other_unknown_apis_and_versions_close_the_connection(broker: Broker, key: int, version: int) -> None:
    with RawClient(broker.address) as client:
        frame = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(4) + b"\xff\xff" + bytes(20)
        client.send(len(frame).to_bytes(4, "big") + frame)
        assert client.is_closed_by_peer()


def test_every_served_version_can_be_decoded() -> None:
    for api in APIS.values():
        api.load()
        messages = MESSAGES[api.key].versions
        assert api.versions.start in messages
        assert api.versions.stop - 1 in messages


def test_a_broken_request_closes_its_connection_and_no_other(broker: Broker) -> None:
    with RawClient(broker.address) as bystander, RawClient(broker.address) as client:
        bystander.call(list_end(), 6)
        client.send(request_frame(list_end(), 6)[:-4] + b"\xff\xff\xff\xff")
        with pytest.raises(ConnectionClosed):
            client.read_frame()
        assert bystander.call(list_end(), 6).topics[0].partitions[0].error_code == 0


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    with (
        Broker(settings={"connections.max.idle.ms": "300"}) as broker,
        RawClient(broker.address) as idle,
        RawClient(broker.address) as busy,
    ):
        deadline = time.monotonic() + 10
        idle.sock.setblocking(False)
        while time.monotonic() < deadline:
            assert busy.call(ApiVersionsRequest("tests", "1.0"), 4).error_code == 0
            try:
                assert idle.sock.recv(1) == b""
                return
            except BlockingIOError:
                continue
        pytest.fail("the idle connection is still open")

"""A connection's duties to its client, whatever the API: order, one answer per request, no waiting in vain."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.headers import RequestHeader, write_request_header
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.fetch import FetchResponse
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kwire_protocol.records import iter_records
from kwire_protocol.wire import ApiMessage, Writer

from kwire.handlers import apis
from kwire.handlers.apis import APIS, served_apis
from kwire.testing import Broker
from testkit.raw.client import ConnectionClosed, RawClient, decoded_reply, request_frame
from testkit.raw.simple_requests import fetch, find_coordinator, join, list_end, produce

PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 2, 18, 22
LONG_MS = 20_000
LONGER_THAN_A_STOP_MAY_TAKE_MS = 600_000


@pytest.fixture(params=[False, True], ids=["memory", "disk"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(on_disk=request.param) as running:
        with RawClient(running.address) as client:
            created = client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), 7)
            assert created.topics[0].error_code == 0
        yield running


def values_of(batches: memoryview) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(batches):
        values += [record.value for record in iter_records(batches)]
        batches = batches[12 + int.from_bytes(batches[8:12], "big") :]
    return values


def test_requests_that_arrive_together_are_answered_in_order(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        client.send_requests(*((produce(b"%d" % i), 9) for i in range(200)))
        for i in range(200):
            assert client.answer().responses[0].partition_responses[0].base_offset == i


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
        assert values_of(records) == values


def test_a_waiting_fetch_is_answered_by_the_append_it_waits_for(broker: Broker) -> None:
    with RawClient(broker.address) as consumer, RawClient(broker.address) as producer:
        consumer.send_requests((fetch(0, max_wait_ms=LONG_MS), 12))
        began = time.monotonic()
        producer.call(produce(b"news"), 9)
        answer = consumer.answer()
        assert time.monotonic() - began < LONG_MS / 2000
        assert [record.value for record in iter_records(answer.responses[0].partitions[0].records)] == [b"news"]


def test_a_waiting_fetch_waits_for_min_bytes(broker: Broker) -> None:
    with RawClient(broker.address) as consumer, RawClient(broker.address) as producer:
        consumer.send_requests((fetch(0, max_wait_ms=LONG_MS, min_bytes=1000), 12))
        for _ in range(2):
            producer.call(produce(b"x" * 500), 9)
        answer = consumer.answer()
        assert len(answer.responses[0].partitions[0].records) > 1000


def test_a_waiting_fetch_is_answered_empty_when_its_time_is_over(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        answer = client.call(fetch(0, max_wait_ms=50), 12)
        partition = answer.responses[0].partitions[0]
        assert (partition.error_code, len(partition.records), partition.high_watermark) == (0, 0, 0)


def test_a_waiting_fetch_does_not_hold_up_the_next_request_of_its_connection(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        began = time.monotonic()
        client.send_requests((fetch(0, max_wait_ms=LONG_MS), 12))
        client.send_requests((list_end(), 6))
        assert [type(client.answer()) for _ in range(2)] == [FetchResponse, ListOffsetsResponse]
        assert time.monotonic() - began < LONG_MS / 2000


def test_replies_before_a_waiting_fetch_are_not_held_back(broker: Broker) -> None:
    with RawClient(broker.address, timeout_s=LONG_MS / 2000) as client:
        client.send_requests((list_end(), 6), (fetch(0, max_wait_ms=LONG_MS), 12))
        assert isinstance(client.answer(), ListOffsetsResponse)


def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch_whatever_the_limits(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        client.call(produce(b"a", b"b", b"c" * 1000), 9)
        answer = client.call(fetch(1, max_bytes=1), 12)
        records = list(iter_records(answer.responses[0].partitions[0].records))
        assert [record.offset for record in records] == [0, 1, 2]


def test_a_produce_without_acknowledgement_has_no_answer(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        client.send_requests((produce(b"silent", acks=0), 9))
        assert client.call(list_end(), 6).topics[0].partitions[0].offset == 1


def test_a_failed_produce_without_acknowledgement_closes_the_connection(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        client.send_requests((produce(b"lost", topic="nowhere", acks=0), 9))
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
        served = served_apis(unstable=False)
        assert listed == {key: api.versions for key, api in served.items() if key != PRODUCE}


def init_producer_id_versions(broker: Broker) -> range:
    with RawClient(broker.address) as client:
        answer: ApiVersionsResponse = client.call(ApiVersionsRequest("tests", "1.0"), 4)
        (listed,) = [it for it in answer.api_keys if it.api_key == INIT_PRODUCER_ID]
        return range(listed.min_version, listed.max_version + 1)


def test_a_version_that_is_not_stable_is_served_only_where_it_is_enabled(broker: Broker) -> None:
    request = InitProducerIdRequest(None, 60_000)
    assert init_producer_id_versions(broker) == range(6)
    with RawClient(broker.address) as client, pytest.raises(ConnectionClosed):
        client.call(request, 6)
    with Broker(settings={"unstable.api.versions.enable": "true"}) as unstable:
        assert init_producer_id_versions(unstable) == range(7)
        with RawClient(unstable.address) as client:
            assert client.call(request, 6).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("key", "version"), [(999, 0), (FETCH, 3), (PRODUCE, 0), (PRODUCE, 99), (FETCH, -1)])
def test_other_unknown_apis_and_versions_close_the_connection(broker: Broker, key: int, version: int) -> None:
    with RawClient(broker.address) as client:
        frame = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(4) + b"\xff\xff" + bytes(20)
        client.send(len(frame).to_bytes(4, "big") + frame)
        assert client.is_closed_by_peer()


def test_every_served_version_can_be_decoded() -> None:
    for api in APIS.values():
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


def test_a_want_of_descriptors_is_logged_as_what_it_is(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files", name)

    with RawClient(broker.address) as client, monkeypatch.context() as limited:
        limited.setattr(APIS[HeartbeatRequest.api_key], "functions", None)
        limited.setattr(apis, "import_module", refuse)
        with pytest.raises(ConnectionClosed):
            client.call(HeartbeatRequest("g", 0, "m"), 0)
    [message] = caplog.messages
    assert message.startswith("closing the connection from ")
    assert message.endswith("[Errno 24] Too many open files: 'kwire.handlers.heartbeat'")


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


def begin_to_wait(client: RawClient, *waiting: tuple[ApiMessage, int]) -> None:
    """Sends a request that waits. When the one before it is answered, it does: replies leave before any waiting."""
    client.send_requests((list_end(), 6), *waiting)
    client.answer()


def test_requests_behind_a_join_that_waits_for_another_member_are_answered_after_it_in_order() -> None:
    with (
        Broker(settings={"group.initial.rebalance.delay.ms": "0", "num.partitions": "1"}) as broker,
        RawClient(broker.address) as first,
        RawClient(broker.address) as second,
    ):
        first.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), 7)
        first.call(find_coordinator(), 0)
        member = first.call(join(), 3)
        assert (member.error_code, member.generation_id) == (0, 1)
        begin_to_wait(second, (join(), 3), (produce(b"x"), 9), (list_end(), 6))
        beat = first.call(HeartbeatRequest("g", 1, member.member_id), 4)
        assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert first.call(list_end(), 6).topics[0].partitions[0].offset == 0, "what is behind the join waits as well"
        assert first.call(join(member.member_id), 3).generation_id == 2
        assert second.answer().generation_id == 2
        assert second.answer().responses[0].partition_responses[0].base_offset == 0
        assert second.answer().topics[0].partitions[0].offset == 1


def test_a_client_that_leaves_while_its_fetch_waits_is_missed_by_nobody(broker: Broker) -> None:
    waiting = fetch(0, max_wait_ms=LONGER_THAN_A_STOP_MAY_TAKE_MS), 12
    with RawClient(broker.address) as client:
        begin_to_wait(client, waiting)
    with RawClient(broker.address) as killed:
        begin_to_wait(killed, waiting)
        killed.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with RawClient(broker.address) as other:
        assert other.call(produce(b"news"), 9).responses[0].partition_responses[0].error_code == 0
    # broker.stop raises TimeoutError long before the fetches' time is over.
    broker.stop()


def test_a_stop_waits_neither_for_fetches_nor_for_joins(broker: Broker) -> None:
    with (
        RawClient(broker.address) as consumer,
        RawClient(broker.address) as member,
        RawClient(broker.address) as joining,
    ):
        begin_to_wait(consumer, (fetch(0, max_wait_ms=LONGER_THAN_A_STOP_MAY_TAKE_MS), 12))
        member.call(find_coordinator(), 0)
        for client in (member, joining):
            begin_to_wait(client, (join(rebalance_timeout_ms=LONGER_THAN_A_STOP_MAY_TAKE_MS), 3))
        joining.send_requests((list_end(), 6))
        broker.stop()
        for client in (consumer, joining):
            with pytest.raises(ConnectionClosed):
                client.answer()


def test_a_reader_that_takes_its_time_holds_up_nobody_else_and_gets_everything(broker: Broker) -> None:
    values = [bytes([i]) * 900_000 for i in range(8)]
    with RawClient(broker.address) as slow, RawClient(broker.address) as producer:
        for value in values:
            producer.call(produce(value), 9)
        begin_to_wait(slow, (fetch(0), 12), (list_end(), 6))
        for i in range(20):
            # While nothing of the large answer is taken at first, and then a little of it at a time.
            assert producer.call(produce(b"%d" % i), 9).responses[0].partition_responses[0].error_code == 0
            if i >= 10:
                slow.receive(1000)
        assert values_of(slow.answer().responses[0].partitions[0].records) == values
        # The request behind it is answered once the large answer was taken.
        assert slow.answer().topics[0].partitions[0].offset == 28


def test_a_repeated_request_gets_a_new_answer(broker: Broker) -> None:
    with RawClient(broker.address) as client:
        for end in range(5):
            for version in (6, 7):
                assert client.call(list_end(), version).topics[0].partitions[0].offset == end
            other = client.call(
                ListOffsetsRequest(-1, 0, [ListOffsetsTopic("none", [ListOffsetsPartition(0, -1, -1)])]), 6
            )
            assert other.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            client.call(produce(b"x"), 9)


def test_a_broken_question_is_refused_after_a_whole_one_was_answered(broker: Broker) -> None:
    whole = request_frame(list_end(), 6, correlation_id=1)
    for _ in range(2):
        with RawClient(broker.address) as client:
            client.send(whole)
            assert decoded_reply(client.read_frame(), LIST_OFFSETS, 6)[0] == 1
            client.send(struct.pack(">i", len(whole) - 5) + whole[4:-1])
            with pytest.raises(ConnectionClosed):
                client.read_frame()

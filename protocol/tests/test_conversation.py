"""A client's conversation: replies do not depend on how bytes arrive, and hostile peers cost little."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.conversation import (
    Conversation,
    NotServed,
    Reply,
    Ticket,
    TooManyInFlight,
    decode_reply,
    encode_request,
)
from kwire_protocol.frames import AHEAD_BYTES, LARGEST_EXPECTED_BYTES, ReplyBuffer
from kwire_protocol.headers import read_request_header, response_head
from kwire_protocol.messages import APIS
from kwire_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from kwire_protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kwire_protocol.messages.list_offsets import ListOffsetsRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.wire import ApiMessage, Message, ProtocolError, Reader, UnsupportedField, Writer

from devtools.suite.tiers import examples

FETCH, HEARTBEAT, API_VERSIONS, INIT_PRODUCER_ID = 1, 12, 18, 22
NEWEST_API_VERSIONS = 5
MAX_REPLY_BYTES = 100_000_000


def encoded_reply(message: Message, api_key: int, version: int, correlation_id: int) -> bytes:
    writer = Writer()
    writer.begin_frame(response_head(api_key, version, correlation_id))
    message.write(writer, version)
    writer.end_frame()
    return writer.getvalue()


def sent(conversation: Conversation) -> bytes:
    return b"".join(bytes(piece) for piece in conversation.data_to_send())


def receive(conversation: Conversation, data: bytes, steps: Iterable[int] = ()) -> list[Reply]:
    """Receives as a shell does that reads so many bytes at a time, as far as there is room for them."""
    replies = []
    pieces = iter(steps)
    left = memoryview(data)
    while left:
        room = conversation.writable()
        assert len(room) > 0
        count = min(len(room), len(left), next(pieces, len(left)))
        room[:count] = left[:count]
        left = left[count:]
        conversation.received(count)
        while (reply := conversation.next_reply()) is not None:
            replies.append(reply)
    return replies


def answer(conversation: Conversation, *replies: bytes) -> list[Reply]:
    return receive(conversation, b"".join(replies))


def fetched(size: int, fill: int = 7) -> FetchResponse:
    partition = PartitionData(0, 0, 5, records=bytes([fill]) * size)
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[partition])])


def records_of(response: FetchResponse) -> bytes:
    records = response.responses[0].partitions[0].records
    assert isinstance(records, (bytes, memoryview))
    return bytes(records)


def api_versions(*served: tuple[int, int, int], error_code: int = 0, **features: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code,
        [ApiVersion(*it) for it in served],
        finalized_features=[FinalizedFeatureKey(name, level, 1) for name, level in features.items()],
    )


def agreed(*served: tuple[int, int, int]) -> Conversation:
    """Returns a conversation whose broker serves these versions."""
    conversation = Conversation()
    ticket = conversation.begin()
    assert sent(conversation)
    reply = encoded_reply(api_versions(*served), API_VERSIONS, NEWEST_API_VERSIONS, ticket.correlation_id)
    assert answer(conversation, reply) == []
    assert conversation.versions is not None
    return conversation


# Requests and replies

REQUESTS: list[tuple[ApiMessage, int, Message]] = [
    (HeartbeatRequest("g", 1, "m"), 3, HeartbeatResponse(error_code=27)),
    (HeartbeatRequest("g", 1, "m"), 4, HeartbeatResponse(throttle_time_ms=9)),
    (ListGroupsRequest(), 0, ListGroupsResponse(error_code=15)),
    (FetchRequest(), 17, fetched(100)),
    (FetchRequest(), 17, fetched(0)),
    (FetchRequest(), 17, fetched(AHEAD_BYTES, 8)),
    (FetchRequest(), 17, fetched(3 * AHEAD_BYTES, 9)),
]


@settings(max_examples=examples(40))
@given(
    st.lists(st.sampled_from(range(len(REQUESTS))), max_size=12),
    st.lists(st.integers(1, 200) | st.integers(1, 200_000), min_size=1, max_size=30),
)
def test_replies_do_not_depend_on_how_the_bytes_arrive(chosen: list[int], steps: list[int]) -> None:
    conversation = Conversation()
    tickets, stream = [], b""
    for at in chosen:
        request, version, response = REQUESTS[at]
        ticket = conversation.send(request, version)
        tickets.append(ticket)
        stream += encoded_reply(response, request.api_key, version, ticket.correlation_id)
    replies = receive(conversation, stream, cycle(steps))
    assert [it.ticket for it in replies] == tickets
    assert [it.message for it in replies] == [REQUESTS[at][2] for at in chosen]
    assert conversation.in_flight == 0


@given(st.data())
def test_replies_do_not_depend_on_how_sending_and_receiving_alternate(data: st.DataObject) -> None:
    conversation = Conversation(max_in_flight=5)
    waiting: list[tuple[Ticket, bytes, Message]] = []
    for _ in range(data.draw(st.integers(0, 40))):
        if conversation.has_room and data.draw(st.booleans()):
            request, version, response = data.draw(st.sampled_from(REQUESTS))
            ticket = conversation.send(request, version)
            header = read_request_header(Reader(sent(conversation)[4:]))
            assert (header.api_key, header.api_version, header.correlation_id) == (
                ticket.api_key,
                ticket.version,
                ticket.correlation_id,
            )
            reply = encoded_reply(response, request.api_key, version, header.correlation_id)
            waiting.append((ticket, reply, response))
        elif waiting:
            ticket, reply, response = waiting.pop(0)
            assert answer(conversation, reply) == [(ticket, response)]
        assert conversation.in_flight == len(waiting)


def test_a_request_stands_on_the_wire_as_kafka_has_it() -> None:
    conversation = Conversation(client_id="me", first_correlation_id=77)
    ticket = conversation.send(HeartbeatRequest("g", 1, "m"), 3)
    assert sent(conversation) == encode_request(HeartbeatRequest("g", 1, "m"), 3, correlation_id=77, client_id="me")
    assert sent(conversation) == b""
    assert (ticket.correlation_id, ticket.name, ticket.version) == (77, "Heartbeat", 3)


def test_large_records_are_not_copied_on_their_way_out() -> None:
    batch = bytes(100_000)
    request = ProduceRequest(None, -1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])])
    conversation = Conversation()
    conversation.send(request, 12)
    assert any(piece is batch for piece in conversation.data_to_send())


def test_correlation_ids_begin_again_after_the_largest() -> None:
    conversation = Conversation(first_correlation_id=(1 << 31) - 1)
    tickets = [conversation.send(ListGroupsRequest(), 0) for _ in range(2)]
    assert [it.correlation_id for it in tickets] == [(1 << 31) - 1, 0]


def test_a_produce_without_acks_has_no_answer() -> None:
    conversation = Conversation()
    assert not conversation.send(ProduceRequest(acks=0), 12).is_answered
    waiting = conversation.send(ListGroupsRequest(), 0)
    assert conversation.in_flight == 1
    assert answer(conversation, encoded_reply(ListGroupsResponse(), 16, 0, waiting.correlation_id))[0].ticket is waiting
    assert conversation.send(ProduceRequest(acks=1), 12).is_answered


def test_requests_in_flight_are_bounded() -> None:
    conversation = Conversation(max_in_flight=2)
    first, _ = (conversation.send(ListGroupsRequest(), 0) for _ in range(2))
    assert not conversation.has_room
    sent(conversation)
    with pytest.raises(TooManyInFlight):
        conversation.send(ListGroupsRequest(), 0)
    assert sent(conversation) == b""
    answer(conversation, encoded_reply(ListGroupsResponse(), 16, 0, first.correlation_id))
    assert conversation.has_room


def test_a_request_with_a_field_that_its_version_lacks_is_not_sent() -> None:
    conversation = Conversation()
    with pytest.raises(UnsupportedField):
        conversation.send(HeartbeatRequest("g", 1, "m", group_instance_id="i"), 2)
    assert (sent(conversation), conversation.in_flight) == (b"", 0)


def test_records_stay_valid_while_later_replies_arrive() -> None:
    conversation = Conversation()
    sizes = [10, 300_000, 200, 50_000, 300_000]
    for number, size in enumerate(sizes):
        ticket = conversation.send(FetchRequest(), 17)
        (reply,) = answer(conversation, encoded_reply(fetched(size, number), FETCH, 17, ticket.correlation_id))
        if number == 0:
            kept = []
        kept.append(reply.message)
    assert [records_of(it) for it in kept] == [bytes([number]) * size for number, size in enumerate(sizes)]


# Versions


def test_the_newest_version_that_both_support_is_agreed_on() -> None:
    conversation = agreed((FETCH, 4, 13), (HEARTBEAT, 0, 40), (INIT_PRODUCER_ID, 0, 6))
    assert conversation.version_for(FETCH) == 13
    assert conversation.version_for(FETCH, at_most=12) == 12
    assert conversation.version_for(FETCH, at_least=13) == 13
    assert conversation.version_for(HEARTBEAT) == APIS[HEARTBEAT].max_version
    assert conversation.version_for(INIT_PRODUCER_ID) == 5  # 6 is unstable
    assert conversation.version_for(INIT_PRODUCER_ID, at_least=6) == 6
    for bounds in ({"at_least": 14}, {"at_most": 3}):
        with pytest.raises(NotServed, match="Fetch"):
            conversation.version_for(FETCH, **bounds)
    with pytest.raises(NotServed, match="ListOffsets 1 to 11"):
        conversation.version_for(ListOffsetsRequest.api_key)


def test_no_version_is_agreed_on_before_the_brokers_response() -> None:
    with pytest.raises(NotServed):
        Conversation().version_for(FETCH)


@pytest.mark.parametrize(
    ("versions", "next_version"), [((), 0), (((18, 0, 3),), 3), (((18, 0, 99),), 4), (((18, 0, -7),), 0)]
)
def test_an_older_broker_gets_a_second_request(versions: tuple[tuple[int, int, int], ...], next_version: int) -> None:
    conversation = Conversation(software="kwire", software_version="1.2")
    first = conversation.begin()
    frame = Reader(sent(conversation)[4:])
    assert read_request_header(frame).api_version == NEWEST_API_VERSIONS
    refused = encoded_reply(api_versions(*versions, error_code=35), API_VERSIONS, 0, first.correlation_id)
    assert answer(conversation, refused) == []
    assert conversation.versions is None
    header = read_request_header(Reader(sent(conversation)[4:]))
    assert (header.api_version, header.correlation_id) == (next_version, first.correlation_id + 1)
    known = encoded_reply(api_versions((FETCH, 4, 11)), API_VERSIONS, next_version, header.correlation_id)
    assert answer(conversation, known) == []
    assert conversation.version_for(FETCH) == 11
    assert conversation.features == {}


def test_requests_to_an_older_broker_come_to_an_end() -> None:
    conversation = Conversation()
    conversation.begin()
    refused = [encoded_reply(api_versions((18, 0, 99), error_code=35), API_VERSIONS, 0, id_) for id_ in range(1, 20)]
    with pytest.raises(ProtocolError, match="does not return its versions: error 35"):
        answer(conversation, *refused)


def test_finalized_features_are_returned() -> None:
    conversation = Conversation()
    ticket = conversation.begin()
    response = api_versions((FETCH, 4, 17), **{"transaction.version": 2})
    answer(conversation, encoded_reply(response, API_VERSIONS, NEWEST_API_VERSIONS, ticket.correlation_id))
    assert conversation.features == {"transaction.version": 2}


def test_an_api_versions_request_of_the_caller_s_own_is_answered_as_any() -> None:
    conversation = agreed((API_VERSIONS, 0, 3))
    ticket = conversation.send(APIS[API_VERSIONS].request_class(), 2)
    response = api_versions((FETCH, 4, 5))
    (reply,) = answer(conversation, encoded_reply(response, API_VERSIONS, 2, ticket.correlation_id))
    assert reply == (ticket, response)


# Peers that get it wrong


def heartbeat_reply(correlation_id: int = 1, *, behind: bytes = b"") -> bytes:
    reply = encoded_reply(HeartbeatResponse(), HEARTBEAT, 3, correlation_id)[4:] + behind
    return len(reply).to_bytes(4, "big") + reply


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (heartbeat_reply(9), "a reply to request 9, not to 1 .Heartbeat."),
        (heartbeat_reply(behind=b"\0"), "1 bytes left over behind a reply to Heartbeat 3"),
        (b"\0\0\0\2\0\0", "ends within a field"),
        (b"\0\0\0\0", "ends within a field"),
        (b"\xff\xff\xff\xfe", "a reply of -2 bytes"),
        (b"HTTP/1.1 400", "a reply of 1213486160 bytes"),
    ],
)
def test_what_cannot_be_a_reply_is_an_error_and_stays_one(reply: bytes, message: str) -> None:
    conversation = Conversation()
    conversation.send(HeartbeatRequest("g", 1, "m"), 3)
    for _ in range(2):
        with pytest.raises(ProtocolError, match=message):
            answer(conversation, reply)


def test_a_reply_to_nothing_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="to no request that was sent"):
        answer(Conversation(), heartbeat_reply())


def test_what_came_before_an_error_is_given_out() -> None:
    conversation = Conversation()
    ticket = conversation.send(HeartbeatRequest("g", 1, "m"), 3)
    data = heartbeat_reply() + heartbeat_reply(2)
    room = conversation.writable()
    room[: len(data)] = data
    conversation.received(len(data))
    assert conversation.next_reply() == (ticket, HeartbeatResponse())
    for _ in range(2):
        with pytest.raises(ProtocolError, match="to no request"):
            conversation.next_reply()


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), max_size=20))
def test_garbage_is_an_error_or_waited_for(data: bytes, steps: list[int]) -> None:
    conversation = Conversation(max_reply_bytes=10_000)
    conversation.begin()
    conversation.send(FetchRequest(), 17)
    try:
        receive(conversation, data, steps)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            conversation.next_reply()
    assert conversation.held_bytes <= AHEAD_BYTES + 10_000


@given(st.data())
def test_a_reply_with_a_wrong_byte_is_an_error_or_another_reply(data: st.DataObject) -> None:
    conversation = Conversation()
    conversation.send(FetchRequest(), 17)
    reply = bytearray(encoded_reply(fetched(20), FETCH, 17, 1))
    at = data.draw(st.integers(4, len(reply) - 1))
    reply[at] = data.draw(st.integers(0, 255))
    try:
        answer(conversation, bytes(reply))
    except ProtocolError:
        return
    assert conversation.in_flight == 0


# Memory


def claims(size: int) -> bytes:
    return size.to_bytes(4, "big")


def test_a_claimed_size_alone_gets_no_more_than_is_expected() -> None:
    conversation = Conversation(max_reply_bytes=MAX_REPLY_BYTES)
    conversation.send(FetchRequest(), 17)
    assert answer(conversation, claims(90_000_000) + b"x") == []
    assert conversation.held_bytes <= AHEAD_BYTES + LARGEST_EXPECTED_BYTES


def test_memory_follows_the_bytes_that_arrived() -> None:
    buffer = ReplyBuffer(MAX_REPLY_BYTES)
    size = 40_000_000
    arrived = feed(buffer, claims(size))
    assert buffer.next_frame() is None
    held = []
    while arrived < size + 4:
        arrived += feed(buffer, b"x" * 1_000_000)
        assert buffer.capacity <= AHEAD_BYTES + max(LARGEST_EXPECTED_BYTES, 2 * arrived)
        assert buffer.pending == arrived
        held.append(buffer.capacity)
    frame = buffer.next_frame()
    assert frame is not None
    assert (len(frame), bytes(frame[-3:]), buffer.pending) == (size, b"xxx", 0)
    assert len(set(held)) < 6


def test_a_second_reply_of_that_size_lands_in_a_buffer_of_its_size() -> None:
    buffer = ReplyBuffer(MAX_REPLY_BYTES)
    size = 20_000_000
    for expected in (LARGEST_EXPECTED_BYTES, size):
        feed(buffer, claims(size) + b"x")
        assert buffer.next_frame() is None
        assert buffer.capacity == AHEAD_BYTES + expected
        feed(buffer, b"x" * (size - 1))
        assert buffer.next_frame() is not None


def test_small_replies_that_nobody_takes_are_kept() -> None:
    buffer = ReplyBuffer(MAX_REPLY_BYTES)
    contents = [bytes([number % 256]) * 1000 for number in range(1000)]
    for content in contents:
        feed(buffer, claims(len(content)) + content)
    assert [bytes(frame) for frame in iter(buffer.next_frame, None)] == contents


def feed(buffer: ReplyBuffer, data: bytes) -> int:
    left = data
    while left:
        room = buffer.writable()
        count = min(len(room), len(left))
        room[:count] = left[:count]
        buffer.received(count)
        left = left[count:]
    return len(data)


def test_a_reply_is_decoded_by_itself() -> None:
    reply: Any = encoded_reply(HeartbeatResponse(error_code=25), HEARTBEAT, 4, 3)[4:]
    assert decode_reply(reply, HEARTBEAT, 4) == (3, HeartbeatResponse(error_code=25))
    with pytest.raises(ProtocolError, match="2 bytes left over"):
        decode_reply(reply + b"\0\0", HEARTBEAT, 4)

"""Requests whose bytes were decoded before are not decoded again, and mean the same."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.headers import RequestHeader, write_request_header
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.wire import ApiMessage, ProtocolError, Reader, Writer

from devtools.suite.cases import naming
from devtools.suite.tiers import examples
from kwire.handlers.apis import Api, UnsupportedRequest
from kwire.handlers.context import Context
from kwire.network.decoding import MAX_BYTES, MAX_SHAPE_BYTES, RequestDecoder, Shapes
from testkit.raw.client import request_frame

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2


@attrs.define(eq=False)
class Scene:
    """Connections that share a memory of requests, and the count of decoded ones."""

    shapes: Shapes = attrs.field(factory=Shapes)
    decoded: int = 0
    produce_versions: range = range(3, 14)

    def connection(self) -> RequestDecoder:
        produce = Api(PRODUCE, "produce", self.produce_versions, repeats=True)
        fetch = Api(FETCH, "fetch", range(4, 19), repeats=True)
        list_offsets = Api(LIST_OFFSETS, "list_offsets", range(1, 12), repeats=True)
        apis = {api.key: api for api in (produce, fetch, list_offsets)}
        for api in apis.values():
            api.functions = self._counting(MESSAGES[api.key].request_class), lambda *_: None
        return RequestDecoder(apis, Context("", "", 0), self.shapes)

    def _counting(self, message: Any) -> Any:
        def read(reader: Reader, version: int) -> Any:
            self.decoded += 1
            return message.read(reader, version)

        return read


def meaning(decoder: RequestDecoder, frame: bytes) -> object:
    """Returns all effects of a frame, in values that can be compared."""
    context = decoder._context
    try:
        _, request, correlation_id = decoder.decode(memoryview(bytearray(frame)))
    except (ProtocolError, UnsupportedRequest) as error:
        return type(error), str(error)
    return request, correlation_id, context.api_key, context.api_version, context.client_id


def produce(*sizes: int, topic: str = "t", acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index, random.Random(size).randbytes(size)) for index, size in enumerate(sizes)]
    return ProduceRequest(None, acks, 30_000, [TopicProduceData(topic, partition_data=data)])


def fetch(offset: int, *, most: int = 1000, **fields: Any) -> FetchRequest:
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=most)
    fields = {"min_bytes": 1, "max_bytes": 1000, "session_epoch": -1, **fields}
    return FetchRequest(topics=[FetchTopic("t", partitions=[partition])], **fields)


def frame_of(request: ApiMessage, version: int, correlation_id: int = 0) -> bytes:
    return request_frame(request, version, correlation_id=correlation_id)[4:]


def test_a_request_with_other_records_of_any_size_is_not_decoded_again() -> None:
    for version in range(3, 13):
        with naming(f"v{version}"):
            scene = Scene()
            connection = scene.connection()
            sizes = [100, 1, 0, 126, 127, 16_382, 16_383, 2_097_150, 100]
            for number, size in enumerate(sizes):
                frame = frame_of(produce(size, 7, size), version, correlation_id=number)
                assert meaning(connection, frame) == (produce(size, 7, size), number, PRODUCE, version, "raw")
            assert scene.decoded == 1


def test_records_whose_size_takes_more_than_three_bytes_are_decoded_as_any() -> None:
    connection = Scene().connection()
    for size in (100, 2_097_151, 3_000_000):
        assert meaning(connection, frame_of(produce(size), 9)) == (produce(size), 0, PRODUCE, 9, "raw")


def test_bytes_behind_the_first_records_are_compared() -> None:
    connection = Scene().connection()
    for index in (1, 2, 2, 1):
        request = produce(10, 10)
        request.topic_data[0].partition_data[1].index = index
        assert meaning(connection, frame_of(request, 9)) == (request, 0, PRODUCE, 9, "raw")


def test_the_same_bytes_mean_another_thing_in_another_version() -> None:
    connection = Scene().connection()
    # Of a compact string the first byte is the length and one more.
    named = produce(10, topic="fifteen letters")
    by_id = produce(10, topic="")
    by_id.topic_data[0].topic_id = b"\x10fifteen letters"
    assert frame_of(named, 12)[4:] == frame_of(by_id, 13)[4:]
    for _ in range(2):
        assert meaning(connection, frame_of(named, 12)) == (named, 0, PRODUCE, 12, "raw")
        assert meaning(connection, frame_of(by_id, 13)) == (by_id, 0, PRODUCE, 13, "raw")


def test_clients_that_share_a_connection_are_distinguished() -> None:
    connection = Scene().connection()
    for client_id in ["one", "two"] * 2:
        frame = request_frame(produce(10), 9, client_id=client_id)[4:]
        assert meaning(connection, frame) == (produce(10), 1, PRODUCE, 9, client_id)


def test_a_request_is_an_object_of_its_own_down_to_its_partitions() -> None:
    connection = Scene().connection()
    frames = [memoryview(bytearray(frame_of(produce(100), 9))) for _ in range(3)]
    first, second, third = [connection.decode(frame)[1] for frame in frames]
    for one, other in [(first, second), (second, third)]:
        assert one == other
        assert one is not other
        assert one.topic_data is not other.topic_data
        assert one.topic_data[0] is not other.topic_data[0]
        assert one.topic_data[0].partition_data[0] is not other.topic_data[0].partition_data[0]
    assert third.topic_data[0].partition_data[0].records.obj is frames[2].obj


def test_a_fast_path_is_made_when_a_request_comes_again() -> None:
    connection = Scene().connection()
    made = []
    connection._apis[PRODUCE].fast_path = lambda shape: made.append(shape)
    for topics in (["short", "a long name"], ["short", "short", "short"], ["a long name", "short"]):
        for topic in topics:
            meaning(connection, frame_of(produce(10, topic=topic), 12))
    assert len(made) == 1


def test_requests_for_one_partition_after_the_other_are_decoded_once_each() -> None:
    scene = Scene()
    connection = scene.connection()
    for _ in range(5):
        for index in range(20):
            request = produce(10)
            request.topic_data[0].partition_data[0].index = index
            assert meaning(connection, frame_of(request, 12)) == (request, 0, PRODUCE, 12, "raw")
    assert scene.decoded == 20


def test_a_question_without_records_is_decoded_once() -> None:
    scene = Scene()
    connection = scene.connection()
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])])
    for number in range(3):
        assert meaning(connection, frame_of(request, 6, number)) == (request, number, LIST_OFFSETS, 6, "raw")
    assert scene.decoded == 1
    longer = frame_of(request, 6) + b"\0"
    assert meaning(connection, longer) == meaning(connection, longer) == (request, 0, LIST_OFFSETS, 6, "raw")


def test_a_fetch_of_another_offset_is_not_decoded_again() -> None:
    for version in (4, 5, 7, 9, 11, 12):
        with naming(f"v{version}"):
            scene = Scene()
            connection = scene.connection()
            frames = [frame_of(fetch(offset), version, 7) for offset in (1000, 0, -1, 1 << 40, 1000)]
            wanted = [meaning(Scene().connection(), frame) for frame in frames]
            assert [meaning(connection, frame) for frame in frames] == wanted
            assert scene.decoded <= 2  # for some offsets the bytes of other fields are the same


def test_only_the_offset_of_a_fetch_may_differ() -> None:
    connection = Scene().connection()
    for request in (fetch(1), fetch(1, most=5), fetch(1, isolation_level=1), fetch(1, max_wait_ms=9), fetch(1)):
        frame = frame_of(request, 12)
        assert meaning(connection, frame) == meaning(Scene().connection(), frame)


def test_a_fetch_of_several_partitions_or_one_that_opens_a_session_is_decoded_each_time() -> None:
    several, first = fetch(1), fetch(1, session_epoch=0)
    several.topics[0].partitions.append(FetchPartition(1, fetch_offset=1, partition_max_bytes=5))
    for request in (several, first):
        scene = Scene()
        connection = scene.connection()
        for _ in range(3):
            meaning(connection, frame_of(request, 12))
        assert scene.decoded == 3


def in_session(epoch: int, offset: int | None, **fields: Any) -> FetchRequest:
    request = fetch(offset or 0, session_id=77, session_epoch=epoch, **fields)
    if offset is None:
        request.topics = []
    return request


def test_fetches_that_continue_a_session_are_decoded_once_with_a_partition_and_once_without() -> None:
    for version in (7, 11, 12):
        with naming(f"v{version}"):
            scene = Scene()
            connection = scene.connection()
            for epoch in range(1, 30):
                request = in_session(epoch, None if epoch % 3 else epoch * 1000)
                assert meaning(connection, frame_of(request, version)) == (request, 0, FETCH, version, "raw")
            assert scene.decoded <= 4  # for some values the bytes of other fields are the same


def test_only_epoch_and_offset_of_a_fetch_in_a_session_may_differ() -> None:
    connection = Scene().connection()
    requests = [in_session(3, 1), in_session(4, 1, most=5), in_session(5, 1, rack_id="r"), in_session(6, None)]
    for request in [*requests, *requests, in_session(7, None, rack_id="r"), *requests]:
        assert meaning(connection, frame_of(request, 12)) == (request, 0, FETCH, 12, "raw")


def test_a_fetch_full_of_the_same_bytes_is_decoded_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, read = [], FetchRequest.read

    def counted(reader: Reader, version: int) -> FetchRequest:
        tries.append(version)
        return read(reader, version)

    monkeypatch.setattr(FetchRequest, "read", staticmethod(counted))
    request = fetch(0)
    request.topics[0].topic = "\0" * 3000
    assert meaning(Scene().connection(), frame_of(request, 12)) == (request, 0, FETCH, 12, "raw")
    assert 1 < len(tries) < 20


def test_a_fetch_that_its_handler_changes_stays_the_same_for_others() -> None:
    connection = Scene().connection()
    for _ in range(3):
        _, request, _ = connection.decode(memoryview(frame_of(fetch(1), 12)))
        assert request == fetch(1)
        request.min_bytes, request.max_bytes = 77, 77


def test_what_one_connection_may_ask_is_not_served_to_another_that_may_not() -> None:
    new, old = Scene(), Scene(produce_versions=range(3, 10))
    old.shapes = new.shapes
    theirs, ours = new.connection(), old.connection()
    assert meaning(ours, frame_of(produce(10), 9)) == (produce(10), 0, PRODUCE, 9, "raw")
    # The versions 9 and 12 have the same bytes.
    assert meaning(theirs, frame_of(produce(10), 12)) == (produce(10), 0, PRODUCE, 12, "raw")
    with pytest.raises(UnsupportedRequest):
        ours.decode(memoryview(frame_of(produce(10), 12)))
    assert meaning(ours, frame_of(produce(10), 9)) == (produce(10), 0, PRODUCE, 9, "raw")


def test_what_is_remembered_is_bounded_and_the_oldest_is_forgotten() -> None:
    scene = Scene()
    connection = scene.connection()
    first = frame_of(produce(10, topic=f"{0:0500}"), 9)
    for number in range(MAX_BYTES // 1000):
        meaning(connection, frame_of(produce(10, topic=f"{number:0500}"), 9))
        assert scene.shapes[PRODUCE].size <= MAX_BYTES
    decoded = scene.decoded
    meaning(connection, frame_of(produce(99, topic=f"{number:0500}"), 9))
    assert scene.decoded == decoded
    meaning(connection, first)
    assert scene.decoded == decoded + 1


def test_what_other_requests_say_does_not_make_it_forget_those_of_producers() -> None:
    scene = Scene()
    producer, consumer = scene.connection(), scene.connection()
    meaning(producer, frame_of(produce(10), 9))
    for number in range(MAX_BYTES // 1000):
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(f"{number:0600}", [])])
        meaning(consumer, frame_of(request, 6))
    decoded = scene.decoded
    meaning(producer, frame_of(produce(99), 9))
    assert scene.decoded == decoded


def test_a_request_that_is_large_without_its_records_is_not_remembered() -> None:
    scene = Scene()
    connection = scene.connection()
    for _ in range(2):
        meaning(connection, frame_of(produce(*[1] * MAX_SHAPE_BYTES), 9))
    assert scene.decoded == 2
    assert scene.shapes[PRODUCE].size == 0


SIZES = st.sampled_from([0, 1, 60, 125, 126, 127, 128, 16_381, 16_382, 16_383])
RECORDS = st.one_of(SIZES.map(bytes), SIZES.map(bytes), st.none())
PARTITIONS = st.lists(st.integers(0, 2).map(PartitionProduceData), min_size=1, max_size=3)
TOPICS = st.lists(
    st.builds(TopicProduceData, st.sampled_from(["t", "u", "long"]), partition_data=PARTITIONS), min_size=1, max_size=2
)
PRODUCES = st.builds(ProduceRequest, st.sampled_from([None, "x"]), st.sampled_from([-1, 0]), st.just(1), TOPICS)
PIECES = st.sampled_from([b"", b"\0", b"\x01", b"\x7f", b"\x80", b"\xff\0"])
NO_EDIT = 0, 0, b""
EDITS = st.just(NO_EDIT) | st.tuples(st.integers(-30, 60), st.integers(0, 2), PIECES)
"""From where on, how many bytes are replaced, and by what."""
CLIENTS = st.sampled_from([None, "", "one", "two"])
FETCHES = st.builds(
    fetch, st.just(0), most=st.sampled_from([0, 5]), session_epoch=st.sampled_from([-1, -1, 0])
) | st.builds(in_session, st.just(1), st.sampled_from([None, 0]), most=st.sampled_from([0, 5]))
EPOCHS = st.sampled_from([1, 2, 1000, 0x7FFFFFFF])
TEMPLATES = st.tuples(PRODUCES, st.sampled_from([3, 8, 9, 12]), CLIENTS) | st.tuples(
    FETCHES, st.sampled_from([4, 7, 11, 12]), CLIENTS
)
OFFSETS = st.sampled_from([0, 1, 5, 1000, 1 << 40, -1])


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Draws frames, each with its connection: few shapes, many times, some of them damaged."""
    templates = draw(st.lists(TEMPLATES, min_size=1, max_size=3))
    frames = []
    for _ in range(draw(st.integers(2, 15))):
        request, version, client_id = draw(st.sampled_from(templates))
        if isinstance(request, FetchRequest):
            for fetched in request.topics:
                fetched.partitions[0].fetch_offset = draw(OFFSETS)
            if request.session_id:
                request.session_epoch = draw(EPOCHS)
                version = max(version, 7)
        else:
            for topic in request.topic_data:
                for data in topic.partition_data:
                    data.records = draw(RECORDS)
        writer = Writer()
        write_request_header(writer, RequestHeader(request.api_key, version, draw(st.integers(0, 3)), client_id))
        request.write(writer, version)
        frame = bytearray(writer.getvalue())
        at, size, piece = draw(EDITS)
        at %= len(frame)
        frame[at : at + size] = piece
        frames.append((draw(st.integers(0, 1)), bytes(frame) + draw(st.sampled_from([b"", b"", b"junk"]))))
    return frames


@settings(max_examples=examples(100), deadline=None)
@given(conversations())
def test_whatever_came_before_a_frame_means_what_it_would_mean_as_the_first(frames: list[tuple[int, bytes]]) -> None:
    scene = Scene()
    connections = [scene.connection(), scene.connection()]
    for number, frame in frames:
        assert meaning(connections[number], frame) == meaning(Scene().connection(), frame)

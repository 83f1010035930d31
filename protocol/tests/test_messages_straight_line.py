"""The straight-line code of the flexible requests: where it leaves its short way, and where its bytes end."""

from __future__ import annotations

from typing import Any

import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.offset_fetch import OffsetFetchRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.wire import ProtocolError, Reader, Writer

from testkit.messages.catalogue import Entry, messages
from testkit.messages.values import most

UUID = bytes(range(16))
# One byte for a size or count, which is one more than what it counts; then two; and for records three.
AROUND_THE_LIMITS = (0, 1, 125, 126, 127, 128, 129, 16381, 16382, 16383, 16384)


def written(value: Any, version: int) -> bytes:
    w = Writer()
    value.write(w, version)
    return w.getvalue()


def produce(name: str = "t", records: bytes | None = b"abc", transactional_id: str | None = None) -> ProduceRequest:
    partitions = [PartitionProduceData(7, records)]
    return ProduceRequest(transactional_id, -1, 1500, [TopicProduceData(name, partition_data=partitions)])


def list_offsets(partitions: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        -1, 1, [ListOffsetsTopic("t", [ListOffsetsPartition(i, 2, 3 * i) for i in range(partitions)])]
    )


def fetch() -> FetchRequest:
    topics = [FetchTopic(topic_id=UUID, partitions=[FetchPartition(i, 3, 1000, -1, 0, 1 << 20, UUID) for i in (1, 2)])]
    return FetchRequest("cluster", -1, ReplicaState(1, 2), topics=topics, rack_id="rack")


@pytest.mark.parametrize("length", AROUND_THE_LIMITS)
def test_strings_of_every_size_are_read(length: int) -> None:
    for text in ("x" * length, "\u00e9" * (length // 2)):
        for value, version in (
            (produce(name=text), 9),
            (produce(transactional_id=text), 9),
            (MetadataRequest([MetadataRequestTopic(name=text)]), 12),
            (FindCoordinatorRequest(coordinator_keys=[text]), 6),
        ):
            assert type(value).read(Reader(written(value, version)), version) == value


@pytest.mark.parametrize("length", AROUND_THE_LIMITS)
def test_records_of_every_size_are_a_slice_that_may_be_written_to(length: int) -> None:
    data = bytearray(written(produce(records=b"r" * length), 9))
    records = ProduceRequest.read(Reader(data), 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records == b"r" * length
    records[:] = b"s" * length
    assert data == written(produce(records=b"s" * length), 9)


@pytest.mark.parametrize("length", AROUND_THE_LIMITS)
def test_arrays_of_every_size_are_read(length: int) -> None:
    request = list_offsets(length)
    assert ListOffsetsRequest.read(Reader(written(request, 7)), 7) == request


def test_nulls_are_read() -> None:
    for value, version in (
        (produce(records=None), 9),
        (MetadataRequest(None), 12),
        (MetadataRequest([MetadataRequestTopic(UUID, None)]), 12),
        (OffsetFetchRequest(groups=[]), 9),
    ):
        assert type(value).read(Reader(written(value, version)), version) == value


def test_sizes_and_counts_written_longer_than_needed_are_read() -> None:
    # transactional id, acks, timeout; a topic, its name; a partition, its index, its records; the empty tags
    lean = bytes.fromhex("00 ffff 000005dc 02 02 74 02 00000007 04 616263 00 00 00")
    long = bytes.fromhex("8000 ffff 000005dc 8200 828000 74 82808000 00000007 848000 616263 8000 8000 80808000")
    assert written(produce(), 9) == lean
    for data in (lean, long):
        r = Reader(data + b"rest")
        assert ProduceRequest.read(r, 9) == produce()
        assert r.remaining == 4


def test_null_where_it_is_not_allowed_is_refused() -> None:
    for data in ("00 ffff 000005dc 00", "00 ffff 000005dc 8000", "00 ffff 000005dc 02 00", "00 ffff 000005dc 02 8000"):
        with pytest.raises(ProtocolError, match="null"):
            ProduceRequest.read(Reader(bytes.fromhex(data) + bytes(50)), 9)


@pytest.mark.parametrize("length", [1, 126, 127, 128])
def test_text_that_is_not_utf8_is_refused(length: int) -> None:
    data = written(produce(name="\u00e9" + "x" * (length - 1)), 9)
    with pytest.raises(ProtocolError, match="UTF-8"):
        ProduceRequest.read(Reader(data.replace(b"\xc3\xa9", b"\xc3\xc3")), 9)


@messages(lambda entry: entry.message.kind == "request" and entry.message.flexible)
def test_a_cut_at_any_byte_is_a_protocol_error(entry: Entry) -> None:
    version = entry.message.versions.high
    data = written(most(entry, version, length=2), version)
    entry.cls.read(Reader(data), version)
    for cut in range(len(data)):
        with pytest.raises(ProtocolError):
            entry.cls.read(Reader(data[:cut]), version)
        with pytest.raises(ProtocolError):
            entry.cls.read(Reader(memoryview(data)[:cut]), version)


def test_a_count_is_bounded_by_the_bytes_and_the_elements_that_are_left() -> None:
    data = written(list_offsets(6), 7)
    assert ListOffsetsRequest.read(Reader(data, 0, 7), 7) == list_offsets(6)
    with pytest.raises(ProtocolError, match="too many elements: 1 more"):
        ListOffsetsRequest.read(Reader(data, 0, 6), 7)
    # 6 partitions of 17 bytes, then the tags of the topic and of the request: no room for 7 of them
    lie = data.replace(b"\x07" + bytes(4), b"\x08" + bytes(4), 1)
    assert lie != data
    with pytest.raises(ProtocolError, match="an array claims 7 elements"):
        ListOffsetsRequest.read(Reader(lie), 7)


def test_what_is_read_in_a_tagged_field_ends_with_it() -> None:
    data = written(fetch(), 17)
    assert FetchRequest.read(Reader(data), 17) == fetch()
    state = b"\x01\x0d" + written(ReplicaState(1, 2), 17)
    assert state in data
    # The bytes of the state are all there, but the field claims one less than it needs for its tags, or for an id.
    for size in (12, 11, 3, 0):
        with pytest.raises(ProtocolError, match="ends within a field"):
            FetchRequest.read(Reader(data.replace(state, b"\x01" + bytes([size]) + state[2:])), 17)


def test_after_tagged_fields_reading_continues_with_the_whole_buffer() -> None:
    # The first partition has a tagged field; what follows it lies beyond the end of that field.
    request = fetch()
    request.topics[0].partitions[1].replica_directory_id = bytes(16)
    request.forgotten_topics_data = [ForgottenTopic(topic_id=UUID, partitions=[1, 2, 3])]
    r = Reader(written(request, 17) + b"rest")
    assert FetchRequest.read(r, 17) == request
    assert (r.remaining, r.end, len(r.buf)) == (4, r.pos + 4, r.pos + 4)


def test_unknown_tagged_fields_within_arrays_are_skipped() -> None:
    request = CreateTopicsRequest([CreatableTopic("a", 1, 1), CreatableTopic("b", 2, 1)], 1000)
    data = written(request, 7)
    first = written(CreateTopicsRequest([CreatableTopic("a", 1, 1)], 1000), 7)[1:-6]
    assert first in data
    with_tags = data.replace(first, first[:-1] + b"\x02" + b"\xc8\x01\x03abc" + b"\xc9\x01\x00")
    assert CreateTopicsRequest.read(Reader(with_tags), 7) == request
    with pytest.raises(ProtocolError):
        CreateTopicsRequest.read(Reader(data.replace(first, first[:-1] + b"\x01\xc8\x01\x7fabc")), 7)

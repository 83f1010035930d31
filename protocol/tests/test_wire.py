"""The primitives: each way in which bytes can be wrong, and what Kafka lets pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.messages.fetch import FetchRequest
from kwire_protocol.messages.produce import PartitionProduceResponse
from kwire_protocol.wire import (
    MAX_ARRAY_LENGTH,
    MAX_TAGGED_FIELDS,
    NULL_UUID,
    OWN_PIECE_BYTES,
    ProtocolError,
    Reader,
    Writer,
    uuid_from_text,
    uuid_to_text,
)


def varint(value: int) -> bytes:
    w = Writer()
    w.unsigned_varint(value)
    return w.getvalue()


@attrs.frozen
class FileRange:
    """A stand-in for a range of a file."""

    size: int


@given(st.integers(0, 2**32 - 1))
def test_varints_survive(value: int) -> None:
    assert Reader(varint(value)).unsigned_varint() == value


def test_a_varint_longer_than_needed_is_accepted() -> None:
    assert Reader(b"\x81\x80\x80\x80\x00").unsigned_varint() == 1


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(ProtocolError, match="five bytes"):
        Reader(b"\x80\x80\x80\x80\x80\x00").unsigned_varint()


NULLS: list[tuple[Callable[[Reader], Any], bytes]] = [
    (Reader.nullable_string, b"\xff\xff"),
    (Reader.nullable_string, b"\x80\x00"),
    (Reader.compact_nullable_string, b"\x00"),
    (Reader.compact_nullable_string, b"\x80\x00"),
    (Reader.nullable_blob, b"\xff\xff\xff\xfe"),
    (Reader.compact_nullable_blob, b"\x00"),
    (Reader.nullable_records, b"\xff\xff\xff\xff"),
    (Reader.compact_nullable_records, b"\x80\x80\x00"),
    (lambda r: r.nullable_count(1), b"\xff\xff\xff\xff"),
    (lambda r: r.compact_nullable_count(1), b"\x80\x00"),
]


@pytest.mark.parametrize(("read", "data"), NULLS)
def test_any_negative_length_is_null(read: Callable[[Reader], Any], data: bytes) -> None:
    r = Reader(data)
    assert read(r) is None
    assert r.remaining == 0


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (Reader.string, b"\xff\xff"),
        (Reader.compact_string, b"\x00"),
        (Reader.compact_string, b"\x80\x00"),
        (Reader.blob, b"\xff\xff\xff\xff"),
        (Reader.compact_blob, b"\x00"),
        (Reader.records, b"\xff\xff\xff\xff"),
        (Reader.compact_records, b"\x00"),
        (lambda r: r.count(1), b"\xff\xff\xff\xff"),
        (lambda r: r.compact_count(1), b"\x00"),
        (lambda r: r.compact_count(1), b"\x80\x00"),
    ],
)
def test_null_where_it_is_not_allowed_is_refused(read: Callable[[Reader], Any], data: bytes) -> None:
    with pytest.raises(ProtocolError, match="null"):
        read(Reader(data + bytes(10)))


@pytest.mark.parametrize("read", [Reader.compact_string, Reader.compact_nullable_string])
@pytest.mark.parametrize("length", [3, 200])
def test_compact_text_that_is_not_utf8_is_refused(read: Callable[[Reader], Any], length: int) -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        read(Reader(varint(length + 1) + b"\xc3" * length))


@pytest.mark.parametrize("read", [Reader.string, Reader.nullable_string])
def test_classic_text_that_is_not_utf8_is_refused(read: Callable[[Reader], Any]) -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        read(Reader(b"\x00\x01\xff"))


def test_a_string_longer_than_kafka_allows_is_refused_in_both_directions() -> None:
    longest = "x" * 32767
    for write, read in ((Writer.string, Reader.string), (Writer.compact_string, Reader.compact_string)):
        w = Writer()
        write(w, longest)
        assert read(Reader(w.getvalue())) == longest
        with pytest.raises(ValueError, match="too long"):
            write(Writer(), longest + "x")
    with pytest.raises(ProtocolError, match="32768"):
        Reader(varint(32769) + bytes(40000)).compact_string()


def test_a_count_is_bounded_by_the_bytes_that_are_left() -> None:
    assert Reader(varint(3) + bytes(8)).compact_count(4) == 2
    lies: list[tuple[Callable[[Reader], Any], bytes]] = [
        (lambda r: r.compact_count(4), varint(4)),
        (lambda r: r.compact_nullable_count(4), varint(4)),
        (lambda r: r.count(1), b"\x7f\xff\xff\xff"),
        (lambda r: r.nullable_count(4), b"\x00\x00\x00\x03"),
        (lambda r: r.compact_count(1), b"\xff\xff\xff\xff\x0f"),
    ]
    for read, lie in lies:
        with pytest.raises(ProtocolError, match="claims"):
            read(Reader(lie + bytes(8)))


def test_arrays_beyond_kafkas_limit_are_refused() -> None:
    enough = bytes(MAX_ARRAY_LENGTH + 1)
    assert Reader(varint(MAX_ARRAY_LENGTH + 1) + enough).compact_count(1) == MAX_ARRAY_LENGTH
    with pytest.raises(ProtocolError, match="limit"):
        Reader(varint(MAX_ARRAY_LENGTH + 2) + enough).compact_count(1)


def test_of_a_repeated_tag_the_last_counts() -> None:
    request = FetchRequest()
    w = Writer()
    request.write(w, 12)
    twice = b"\x02" + b"\x00\x02\x02a" + b"\x00\x02\x02b"
    assert FetchRequest.read(Reader(w.getvalue()[:-1] + twice), 12).cluster_id == "b"


def test_a_tagged_field_must_be_as_long_as_it_claims() -> None:
    w = Writer()
    FetchRequest().write(w, 12)
    for field in (b"\x00\x03\x02ab", b"\x00\x01\x02a"):
        with pytest.raises(ProtocolError):
            FetchRequest.read(Reader(w.getvalue()[:-1] + b"\x01" + field), 12)


def test_a_tagged_field_does_not_reach_beyond_the_message() -> None:
    with pytest.raises(ProtocolError):
        Reader(b"\x01\x07\x05abc").skip_tags()


def test_more_tagged_fields_than_kafka_allows_are_refused() -> None:
    fields = b"\x05\x00" * (MAX_TAGGED_FIELDS + 1)
    Reader(varint(MAX_TAGGED_FIELDS) + fields).skip_tags()
    with pytest.raises(ProtocolError, match="limit"):
        Reader(varint(MAX_TAGGED_FIELDS + 1) + fields).skip_tags()


def test_records_are_a_slice_of_the_buffer_that_may_be_written_to() -> None:
    buffer = bytearray(b"\x04abcrest")
    records = Reader(buffer).compact_records()
    records[0:1] = b"X"
    assert buffer == b"\x04Xbcrest"


def test_large_values_and_regions_are_pieces_of_their_own() -> None:
    large, region = memoryview(bytes(OWN_PIECE_BYTES)), FileRange(100_000)
    w = Writer()
    w.int8(1)
    w.compact_records(large)
    w.nullable_records(region)
    w.records(b"small")
    w.records(FileRange(0))
    w.int8(2)
    start, first, between, second, rest = w.pieces()
    assert first is large
    assert second is region
    assert isinstance(start, memoryview)
    assert bytes(start) == b"\x01" + varint(OWN_PIECE_BYTES + 1)
    assert isinstance(between, memoryview)
    assert bytes(between) == (100_000).to_bytes(4, "big")
    assert isinstance(rest, memoryview)
    assert bytes(rest) == b"\x00\x00\x00\x05small" + bytes(4) + b"\x02"
    assert w.size == 1 + 2 + OWN_PIECE_BYTES + 4 + 100_000 + 9 + 4 + 1
    with pytest.raises(TypeError):
        w.getvalue()


def test_frames_follow_each_other_in_one_writer() -> None:
    w = Writer()
    for content in (b"a", bytes(OWN_PIECE_BYTES), b"bcd"):
        w.begin_frame()
        w.attach(content)
        w.end_frame()
    sizes = (1, OWN_PIECE_BYTES, 3)
    contents = (b"a", bytes(OWN_PIECE_BYTES), b"bcd")
    expected = b"".join(size.to_bytes(4, "big") + content for size, content in zip(sizes, contents, strict=True))
    assert w.getvalue() == expected


def test_a_large_byte_string_in_a_tagged_field_counts_for_its_size() -> None:
    large = b"x" * OWN_PIECE_BYTES
    w = Writer()
    w.no_tags()
    start = w.begin_tag(0, 3)
    w.compact_blob(large)
    w.compact_blob(b"y")
    w.end_tag(start)
    w.int8(7)
    inner = varint(OWN_PIECE_BYTES + 1) + large + b"\x02y"
    assert w.getvalue() == b"\x01\x03" + varint(len(inner)) + inner + b"\x07"


def test_uuids_have_kafkas_text() -> None:
    assert uuid_to_text(NULL_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(b"\xff" * 16) == "_____________________w"
    for wrong in ("", "A" * 21, "A" * 23, "A" * 21 + "!", "AAAAAAAAAA+AAAAAAAAAAA"):
        with pytest.raises(ValueError):
            uuid_from_text(wrong)


@given(st.binary(min_size=16, max_size=16))
def test_uuid_text_is_read_back(uuid: bytes) -> None:
    assert uuid_from_text(uuid_to_text(uuid)) == uuid


def test_a_uuid_of_another_length_is_not_written() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Writer().uuid(b"short")


def test_messages_do_not_share_their_lists() -> None:
    PartitionProduceResponse().record_errors.append(...)  # type: ignore[arg-type]
    assert PartitionProduceResponse().record_errors == []


@pytest.mark.parametrize("read", [lambda r: r.compact_count(1), lambda r: r.compact_nullable_count(1)])
def test_the_elements_of_all_arrays_together_are_bounded(read: Callable[[Reader], Any]) -> None:
    data = (bytes([101]) + bytes(100)) * 11
    reader = Reader(data, 0, max_elements=1000)
    for _ in range(10):
        assert read(reader) == 100
        reader.pos += 100
    with pytest.raises(ProtocolError, match="too many elements"):
        read(reader)

"""Records in and out of batches, and bytes that only look like records."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.record_codec import read_varint, read_varlong, write_varint
from kwire_protocol.records import (
    InvalidBatch,
    Record,
    build_batch,
    check_batch,
    first_record_at_or_after,
    iter_records,
    max_timestamp_record,
    read_header,
    validate_records,
)

from devtools.suite.tiers import examples
from testkit.messages.record_strategies import CODECS, RECORD_LISTS, RECORDS, numbered, patched, with_content, with_crc


@given(records=RECORD_LISTS, codec=CODECS, base_offset=st.integers(0, 2**62))
def test_records_come_back_as_they_went_in(records: list[Record], codec: int, base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=codec)
    header = read_header(batch)
    check_batch(batch, header)
    assert list(iter_records(batch)) == numbered(records, base_offset)
    assert header.last_offset == base_offset + len(records) - 1
    assert header.records_count == len(records)
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.compression == codec


@given(
    records=RECORD_LISTS,
    holes=st.lists(st.integers(0, 2**20), min_size=20, max_size=20),
    tail=st.integers(0, 100),
    horizon=st.none() | st.integers(0, 2**62),
)
def test_what_compaction_leaves_keeps_its_offsets(
    records: list[Record], holes: list[int], tail: int, horizon: int | None
) -> None:
    offset = 50
    kept = []
    for record, hole in zip(records, holes, strict=False):
        offset += hole
        kept.append(record._replace(offset=offset))
        offset += 1
    last_delta = kept[-1].offset - 50 + tail
    batch = build_batch(
        kept, base_offset=50, keep_offsets=True, last_offset_delta=last_delta, delete_horizon_ms=horizon
    )
    header = read_header(batch)
    check_batch(batch, header)
    assert list(iter_records(batch)) == kept
    assert header.next_offset == kept[-1].offset + tail + 1
    assert header.delete_horizon_ms == horizon


def test_header_names_that_are_no_utf_8_come_out_as_they_went_in() -> None:
    content = b"\x16\0\0\0\1\1\2\4\xff\xfe\2v"
    batch = with_content(build_batch([Record()]), content)
    (record,) = iter_records(batch)
    assert build_batch([record])[61:] == content


@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_of_32_bits(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert len(out) <= 5
    assert read_varint(bytes(out), 0) == (value, len(out))
    assert read_varlong(bytes(out), 0) == (value, len(out))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_of_64_bits(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert len(out) <= 10
    assert read_varlong(bytes(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    ("encoded", "value"),
    [("00", 0), ("01", -1), ("02", 1), ("7f", -64), ("8001", 64), ("feffffff0f", 2**31 - 1), ("ffffffff0f", -(2**31))],
)
def test_varints_are_zigzag_little_end_first(encoded: str, value: int) -> None:
    assert read_varint(bytes.fromhex(encoded), 0)[0] == value


def test_varints_too_long_are_refused_and_cut_ones_run_into_the_end() -> None:
    with pytest.raises(InvalidBatch):
        read_varint(b"\xff" * 5 + b"\0", 0)
    with pytest.raises(InvalidBatch):
        read_varlong(b"\xff" * 10 + b"\0", 0)
    with pytest.raises(IndexError):
        read_varint(b"\xff\xff", 0)


CLEAN = {
    None,
    ErrorCode.INVALID_RECORD,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


def read_everything(batch: bytes | bytearray) -> None:
    """Each reader reads the batch or raises an error about it, and nothing else."""
    header = read_header(batch)
    for read in (
        lambda: list(iter_records(batch, max_decompressed_bytes=1 << 20)),
        lambda: validate_records(batch, 0, header, require_keys=True, max_decompressed_bytes=1 << 20),
        lambda: first_record_at_or_after(batch, 0, header, -(2**63), 1 << 20),
        lambda: max_timestamp_record(batch, 0, header, 1 << 20),
    ):
        code = None
        try:
            read()
        except InvalidBatch as error:
            code = error.code
        assert code in CLEAN


@given(records=st.lists(RECORDS, min_size=1, max_size=4), codec=CODECS, data=st.data())
@settings(max_examples=examples(100))
def test_a_spoilt_byte_under_a_right_crc_is_read_or_cleanly_refused(
    records: list[Record], codec: int, data: st.DataObject
) -> None:
    batch = bytearray(build_batch(records, compression=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))
    read_everything(with_crc(batch))


@pytest.mark.parametrize("codec", range(5))
def test_every_byte_spoilt_in_every_codec_is_read_or_cleanly_refused(codec: int) -> None:
    random_bytes = random.Random(codec)
    records = [Record(timestamp=5 * i, key=b"key" * i, value=b"value" * 9, headers=(("h", b"x"),)) for i in range(3)]
    batch = build_batch(records, compression=codec)
    for position in range(21, len(batch)):
        for byte in (0, 0x7F, 0x80, 0xFF, random_bytes.randrange(256)):
            spoilt = bytearray(batch)
            spoilt[position] = byte
            read_everything(with_crc(spoilt))


@pytest.mark.parametrize("codec", range(5))
def test_content_cut_at_every_length_is_invalid(codec: int) -> None:
    records = [Record(timestamp=5 * i, key=b"key" * i, value=b"value" * 9, headers=(("h", b"x"),)) for i in range(3)]
    batch = build_batch(records, compression=codec)
    for size in range(len(batch) - 61):
        cut = with_content(batch, batch[61 : 61 + size], codec=codec)
        with pytest.raises(InvalidBatch):
            list(iter_records(cut))


@given(content=st.binary(max_size=200), codec=st.integers(0, 7), count=st.integers(0, 2**31 - 1))
@settings(max_examples=examples(100))
def test_any_bytes_in_place_of_records_are_read_or_cleanly_refused(content: bytes, codec: int, count: int) -> None:
    read_everything(with_content(build_batch([Record()]), content, codec=codec, count=count))


@pytest.mark.parametrize("lie", [2**31 - 1, -2, -(2**31), 10, 1000])
@pytest.mark.parametrize("field", ["length", "key", "value", "headers", "header name", "header value"])
def test_a_lying_length_anywhere_in_a_record_is_refused_or_null(field: str, lie: int) -> None:
    def number(name: str, value: int) -> bytes:
        out = bytearray()
        write_varint(out, lie if name == field else value)
        return bytes(out)

    body = b"\0\0\0" + number("key", 1) + b"k" + number("value", 1) + b"v"
    body += number("headers", 1) + number("header name", 1) + b"n" + number("header value", 1) + b"v"
    content = number("length", len(body)) + body
    with pytest.raises(InvalidBatch):
        list(iter_records(with_content(build_batch([Record()]), content)))


def test_a_timestamp_beyond_64_bits_goes_round_as_in_java() -> None:
    batch = patched(build_batch([Record(timestamp=0), Record(timestamp=1)]), 27, "q", 2**63 - 1)
    assert [record.timestamp for record in iter_records(batch)] == [2**63 - 1, -(2**63)]


def test_a_count_is_held_against_the_bytes_before_anything_is_made() -> None:
    batch = with_content(build_batch([Record()]), b"\x0c\0\0\0\1\1\0", count=2**31 - 1)
    with pytest.raises(InvalidBatch, match="2147483647 records in 7 bytes"):
        next(iter_records(batch))

"""The 61 bytes in front: read, checked, patched, walked over."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from kwire_protocol.errors import ErrorCode
from kwire_protocol.records import (
    BATCH_HEADER_SIZE,
    CREATE_TIME,
    LOG_APPEND_TIME,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    Record,
    assign,
    build_batch,
    check_batch,
    iter_headers,
    iter_records,
    read_header,
    set_create_time,
    set_log_append_time,
)

from devtools.suite.cases import naming
from testkit.messages.record_strategies import patched

RECORDS = [Record(0, 1000, b"k", b"v"), Record(0, 990, None, b"w"), Record(0, 1010, b"", None)]
BATCH = build_batch(RECORDS)


def test_header_fields_stand_where_kafka_has_them() -> None:
    batch = struct.pack(">qiibIhiqqqhii", 9, 60, 4, 2, 0xFFFFFFFF, 0x7B, 2, 1000, 1010, 77, 5, 2**31 - 2, 3) + bytes(11)
    header = read_header(b"###" + batch, 3)
    assert header == BatchHeader(9, 60, 4, 2, 0xFFFFFFFF, 0x7B, 2, 1000, 1010, 77, 5, 2**31 - 2, 3)
    assert header.size_in_bytes == 72
    assert header.last_offset == 11
    assert header.next_offset == 12
    assert header.compression == 3
    assert header.timestamp_type == LOG_APPEND_TIME
    assert header.is_transactional
    assert header.is_control
    assert header.has_producer_id
    assert header.delete_horizon_ms == 1000
    assert header.last_sequence == 0  # round from 2^31 - 1


def test_a_plain_batch_claims_nothing() -> None:
    header = read_header(BATCH)
    assert header.size_in_bytes == len(BATCH)
    assert header.timestamp_type == CREATE_TIME
    assert not header.is_transactional
    assert not header.is_control
    assert not header.has_producer_id
    assert header.last_sequence == -1
    assert header.delete_horizon_ms is None
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1010)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_read_at_any_position(kind: type) -> None:
    buf = kind(b"\xff" * 5 + BATCH + b"\xff" * 5)
    header = read_header(buf, 5)
    check_batch(buf, header, 5)
    assert [record.value for record in iter_records(buf, 5)] == [b"v", b"w", None]


def test_a_batch_cut_short_is_corrupt_at_every_length() -> None:
    for size in range(len(BATCH)):
        with naming(f"{size} bytes"):
            cut = BATCH[:size]
            with pytest.raises(CorruptBatch) as raised:
                check_batch(cut, read_header(cut))
            assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
            with pytest.raises(CorruptBatch):
                list(iter_records(cut))


def test_every_bit_that_the_crc_covers_is_guarded() -> None:
    for position in range(17, len(BATCH)):
        for bit in range(8):
            spoilt = bytearray(BATCH)
            spoilt[position] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                check_batch(spoilt, read_header(spoilt))


def test_every_bit_in_front_of_the_crc_gives_a_clean_error_or_another_place_in_the_log() -> None:
    for position in range(17):
        for bit in range(8):
            spoilt = bytearray(BATCH)
            spoilt[position] ^= 1 << bit
            if position < 8 or 12 <= position < 16:
                check_batch(spoilt, read_header(spoilt))
            else:
                with pytest.raises(InvalidBatch):
                    check_batch(spoilt, read_header(spoilt))


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 13, 14, 48])
def test_impossible_lengths_are_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch, match="length"):
        read_header(patched(BATCH, 8, "i", length, crc=False))


@pytest.mark.parametrize("magic", [0, 1])
def test_formats_of_before_kafka_0_11_are_no_longer_served(magic: int) -> None:
    with pytest.raises(InvalidBatch, match="format") as raised:
        read_header(patched(BATCH, 16, "b", magic, crc=False))
    assert raised.value.code == ErrorCode.INVALID_RECORD
    with pytest.raises(InvalidBatch, match="format"):
        read_header(patched(BATCH, 16, "b", magic, crc=False)[:26])  # an old message may be that short


@pytest.mark.parametrize("magic", [-128, -1, 3, 127])
def test_unknown_magic_is_corrupt(magic: int) -> None:
    with pytest.raises(CorruptBatch, match="magic"):
        read_header(patched(BATCH, 16, "b", magic, crc=False))


@pytest.mark.parametrize("position", [23, 57])
def test_negative_counts_are_no_batch_of_anybody(position: int) -> None:
    spoilt = patched(BATCH, position, "i", -1)
    with pytest.raises(InvalidBatch) as raised:
        check_batch(spoilt, read_header(spoilt))
    assert raised.value.code == ErrorCode.INVALID_RECORD


def test_a_batch_that_compaction_emptied_is_whole() -> None:
    batch = build_batch([], base_offset=10, last_offset_delta=4, producer_id=3, producer_epoch=0, base_sequence=5)
    header = read_header(batch)
    check_batch(batch, header)
    assert (header.records_count, header.next_offset, header.last_sequence) == (0, 15, 9)
    assert list(iter_records(batch)) == []


def test_assigning_a_place_leaves_the_crc_right() -> None:
    buf = bytearray(b"#" * 3 + BATCH)
    assign(memoryview(buf), 3, 2**62, 2**31 - 1)
    header = read_header(buf, 3)
    check_batch(buf, header, 3)
    assert (header.base_offset, header.partition_leader_epoch) == (2**62, 2**31 - 1)
    assert [record.offset for record in iter_records(buf, 3)] == [2**62, 2**62 + 1, 2**62 + 2]
    assert buf[:3] == b"###"


@pytest.mark.parametrize("kind", [bytearray, lambda buf: memoryview(bytearray(buf))])
def test_log_append_time_is_what_every_reader_sees_until_it_is_taken_off(kind: type) -> None:
    buf = kind(b"#" * 3 + BATCH + b"#" * 9)
    set_log_append_time(buf, 3, 5555)
    header = read_header(buf, 3)
    check_batch(buf, header, 3)
    assert (header.timestamp_type, header.base_timestamp, header.max_timestamp) == (LOG_APPEND_TIME, 1000, 5555)
    assert [record.timestamp for record in iter_records(buf, 3)] == [5555] * 3
    set_create_time(buf, 3)
    header = read_header(buf, 3)
    check_batch(buf, header, 3)
    assert [record.timestamp for record in iter_records(buf, 3)] == [1000, 990, 1010]


def test_headers_are_walked_and_a_torn_tail_is_left_out() -> None:
    second = build_batch(RECORDS[:1], base_offset=3)
    log = BATCH + second
    assert [(pos, header.base_offset) for pos, header in iter_headers(log)] == [(0, 0), (len(BATCH), 3)]
    for cut in range(len(BATCH), len(log)):
        assert [pos for pos, _ in iter_headers(memoryview(log)[:cut])] == [0]
    assert list(iter_headers(b"")) == []


def test_walking_stops_loudly_at_what_is_no_batch() -> None:
    with pytest.raises(CorruptBatch):
        list(iter_headers(BATCH + bytes(BATCH_HEADER_SIZE)))
    with pytest.raises(InvalidBatch):
        list(iter_headers(BATCH + patched(BATCH, 16, "b", 1, crc=False)))
    with pytest.raises(CorruptBatch):
        list(iter_headers(BATCH + patched(BATCH, 8, "i", 20, crc=False)[:40]))


def test_the_crc_is_castagnolis_from_the_attributes_on() -> None:
    assert read_header(BATCH).crc == crc32c(BATCH[21:])
    assert crc32c(b"123456789") == 0xE3069283

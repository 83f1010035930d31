"""The batches that a producer may send, and the codes for others: Apache Kafka 4.3.1's, for these batches.

`UNLIKE_KAFKA` names where kwire differs on purpose.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.record_validation import MAX_RECORD_ERRORS, _validate_in_order
from kwire_protocol.records import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    BatchHeader,
    InvalidBatch,
    Record,
    build_batch,
    check_batch,
    iter_records,
    read_header,
    read_produced_batch,
    validate_records,
)

from testkit.messages.record_strategies import patched, with_content

NOW_MS = 1_700_000_000_000
RECORDS = [Record(0, NOW_MS, b"k", b"v"), Record(0, NOW_MS + 1, None, b"w")]
PLAIN = build_batch(RECORDS)
CORRUPT = ErrorCode.CORRUPT_MESSAGE
INVALID = ErrorCode.INVALID_RECORD


def old_message(magic: int) -> bytes:
    time = struct.pack(">q", NOW_MS) if magic else b""
    body = bytes([magic, 0]) + time + struct.pack(">ii", -1, 3) + b"abc"
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


REFUSED: dict[str, tuple[bytes | bytearray, ErrorCode]] = {
    "nothing": (b"", INVALID),
    "ten bytes": (bytes(10), INVALID),
    "half a header": (PLAIN[:40], INVALID),
    "all but one byte": (PLAIN[:-1], INVALID),
    "half a header of an old message": (old_message(1)[:20], INVALID),
    "half a header of unknown magic": (patched(PLAIN, 16, "b", 7, crc=False)[:40], CORRUPT),
    "half a header of impossible length": (patched(PLAIN, 8, "i", 3, crc=False)[:40], CORRUPT),
    "two batches": (PLAIN + PLAIN, INVALID),
    "an old message behind": (PLAIN + old_message(1), INVALID),
    "zeros behind": (PLAIN + bytes(17), CORRUPT),
    "unknown magic behind": (PLAIN + patched(PLAIN, 16, "b", 7, crc=False), CORRUPT),
    "half of unknown magic behind": (PLAIN + patched(PLAIN, 16, "b", 7, crc=False)[:40], CORRUPT),
    "magic 0": (old_message(0), INVALID),
    "magic 1": (old_message(1), INVALID),
    "two of magic 1": (old_message(1) * 2, INVALID),
    "magic 3": (patched(PLAIN, 16, "b", 3, crc=False), CORRUPT),
    "magic -1": (patched(PLAIN, 16, "b", -1, crc=False), CORRUPT),
    "wrong crc": (patched(PLAIN, 17, "I", 1, crc=False), CORRUPT),
    "base offset": (patched(PLAIN, 0, "q", 5), INVALID),
    "base offset and wrong crc": (patched(patched(PLAIN, 0, "q", 5), 17, "I", 1, crc=False), INVALID),
    "length 13": (patched(PLAIN, 8, "i", 13, crc=False), CORRUPT),
    "length 14": (patched(PLAIN, 8, "i", 14, crc=False), CORRUPT),
    "length 48": (patched(PLAIN, 8, "i", 48, crc=False), CORRUPT),
    "length 49": (patched(PLAIN, 8, "i", 49, crc=False), CORRUPT),
    "length -1": (patched(PLAIN, 8, "i", -1, crc=False), CORRUPT),
    "length -12": (patched(PLAIN, 8, "i", -12, crc=False), CORRUPT),
    "one record more": (patched(PLAIN, 57, "i", 3), INVALID),
    "count -1": (patched(PLAIN, 57, "i", -1), INVALID),
    "last offset delta -1": (patched(PLAIN, 23, "i", -1), INVALID),
    "last offset delta 5": (patched(PLAIN, 23, "i", 5), INVALID),
    "no records": (build_batch([]), INVALID),
    "no records, delta -1": (patched(build_batch([]), 23, "i", -1), INVALID),
    "more records than bytes": (patched(patched(PLAIN, 57, "i", 2**31 - 1), 23, "i", 2**31 - 2), INVALID),
    "a control batch": (build_batch(RECORDS, control=True), INVALID),
    "a producer id without sequence": (build_batch(RECORDS, producer_id=5, producer_epoch=0), INVALID),
    "too large": (build_batch([Record(value=bytes(2000))]), ErrorCode.MESSAGE_TOO_LARGE),
}
UNLIKE_KAFKA: dict[str, tuple[bytes | bytearray, ErrorCode]] = {
    # UNKNOWN_SERVER_ERROR there, for a sum that overflows and an exception that nobody catches.
    "length 2^31-1": (patched(PLAIN, 8, "i", 2**31 - 1, crc=False), INVALID),
    "codec 5": (patched(PLAIN, 21, "h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (patched(PLAIN, 21, "h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
}
TAKEN: dict[str, bytes | bytearray] = {
    "a plain batch": PLAIN,
    "a few bytes behind": PLAIN + b"\1\2\3\4\5",
    "the start of another behind": PLAIN + PLAIN[:50],
    "a leader epoch": patched(PLAIN, 12, "i", 9),
    "an idempotent producer": build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0),
    "a producer id without epoch": build_batch(RECORDS, producer_id=6, base_sequence=0),
    "a sequence without producer id": build_batch(RECORDS, base_sequence=4),
    "producer id -2": build_batch(RECORDS, producer_id=-2),
    "a transaction": build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
    "a delete horizon": patched(PLAIN, 21, "h", 0x40),
    "unknown attributes": patched(PLAIN, 21, "h", -0x8000 | 0x80),
    "a max timestamp that is not the largest": patched(PLAIN, 35, "q", 5),
    "no timestamp": build_batch([Record(value=b"v")]),
    "gzip": build_batch(RECORDS, compression=1),
    "snappy": build_batch(RECORDS, compression=2),
    "lz4": build_batch(RECORDS, compression=3),
    "zstd": build_batch(RECORDS, compression=4),
}


@pytest.mark.parametrize("name", [*REFUSED, *UNLIKE_KAFKA])
def test_is_refused_with_kafkas_code(name: str) -> None:
    batch, code = (REFUSED | UNLIKE_KAFKA)[name]
    with pytest.raises(InvalidBatch) as raised:
        read_produced_batch(memoryview(batch), max_message_bytes=1500)
    assert raised.value.code == code
    assert raised.value.message


HEADER_FIELDS = [
    *((at, "q") for at in (0, 35, 43)),
    *((at, "i") for at in (8, 23, 53, 57)),
    (16, "b"),
    (21, "h"),
    (51, "h"),
]


@pytest.mark.parametrize("field", HEADER_FIELDS, ids=str)
@given(
    value=st.integers(-5, 127),
    max_message_bytes=st.sampled_from([None, len(PLAIN), len(PLAIN) - 1]),
    zstd_allowed=st.booleans(),
    behind=st.sampled_from([b"", b"\0"]),
)
def test_the_short_way_and_the_close_look_agree(
    field: tuple[int, str], value: int, max_message_bytes: int | None, zstd_allowed: bool, behind: bytes
) -> None:
    position, kind = field
    batch = memoryview(bytearray(patched(PLAIN, position, kind, value)) + behind)

    def outcome(look_at: Callable[[], BatchHeader]) -> tuple[int, str] | BatchHeader:
        try:
            return look_at()
        except InvalidBatch as error:
            return error.code, error.message

    def closely() -> BatchHeader:
        return _validate_in_order(batch, read_header(batch), max_message_bytes, zstd_allowed, CREATE_TIME)

    def shortly() -> BatchHeader:
        return read_produced_batch(batch, max_message_bytes=max_message_bytes, zstd_allowed=zstd_allowed)

    assert outcome(shortly) == outcome(closely)


def test_a_null_in_place_of_the_batch_is_refused() -> None:
    with pytest.raises(InvalidBatch) as raised:
        read_produced_batch(None)
    assert raised.value.code == INVALID


@pytest.mark.parametrize("name", TAKEN)
def test_is_taken(name: str) -> None:
    batch = TAKEN[name]
    header = read_produced_batch(memoryview(batch), max_message_bytes=1500)
    assert header == read_header(batch)
    assert validate_records(batch, 0, header, require_keys=False) == []


def test_zstd_needs_produce_version_7() -> None:
    batch = memoryview(build_batch(RECORDS, compression=4))
    with pytest.raises(InvalidBatch) as raised:
        read_produced_batch(batch, zstd_allowed=False)
    assert raised.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    read_produced_batch(memoryview(build_batch(RECORDS, compression=3)), zstd_allowed=False)


def test_the_size_limit_counts_the_whole_batch() -> None:
    read_produced_batch(memoryview(PLAIN), max_message_bytes=len(PLAIN))
    with pytest.raises(InvalidBatch) as raised:
        read_produced_batch(memoryview(PLAIN), max_message_bytes=len(PLAIN) - 1)
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_claiming_append_time_is_refused_by_a_topic_that_has_it_and_ignored_by_one_that_has_not() -> None:
    claiming = patched(PLAIN, 21, "h", 8)
    with pytest.raises(InvalidBatch) as raised:
        read_produced_batch(memoryview(claiming), timestamp_type=LOG_APPEND_TIME)
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP
    with pytest.raises(InvalidBatch) as raised:
        read_produced_batch(memoryview(patched(claiming, 35, "q", -1)))
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP
    header = read_produced_batch(memoryview(claiming))
    assert header == read_header(PLAIN)
    assert claiming == PLAIN


def test_a_compacted_topic_wants_keys() -> None:
    header = read_header(PLAIN)
    assert [error.batch_index for error in validate_records(PLAIN, 0, header, require_keys=True)] == [1]
    assert validate_records(PLAIN, 0, header, require_keys=False) == []
    keyed = build_batch([Record(value=b"v", key=b"")])
    assert validate_records(keyed, 0, read_header(keyed), require_keys=True) == []


def test_timestamps_out_of_range_are_named_and_absent_ones_are_not() -> None:
    batch = build_batch([Record(timestamp=t) for t in (100, -1, 200, 300, 50)])
    errors = validate_records(
        batch, 0, read_header(batch), require_keys=False, min_timestamp_ms=100, max_timestamp_ms=250
    )
    assert [(error.batch_index, error.code) for error in errors] == [
        (3, ErrorCode.INVALID_TIMESTAMP),
        (4, ErrorCode.INVALID_TIMESTAMP),
    ]


def test_offset_deltas_must_count_up() -> None:
    batch = build_batch([Record(5), Record(7), Record(6)], base_offset=5, keep_offsets=True)
    errors = validate_records(batch, 0, read_header(batch), require_keys=False)
    assert [error.batch_index for error in errors] == [1, 2]


def test_a_batch_of_nothing_but_bad_records_is_not_reported_record_by_record() -> None:
    batch = build_batch([Record()] * (MAX_RECORD_ERRORS + 1))
    assert len(validate_records(batch, 0, read_header(batch), require_keys=True)) == MAX_RECORD_ERRORS


RECORD_BYTES = PLAIN[61:]
UNREADABLE: dict[str, bytearray] = {
    "a record too few": with_content(PLAIN, RECORD_BYTES, count=1),
    "a record too many": with_content(PLAIN, RECORD_BYTES + bytes(20), count=4),
    "two bytes behind": with_content(PLAIN, RECORD_BYTES + b"\0\0"),
    "the first record longer": with_content(PLAIN, bytes([RECORD_BYTES[0] + 2]) + RECORD_BYTES[1:]),
    "the first record shorter": with_content(PLAIN, bytes([RECORD_BYTES[0] - 2]) + RECORD_BYTES[1:]),
    "the last record's headers missing": with_content(PLAIN, RECORD_BYTES[:-1] + b"\2"),
    "a negative number of headers": with_content(PLAIN, RECORD_BYTES[:-1] + b"\1"),
    "a header without a name": with_content(build_batch([Record(headers=[("n", b"v")])]), b"\x16\0\0\0\1\1\2\1\2v\0\0"),
    "a number of six bytes": with_content(PLAIN, b"\x80\x80\x80\x80\x80\x01" + RECORD_BYTES[1:]),
    "not gzip": with_content(PLAIN, b"garbage! garbage!", codec=1),
    "not snappy": with_content(PLAIN, b"garbage! garbage!", codec=2),
    "not lz4": with_content(PLAIN, b"garbage! garbage!", codec=3),
    "not zstd": with_content(PLAIN, b"garbage! garbage!", codec=4),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_records_that_lie_are_invalid(name: str) -> None:
    batch = UNREADABLE[name]
    header = read_header(batch)
    check_batch(batch, header)
    with pytest.raises(InvalidBatch) as raised:
        validate_records(batch, 0, header, require_keys=False)
    assert raised.value.code == INVALID
    with pytest.raises(InvalidBatch):
        list(iter_records(batch))

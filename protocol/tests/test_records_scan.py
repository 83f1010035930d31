"""The scan finds what the decoder decodes, and refuses what the decoder refuses, in the same words."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kwire_protocol import record_scan
from kwire_protocol.record_codec import write_varint
from kwire_protocol.record_scan import timestamp_bounds
from kwire_protocol.records import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    BatchHeader,
    InvalidBatch,
    Record,
    RecordScan,
    batch_content,
    build_batch,
    build_subset,
    check_batch,
    decode_records,
    read_header,
    read_timestamps,
    scan_records,
)

from devtools.suite.tiers import examples
from testkit.messages.record_strategies import CODECS, HEADERS, RECORD_LISTS, RECORDS, with_content

# Sizes on both sides of where a varint gets another byte, and plain ones in between.
SIZES = st.sampled_from([0, 1, 10, 50, 57, 58, 62, 63, 64, 65, 70, 120, 8180, 8189, 8190, 8191, 8192])
TIMES = st.sampled_from([-1, 0, 5, 63, 64, 8191, 8192, 10**7, 10**12, 2**62])
NEIGHBOURS = st.lists(
    st.builds(
        Record,
        timestamp=TIMES,
        key=st.none() | SIZES.map(bytes),
        value=st.none() | SIZES.map(bytes),
        headers=st.just(()) | HEADERS,
    ),
    min_size=1,
    max_size=30,
)


def built(records: list[Record], *, base_offset: int, codec: int, stamped: bool) -> bytes:
    return build_batch(
        records,
        base_offset=base_offset,
        compression=codec,
        producer_id=5,
        producer_epoch=2,
        base_sequence=9,
        timestamp_type=LOG_APPEND_TIME if stamped else CREATE_TIME,
        log_append_time=77 if stamped else None,
    )


def scanned(content: bytes, header: BatchHeader) -> Iterator[tuple[int, int, bytes | None, bool]]:
    """Returns offset, timestamp, key, and whether there is a value, of each record."""
    place = 0
    for scan in scan_records(content, header, with_keys=True):
        assert scan.first_index == place
        assert scan.null_keys == [index for index, key in enumerate(scan.keys) if key is None]
        timestamps = read_timestamps(header, content, scan.starts)
        least, most = timestamp_bounds(scan)
        assert all(least <= timestamp <= most for timestamp in timestamps)
        (without_keys,) = [it for it in scan_records(content, header) if it.first_index == place]
        assert without_keys.keys == []
        assert (without_keys.offsets, without_keys.ends) == (scan.offsets, scan.ends)
        assert (without_keys.null_keys, without_keys.null_values) == (scan.null_keys, scan.null_values)
        has_value = [index not in scan.null_values for index in range(len(scan.offsets))]
        yield from zip(scan.offsets, timestamps, scan.keys, has_value, strict=True)
        place += len(scan.offsets)


def decoded(content: bytes, header: BatchHeader) -> Iterator[tuple[int, int, bytes | None, bool]]:
    for record in decode_records(content, header):
        yield record.offset, record.timestamp, record.key, record.value is not None


def assert_agreement(content: bytes, header: BatchHeader) -> None:
    found: list[object] = []
    for read in (scanned, decoded):
        try:
            found.append(list(read(content, header)))
        except InvalidBatch as error:
            found.append((error.code, error.message))
    assert found[0] == found[1]


@given(records=RECORD_LISTS | NEIGHBOURS, codec=CODECS, base_offset=st.integers(0, 2**62), stamped=st.booleans())
def test_the_scan_and_the_decoder_agree_on_every_batch(
    records: list[Record], codec: int, base_offset: int, stamped: bool
) -> None:
    batch = built(records, base_offset=base_offset, codec=codec, stamped=stamped)
    header = read_header(batch)
    content = batch_content(batch, 0, header)
    found = list(scanned(content, header))
    assert found == list(decoded(content, header))
    assert len(found) == len(records)


@given(records=NEIGHBOURS, holes=st.lists(st.sampled_from([0, 0, 0, 1, 63, 8191, 10**6]), min_size=30, max_size=30))
def test_they_agree_on_what_compaction_leaves(records: list[Record], holes: list[int]) -> None:
    offset = 7
    kept = []
    for record, hole in zip(records, holes, strict=False):
        offset += hole
        kept.append(record._replace(offset=offset))
        offset += 1
    batch = build_batch(kept, base_offset=7, keep_offsets=True, delete_horizon_ms=5)
    assert_agreement(batch[61:], read_header(batch))


@given(records=st.lists(RECORDS, min_size=1, max_size=6) | NEIGHBOURS, data=st.data())
@settings(max_examples=examples(150))
def test_they_agree_on_spoilt_bytes(records: list[Record], data: st.DataObject) -> None:
    batch = build_batch(records)
    content = bytearray(batch[61:])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(content), len(content) - 1, len(content) // 2]))
    assert_agreement(bytes(content[:cut]), read_header(batch))


@given(st.binary(max_size=400), st.integers(-1, 40))
@example(b"\x80" * 400, 4)
@example(b"\xff" * 400, 4)
def test_they_agree_on_any_bytes(content: bytes, count: int) -> None:
    assert_agreement(content, read_header(with_content(build_batch([Record()]), content, count=count)))


@pytest.mark.parametrize("key_size", [3, 20, 63, 64, 100, 8000])
def test_a_key_that_ends_behind_its_record_is_refused_whatever_stands_there(key_size: int) -> None:
    record = bytearray(b"\x0c\0\0\0")
    write_varint(record, key_size)
    record = record.ljust(7, b"\0")
    key_end = len(record) - (1 if key_size > 63 else 2) + key_size
    header = read_header(with_content(build_batch([Record()]), b"", count=2))
    following = build_batch([Record()])[61:]
    for first in (*range(0x80, 0x100, 2), 0, 2):
        for second in range(0x80):
            content = bytes(record) + following
            content = content.ljust(key_end, b"\0") + bytes((first, second)) + bytes(10)
            with pytest.raises(InvalidBatch, match="a field of"):
                list(scan_records(content, header))


def test_they_agree_on_every_spoilt_byte_of_neighbours() -> None:
    chance = random.Random(4)
    records = [Record(timestamp=1000 * i, key=b"k" * (60 + i), value=b"v" * (i * 20)) for i in range(6)]
    records.append(Record(timestamp=1, key=None, value=None, headers=(("h", b"x"), ("", None))))
    batch = build_batch(records)
    header = read_header(batch)
    for position in range(len(batch) - 61):
        for byte in (0, 1, 2, 0x7F, 0x80, 0x81, 0xFF, chance.randrange(256)):
            spoilt = bytearray(batch[61:])
            spoilt[position] = byte
            assert_agreement(bytes(spoilt), header)


@given(
    widths=st.lists(st.tuples(*[st.integers(0, 3)] * 5), min_size=1, max_size=5),
    value=st.none() | st.binary(max_size=70),
)
def test_they_agree_on_varints_that_are_longer_than_need_be(
    widths: list[tuple[int, int, int, int, int]], value: bytes | None
) -> None:
    content = bytearray()
    for index, (length, timestamp, offset, key_size, value_size) in enumerate(widths):
        body = bytearray(1)
        body += longer(index, timestamp) + longer(index, offset) + longer(3, key_size) + b"key"
        body += longer(-1 if value is None else len(value), value_size) + (value or b"") + b"\0"
        content += longer(len(body), length) + body
    batch = with_content(build_batch([Record()]), bytes(content), count=len(widths))
    assert_agreement(bytes(content), read_header(batch))
    assert len(list(decoded(bytes(content), read_header(batch)))) == len(widths)


def longer(value: int, by: int) -> bytearray:
    """Returns a varint with that many bytes more than it needs, and no more than five in all."""
    out = bytearray()
    write_varint(out, value)
    for _ in range(min(by, 5 - len(out))):
        out[-1] |= 0x80
        out.append(0)
    return out


@given(records=NEIGHBOURS, most=st.integers(1, 7))
def test_a_batch_of_many_records_comes_in_parts(records: list[Record], most: int) -> None:
    batch = build_batch(records)
    header = read_header(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_scan, "MOST_RECORDS_AT_ONCE", most)
        parts: list[RecordScan] = list(scan_records(batch[61:], header))
        assert [len(it.offsets) for it in parts[:-1]] == [most] * (len(parts) - 1)
        assert [place for it in parts for place in it.bounds_of(range(len(it.ends)))] == list(
            zip(
                [0, *[end for it in parts for end in it.ends][:-1]],
                [end for it in parts for end in it.ends],
                strict=True,
            )
        )
        assert_agreement(batch[61:], header)


@given(
    records=RECORD_LISTS | NEIGHBOURS,
    codec=CODECS,
    horizon=st.none() | st.integers(0, 2**62),
    stamped=st.booleans(),
    data=st.data(),
)
def test_a_subset_has_the_records_that_were_kept_and_the_other_fields_as_before(
    records: list[Record], codec: int, horizon: int | None, stamped: bool, data: st.DataObject
) -> None:
    batch = built(records, base_offset=40, codec=codec, stamped=stamped)
    header = read_header(batch)
    content = batch_content(batch, 0, header)
    (scan,) = scan_records(content, header)
    indexes = sorted(data.draw(st.sets(st.sampled_from(range(len(records))), min_size=1)))
    subset = build_subset(header, content, scan.bounds_of(indexes), delete_horizon_ms=horizon)
    now = read_header(subset)
    check_batch(subset, now)
    all_records = list(decode_records(content, header))
    kept = [all_records[index] for index in indexes]
    assert list(decode_records(batch_content(subset, 0, now), now)) == kept
    assert now.delete_horizon_ms == horizon
    assert now.max_timestamp == max(record.timestamp for record in kept)
    same = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "compression")
    assert [getattr(now, it) for it in same] == [getattr(header, it) for it in same]
    again = build_subset(now, batch_content(subset, 0, now), places_of_all(subset))
    assert again == subset


def places_of_all(batch: bytes) -> list[tuple[int, int]]:
    header = read_header(batch)
    (scan,) = scan_records(batch_content(batch, 0, header), header)
    return scan.bounds_of(range(len(scan.ends)))

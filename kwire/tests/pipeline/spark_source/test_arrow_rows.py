"""Record batches as Arrow columns: the output matches the record codec, for any records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.records import Record, build_batch, iter_records, read_header

from kwire.client.cluster import TopicPartition
from kwire.client.fetching import Batch, CorruptRecords
from kwire.pipeline.spark_source import arrow_rows
from kwire.pipeline.spark_source.arrow_rows import ROWS_AT_ONCE, rows

AT = TopicPartition("topic", 3)
EVERYTHING = 1 << 62


def batch(data: bytes, start: int = 0, stop: int = EVERYTHING) -> Batch:
    return Batch(AT, read_header(data), memoryview(data), start, stop)


def found(batches: list[Batch], *, include_headers: bool = True) -> list[dict[str, object]]:
    return [row for it in rows(batches, include_headers=include_headers) for row in it.to_pylist()]


def expected(batches: list[Batch]) -> list[dict[str, object]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": AT.topic,
            "partition": AT.partition,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": it.header.timestamp_type,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for it in batches
        for record in iter_records(it.data)
        if it.start <= record.offset < it.stop
    ]


def compared(batches: list[Batch]) -> None:
    mine = [
        {**row, "timestamp": stamp}
        for it in rows(batches, include_headers=True)
        for row, stamp in zip(
            it.drop_columns(["timestamp"]).to_pylist(), it["timestamp"].cast("int64").to_pylist(), strict=True
        )
    ]
    assert mine == expected(batches)


octets = st.none() | st.binary(max_size=5) | st.integers(60, 20_000).map(lambda size: b"x" * size)
texts = st.text(max_size=3).filter(lambda text: text.isprintable())
records = st.builds(
    Record,
    timestamp=st.integers(-1, 1 << 42),
    key=octets,
    value=octets,
    headers=st.lists(st.tuples(texts, st.none() | st.binary(max_size=3)), max_size=2),
)


@given(
    st.lists(
        st.tuples(st.lists(records, max_size=6), st.integers(0, 4), st.booleans(), st.integers(0, 1 << 50)), max_size=4
    ),
    st.integers(1, 8),
)
def test_rows_are_what_the_codec_reads(made: list[tuple[list[Record], int, bool, int]], at_once: int) -> None:
    batches: list[Batch] = []
    for its_records, codec, is_stamped, gap in made:
        base = batches[-1].header.next_offset + gap if batches else gap
        data = build_batch(
            its_records,
            base_offset=base,
            compression=codec,
            timestamp_type=int(is_stamped),
            log_append_time=1_700_000_000_000 if is_stamped else None,
        )
        batches.append(batch(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_rows, "ROWS_AT_ONCE", at_once)
        arrow_rows._first_even_numbers.cache_clear()
        compared(batches)
    arrow_rows._first_even_numbers.cache_clear()


def test_offsets_may_have_holes_and_batches_be_cut() -> None:
    kept = [Record(offset, 5, b"k", b"%d" % offset) for offset in (3, 70, 71, 9000, 100_000)]
    data = build_batch(kept, base_offset=3, keep_offsets=True)
    for start, stop in [(0, EVERYTHING), (71, 9001), (4, 70), (100_001, EVERYTHING)]:
        compared([batch(data, start, stop)])


def test_many_small_batches_are_put_together_and_a_large_one_is_not_cut() -> None:
    small = [batch(build_batch([Record(0, n, b"k", b"v")], base_offset=n)) for n in range(ROWS_AT_ONCE + 5)]
    assert [it.num_rows for it in rows(small, include_headers=False)] == [ROWS_AT_ONCE, 5]
    large = batch(build_batch([Record()] * (ROWS_AT_ONCE + 1)))
    assert [it.num_rows for it in rows([small[0], large], include_headers=False)] == [1, ROWS_AT_ONCE + 1]
    compared([large])


def test_a_batch_that_compaction_emptied_has_no_rows() -> None:
    assert found([batch(build_batch([], last_offset_delta=9, keep_offsets=True))]) == []


def test_without_headers_there_is_no_such_column() -> None:
    (only,) = rows([batch(build_batch([Record(headers=[("a", b"1")])]))], include_headers=False)
    assert only.schema == arrow_rows.SCHEMA


def test_a_header_that_is_no_utf8_is_replaced() -> None:
    data = build_batch([Record(headers=[("\udcff", b"1")])])
    assert found([batch(data)])[0]["headers"] == [{"key": "\ufffd", "value": b"1"}]


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_damaged_records_are_reported_or_read_but_break_nothing(its_records: list[Record], data: st.DataObject) -> None:
    """The CRC was checked before; a producer may send anything under a right one."""
    octets = bytearray(build_batch(its_records))
    at = data.draw(st.integers(61, len(octets) - 1))
    octets[at] = data.draw(st.integers(0, 255))
    try:
        found([batch(bytes(octets))])
    except CorruptRecords as error:
        assert "the records of topic-3 from offset 0 on are corrupt" in str(error)  # noqa: PT017 - or it is read


def test_records_stamped_by_the_broker_and_others_may_follow_each_other() -> None:
    some = [Record(0, 1000), Record(0, 1007)]
    batches = [
        batch(build_batch(some, base_offset=0)),
        batch(build_batch(some, base_offset=2, timestamp_type=1, log_append_time=5000)),
        batch(build_batch(some, base_offset=4)),
    ]
    compared(batches)
    compared(batches[1:])


def test_a_time_that_spark_cannot_hold_is_reported() -> None:
    with pytest.raises(CorruptRecords, match="overflow"):
        found([batch(build_batch([Record(0, 1 << 60)]))])


@pytest.mark.parametrize("include_headers", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        b"\x00",  # a record of no bytes
        b"\x0c\x00\x00\x00\x01\x01",  # cut short
        b"\x0c\x00\x00\x00\x01\x01\x00\x00",  # a byte too much
        b"\x0c\x00\x00\x00\x03\x01\x00",  # a key of -2 bytes
        b"\x0c\x00\x00\x00\x01\x14\x00",  # a value longer than its record
        b"\x0c\x00\x00\x00\x14\x01\x00",  # a key longer than its record
        b"\x1a\x00" + b"\xff" * 11 + b"\x00",  # a number without end
    ],
)
def test_wrong_lengths_are_reported(content: bytes, *, include_headers: bool) -> None:
    header = read_header(build_batch([Record()]))
    data = build_batch([Record()])[:61] + content
    header = header._replace(batch_length=len(data) - 12)
    with pytest.raises(CorruptRecords):
        found([Batch(AT, header, memoryview(data), 0, EVERYTHING)], include_headers=include_headers)

"""Finding a record by its timestamp inside a batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.records import (
    LOG_APPEND_TIME,
    InvalidBatch,
    Record,
    build_batch,
    first_record_at_or_after,
    max_timestamp_record,
    read_header,
)

from testkit.messages.record_strategies import CODECS


def batch_of(timestamps: list[int], codec: int = 0) -> bytes:
    return build_batch([Record(timestamp=timestamp) for timestamp in timestamps], base_offset=100, compression=codec)


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=12), st.integers(-2, 52), st.integers(95, 115), CODECS)
def test_finds_what_a_plain_walk_finds(timestamps: list[int], wanted: int, least: int, codec: int) -> None:
    batch = batch_of(timestamps, codec)
    found = first_record_at_or_after(batch, 0, read_header(batch), wanted, min_offset=least)
    fitting = [(100 + i, t) for i, t in enumerate(timestamps) if t >= wanted and 100 + i >= least]
    assert found == (fitting[0] if fitting else None)
    newest = max_timestamp_record(batch, 0, read_header(batch))
    assert newest == (100 + timestamps.index(max(timestamps)), max(timestamps))


def test_a_batch_that_is_too_old_is_not_even_opened() -> None:
    batch = build_batch([Record(timestamp=5)], compression=1)
    header = read_header(batch)._replace(batch_length=10_000)  # opening it would raise
    assert first_record_at_or_after(batch, 0, header, 6) is None
    with pytest.raises(InvalidBatch):
        first_record_at_or_after(batch, 0, header, 5)


def test_under_append_time_every_record_has_the_batchs_time() -> None:
    batch = build_batch([Record(timestamp=5)] * 3, timestamp_type=LOG_APPEND_TIME, log_append_time=70)
    header = read_header(batch)
    assert first_record_at_or_after(batch, 0, header, 70) == (0, 70)
    assert first_record_at_or_after(batch, 0, header, 71) is None
    assert max_timestamp_record(batch, 0, header) == (0, 70)


def test_a_batch_without_records_has_neither() -> None:
    batch = build_batch([], last_offset_delta=3)
    assert first_record_at_or_after(batch, 0, read_header(batch), -1) is None
    assert max_timestamp_record(batch, 0, read_header(batch)) is None


def test_positions_other_than_the_start_are_searched() -> None:
    log = batch_of([1, 2]) + batch_of([7, 9, 8])
    pos = read_header(log).size_in_bytes
    assert first_record_at_or_after(log, pos, read_header(log, pos), 8) == (101, 9)

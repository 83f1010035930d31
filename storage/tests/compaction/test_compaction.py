"""The records that compaction leaves: the latest of each key, at its old offset, and those still needed."""

from __future__ import annotations

import attrs
import pytest
from kwire_protocol.records import Record, build_batch, iter_headers, read_header, scan_records
from kwire_storage.compaction import planning as compaction
from kwire_storage.compaction.offset_map import BYTES_OF_AN_ENTRY, MAX_STORED_KEY_BYTES, OffsetMap
from kwire_storage.config import NEVER
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.log import Log

from testkit.storage.compacting import COMPACTED, all_records, compact, pairs, put, table
from testkit.storage.logs import append_bytes, end_transaction, open_log, read_all


@pytest.fixture
def log() -> Log:
    return open_log(MemoryDisk(), COMPACTED)


def roll(log: Log) -> None:
    log.roll(0)


# Keys


def test_the_latest_record_of_each_key_stays_where_it_was(log: Log) -> None:
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"))
    put(log, ("c", "1"), ("b", "2"), ("a", "3"))
    roll(log)
    assert compact(log) == 6
    assert pairs(log) == [(3, "c", "1"), (4, "b", "2"), (5, "a", "3")]
    assert log.log_start_offset == 0
    assert log.log_end_offset == 6


def test_the_active_segment_is_not_touched_and_its_keys_do_not_count(log: Log) -> None:
    put(log, ("a", "1"))
    roll(log)
    put(log, ("a", "2"), ("a", "3"))
    assert compact(log) == 1
    assert pairs(log) == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(log: Log) -> None:
    put(log, ("a", "1"))
    put(log, ("b", "1"), ("c", "2"), compression=1)
    kept = [piece.read() for _, piece in log.batches(1)]
    put(log, ("a", "2"))
    roll(log)
    compact(log)
    assert [piece.read() for _, piece in log.batches(1)][:1] == kept


@pytest.mark.parametrize("compression", range(5))
def test_a_batch_that_loses_records_keeps_its_offsets_and_its_codec(log: Log, compression: int) -> None:
    put(log, ("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"), compression=compression)
    put(log, ("c", "2"))
    roll(log)
    compact(log)
    header, piece = next(log.batches())
    assert (header.base_offset, header.last_offset, header.records_count) == (0, 3, 2)
    assert header.compression == compression
    assert [offset for offset, _, _ in pairs(log)] == [1, 3, 4]
    assert next(iter_headers(piece.read()))[1] == header


def test_the_last_batch_of_what_was_cleaned_stays_even_without_records(log: Log) -> None:
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    roll(log)
    put(log, ("a", "3"))
    put(log, ("b", "1"))
    roll(log)
    compact(log)
    put(log, ("b", "2"))
    roll(log)
    compact(log)
    assert pairs(log) == [(2, "a", "3"), (4, "b", "2")]
    assert read_all(log)[-1] == (4, 4)


def test_records_without_keys_go(log: Log) -> None:
    append_bytes(log, build_batch([Record(0, 1, None, b"x"), Record(1, 1, b"a", b"1")]))
    roll(log)
    compact(log)
    assert pairs(log) == [(1, "a", "1")]


def test_segments_that_have_become_small_are_joined_by_the_next_cleaning(log: Log) -> None:
    for number in range(60):
        put(log, (f"k{number % 3}", str(number)))
    roll(log)
    before = len(log.segments)
    assert before > 4
    compact(log)
    assert len(log.segments) == before, "it was not known before how small they would become"
    compact(log)
    assert len(log.segments) == 2
    assert table(pairs(log)) == {"k0": "57", "k1": "58", "k2": "59"}
    assert read_all(log)[-1] == (59, 59)


def test_segments_that_do_not_shrink_stay_apart(log: Log) -> None:
    for number in range(60):
        put(log, (f"k{number}", "value"))
    roll(log)
    before = [segment.size for segment in log.segments]
    compact(log)
    assert [segment.size for segment in log.segments] == before
    assert len(pairs(log)) == 60


def test_where_memory_ends_the_rest_waits_for_the_next_cleaning(log: Log) -> None:
    for number in range(30):
        put(log, (f"k{number % 10}", str(number)))
    roll(log)
    cleaned = compact(log, map_bytes=5 * BYTES_OF_AN_ENTRY)
    assert cleaned == 5
    assert len(pairs(log)) == 30
    assert compact(log, map_bytes=10 * BYTES_OF_AN_ENTRY) == 30
    assert [offset for offset, _, _ in pairs(log)] == list(range(20, 30))


def test_a_second_cleaning_reads_the_keys_of_the_dirty_part_only(log: Log) -> None:
    put(log, ("a", "1"), ("b", "1"))
    roll(log)
    compact(log)
    put(log, ("a", "2"))
    roll(log)
    assert compact(log) == 3
    assert pairs(log) == [(1, "b", "1"), (2, "a", "2")]


# Tombstones


def test_a_tombstone_deletes_at_once_and_goes_after_its_retention(log: Log) -> None:
    put(log, ("a", "1"))
    put(log, ("a", None), ("b", "1"))
    roll(log)
    compact(log, now_ms=5000)
    assert pairs(log) == [(1, "a", None), (2, "b", "1")]
    (header,) = [header for header, _ in log.batches()]
    assert header.delete_horizon_ms == 6000
    put(log, ("c", "1"))
    roll(log)
    compact(log, now_ms=5999)
    assert (1, "a", None) in pairs(log)
    put(log, ("d", "1"))
    roll(log)
    compact(log, now_ms=6000)
    assert pairs(log) == [(2, "b", "1"), (3, "c", "1"), (4, "d", "1")]
    assert next(log.batches())[0].delete_horizon_ms == 6000


def test_a_tombstone_that_is_to_stay_for_ever_stays(log: Log) -> None:
    log.config = attrs.evolve(log.config, delete_retention_ms=NEVER)
    put(log, ("a", None), ("b", "1"), timestamp_ms=77)
    roll(log)
    compact(log, now_ms=5000)
    assert next(log.batches())[0].delete_horizon_ms == NEVER
    assert [record.timestamp for record in all_records(log)] == [77, 77]
    put(log, ("b", "2"))
    roll(log)
    compact(log, now_ms=10**15)
    assert pairs(log) == [(0, "a", None), (2, "b", "2")]


def test_the_timestamps_of_records_beside_a_tombstone_stay(log: Log) -> None:
    put(log, ("a", None), ("b", "1"), timestamp_ms=77)
    roll(log)
    compact(log, now_ms=5000)
    assert [record.timestamp for record in all_records(log)] == [77, 77]


# Transactions and producers


def test_records_of_an_aborted_transaction_go_and_those_of_a_committed_one_stay(log: Log) -> None:
    put(log, ("a", "kept"))
    put(log, ("a", "aborted"), ("b", "aborted"), producer_id=1, sequence=0, transactional=True)
    end_transaction(log, 1, commit=False)
    put(log, ("c", "committed"), producer_id=1, sequence=2, transactional=True)
    end_transaction(log, 1, commit=True)
    roll(log)
    compact(log)
    assert pairs(log) == [(0, "a", "kept"), (4, "c", "committed")]


def test_an_open_transaction_is_not_touched(log: Log) -> None:
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    roll(log)
    put(log, ("a", "3"), producer_id=1, sequence=0, transactional=True)
    roll(log)
    dirt = compaction.measure(log, 2, 0)
    assert dirt.end_offset == 2


def test_a_marker_goes_some_time_after_the_last_record_of_its_transaction(log: Log) -> None:
    def markers() -> int:
        return sum(header.is_control and header.records_count > 0 for header, _ in log.batches())

    put(log, ("a", "1"), producer_id=1, sequence=0, transactional=True)
    end_transaction(log, 1, commit=True)
    put(log, ("a", "2"))
    # The producer is not the last that wrote, and has newer data elsewhere: nothing but the rules keeps its marker.
    put(log, ("z", "1"), producer_id=1, sequence=1)
    roll(log)
    compact(log, now_ms=0)
    assert markers() == 1, "its transaction had a record"
    for number, now_ms in enumerate((5000, 5999, 6000)):
        put(log, ("b", str(number)), producer_id=1, sequence=2 + number)
        roll(log)
        compact(log, now_ms=now_ms)
        assert markers() == (now_ms < 6000)


def test_a_reader_of_committed_data_still_hears_of_an_aborted_transaction_while_its_marker_is_there(log: Log) -> None:
    put(log, ("a", "aborted"), producer_id=1, sequence=0, transactional=True)
    end_transaction(log, 1, commit=False)
    put(log, ("b", "1"), producer_id=1, sequence=1)
    roll(log)
    compact(log)
    assert [aborted[:3] for aborted in log.segments[0].aborted] == [(1, 0, 1)]
    put(log, ("b", "2"), producer_id=1, sequence=2)
    roll(log)
    compact(log)
    assert log.segments[0].aborted == []


def test_the_last_batch_of_each_producer_stays_for_its_sequences(log: Log) -> None:
    put(log, ("a", "1"), producer_id=1, sequence=0)
    put(log, ("a", "2"), ("a", "3"), producer_id=1, sequence=1)
    put(log, ("a", "4"))
    put(log, ("b", "1"))
    roll(log)
    compact(log)
    assert pairs(log) == [(3, "a", "4"), (4, "b", "1")]
    (header,) = [header for header, _ in log.batches() if header.producer_id == 1]
    assert (header.base_offset, header.base_sequence, header.last_sequence, header.records_count) == (1, 1, 2, 0)
    log.producer_state.drop_snapshots_above(-1)
    log.producer_state.forget()
    assert log.producers.entries[1].last_sequence == 2


def test_an_emptied_batch_is_not_the_newest_record(log: Log) -> None:
    put(log, ("b", "1"), timestamp_ms=50)
    put(log, ("a", "1"), timestamp_ms=99, producer_id=1, sequence=0)
    put(log, ("a", "2"), timestamp_ms=60)
    roll(log)
    compact(log)
    (emptied,) = [header for header, _ in log.batches() if not header.records_count]
    assert emptied.max_timestamp == 99
    assert log.segments[0].largest_timestamp == 60
    log.segments[0].rebuild()
    assert log.segments[0].largest_timestamp == 60
    newest = log.max_timestamp_offset(max_offset=3)
    assert newest is not None
    assert newest[:2] == (60, 2)
    assert log.offset_for_timestamp(70, max_offset=3) is None


# What may be cleaned


def test_dirt_is_measured_in_bytes_of_whole_segments(log: Log) -> None:
    put(log, ("a", "1"))
    roll(log)
    put(log, ("a", "2"))
    roll(log)
    put(log, ("a", "3"))
    first, second = log.segments[0].size, log.segments[1].size
    assert compaction.measure(log, 3, 0)[:4] == (0, 2, 0, first + second)
    log.cleaned_offset = 1
    assert compaction.measure(log, 3, 0)[:4] == (1, 2, first, second)
    assert compaction.measure(log, 3, 0).ratio == second / (first + second)
    log.cleaned_offset = 2
    assert compaction.measure(log, 3, 0)[:4] == (2, 2, first + second, 0)
    log.cleaned_offset = 99
    assert compaction.measure(log, 3, 0).first_dirty_offset == 0, "a checkpoint beyond the log means nothing"


def test_records_that_are_younger_than_the_lag_are_not_cleaned() -> None:
    log = open_log(MemoryDisk(), attrs.evolve(COMPACTED, min_compaction_lag_ms=100))
    for timestamp_ms in (1000, 2000):
        put(log, ("a", str(timestamp_ms)), timestamp_ms=timestamp_ms)
        roll(log)
    assert compaction.measure(log, 2, 2050).end_offset == 1
    assert compaction.measure(log, 2, 2100).end_offset == 2
    assert compaction.measure(log, 2, 2050).dirty_since_ms == 1000


def test_dirt_is_as_old_as_the_segment_that_was_begun_first_and_has_no_age_without_timestamps(log: Log) -> None:
    put(log, ("a", "1"), timestamp_ms=-1)
    roll(log)
    assert compaction.measure(log, 1, 0).dirty_since_ms is None
    for timestamp_ms in (700, 500, 900):
        put(log, ("a", "2"), timestamp_ms=timestamp_ms)
        roll(log)
    assert compaction.measure(log, 4, 0).dirty_since_ms == 500


def test_a_truncated_log_is_not_clean_beyond_its_new_end(log: Log) -> None:
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    put(log, ("b", "1"))
    roll(log)
    assert compact(log) == 3
    log.truncate_to(2)
    assert log.cleaned_offset == 2


# The map of keys


def noted(keys: OffsetMap, offset: int, *batch: bytes) -> bool:
    """Takes in a batch of records with these keys. Returns whether there was room."""
    built = build_batch([Record(0, 0, key, b"v") for key in batch], base_offset=offset)
    header = read_header(built)
    return all(keys.add(scan) for scan in scan_records(built[61:], header, with_keys=True))


def test_long_keys_cost_no_more_than_short_ones_and_are_not_confused() -> None:
    keys = OffsetMap(10**6, 0)
    long = b"x" * 1000
    assert noted(keys, 1, long, long + b"y", b"x" * MAX_STORED_KEY_BYTES)
    assert [keys.latest(key) for key in (long, long + b"y", b"x" * MAX_STORED_KEY_BYTES, b"other")] == [1, 2, 3, -1]
    assert all(len(key) <= MAX_STORED_KEY_BYTES + 1 for key in keys._latest)


def test_a_full_map_still_takes_new_offsets_of_keys_that_it_has() -> None:
    keys = OffsetMap(2 * BYTES_OF_AN_ENTRY, 0)
    assert noted(keys, 1, b"a", b"b")
    assert not noted(keys, 3, b"c")
    assert noted(keys, 4, b"a", b"a")
    assert (keys.latest(b"a"), keys.latest(b"c")) == (5, -1)
    assert not noted(keys, 6, b"b", b"c", b"a")
    assert (keys.latest(b"b"), keys.end_offset) == (6, 7)

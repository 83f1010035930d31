"""Cleaned segments take the place of others while the log is used, and whatever becomes of it meanwhile."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from kwire_storage.compaction import planning as compaction
from kwire_storage.compaction import swap
from kwire_storage.compaction import writing as compaction_writing
from kwire_storage.compaction.planning import Compaction
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError
from kwire_storage.log.log import Log

from testkit.storage.compacting import COMPACTED, all_records, compact, exchange, pairs, put, steps, table
from testkit.storage.descriptors import descriptors_of
from testkit.storage.logs import append, open_log, read_all


@pytest.fixture
def log() -> Log:
    return open_log(FaultyDisk(), COMPACTED)


def roll(log: Log) -> None:
    log.roll(0)


def leftovers(log: Log) -> list[str]:
    return [name for name in log.disk.listdir(log.path) if name.endswith((".swap", ".cleaned"))]


def test_a_segment_that_retention_took_meanwhile_does_not_come_back(log: Log) -> None:
    for number in range(60):
        put(log, (f"k{number % 3}", str(number)))
    roll(log)
    cleaning = steps(log)
    log.advance_log_start(log.segments.bases[2])
    start = log.log_start_offset
    exchange(log, cleaning)
    assert log.segments.bases[0] == start
    assert leftovers(log) == []
    assert log.cleaned_offset == 60, "what is gone cannot be dirty"
    # The last groups were cleaned nevertheless.
    assert [offset for offset, _, _ in pairs(log)] == [57, 58, 59]


def test_a_reader_in_the_middle_of_an_old_segment_reads_on(log: Log) -> None:
    for number in range(30):
        put(log, (f"k{number % 3}", str(number)))
    roll(log)
    piece = log.read(0, max_bytes=10**6, max_offset=30)
    before = piece.read()
    compact(log)
    assert piece.read() == before


def test_a_damaged_segment_is_left_as_it_is(log: Log) -> None:
    for number in range(30):
        put(log, (f"k{number % 3}", str(number)))
    roll(log)
    path = log.segments[0].path + ".log"
    data = bytearray(log.disk.read_bytes(path))
    data[70] ^= 1
    log.disk.write_bytes(path, bytes(data))
    log.flush()
    cleaning = Compaction.begin(log, compaction.measure(log, 30, 0), now_ms=0, map_bytes=10**6)
    with pytest.raises(CorruptLogError, match=r"00000\.log at 0: CORRUPT_MESSAGE: the stored CRC"):
        list(cleaning.write())
    swap.discard(log, cleaning)
    assert leftovers(log) == []


def test_what_retention_took_in_part_is_left_as_it_is_and_is_still_dirty(log: Log) -> None:
    for number in range(40):
        put(log, (f"k{number}", "a value that only makes it larger"))
    roll(log)
    compact(log)
    for number in range(40):
        put(log, (f"k{number}", None), ("other", str(number)))
    roll(log)
    compact(log, now_ms=10)
    put(log, ("k0", "again"))
    roll(log)
    cleaning = steps(log, now_ms=20)
    group = next(group for group in cleaning.groups if len(group.segments) > 1)
    log.advance_log_start(group.segments[1].base_offset)
    cleaned, before = log.cleaned_offset, pairs(log)
    exchange(log, cleaning)
    assert set(group.segments[1:]) <= set(log.segments)
    assert leftovers(log) == []
    assert log.cleaned_offset == cleaned
    assert table(pairs(log)) == table(before)


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_a_truncation_takes_between_the_two_halves_of_an_exchange_does_not_come_back(
    log: Log, is_killed: bool
) -> None:
    for number in range(60):
        put(log, (f"k{number}", "a value that only makes it larger"))
    roll(log)
    cleaning = steps(log)
    swap.begin(log, cleaning)
    swap.commit(cleaning)
    list(swap.replace(log, cleaning, 0))
    swap.sync(cleaning)
    assert len(pairs(log)) == 60, "readers are not to notice"
    log.truncate_to(log.segments.bases[2])
    kept, end_offset = pairs(log), log.log_end_offset
    if not is_killed:
        list(swap.finish(log, cleaning))
        swap.sync(cleaning)
        swap.conclude(log, cleaning, 0)
        assert leftovers(log) == []
        assert log.cleaned_offset <= end_offset
    again = open_log(log.disk, COMPACTED, clean=False)  # the same files, without what is in memory
    assert pairs(again) == kept
    assert again.log_end_offset == end_offset


@pytest.mark.parametrize("replaces", [False, True])
def test_segments_that_are_deleted_during_an_exchange_go_at_its_end(log: Log, replaces: bool) -> None:
    for number in range(60):
        put(log, (f"k{number % 40}", "a value that only makes it larger"), producer_id=7, sequence=number)
    roll(log)
    before, recovery_point = pairs(log), 60
    cleaning = steps(log)
    swap.begin(log, cleaning)
    swap.commit(cleaning)
    if replaces:
        list(swap.replace(log, cleaning, 0))
    bases = log.segments.bases.copy()
    log.advance_log_start(60)
    assert pairs(log) == []
    assert log.apply_retention(10**9, 60) == 0
    assert log.segments.bases == bases
    # A kill finds all of it, or none.
    again = open_log(log.disk, COMPACTED, clean=False, recovery_point=recovery_point)
    assert table(pairs(again)) == table(before)
    again = open_log(log.disk, COMPACTED, clean=False, recovery_point=recovery_point, log_start_offset=60)
    assert pairs(again) == []
    assert again.producers.entries[7].last_sequence == 59


def test_with_the_end_of_an_exchange_what_is_below_the_log_start_goes(log: Log) -> None:
    for number in range(60):
        put(log, (f"k{number % 40}", "a value that only makes it larger"))
    roll(log)
    cleaning = steps(log)
    swap.begin(log, cleaning)
    log.advance_log_start(60)
    exchange(log, cleaning)
    assert log.segments.bases == [60]
    assert leftovers(log) == []
    assert log.cleaned_offset == 60


def test_a_producer_is_known_behind_segments_that_are_missing(log: Log) -> None:
    for number in range(60):
        put(log, (f"k{number % 40}", "a value that only makes it larger"), producer_id=7, sequence=number)
    cleaning = steps(log)
    recovery_point = log.recovery_point
    swap.commit(cleaning)
    for number in range(60, 80):
        put(log, ("other", "a value that only makes it larger"), producer_id=7, sequence=number)
    roll(log)
    log.advance_log_start(80)  # which does not depend on an exchange of segments
    again = open_log(log.disk, COMPACTED, clean=False, recovery_point=recovery_point, log_start_offset=80)
    assert len(again.segments.bases) > 1, "a segment came back"
    assert again.producers.entries[7].last_sequence == 79
    assert pairs(again) == []
    assert again.log_end_offset == 80


def test_of_a_commit_that_was_not_synced_only_the_beginning_counts(log: Log) -> None:
    for number in range(60):
        put(log, (f"k{number % 40}", "a value that only makes it larger"))
    roll(log)
    before = pairs(log)
    cleaning = steps(log)
    swap.commit(cleaning)
    # The power goes; of the second segment the new name has not reached the medium, of the others it has.
    second = cleaning.groups[1]
    log.disk.rename(second.path + ".log.swap", second.path + ".log.cleaned")
    again = open_log(log.disk, COMPACTED, clean=False)
    assert leftovers(again) == []
    untouched = second.segments[0].base_offset
    assert [row for row in pairs(again) if row[0] >= untouched] == [row for row in before if row[0] >= untouched]
    assert [row for row in pairs(again) if row[0] < untouched] != [row for row in before if row[0] < untouched]
    assert table(pairs(again)) == table(before)


def test_a_swap_that_apache_kafka_left_without_indexes_is_brought_to_its_end(log: Log) -> None:
    for number in range(60):
        put(log, (f"k{number % 40}", "a value that only makes it larger"))
    roll(log)
    cleaning = steps(log)
    swap.commit(cleaning)
    for group in cleaning.groups:
        for suffix in (".log", ".index", ".timeindex", ".index.swap", ".timeindex.swap", ".txnindex.swap"):
            log.disk.remove(group.path + suffix)
    again = open_log(log.disk, COMPACTED, clean=False)
    assert len(pairs(again)) == 40
    assert leftovers(again) == []


def test_a_deleted_key_does_not_come_back_however_often_half_of_an_exchange_is_lost(log: Log) -> None:
    put(log, ("a", "1"), ("x" * 600, "1"))
    roll(log)
    put(log, ("a", None), ("y" * 600, "1"))
    roll(log)
    put(log, ("b", "1"))
    for now_ms in (0, 5000, 10_000, 15_000):
        cleaning = steps(log, now_ms=now_ms)
        assert [len(group.segments) for group in cleaning.groups] == [1, 1]
        swap.commit(cleaning)
        # The power goes, and of the two renames only the second has reached the medium.
        log.disk.remove(f"{log.path}/00000000000000000000.log.swap")
        log = open_log(log.disk, COMPACTED, clean=False)
        assert "a" not in table(pairs(log))
    assert (0, "a", "1") in pairs(log)
    for now_ms in (20_000, 25_000):
        compact(log, now_ms=now_ms)
        put(log, ("c", str(now_ms)))
        roll(log)
    assert [key for _, key, _ in pairs(log) if key == "a"] == []


def test_names_and_indexes_are_on_the_medium_when_all_is_done(log: Log) -> None:
    for number in range(60):
        put(log, (f"k{number}", "value"))
    roll(log)
    put(log, ("k1", "2"))
    log.flush()
    compact(log)
    names = set(log.disk.disk.crash().listdir(log.path))  # type: ignore[attr-defined]
    for base in log.segments.bases[:-1]:
        assert {f"{base:020d}.log", f"{base:020d}.index", f"{base:020d}.timeindex"} <= names
    # Of the producers, too: it is where a recovery begins.
    assert {f"{base:020d}.snapshot" for base in log.segments.bases[1:]} <= names
    for segment in log.segments.sealed():
        assert log.disk.size(segment.path + ".index") == len(segment.index) * 8 > 0


def test_a_cleaning_has_few_files_open_however_many_segments_there_are(tmp_path: Path) -> None:
    log = open_log(RealDisk(tmp_path), attrs.evolve(COMPACTED, segment_bytes=200))
    for number in range(200):
        put(log, (f"k{number}", "a value"))
    roll(log)
    log.close()
    log = open_log(log.disk, log.config)
    assert len(log.segments) > 40
    before = descriptors_of(tmp_path)
    cleaning = Compaction.begin(log, compaction.measure(log, 200, 0), now_ms=0, map_bytes=10**6)
    assert max(descriptors_of(tmp_path) - before for _ in cleaning.write()) == 2
    exchange(log, cleaning)
    assert descriptors_of(tmp_path) == before
    assert len(all_records(log)) == 200


def test_a_cleaning_that_is_given_up_keeps_no_file_open(tmp_path: Path) -> None:
    log = open_log(RealDisk(tmp_path), COMPACTED)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    roll(log)
    log.flush()
    log.close()
    log = open_log(log.disk, log.config)
    before = descriptors_of(tmp_path)
    cleaning = Compaction.begin(log, compaction.measure(log, 2, 0), now_ms=0, map_bytes=10**6)
    writing = cleaning.write()
    for _ in range(3):  # two read the keys, the third has begun to write
        next(writing)
    assert descriptors_of(tmp_path) > before
    writing.close()
    assert descriptors_of(tmp_path) == before


def test_a_segment_that_could_grow_too_large_gets_its_delete_horizon_later(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(log, ("a", "1"), ("b", None))
    roll(log)
    monkeypatch.setattr(compaction_writing, "MAX_BYTES_IN_SEGMENT", log.segments[0].size + 10)
    compact(log, now_ms=100)
    assert [header.delete_horizon_ms for header, _ in log.batches()] == [None]
    assert pairs(log) == [(0, "a", "1"), (1, "b", None)]
    monkeypatch.undo()
    put(log, ("a", "2"))
    roll(log)
    compact(log, now_ms=100)
    assert [header.delete_horizon_ms for header, _ in log.batches()] == [1100, None]


def test_holes_are_no_loss_to_a_recovery_when_the_topic_is_no_longer_compacted(log: Log) -> None:
    for number in range(40):
        put(log, (f"k{number}", "a value that only makes it larger"))
    for number in range(40):
        put(log, (f"k{number % 20}", "a value that only makes it larger"))
    roll(log)
    log.flush()
    compact(log)
    expected = pairs(log)
    assert read_all(log)[0][0] > 0
    plain = attrs.evolve(COMPACTED, cleanup_policy="delete", retention_ms=-1)
    again = Log.open(
        log.disk.disk.kill(),  # type: ignore[attr-defined]
        log.path,
        plain,
        now_ms=0,
        clean_shutdown=False,
        cleaned_offset=log.cleaned_offset,
    )
    assert pairs(again) == expected
    assert again.cleaned_offset == 80


@pytest.mark.parametrize("known_by", ["the recovery point", "the cleaner's checkpoint", "holes within", "nothing"])
def test_what_compaction_took_from_the_end_of_a_segment_is_no_loss(known_by: str) -> None:
    log = open_log(MemoryDisk(), attrs.evolve(COMPACTED, segment_bytes=500))
    for _ in range(10):
        append(log, 2, size=20)
    second, count = log.segments.bases[1], len(log.segments)
    segment = log.segments[0]
    places = [position for position, _ in segment.headers(0)]
    data = segment.file.read(0, places[-1])
    if known_by == "holes within":
        data = data[: places[1]] + data[places[2] :]
    log.close()
    log.disk.write_bytes(f"{segment.path}.log", data)
    log = Log.open(
        log.disk,
        log.path,
        log.config,
        now_ms=0,
        clean_shutdown=False,
        recovery_point=second if known_by == "the recovery point" else 0,
        cleaned_offset=second if known_by == "the cleaner's checkpoint" else 0,
    )
    assert log.recovery is not None
    assert log.recovery.deleted_segments == (count - 1 if known_by == "nothing" else 0)
    assert (log.log_end_offset == 20, second in [base for base, _ in read_all(log)]) == (known_by != "nothing",) * 2

"""The index files of a segment that is appended to, as tools find them in the folder of a running broker."""

from __future__ import annotations

import errno
from pathlib import Path

import attrs
import pytest
from kwire_storage import names
from kwire_storage.disk.files import Disk, RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import StorageError
from kwire_storage.log.index import OffsetIndex, TimeIndex
from kwire_storage.log.log import Log, LogConfig
from kwire_storage.log.segment_files import MOST_HIDDEN_ENTRIES
from kwire_storage.producers.txn_index import AbortedTxn, decode_aborted, encode_aborted

from testkit.storage.descriptors import open_below
from testkit.storage.logs import append, end_transaction, open_log

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=150)
"""A batch of these tests has an index entry each, but for the first two."""


def content(log: Log, suffix: str) -> bytes:
    return log.disk.read_bytes(log.active.path + suffix)


def assert_shown(log: Log) -> None:
    """Checks that the files have the first entries that are in memory, and nothing else."""
    segment = log.active
    index, times = content(log, names.INDEX), content(log, names.TIME_INDEX)
    assert segment.index.to_bytes().startswith(index)
    assert segment.time_index.to_bytes().startswith(times)
    hidden = len(segment.index) - len(OffsetIndex.from_bytes(index))
    assert hidden <= min(MOST_HIDDEN_ENTRIES, len(segment.index) // 4 + 1)
    assert len(TimeIndex.from_bytes(times)) >= len(segment.time_index) - hidden
    assert len(index) % 8 == len(times) % 12 == 0
    if segment.aborted or log.disk.exists(segment.path + names.TXN_INDEX):
        assert content(log, names.TXN_INDEX) == encode_aborted(segment.aborted)


def test_a_log_has_its_index_files_from_the_first_record_on() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    append(log, 1)
    assert (content(log, names.INDEX), content(log, names.TIME_INDEX)) == (b"", b"")
    assert not log.disk.exists(log.active.path + names.TXN_INDEX)
    log.roll(0)
    assert (content(log, names.INDEX), content(log, names.TIME_INDEX)) == (b"", b"")


def test_the_files_of_an_active_segment_have_nearly_all_entries_at_any_time() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    for number in range(700):
        append(log, 1, size=100, timestamp_ms=number)
        assert_shown(log)
    assert len(content(log, names.INDEX)) >= 8 * (len(log.active.index) - MOST_HIDDEN_ENTRIES) > 0


def test_entries_are_written_several_at_a_time() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    append(log, 1)
    writes: list[str] = []
    disk.before_operation = lambda operation, path: writes.append(path) if operation == "append" else None
    for number in range(1000):
        append(log, 1, size=100, timestamp_ms=number)
    assert writes.count(log.active.path + names.INDEX) < 35
    assert writes.count(log.active.path + names.TIME_INDEX) < 35


def test_batches_of_a_leader_show_their_entries_too() -> None:
    leader, follower = (open_log(MemoryDisk(), CONFIG) for _ in range(2))
    for number in range(100):
        append(leader, 1, size=100, timestamp_ms=number)
    for _, piece in leader.batches():
        follower.append_as_is(piece.read())
        assert_shown(follower)


def test_an_aborted_transaction_is_in_its_file_at_the_abort() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    for number in range(4):
        append(log, 1, producer_id=1, sequence=number, transactional=True)
        end_transaction(log, 1, commit=number % 2 == 0)
        assert_shown(log)
    assert decode_aborted(content(log, names.TXN_INDEX)) == [AbortedTxn(1, 2, 3, 4), AbortedTxn(1, 6, 7, 8)]


def test_no_file_stays_open_for_that(tmp_path: Path) -> None:
    log = open_log(RealDisk(tmp_path), CONFIG)
    for number in range(50):
        append(log, 1, size=100, timestamp_ms=number, producer_id=1, sequence=number, transactional=True)
    end_transaction(log, 1, commit=False)
    assert open_below(tmp_path) == [tmp_path / log.active.records_path]
    log.close()


def transact(log: Log, rounds: int = 20) -> None:
    for number in range(rounds):
        append(log, 1, size=100, timestamp_ms=number, producer_id=1, sequence=number, transactional=True)
        end_transaction(log, 1, commit=False)


@pytest.mark.parametrize("offset", [0, 1, 7, 20, 39])
def test_a_truncation_takes_entries_from_the_files(offset: int) -> None:
    log = open_log(MemoryDisk(), CONFIG)
    transact(log)
    log.truncate_to(offset)
    assert_shown(log)
    assert all(it.last_offset < offset for it in decode_aborted(content(log, names.TXN_INDEX)))
    for number in range(30):
        append(log, 1, size=100, timestamp_ms=50 + number)
        assert_shown(log)


def test_a_log_that_starts_over_has_empty_files() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    transact(log)
    log.truncate_fully_and_start_at(1000)
    assert (content(log, names.INDEX), content(log, names.TIME_INDEX)) == (b"", b"")
    transact(log)
    assert_shown(log)


def test_after_a_crash_the_files_have_what_recovery_has_found() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    transact(log)
    # As if a power cut had left an index of more than it left of the records.
    log.active.file.truncate(log.active.index.positions[5])
    after = open_log(disk, CONFIG, clean=False)
    assert after.log_end_offset < 20
    assert_shown(after)
    transact(after)
    assert_shown(after)


def test_after_a_clean_stop_the_files_are_extended() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    transact(log)
    log.close()
    log = open_log(disk, CONFIG)
    append(log, 1, timestamp_ms=500)
    transact(log)
    for number in range(100):
        append(log, 1, size=100, timestamp_ms=1000 + number)
        assert_shown(log)
    assert len(log.active.aborted) == 40


def test_what_is_sealed_or_closed_has_every_entry() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    transact(log)
    sealed = log.active
    log.roll(0)
    assert log.disk.read_bytes(sealed.path + names.INDEX) == sealed.index.to_bytes()
    assert log.disk.read_bytes(sealed.path + names.TIME_INDEX) == sealed.time_index.to_bytes()
    assert decode_aborted(log.disk.read_bytes(sealed.path + names.TXN_INDEX)) == sealed.aborted


def refuse(disk: Disk, code: int, suffix: str) -> None:
    def operate(_operation: str, path: str) -> None:
        if path.endswith(suffix):
            raise OSError(code, "refused")

    assert isinstance(disk, MemoryDisk)
    disk.before_operation = operate


@pytest.mark.parametrize("suffix", [names.INDEX, names.TIME_INDEX, names.TXN_INDEX])
def test_a_full_disk_delays_the_files_and_no_record(suffix: str) -> None:
    disk = MemoryDisk()
    log = open_log(disk, attrs.evolve(CONFIG, segment_bytes=1 << 20))
    append(log, 1)
    refuse(disk, errno.ENOSPC, suffix)
    transact(log)
    assert log.log_end_offset == 41
    disk.before_operation = None
    for number in range(MOST_HIDDEN_ENTRIES + 2):
        append(log, 1, size=100, timestamp_ms=1000 + number)
    assert_shown(log)


def test_a_disk_that_fails_is_reported() -> None:
    disk = MemoryDisk()
    log = open_log(disk, CONFIG)
    append(log, 1)
    refuse(disk, errno.EIO, names.TXN_INDEX)
    append(log, 1, producer_id=1, sequence=0, transactional=True)
    with pytest.raises(StorageError):
        end_transaction(log, 1, commit=False)

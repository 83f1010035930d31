"""The bound on open files and on indexes in memory: held, and visible to the operating system only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
from kwire_storage.config import LogConfig
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import RealDisk, RealFile
from kwire_storage.disk.memory_disk import MemoryFile, TornAppendError
from kwire_storage.disk.open_files import OpenFiles
from kwire_storage.log.log import Log

from testkit.storage.descriptors import descriptors_of
from testkit.storage.logs import append, bases, end_transaction, open_log, open_logs, read_all

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)


class CountingDisk(RealDisk):
    """A disk that records which files were opened for appending."""

    def __init__(self, folder: Path, max_files: int) -> None:
        super().__init__(folder, OpenFiles(max_files))
        self.opened: list[str] = []

    def open_append(self, path: str) -> RealFile:
        self.opened.append(path)
        return super().open_append(path)


def several_logs(disk: CountingDisk, count: int) -> list[Log]:
    return [open_log(disk, CONFIG, path=f"t-{number}") for number in range(count)]


def test_appending_to_more_logs_than_files_may_be_open_keeps_the_bound_and_every_record(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, 4)
    logs = several_logs(disk, 10)
    for _ in range(12):
        for log in logs:
            append(log, 2)
            assert descriptors_of(tmp_path) <= 4
    for log in logs:
        assert len(log.segments) == 3
        assert bases(read_all(log)) == list(range(0, 24, 2))
        assert descriptors_of(tmp_path) <= 4
        log.close()
    for number in range(10):
        log = open_log(disk, CONFIG, path=f"t-{number}")
        assert bases(read_all(log)) == list(range(0, 24, 2))


def test_a_log_that_is_used_all_the_time_keeps_its_file(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, 3)
    busy, *others = several_logs(disk, 9)
    for _ in range(4):
        for log in others:
            append(busy, 1)
            append(log, 1)
    # Once all were found in use, and it was the oldest.
    assert disk.opened.count("t-0/00000000000000000000.log") <= 2
    assert disk.opened.count("t-1/00000000000000000000.log") == 4


def test_a_file_that_was_only_put_aside_is_not_opened_again(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, 2)
    first, second, third = several_logs(disk, 3)
    append(first, 1)
    append(second, 1)
    file = second.active.file
    append(third, 1)  # puts both aside, closes the first
    assert (first.active.is_open, second.active.is_open) == (False, True)
    append(second, 1)
    assert second.active.file is file
    assert disk.opened.count("t-1/00000000000000000000.log") == 1


def test_what_is_being_sent_stays_open(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, 2)
    first, second, third = several_logs(disk, 3)
    append(first, 3)
    piece = first.read(0, max_bytes=1000, max_offset=3)
    data = piece.read()
    append(second, 1)
    append(third, 1)
    assert not first.active.is_open
    assert piece.read() == data
    assert descriptors_of(tmp_path) == 3
    del piece
    assert descriptors_of(tmp_path) == 2


def test_small_pieces_to_be_sent_hold_no_files_where_these_are_short(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, 3)
    logs = several_logs(disk, 8)
    for number, log in enumerate(logs):
        append(log, number + 1)
    pieces = [log.read(0, max_bytes=10_000, max_offset=log.log_end_offset) for log in logs]
    assert descriptors_of(tmp_path) <= 3
    assert [piece.size for piece in pieces] == [log.active.size for log in logs]
    assert [piece.read() for piece in pieces] == [log.active.file.read(0, 10_000) for log in logs]
    large = open_log(disk, path="large-0")
    large.config = attrs.evolve(large.config, segment_bytes=1 << 30)
    append(large, 1, size=300_000)
    assert large.read(0, max_bytes=1 << 20, max_offset=1).file is large.active.file


def test_readers_get_the_same_aborted_transactions_where_files_are_short() -> None:
    listed = []
    for max_files in (1, 100):
        log = open_log(FaultyDisk(OpenFiles(max_files)), attrs.evolve(CONFIG, segment_bytes=5000))
        for number in range(20):
            append(log, 2, producer_id=1, sequence=2 * number, transactional=True)
            end_transaction(log, 1, commit=number % 2 == 0)
        log.roll(0)
        append(log, 1)
        pieces = [(at, log.read(at, max_bytes=300, max_offset=log.log_end_offset)) for at in range(0, 60, 3)]
        listed.append([log.aborted_transactions(at, piece) for at, piece in pieces])
    assert listed[0] == listed[1]
    assert 0 < len(listed[0][10]) < 10


def test_a_deleted_segment_holds_no_file(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, 100)
    log = open_log(disk, CONFIG)
    for _ in range(12):
        append(log, 2)
    read_all(log)
    assert len(disk.open_files) == 3
    log.advance_log_start(log.log_end_offset)
    assert (len(disk.open_files), descriptors_of(tmp_path)) == (1, 1)
    log.close()
    assert (len(disk.open_files), descriptors_of(tmp_path)) == (0, 0)


def test_a_file_with_the_rest_of_a_failed_append_is_not_let_go() -> None:
    disk = FaultyDisk(OpenFiles(1))
    log, other = open_log(disk, CONFIG), open_log(disk, CONFIG, path="other-0")
    append(log, 1)

    def tear(operation: str, path: str) -> None:
        if operation == "append" and path.startswith("orders"):
            raise TornAppendError(30)

    disk.before_operation = tear
    with pytest.raises(OSError, match="Input/output"):
        append(log, 1)
    append(other, 1)
    disk.before_operation = None
    assert read_all(log) == [(0, 0)]
    assert append(log, 1).base_offset == 1
    assert read_all(log) == [(0, 0), (1, 1)]


def test_a_flush_covers_segments_whose_files_are_closed() -> None:
    disk = FaultyDisk(OpenFiles(1))
    log, other = open_log(disk, CONFIG), open_log(disk, CONFIG, path="other-0")
    for _ in range(12):
        append(log, 2)
    append(other, 1)
    append(other, 1)
    assert not any(segment.is_open for segment in log.segments)
    log.flush()
    after = open_log(disk.crash(), CONFIG, clean=False, recovery_point=log.recovery_point)
    assert bases(read_all(after)) == list(range(0, 24, 2))


def test_a_flush_of_an_open_segment_opens_nothing(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, 4)
    log = open_log(disk, CONFIG)
    append(log, 1)
    log.flush()
    append(log, 1)
    flush = log.begin_flush()
    assert flush.records == [log.active.file]
    assert flush.files == []


def test_a_folder_of_many_logs_is_closed_with_a_few_files_open(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, 4)
    folder = LogDir.open(disk, cluster_id="c", node_id=1, directory_id=bytes(16))
    logs = [folder.create_log("t", number, bytes(16), CONFIG, now_ms=0) for number in range(600)]
    for log in logs:
        for _ in range(3):
            append(log, 3)
    most = 0

    def run_all(syncs: list) -> None:  # type: ignore[type-arg]
        nonlocal most
        for sync in syncs:
            sync()
            most = max(most, descriptors_of(tmp_path))

    folder.close(run_all=run_all)
    assert 0 < most < 100
    assert descriptors_of(tmp_path) == 0
    folder = LogDir.open(disk, cluster_id="c", node_id=1, directory_id=bytes(16))
    assert folder.clean_shutdown
    open_logs(folder, CONFIG)
    assert bases(read_all(folder.logs["t", 599])) == [0, 3, 6]
    folder.close()


class CountsReads(FaultyDisk):
    def __init__(self, open_files: OpenFiles) -> None:
        super().__init__(open_files)
        self.reads: list[str] = []

    def read_bytes(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read_bytes(path)


def long_log(open_files: OpenFiles) -> tuple[CountsReads, Log]:
    disk = CountsReads(open_files)
    log = open_log(disk, attrs.evolve(CONFIG, segment_bytes=2000))
    for number in range(200):
        append(log, 2, timestamp_ms=1000 + 10 * number)
    assert len(log.segments) > 8
    log.close()
    disk.reads.clear()
    return disk, open_log(disk, log.config)


def test_indexes_of_segments_that_were_read_are_bounded_and_read_again() -> None:
    disk, log = long_log(OpenFiles(max_index_bytes=500))
    for _ in range(2):
        for offset in range(0, 400, 7):
            assert log.read(offset, max_bytes=1, max_offset=400).base_offset == offset // 2 * 2
            assert disk.open_files.index_bytes <= 500
    assert len(disk.reads) > 2 * 2 * (len(log.segments) - 1)
    roomy, log = long_log(OpenFiles())
    for _ in range(2):
        for offset in range(0, 400, 7):
            log.read(offset, max_bytes=1, max_offset=400)
    assert len([path for path in roomy.reads if path.endswith(".index")]) == len(log.segments)


def test_an_index_that_is_used_again_and_again_stays() -> None:
    disk, log = long_log(OpenFiles(max_index_bytes=1000))
    for offset in range(0, 400, 7):
        log.segments[0].index  # noqa: B018
        log.read(offset, max_bytes=1, max_offset=400)
    assert disk.reads.count("orders-0/00000000000000000000.index") <= 4  # of 58


def test_indexes_that_are_in_no_file_yet_stay() -> None:
    disk = FaultyDisk(OpenFiles(max_index_bytes=1))
    log = open_log(disk, attrs.evolve(CONFIG, segment_bytes=2000))
    for _ in range(200):
        append(log, 2)
    for name in [name for name in disk.listdir("orders-0") if name.endswith("index")]:
        disk.remove(f"orders-0/{name}")
    log = open_log(disk, log.config, clean=False)
    entries = [len(segment.index) for segment in log.segments]
    assert min(entries[:-1]) > 10
    read_all(log)
    log.close()
    assert [disk.size(f"{segment.path}.index") // 8 for segment in log.segments] == entries


def test_indexes_that_have_grown_since_they_were_read_stay() -> None:
    _, log = long_log(OpenFiles(max_index_bytes=300))
    active = log.active
    before = len(active.index)
    while len(active.index) < before + 3:
        append(log, 2)
    assert log.active is active
    for offset in range(0, 400, 7):
        log.read(offset, max_bytes=1, max_offset=400)
    assert len(active.index) == before + 3


def test_logs_recovered_side_by_side_share_the_bound(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, 2)
    for log in several_logs(disk, 8):
        for _ in range(30):
            append(log, 2)
        log.close(clean=False)

    def recover(number: int) -> list[int]:
        log = open_log(disk, CONFIG, path=f"t-{number}", clean=False)
        found = bases(read_all(log))
        append(log, 2)
        log.flush()
        return found

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(recover, range(8)):
            assert found == list(range(0, 60, 2))
    assert descriptors_of(tmp_path) <= 2
    for number in range(8):
        assert read_all(open_log(disk, CONFIG, path=f"t-{number}", clean=False))[-1] == (60, 61)


def test_a_file_in_the_middle_of_an_append_is_not_taken_for_as_short_as_it_was() -> None:
    # Another thread needs room while this one is between its write and its taking note of the new size.
    disk = FaultyDisk(OpenFiles(1))
    log, other = open_log(disk, CONFIG), open_log(disk, CONFIG, path="other-0")
    append(log, 1)
    file = log.active.file
    assert isinstance(file, MemoryFile)
    file._inode.data += b"half a batch"
    append(other, 1)
    append(other, 1)
    assert log.active.file is file

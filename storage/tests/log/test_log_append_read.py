"""Appending and reading by offset, on both disks."""

from __future__ import annotations

import errno
from pathlib import Path

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import build_batch, iter_headers, iter_records, read_header
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.memory_disk import MemoryDisk, TornAppendError
from kwire_storage.errors import OffsetOutOfRange, StorageError
from kwire_storage.log.log import Log, LogConfig

from testkit.storage.disks import both_disks, make_disk
from testkit.storage.logs import SMALL, append, append_bytes, bases, open_log, read_all, records


def test_to_look_through_an_empty_log_makes_no_file() -> None:
    log = open_log(MemoryDisk())
    assert list(log.batches()) == []
    assert list(log.segments.headers_from(0)) == []
    assert log.disk.listdir("orders-0") == []


def test_a_batch_gets_its_offset_and_epoch_in_the_bytes_handed_in() -> None:
    log = open_log(MemoryDisk())
    append(log, 3)
    buffer = memoryview(bytearray(b"before" + build_batch(records(2)) + b"after"))
    batch = buffer[6:-5]
    result = log.append(batch, read_header(batch), leader_epoch=7, now_ms=0)
    assert result == (3, 4, -1)
    header = read_header(buffer, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 7)
    assert buffer.tobytes().startswith(b"before")
    assert buffer.tobytes().endswith(b"after")
    stored = log.read(3, max_bytes=1000, max_offset=5).read()
    assert stored == batch
    assert [record.offset for record in iter_records(stored)] == [3, 4]


@both_disks
def test_log_append_time_stamps_the_batches(kind: str, tmp_path: Path) -> None:
    log = open_log(make_disk(kind, tmp_path), attrs.evolve(SMALL, message_timestamp_type="LogAppendTime"))
    assert append(log, 2, timestamp_ms=5, now_ms=1234) == (0, 1, 1234)
    assert [record.timestamp for record in iter_records(log.read(0, max_bytes=1, max_offset=2).read())] == [1234, 1234]
    found = log.offset_for_timestamp(1000, max_offset=2)
    assert found == (1234, 0, 0)
    assert log.segments[0].largest_timestamp == 1234


@both_disks
def test_every_offset_leads_to_the_batch_that_holds_it(kind: str, tmp_path: Path) -> None:
    log = open_log(make_disk(kind, tmp_path))
    expected = {}
    for count in range(1, 40):
        result = append(log, count % 5 + 1, size=count * 3)
        expected.update(dict.fromkeys(range(result.base_offset, result.last_offset + 1), result.base_offset))
    assert len(log.segments) > 2
    for reopened in (log, open_log(log.disk, clean=False)):
        for offset, base in expected.items():
            piece = reopened.read(offset, max_bytes=0, max_offset=reopened.log_end_offset)
            assert piece.base_offset == base
            assert read_header(piece.read()).base_offset == base
            assert read_header(piece.read()).size_in_bytes == piece.size


@both_disks
@pytest.mark.parametrize("max_bytes", [0, 1, 150, 333, 1000, 5000, 10**9])
def test_a_read_returns_whole_batches_within_the_limit(kind: str, max_bytes: int, tmp_path: Path) -> None:
    log = open_log(make_disk(kind, tmp_path), LogConfig(segment_bytes=100_000, index_interval_bytes=500))
    sizes = [read_header(build_batch(records(1, size=number % 7 * 30))).size_in_bytes for number in range(60)]
    for number in range(60):
        append(log, 1, size=number % 7 * 30)
    for activated in (True, False):
        if not activated:
            log.close()
            log = open_log(log.disk, log.config)
        for offset in range(60):
            piece = log.read(offset, max_bytes=max_bytes, max_offset=60)
            headers = [header for _, header in iter_headers(piece.read())]
            assert sum(header.size_in_bytes for header in headers) == piece.size
            assert bases([(header.base_offset, 0) for header in headers]) == list(range(offset, offset + len(headers)))
            fitting = 0
            while offset + fitting < 60 and sum(sizes[offset : offset + fitting + 1]) <= max_bytes:
                fitting += 1
            assert len(headers) == max(fitting, 1)
            limited = log.read(offset, max_bytes=max_bytes, max_offset=60, min_one_batch=False)
            assert limited.size == sum(sizes[offset : offset + fitting])


@both_disks
def test_nothing_at_or_beyond_the_bound_is_read(kind: str, tmp_path: Path) -> None:
    log = open_log(make_disk(kind, tmp_path))
    for _ in range(30):
        append(log, 3, size=50)
    for bound in range(91):
        for offset in range(0, 90, 7):
            piece = log.read(offset, max_bytes=10**6, max_offset=bound)
            headers = [header for _, header in iter_headers(piece.read())]
            assert all(header.last_offset < bound for header in headers)
            # What is left out would reach the bound, or is in the next segment.
            following = headers[-1].next_offset if headers else offset // 3 * 3
            assert following + 3 > bound or following in log.segments.bases


def test_at_the_end_there_is_nothing_and_beyond_it_is_an_error() -> None:
    log = open_log(MemoryDisk())
    append(log, 3)
    piece = log.read(3, max_bytes=100, max_offset=3)
    assert (piece.size, piece.base_offset, piece.read(), piece.file.fileno()) == (0, 3, b"", None)
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRange) as refused:
            log.read(offset, max_bytes=100, max_offset=3)
        assert (refused.value.log_start_offset, refused.value.log_end_offset) == (0, 3)


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    log = open_log(make_disk("real", tmp_path), attrs.evolve(SMALL, file_delete_delay_ms=0))
    for _ in range(40):
        append(log, 1, size=100)
    piece = log.read(0, max_bytes=500, max_offset=log.log_end_offset)
    content = piece.read()
    log.advance_log_start(log.log_end_offset)
    log.apply_retention(0, log.log_end_offset)
    assert not (tmp_path / "orders-0" / "00000000000000000000.log").exists()
    assert piece.read() == content
    log.close(clean=False)
    log.disk.remove_tree(log.path)
    assert piece.read() == content
    assert not (tmp_path / "orders-0").exists()


def test_reading_at_the_tail_and_reading_on_touch_no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = open_log(make_disk("real", tmp_path), LogConfig())
    for _ in range(300):
        append(log, 1, size=1000)
    reads = []
    file_type = type(log.active.file)
    read = file_type.read

    def counted(file: object, position: int, size: int) -> bytes:
        reads.append(size)
        return read(file, position, size)  # type: ignore[arg-type]

    monkeypatch.setattr(file_type, "read", counted)
    for offset in (299, 290, 200):
        assert log.read(offset, max_bytes=2000, max_offset=300).size
    assert reads == []
    log.roll(0)
    first = log.read(0, max_bytes=20_000, max_offset=300)
    following = read_header(first.file.read(first.position + first.size, 61)).base_offset
    reads.clear()
    log.read(following, max_bytes=20_000, max_offset=300)
    # Only where that slice ends had to be looked up.
    assert len(reads) <= 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_append_leaves_no_trace_and_the_next_one_succeeds(code: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, 3, producer_id=1, sequence=0)

    def fail(operation: str, path: str) -> None:
        if operation == "append" and path.endswith(".log"):
            raise TornAppendError(40, code)

    disk.before_operation = fail
    with pytest.raises(StorageError) as refused:
        append(log, 2, producer_id=1, sequence=3, leader_epoch=1)
    assert refused.value.errno == code
    assert (log.log_end_offset, log.leader_epochs.latest, log.producers.entries[1].last_sequence) == (3, 0, 2)
    assert read_all(log) == [(0, 2)]
    disk.before_operation = None
    assert append(log, 2, producer_id=1, sequence=3) == (3, 4, -1)
    assert read_all(open_log(disk, clean=False)) == [(0, 2), (3, 4)]


def test_a_failed_roll_leaves_the_old_segment_in_use() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    append(log, 1, size=1000)
    for failing in (("append", "1.snapshot"), ("create", "0.index"), ("append", "0.timeindex"), ("create", "1.log")):

        def fail(operation: str, path: str, failing: tuple[str, str] = failing) -> None:
            if operation == failing[0] and failing[1] in path:
                raise OSError(errno.ENOSPC, "no room")

        disk.before_operation = fail
        with pytest.raises(StorageError):
            append(log, 1, size=1000)
        disk.before_operation = None
        assert not disk.exists("orders-0/00000000000000000001.log")
        assert not disk.exists("orders-0/00000000000000000001.index")
        assert bases(read_all(open_log(disk.kill(), clean=False))) == [0]
    append(log, 1, size=10)
    assert bases(read_all(open_log(disk.kill(), clean=False))) == [0, 1]
    append(log, 1, size=1000)
    assert log.segments.bases == [0, 2]


def test_what_fits_into_no_segment_is_refused() -> None:
    log = open_log(MemoryDisk())
    with pytest.raises(KafkaError) as refused:
        append(log, 1, size=3000)
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_batches_that_carry_offsets_are_taken_as_they_are() -> None:
    log = open_log(MemoryDisk())
    first = build_batch(records(2), base_offset=5, leader_epoch=1)
    second = build_batch(records(3), base_offset=10, leader_epoch=2)
    assert log.append_as_is(first + second) == (5, 12, -1)
    assert log.log_end_offset == 13
    assert log.leader_epochs.entries == [(1, 5), (2, 10)]
    assert [header.base_offset for header, _ in log.batches()] == [5, 10]
    for offset, base in ((0, 5), (5, 5), (6, 5), (7, 10), (12, 10)):
        assert log.read(offset, max_bytes=1, max_offset=13).base_offset == base
    with pytest.raises(ValueError, match="offset 12"):
        log.append_as_is(build_batch(records(1), base_offset=12))


def test_replay_gives_every_batch_from_an_offset_on() -> None:
    log = open_log(MemoryDisk())
    for _ in range(20):
        append(log, 3, size=50)
    assert [header.base_offset for header, _ in log.batches()] == list(range(0, 60, 3))
    found = list(log.batches(31))
    assert [header.base_offset for header, _ in found] == list(range(30, 60, 3))
    assert all(read_header(piece.read()) == header for header, piece in found)
    assert list(log.batches(60)) == []


def holes(log: Log) -> Log:
    """Makes a log as compaction leaves it: offsets 0-9, 20-29 and, in the next segment, 40-49."""
    for base in (0, 20):
        log.append_as_is(build_batch(records(10), base_offset=base))
    log.segments.end_offset = 40
    log.roll(0)
    log.append_as_is(build_batch(records(10), base_offset=40))
    return log


def test_an_offset_in_a_hole_leads_to_the_next_batch_even_in_the_next_segment() -> None:
    log = holes(open_log(MemoryDisk()))
    for offset, base in ((15, 20), (30, 40), (39, 40), (40, 40)):
        assert log.read(offset, max_bytes=1000, max_offset=50).base_offset == base
    assert log.read(35, max_bytes=1000, max_offset=38).size == 0
    assert append_bytes(log, build_batch(records(1))).base_offset == 50


def test_a_closed_log_takes_no_appends_and_is_at_its_next_opening_what_it_was() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, 3)
    log.close()
    with pytest.raises(ValueError, match="append to the closed log"):
        append(log, 1)
    reopened = open_log(disk)
    assert reopened.log_end_offset == 3
    append(reopened, 1)
    assert reopened.log_end_offset == 4

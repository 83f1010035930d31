"""Opening: cheap after a clean stop, and by the bytes after anything else."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from kwire_protocol.records import build_batch
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import Disk
from kwire_storage.disk.medium import persisted_part
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError
from kwire_storage.log.log import Log

from testkit.storage.disks import both_disks, make_disk
from testkit.storage.logs import SMALL, append, bases, open_log, read_all, records

LAST = "orders-0/00000000000000000016.log"


def filled(disk: Disk) -> Log:
    """Makes ten batches of two records in segments 0, 8 and 16, by producer 1."""
    log = open_log(disk, attrs.evolve(SMALL, segment_bytes=500))
    for number in range(10):
        append(log, 2, size=20, producer_id=1, sequence=number * 2, leader_epoch=number // 4)
    assert log.segments.bases == [0, 8, 16]
    return log


def spoil(disk: Disk, path: str, position: int, by: bytes | None = None) -> None:
    """Overwrites bytes, or turns one round."""
    data = bytearray(disk.read_bytes(path))
    position %= len(data)
    replacement = by if by is not None else bytes([data[position] ^ 0xFF])
    data[position : position + len(replacement)] = replacement
    disk.write_bytes(path, bytes(data))


def reopened(log: Log, recovery_point: int = 0) -> Log:
    return open_log(log.disk, log.config, clean=False, recovery_point=recovery_point)


def assert_whole(log: Log, end: int) -> None:
    assert bases(read_all(log)) == list(range(0, end, 2))
    assert log.log_end_offset == end
    assert log.leader_epochs.entries == [(epoch, start) for epoch, start in ((0, 0), (1, 8), (2, 16)) if start < end]
    assert log.producers.entries[1].last_sequence == end - 1
    assert log.offset_for_timestamp(1001, max_offset=end) == (1001, 1, 0)


@both_disks
def test_after_a_clean_stop_everything_is_as_before(kind: str, tmp_path: Path) -> None:
    log = filled(make_disk(kind, tmp_path))
    log.close()
    log = open_log(log.disk, log.config)
    assert log.recovery is None
    assert log.recovery_point == 20
    assert_whole(log, 20)
    append(log, 2, producer_id=1, sequence=20)
    log.close()
    log = open_log(log.disk, log.config)
    assert (log.log_end_offset, log.producers.entries[1].last_sequence) == (22, 21)
    assert log.producer_state.snapshot_offsets == [8, 16, 22]


@both_disks
def test_after_a_crash_everything_written_is_found_again(kind: str, tmp_path: Path) -> None:
    log = filled(make_disk(kind, tmp_path))
    log.close(clean=False)
    log = reopened(log)
    assert log.recovery is not None
    assert (log.recovery.cut_bytes, log.recovery.scanned_bytes) == (0, log.size_in_bytes)
    assert_whole(log, 20)
    assert append(log, 2, producer_id=1, sequence=20, leader_epoch=2) == (20, 21, -1)


class Reads(MemoryDisk):
    """A disk that counts what opening costs."""

    reads = 0

    def read_bytes(self, path: str) -> bytes:
        self.reads += 1
        return super().read_bytes(path)

    def size(self, path: str) -> int:
        self.reads += 1
        return super().size(path)

    def open_append(self, path: str):  # type: ignore[no-untyped-def]
        self.reads += 1
        return super().open_append(path)


def test_opening_after_a_clean_stop_reads_nothing_but_the_folder() -> None:
    disk = Reads()
    log = filled(disk)
    log.close()
    disk.reads = 0
    log = open_log(disk, log.config)
    assert (log.log_end_offset, log.log_start_offset) == (20, 0)
    assert log.read(20, max_bytes=100, max_offset=20).size == 0
    assert disk.reads == 0
    log.close()
    assert disk.reads == 0


@pytest.mark.parametrize("kept", [0, 1, 60, 61, 100, -1])
def test_a_torn_tail_is_cut(kept: int) -> None:
    log = filled(MemoryDisk())
    size = log.active.size
    whole = build_batch(records(2), base_offset=20)
    torn = whole[: kept % len(whole)]
    log.active.file.append(torn)
    log = reopened(log)
    assert log.recovery is not None
    assert log.recovery.cut_bytes == len(torn)
    assert log.active.size == log.disk.size(LAST) == size
    assert_whole(log, 20)


@pytest.mark.parametrize(
    "garbage",
    [
        bytes(10),
        bytes(5000),
        b"\xff" * 300,
        bytes(range(256)) * 3,
        build_batch(records(2), base_offset=3),
        build_batch(records(2), base_offset=2**40),
        build_batch(records(2), base_offset=20)[:40] + b"\xff" * 200,
    ],
    ids=["few zeros", "zeros", "ones", "noise", "an old batch", "a batch far off", "half a batch, then ones"],
)
def test_garbage_after_the_end_is_cut(garbage: bytes) -> None:
    log = filled(MemoryDisk())
    log.active.file.append(garbage)
    log = reopened(log)
    assert log.recovery is not None
    assert log.recovery.cut_bytes == len(garbage)
    assert LAST.removesuffix(".log") in log.recovery.reason
    assert_whole(log, 20)


@pytest.mark.parametrize("position", [0, 8, 11, 16, 17, 22, 23, 57, 61, 100, -1])
def test_a_spoilt_byte_ends_the_log_where_it_stands(position: int) -> None:
    log = filled(MemoryDisk())
    spoil(log.disk, LAST, position)
    log = reopened(log)
    assert log.recovery is not None
    assert log.recovery.cut_bytes > 0
    assert_whole(log, 18 if position == -1 else 16)


def test_what_follows_a_loss_is_lost_too_and_kept_aside() -> None:
    log = filled(MemoryDisk())
    spoil(log.disk, "orders-0/00000000000000000008.log", -1)
    log = reopened(log)
    assert log.recovery is not None
    assert (log.recovery.deleted_segments, log.segments.bases, log.producer_state.snapshot_offsets) == (1, [0, 8], [8])
    assert_whole(log, 14)
    assert LAST + ".deleted" in [f"orders-0/{name}" for name in log.disk.listdir("orders-0")]
    assert append(log, 1).base_offset == 14


def test_below_the_recovery_point_nothing_is_scanned() -> None:
    log = filled(MemoryDisk())
    log.flush()
    assert log.recovery_point == 20
    log = reopened(log, recovery_point=20)
    assert log.recovery is not None
    assert log.recovery.scanned_bytes == log.active.size
    assert_whole(log, 20)
    log = reopened(log, recovery_point=10**6)
    assert_whole(log, 20)


def test_a_segment_that_ends_at_the_recovery_point_is_not_scanned() -> None:
    log = filled(MemoryDisk())
    log.flush()
    log = reopened(log, recovery_point=16)
    assert log.recovery is not None
    assert log.recovery.scanned_bytes == log.segments[2].size
    assert_whole(log, 20)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "empty", "torn", "beyond the records"])
def test_an_index_that_is_no_good_is_made_again(suffix: str, damage: str) -> None:
    log = filled(MemoryDisk())
    log.close()
    path = f"orders-0/00000000000000000008{suffix}"
    good = log.disk.read_bytes(path)
    assert good
    match damage:
        case "gone":
            log.disk.remove(path)
        case "empty":
            log.disk.write_bytes(path, b"")
        case "torn":
            log.disk.write_bytes(path, good[:-1])
        case _:
            log.disk.write_bytes("orders-0/00000000000000000008.index", b"\0\0\0\1\x7f\0\0\0")
    log = open_log(log.disk, log.config)
    assert_whole(log, 20)
    log.close()
    if damage != "empty" or suffix == ".timeindex":
        assert log.disk.read_bytes(path) == good


@pytest.mark.parametrize("damage", ["gone", "spoilt"])
def test_a_snapshot_that_is_no_good_is_made_up_for_by_replay(damage: str) -> None:
    log = filled(MemoryDisk())
    log.close()
    for offset in log.producer_state.snapshot_offsets:
        path = f"orders-0/{offset:020d}.snapshot"
        if damage == "gone":
            log.disk.remove(path)
        else:
            spoil(log.disk, path, 7)
    log = open_log(log.disk, log.config)
    assert_whole(log, 20)
    assert log.producer_state.snapshot_offsets == []


@pytest.mark.parametrize("offset", [8, 16, 20])
def test_a_snapshot_that_a_kill_left_half_written_is_written_again(offset: int) -> None:
    log = filled(MemoryDisk())
    log.close()
    path = f"orders-0/{offset:020d}.snapshot"
    good = log.disk.read_bytes(path)
    log.disk.write_bytes(path, b"")
    log = reopened(log)
    assert_whole(log, 20)
    assert log.disk.read_bytes(path) == good


def test_a_lost_epoch_checkpoint_is_made_up_for_by_recovery() -> None:
    log = filled(MemoryDisk())
    log = reopened(log)
    assert_whole(log, 20)
    log.close()
    assert log.disk.read_bytes("orders-0/leader-epoch-checkpoint") == b"0\n3\n0 0\n1 8\n2 16\n"


def test_a_clean_stop_without_snapshot_is_looked_into() -> None:
    log = filled(MemoryDisk())
    log.close()
    for offset in log.producer_state.snapshot_offsets:
        log.disk.remove(f"orders-0/{offset:020d}.snapshot")
    assert_whole(open_log(log.disk, log.config), 20)


def test_records_beyond_what_a_clean_stop_promised_are_not_passed_over() -> None:
    log = filled(MemoryDisk())
    log.close()
    with_more = log.disk.read_bytes(LAST) + build_batch(records(2), base_offset=20)
    log.disk.write_bytes(LAST, with_more)
    log = open_log(log.disk, log.config)
    with pytest.raises(CorruptLogError, match="records up to 21"):
        append(log, 1)


def test_leftovers_are_swept_and_strangers_left_alone() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.close()
    for name in ("00000000000000000000.log.deleted", "00000000000000000003.log.cleaned", "leader-epoch-checkpoint.tmp"):
        disk.write_bytes(f"orders-0/{name}", b"x")
    for name in ("00000000000000000099.index", "00000000000000000005.snapshot", "notes.txt"):
        disk.write_bytes(f"orders-0/{name}", b"x")
    before = set(disk.listdir("orders-0"))
    open_log(disk, log.config)
    assert before - set(disk.listdir("orders-0")) == {
        "00000000000000000000.log.deleted",
        "00000000000000000003.log.cleaned",
        "00000000000000000005.snapshot",
        "00000000000000000099.index",
        "leader-epoch-checkpoint.tmp",
    }


def test_a_log_that_lost_everything_up_to_its_start_continues_there() -> None:
    log = filled(MemoryDisk())
    log.disk.remove_tree("orders-0")
    log = open_log(log.disk, log.config, clean=False, log_start_offset=12)
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)
    append(log, 1)
    log.disk.remove_tree("orders-0")
    log = open_log(MemoryDisk())
    append(log, 3)
    log = open_log(log.disk, clean=False, log_start_offset=12)
    assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (12, 12, [])
    assert append(log, 1).base_offset == 12


def test_segments_that_overlap_end_the_log() -> None:
    log = filled(MemoryDisk())
    log.disk.write_bytes("orders-0/00000000000000000018.log", b"")
    log = reopened(log)
    assert log.recovery is not None
    assert log.recovery.deleted_segments == 1
    assert_whole(log, 20)


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_a_segment_that_ends_before_the_next_begins_has_lost_its_tail_whatever_the_policy(policy: str) -> None:
    log = filled(MemoryDisk())
    log.config = attrs.evolve(log.config, cleanup_policy=policy)
    second = log.segments[1].file
    second.truncate(second.size * 3 // 4)
    log = reopened(log)
    assert log.recovery is not None
    assert_whole(log, 14)
    assert "nothing of offsets 14 to 15" in log.recovery.reason
    assert log.recovery.deleted_segments == 1


def test_a_snapshot_of_a_lost_future_is_not_believed_later() -> None:
    log = filled(MemoryDisk())
    log.close()
    spoil(log.disk, LAST, -1)
    log = reopened(log)
    assert log.log_end_offset == 18
    assert log.producer_state.snapshot_offsets == [8, 16]
    append(log, 1, producer_id=1, sequence=18, leader_epoch=2)
    append(log, 1, producer_id=2, sequence=0, leader_epoch=2)
    log.close(clean=False)
    log = open_log(log.disk, log.config)
    assert (log.log_end_offset, sorted(log.producers.entries)) == (20, [1, 2])


def test_a_cut_tail_does_not_come_back_behind_the_recovery_point() -> None:
    disk = FaultyDisk()
    log = filled(disk)
    log.flush()
    log.active.file.append(b"\xff" * 100)
    disk = disk.crash(persisted_part(1.0))
    log = open_log(disk, log.config, clean=False, recovery_point=20)
    assert log.recovery is not None
    assert log.recovery.cut_bytes > 0
    log.roll(0)
    append(log, 2, producer_id=1, sequence=20, leader_epoch=2)
    log.flush()
    log = open_log(disk.crash(), log.config, clean=False, recovery_point=log.recovery_point)
    assert log.recovery is not None
    assert (log.recovery.cut_bytes, log.log_end_offset) == (0, 22)
    assert bases(read_all(log)) == list(range(0, 22, 2))


@pytest.mark.parametrize("continues_with", ["a roll", "a flush", "a clean stop"])
def test_records_that_a_process_cut_before_it_died_do_not_come_back(continues_with: str) -> None:
    disk = FaultyDisk()
    log = filled(disk)
    log.flush()
    found = log.segments.locate(log.active, 18)
    assert found is not None
    log.active.file.truncate(found[0])  # It died in `truncate_to(18)`, before the sync.
    log = open_log(disk.kill(), log.config, clean=False, recovery_point=18)
    if continues_with == "a clean stop":
        log.close()
    else:
        if continues_with == "a flush":
            log.flush()
        log.roll(0)
        append(log, 2, producer_id=1, sequence=18, leader_epoch=2)
        log.active.file.sync()
        log.disk.sync_dir("orders-0")
    end, sizes = log.log_end_offset, [it.size for it in log.segments]
    assert isinstance(log.disk.disk, FaultyDisk)
    is_clean = continues_with == "a clean stop"
    log = open_log(log.disk.disk.crash(), log.config, clean=is_clean, recovery_point=log.recovery_point)
    assert bases(read_all(log)) == list(range(0, end, 2))
    assert (log.log_end_offset, [it.size for it in log.segments]) == (end, sizes)


def test_what_a_process_that_died_had_not_synced_is_synced_by_the_next_flush() -> None:
    disk = FaultyDisk()
    open_log(disk).close(clean=False)
    log = open_log(disk.kill(), clean=False)
    append(log, 2)
    log.flush()
    assert isinstance(log.disk.disk, FaultyDisk)
    assert read_all(open_log(log.disk.disk.crash(), clean=False, recovery_point=2)) == [(0, 1)]


def test_indexes_made_again_by_a_recovery_are_written_by_the_next_flush() -> None:
    disk = FaultyDisk()
    log = filled(disk)
    for name in [name for name in disk.listdir("orders-0") if name.endswith("index")]:
        disk.remove(f"orders-0/{name}")
    log = reopened(log)
    log.flush()
    after = disk.crash()
    for base in (0, 8):
        assert after.size(f"orders-0/{base:020d}.index") == 8 * len(log.segments[base // 8].index) > 0
        assert after.size(f"orders-0/{base:020d}.timeindex") > 0


def test_snapshots_without_segments_are_no_log() -> None:
    disk = FaultyDisk()
    log = filled(disk)
    for name in disk.listdir("orders-0"):
        if not name.endswith(".snapshot"):
            disk.remove(f"orders-0/{name}")
    log = open_log(disk.kill(), log.config, clean=False)
    assert (log.log_start_offset, log.log_end_offset, log.producer_state.snapshot_offsets) == (0, 0, [])
    assert append(log, 1).base_offset == 0

"""The log dir: its owner, its contents, and the state in which it was left."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from kwire_storage.checkpoints import decode_offsets
from kwire_storage.config import LogConfig
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import Disk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError, FolderLockedError, StorageError
from kwire_storage.inspection.log_dir_check import check_folder, read_state

from testkit.storage.disks import both_disks, make_disk
from testkit.storage.logs import append, bases, open_logs, read_all

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
TOPIC_ID = bytes(range(16))
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
UNIQUE = bytes([0xAB]) * 16


def open_folder(disk: Disk, *, node_id: int = 1, cluster_id: str = "cluster") -> LogDir:
    return LogDir.open(disk, cluster_id=cluster_id, node_id=node_id, directory_id=TOPIC_ID)


def remove_deleted(folder: LogDir) -> int:
    """Returns how many partitions it removed."""
    deleted = folder.take_deleted(0)
    if deleted is None:
        return 0
    folder.remove(deleted)
    return len(deleted.folders)


def open_all(disk: Disk) -> LogDir:
    folder = open_folder(disk)
    open_logs(folder, CONFIG)
    return folder


@both_disks
def test_a_new_folder_learns_whose_it_is_and_keeps_it(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path / "data")
    folder = open_folder(disk)
    assert folder.meta.cluster_id == "cluster"
    folder.close()
    folder = open_folder(disk, cluster_id="another")
    assert (folder.meta.cluster_id, folder.meta.node_id, folder.meta.directory_id) == ("cluster", 1, TOPIC_ID)
    folder.close()
    with pytest.raises(StorageError, match="belongs to node 1") as refused:
        open_folder(disk, node_id=2)
    assert refused.value.errno == errno.EPERM
    open_folder(disk).close()


@both_disks
def test_a_second_broker_is_refused(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    folder = open_folder(disk)
    with pytest.raises(FolderLockedError):
        open_folder(disk)
    folder.abandon()
    open_folder(disk).close()


@both_disks
def test_logs_are_there_again_after_a_clean_stop(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    folder = open_folder(disk)
    assert not folder.clean_shutdown
    for partition in range(3):
        log = folder.create_log("orders", partition, TOPIC_ID, CONFIG, now_ms=0)
        for _ in range(partition * 4):
            append(log, 2)
    folder.logs["orders", 2].advance_log_start(5)
    folder.close({("orders", 1): 7, ("orders", 2): 16}, broker_epoch=3)
    assert disk.read_bytes(".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":3}'
    assert disk.read_bytes("recovery-point-offset-checkpoint") == b"0\n3\norders 0 0\norders 1 8\norders 2 16\n"
    assert disk.read_bytes("log-start-offset-checkpoint") == b"0\n1\norders 2 5\n"
    assert disk.read_bytes("replication-offset-checkpoint") == b"0\n2\norders 1 7\norders 2 16\n"

    folder = open_folder(disk)
    assert folder.clean_shutdown
    assert not disk.exists(".kafka_cleanshutdown")
    assert folder.found == {("orders", 0), ("orders", 1), ("orders", 2)}
    assert folder.high_watermarks == {("orders", 1): 7, ("orders", 2): 16}
    assert folder.topic_id("orders", 1) == TOPIC_ID
    assert folder.topic_id("orders", 9) is None
    log = folder.open_log("orders", 2, CONFIG, now_ms=0)
    assert (log.log_start_offset, log.log_end_offset, log.recovery) == (5, 16, None)
    open_logs(folder, attrs.evolve(CONFIG, segment_bytes=10**6))
    assert sorted(folder.logs) == [("orders", 0), ("orders", 1), ("orders", 2)]
    assert folder.logs["orders", 1].config.segment_bytes == 10**6
    folder.close()


def test_a_checkpoint_is_written_when_its_content_changes() -> None:
    folder = open_folder(MemoryDisk())
    log = folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    append(log, 2)
    assert folder.take_checkpoints() == {}
    assert list(folder.take_checkpoints({("orders", 0): 2})) == ["replication-offset-checkpoint"]
    folder.write(folder.take_checkpoints())
    assert folder.take_checkpoints() == {}
    folder.close()


def test_high_watermarks_are_taken_without_the_other_checkpoints() -> None:
    folder = open_folder(MemoryDisk())
    log = folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    append(log, 2)
    log.advance_log_start(1)
    assert list(folder.take_checkpoints()) == ["log-start-offset-checkpoint"]
    taken = folder.take_high_watermarks({("orders", 0): 2})
    assert taken == {"replication-offset-checkpoint": {("orders", 0): 2}}
    folder.write(taken)
    assert folder.take_high_watermarks({("orders", 0): 2}) == {}
    assert list(folder.take_checkpoints()) == ["log-start-offset-checkpoint"]
    folder.close()


def test_a_recovery_point_is_written_when_it_enters_a_segment_or_goes_back() -> None:
    folder = open_folder(MemoryDisk())
    log = folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    append(log, 2)
    log.flush()
    assert folder.take_checkpoints() == {}, "recovery would begin at the first segment nevertheless"
    while len(log.segments) == 1:
        append(log, 2)
    log.flush()
    folder.write(folder.take_checkpoints())
    assert decode_offsets(folder.disk.read_bytes(RECOVERY_POINTS)) == {("orders", 0): log.log_end_offset}

    folder.delete_log("orders", 0, UNIQUE)
    assert folder.take_checkpoints() == {RECOVERY_POINTS: {}}
    folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    assert decode_offsets(folder.disk.read_bytes(RECOVERY_POINTS)) == {}, "the old log's point is not the new one's"
    assert folder.take_checkpoints() == {}
    folder.close()


def test_a_checkpoint_that_could_not_be_written_is_written_the_next_time() -> None:
    disk = MemoryDisk()
    folder = open_folder(disk)
    folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    checkpoints = folder.take_checkpoints({("orders", 0): 2})

    def fail(operation: str, path: str) -> None:
        raise OSError(errno.EIO, operation, path)

    disk.before_operation = fail
    with pytest.raises(OSError, match="replication-offset"):
        folder.write(checkpoints)
    disk.before_operation = lambda _operation, _path: None
    assert folder.take_checkpoints() == checkpoints
    folder.close()


@both_disks
@pytest.mark.parametrize("left", [b"", bytes(50)])
def test_a_folder_without_its_topics_id_can_get_it(kind: str, tmp_path: Path, left: bytes) -> None:
    """The crash came between making the file and writing it."""
    disk = make_disk(kind, tmp_path)
    folder = open_folder(disk)
    folder.create_log("orders", 1, TOPIC_ID, CONFIG, now_ms=0)
    folder.abandon()
    disk.write_bytes("orders-1/partition.metadata", left)
    folder = open_folder(disk)
    assert folder.topic_id("orders", 1) is None
    folder.open_log("orders", 1, CONFIG, now_ms=0)
    folder.set_topic_id("orders", 1, TOPIC_ID)
    assert folder.topic_id("orders", 1) == TOPIC_ID
    folder.abandon()


@both_disks
def test_without_a_clean_stop_logs_are_recovered(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    folder = open_folder(disk)
    log = folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    for _ in range(6):
        append(log, 2)
    log.flush()
    folder.write(folder.take_checkpoints())
    append(log, 2)
    folder.abandon()
    folder = open_all(disk)
    log = folder.logs["orders", 0]
    assert log.recovery is not None
    assert log.recovery.scanned_bytes == log.active.size
    assert bases(read_all(log)) == list(range(0, 14, 2))
    folder.close()
    assert open_folder(disk).clean_shutdown


def test_a_crash_right_after_opening_is_a_crash() -> None:
    disk = FaultyDisk()
    folder = open_folder(disk)
    folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    folder.close()
    folder = open_folder(disk)
    for after in (disk.kill(), disk.crash()):
        assert not open_folder(after).clean_shutdown


def test_a_log_whose_segments_were_lost_keeps_its_start_over_a_clean_stop() -> None:
    disk = FaultyDisk()
    folder = open_folder(disk)
    log = folder.create_log("t", 0, TOPIC_ID, CONFIG, now_ms=0)
    log.flush()
    append(log, 2)
    log.advance_log_start(2)
    folder.write(folder.take_checkpoints({}))
    disk = disk.crash()
    assert not [name for name in disk.listdir("t-0") if name.endswith(".log")], "the names are not synced"
    for _ in range(2):
        folder = open_all(disk)
        log = folder.logs["t", 0]
        assert (log.log_start_offset, log.log_end_offset) == (2, 2)
        folder.close()
        assert not [*check_folder(disk, read_state(disk), check_records=False)]


def test_what_was_never_opened_stays_as_it_was() -> None:
    disk = MemoryDisk()
    folder = open_folder(disk)
    for topic in ("a", "b"):
        log = folder.create_log(topic, 0, TOPIC_ID, CONFIG, now_ms=0)
        for _ in range(6):
            append(log, 2)
        log.advance_log_start(3)
    folder.close({("a", 0): 12, ("b", 0): 12})
    folder = open_folder(disk)
    folder.open_log("a", 0, CONFIG, now_ms=0)
    folder.close({("a", 0): 12})
    folder = open_all(disk)
    log = folder.logs["b", 0]
    assert (folder.clean_shutdown, log.log_start_offset, folder.high_watermarks["b", 0]) == (True, 3, 12)
    folder.abandon()
    # Now "b" needs a recovery; a stop that did not give it one does not count as clean.
    folder = open_folder(disk)
    folder.open_log("a", 0, CONFIG, now_ms=0)
    folder.close()
    assert not open_folder(disk).clean_shutdown


@both_disks
def test_a_partition_is_created_once(kind: str, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    folder = open_folder(disk)
    folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    assert disk.listdir("orders-0") == ["partition.metadata"]
    assert disk.read_bytes("orders-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    with pytest.raises(StorageError) as refused:
        folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    assert refused.value.errno == errno.EEXIST
    for topic in ("../orders", "a/b", ".."):
        with pytest.raises(ValueError, match="folder"):
            folder.create_log(topic, 0, TOPIC_ID, CONFIG, now_ms=0)
    folder.close()


def test_what_another_process_works_in_is_removed_when_it_was_given_back() -> None:
    folder = open_folder(MemoryDisk())
    log = folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    append(log, 2)
    log.flush()
    recalled: list[bool] = []
    with log.disk.lent(lambda: recalled.append(True)):
        folder.delete_log("orders", 0, UNIQUE)
        assert recalled == [True]
        assert remove_deleted(folder) == 0
        folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    assert remove_deleted(folder) == 1


@both_disks
@pytest.mark.parametrize("opened", [True, False])
def test_a_deleted_partition_is_gone_at_once_and_its_files_later(kind: str, opened: bool, tmp_path: Path) -> None:
    disk = make_disk(kind, tmp_path)
    folder = open_folder(disk)
    log = folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    append(log, 2)
    folder.close({("orders", 0): 2})
    folder = open_folder(disk)
    if opened:
        folder.open_log("orders", 0, CONFIG, now_ms=0)
    folder.delete_log("orders", 0, UNIQUE)
    assert ("orders", 0) not in folder.logs
    doomed = f"orders-0.{'ab' * 16}-delete"
    assert disk.exists(doomed)
    assert not disk.exists("orders-0")
    log = folder.create_log("orders", 0, bytes(16), CONFIG, now_ms=0)
    assert log.log_end_offset == 0
    assert remove_deleted(folder) == 1
    assert remove_deleted(folder) == 0
    assert not disk.exists(doomed)
    log.flush()
    append(log, 1)
    log.flush()
    # The old one's entry is gone, and the new one's point, in its first segment, would change nothing.
    assert disk.read_bytes("recovery-point-offset-checkpoint") == b"0\n0\n"
    assert folder.take_checkpoints() == {}
    folder.close()


def old_and_new(disk: MemoryDisk) -> LogDir:
    """Makes a partition with far-along checkpoints, deleted and created again, with two batches now."""
    folder = open_folder(disk)
    old = folder.create_log("t", 0, TOPIC_ID, CONFIG, now_ms=0)
    for _ in range(20):
        append(old)
    old.flush()
    old.advance_log_start(10)
    folder.write(folder.take_checkpoints({("t", 0): 20}))
    folder.delete_log("t", 0, UNIQUE)
    new = folder.create_log("t", 0, bytes(16), CONFIG, now_ms=0)
    append(new)
    append(new)
    return folder


def test_a_partition_that_is_created_again_is_not_taken_for_the_old_one_after_a_kill() -> None:
    disk = FaultyDisk()
    old_and_new(disk)
    log = open_all(disk.kill()).logs["t", 0]
    assert log.log_start_offset == 0
    assert read_all(log) == [(0, 0), (1, 1)]
    assert log.recovery is not None
    assert log.recovery.scanned_bytes == log.size_in_bytes


def test_checkpoints_that_were_taken_before_a_deletion_do_not_bring_the_old_partition_back() -> None:
    disk = FaultyDisk()
    folder = open_folder(disk)
    old, other = (folder.create_log("t", number, TOPIC_ID, CONFIG, now_ms=0) for number in range(2))
    for log in (old, other):
        append(log)
        append(log)
        log.flush()
        log.advance_log_start(1)
    taken = folder.take_checkpoints()
    folder.delete_log("t", 0, UNIQUE)
    append(folder.create_log("t", 0, bytes(16), CONFIG, now_ms=0))
    folder.write(taken)
    logs = open_all(disk.kill()).logs
    assert (logs["t", 0].log_start_offset, logs["t", 1].log_start_offset) == (0, 1)
    assert read_all(logs["t", 0]) == [(0, 0)]


def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_next_start() -> None:
    disk = FaultyDisk()
    folder = open_folder(disk)
    folder.create_log("orders", 0, TOPIC_ID, CONFIG, now_ms=0)
    folder.delete_log("orders", 0, UNIQUE)
    disk = disk.kill()
    folder = open_all(disk)
    assert folder.logs == {}
    assert remove_deleted(folder) == 1
    folder.close()
    assert not any(name.endswith("-delete") for name in disk.listdir(""))


def test_a_log_that_cannot_be_closed_leaves_no_clean_mark_but_its_siblings_are_closed() -> None:
    disk = MemoryDisk()
    folder = open_folder(disk)
    for topic in ("a", "b", "c"):
        append(folder.create_log(topic, 0, TOPIC_ID, CONFIG, now_ms=0), 2)

    def fail(operation: str, path: str) -> None:
        if operation == "sync" and path.startswith("b-0/"):
            raise OSError(errno.EIO, "the medium is gone")

    disk.before_operation = fail
    with pytest.raises(StorageError):
        folder.close()
    disk.before_operation = None
    assert not disk.exists(".kafka_cleanshutdown")
    assert disk.read_bytes("recovery-point-offset-checkpoint") == b"0\n3\na 0 2\nb 0 0\nc 0 2\n"
    folder = open_all(disk)
    assert [folder.logs[topic, 0].log_end_offset for topic in ("a", "b", "c")] == [2, 2, 2]
    folder.close()


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "meta.properties"])
def test_an_unreadable_checkpoint_is_not_guessed_and_the_lock_is_let_go(name: str) -> None:
    disk = MemoryDisk()
    open_folder(disk).close()
    good = disk.read_bytes(name)
    disk.write_bytes(name, b"nonsense")
    with pytest.raises(CorruptLogError):
        open_folder(disk)
    disk.write_bytes(name, good)
    open_folder(disk).close()


def test_files_that_are_no_partitions_are_left_alone() -> None:
    disk = MemoryDisk()
    disk.write_bytes("notes.txt", b"x")
    disk.mkdir("lost+found")
    folder = open_all(disk)
    assert folder.logs == {}
    folder.close()
    assert disk.exists("notes.txt")


def test_the_syncs_of_a_clean_stop_may_run_in_any_order_and_only_where_there_is_something_to_sync() -> None:
    disk = FaultyDisk()
    folder = open_folder(disk)
    for partition in range(4):
        append(folder.create_log("orders", partition, TOPIC_ID, CONFIG, now_ms=0), 2)
    folder.close()
    folder = open_all(disk)
    append(folder.logs["orders", 1], 1)
    append(folder.logs["orders", 3], 1)
    counts = []

    def backwards(tasks: list[Callable[[], None]]) -> None:
        counts.append(len(tasks))
        for task in reversed(tasks):
            task()

    folder.close(run_all=backwards)
    assert counts == [2]
    folder = open_all(disk.crash())
    assert folder.clean_shutdown
    assert [folder.logs["orders", partition].log_end_offset for partition in range(4)] == [2, 3, 2, 3]

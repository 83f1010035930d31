"""Moving partitions between log dirs: what is moved, what ends a move, a stop at every single operation of one."""

from __future__ import annotations

import errno

import pytest
import trio
from kwire_protocol.control_records import build_end_transaction_batch
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.errors import StorageError
from trio.testing import MockClock

from kwire.metadata.controller.partitions.leader_epochs import epochs_behind
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.node.broker import Broker
from kwire.replicas.partition import Partition
from kwire.replicas.roles import role_of
from kwire.runtime.futures import at_once
from testkit.basics.futures import acknowledgement, value_of
from testkit.scenes.folder_scene import (
    EIO,
    Countdown,
    Disks,
    Stop,
    append,
    begin_move,
    carry_out,
    create,
    failing,
    filled,
    folder_path,
    killed,
    move,
    new_disks,
    open_broker,
    refusal,
    swap,
    values,
)
from testkit.scenes.partition_files import log_files


def test_a_partition_is_moved_with_all_that_came_meanwhile_and_continues_there(broker: Broker, disks: Disks) -> None:
    partition = filled(broker)
    expected = values(partition)
    assert move(broker, "/b") == ErrorCode.NONE
    carry_out(broker, meanwhile=3)
    expected += [b"meanwhile 2", b"meanwhile 1", b"meanwhile 0", b"after the copy"]
    assert values(partition) == expected
    assert append(partition, b"there") == len(expected)
    assert folder_path(broker, partition) == "/b"
    [target] = [folder for folder in broker.log_dirs.dirs if folder.path == "/b"]
    assert broker.metadata.image.topics["t"].partitions[0].directories == (target.meta.directory_id,)
    assert partition.directory_id == target.meta.directory_id
    trio.run(broker.housekeeping.remove_deleted)
    assert [name for disk in disks.values() for name in disk.listdir("") if name.startswith("t-0")] == ["t-0"]
    broker.close()
    again = open_broker(killed(disks))
    assert values(again.partitions.find("t", 0)) == [*expected, b"there"]
    again.close()


def test_what_batches_do_not_contain_is_moved_too(broker: Broker) -> None:
    partition = create(broker, "t")[0]

    def idempotent(producer: int, sequence: int) -> int:
        batch = build_batch([Record(value=b"x")], producer_id=producer, producer_epoch=0, base_sequence=sequence)
        return partition.append(memoryview(bytearray(batch)), read_header(batch), acks=1, now_ms=0).base_offset

    assert idempotent(9, 0) == 0
    three = memoryview(bytearray(build_batch([Record(timestamp=0, value=b"x")] * 3)))
    partition.append(three, read_header(three), acks=1, now_ms=0)
    assert [idempotent(7, 0), idempotent(7, 1), idempotent(8, 0)] == [4, 5, 6]
    # In the middle of a batch, so that no file's name contains it.
    partition.delete_records_before(2, now_ms=0)
    at_once(broker.metadata.change(epochs_behind, {(partition.topic_id, 0): 4}))
    partition.log.leader_epochs.assign(5, partition.log.log_end_offset)
    epochs = partition.log.leader_epochs.entries
    move(broker, "/b")
    carry_out(broker)
    assert partition.log_start_offset == 2
    assert partition.log.leader_epochs.entries == epochs
    # A repetition is still known as one, also where the batch is gone that was repeated.
    assert [idempotent(7, 1), idempotent(9, 0)] == [5, 0]
    assert idempotent(8, 1) == 8


@pytest.mark.parametrize("rolls", [False, True])
def test_a_producer_whose_records_are_gone_is_known_after_a_move_and_a_kill(
    broker: Broker, disks: Disks, rolls: bool
) -> None:
    partition = create(broker, "t")[0]
    batch = build_batch([Record(value=b"x")] * 3, producer_id=7, producer_epoch=0, base_sequence=0)

    def send(partition: Partition) -> int:
        buffer = memoryview(bytearray(batch))
        return partition.append(buffer, read_header(buffer), acks=1, now_ms=0).base_offset

    assert send(partition) == 0
    if rolls:
        log_files(partition).roll(0)
    partition.delete_records_before(-1, now_ms=0)
    swap(broker, begin_move(broker, "/b"))
    assert send(partition) == 0, "a repetition"
    again = open_broker(killed(disks))
    assert send(again.partitions.find("t", 0)) == 0
    again.log_dirs.abandon()


def test_transactions_that_were_aborted_are_known_in_the_copy(broker: Broker) -> None:
    partition = create(broker, "t")[0]
    batch = build_batch([Record(value=b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    partition.log.append(memoryview(bytearray(batch)), read_header(batch), leader_epoch=0, now_ms=0)
    marker = build_end_transaction_batch(
        commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    partition.append_own(memoryview(bytearray(marker)), read_header(marker), now_ms=0)
    before = partition.log.aborted_transactions(0, log_files(partition).read(0, max_bytes=1000, max_offset=9))
    assert before
    move(broker, "/b")
    carry_out(broker)
    assert partition.log.aborted_transactions(0, log_files(partition).read(0, max_bytes=1000, max_offset=9)) == before


def test_records_deleted_while_they_were_copied_are_not_there_afterwards(broker: Broker) -> None:
    partition = filled(broker)
    under_way = begin_move(broker, "/b", pieces=3)
    assert 0 < under_way.copy.log_end_offset < 15
    partition.delete_records_before(15, now_ms=0)
    carry_out(broker)
    assert partition.log_start_offset == 15
    assert refusal(lambda: partition.check_offset(14)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(partition)[-1] == b"after the copy"
    assert partition.log_end_offset == 21


def test_where_a_log_starts_outlives_a_kill_right_after_its_move(broker: Broker, disks: Disks) -> None:
    partition = create(broker, "t")[0]
    for _ in range(6):
        append(partition)
    begin_move(broker, "/b")
    partition.delete_records_before(4, now_ms=0)
    for folder, checkpoints in broker.housekeeping.take_checkpoints():
        folder.write(checkpoints)
    carry_out(broker)
    again = open_broker(killed(disks))
    moved = again.partitions.find("t", 0)
    assert folder_path(again, moved) == "/b"
    assert moved.log_start_offset == 4
    again.log_dirs.abandon()


def test_a_move_for_which_a_start_finds_no_room_ends_and_the_broker_starts(
    broker: Broker, disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    filled(broker)
    begin_move(broker, "/b")
    after = killed(disks)
    after["/b"].before_operation = failing("mkdir", "t-0.", errno.EMFILE)
    again = open_broker(after)
    after["/b"].before_operation = None
    assert again.moves.moves == []
    assert "t-0 is not moved to /b: [Errno 24]" in caplog.text
    append(again.partitions.find("t", 0))
    again.log_dirs.abandon()


def test_an_empty_partition_and_one_whose_records_are_gone_are_moved(broker: Broker, disks: Disks) -> None:
    empty, gone = create(broker, "empty")[0], create(broker, "gone")[0]
    for _ in range(5):
        append(gone)
    log_files(gone).roll(0)
    gone.delete_records_before(-1, now_ms=0)
    gone.take_role(role_of(1, leader_id=1, leader_epoch=3, replicas=[1], isr=[1]))
    gone.log.leader_epochs.assign(3, gone.log.log_end_offset)  # which no batch has
    for partition, path in ((empty, "/b"), (gone, "/a")):
        swap(broker, begin_move(broker, path, partition.topic))
    assert [folder_path(broker, it) for it in (empty, gone)] == ["/b", "/a"]
    assert gone.log.leader_epochs.entries == [(3, 5)]
    assert [append(empty), append(gone)] == [0, 5]


def prepared() -> tuple[Disks, Broker]:
    disks = new_disks()
    broker = open_broker(disks)
    partition = filled(broker, segment_bytes="1048576")
    log_files(partition).roll(0)
    append(partition, b"in the second segment")
    partition.delete_records_before(2, now_ms=0)
    log_files(partition).flush()
    for folder, checkpoints in broker.housekeeping.take_checkpoints():
        folder.write(checkpoints)
    return disks, broker


def move_and_close(broker: Broker) -> None:
    move(broker, "/b")
    carry_out(broker)
    log_files(broker.partitions.find("t", 0)).flush()  # which makes the name in the folder durable
    broker.close()


def operations_of_a_move() -> int:
    disks, broker = prepared()
    count = Countdown(disks, 10**9)
    move_and_close(broker)
    return 10**9 - count.left


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_stop_at_any_operation_leaves_one_log_with_every_record(loses_power: bool) -> None:
    total = operations_of_a_move()
    ends: set[tuple[str | None, bool]] = set()
    for number in range(total):
        disks, broker = prepared()
        expected = values(broker.partitions.find("t", 0))
        Countdown(disks, number)
        with pytest.raises(Stop):
            move_and_close(broker)
        durable_to = broker.partitions.find("t", 0).log.recovery_point
        after = {path: disk.crash() if loses_power else disk.kill() for path, disk in disks.items()}
        again = open_broker(after)
        partition = again.partitions.find("t", 0)
        found = values(partition)
        # What was synced before is there; what was appended during the move may be as well.
        assert found[: len(expected)] == expected, number
        assert found[len(expected) :] in ([], [b"after the copy"]), number
        assert partition.log_end_offset >= durable_to, number
        assert partition.log_start_offset >= 2 or log_files(partition).segments.bases[0] == 0, number
        assert sum(disk.exists("t-0") for disk in after.values()) == 1, number
        ends.add((folder_path(again, partition), bool(again.moves.moves)))
        # Its folder is the one in the metadata, whatever had been decided.
        [folder] = [it for it in again.log_dirs if it.meta.directory_id == partition.directory_id]
        assert folder.path == folder_path(again, partition), number
        if folder_path(again, partition) == "/b":
            assert again.log_dirs.dirs[1].topic_id("t", 0) == partition.topic_id, number
        # The requested move continues, or is over.
        carry_out(again)
        assert [name for name in after["/b"].listdir("") if name.endswith("-future")] == []
        append(partition, b"and on")
        assert values(partition)[: len(expected)] == expected
        again.close()
        final = open_broker(after)
        assert values(final.partitions.find("t", 0))[-1] == b"and on"
        final.close()
    assert ends >= {("/a", True), ("/b", False)}


def test_deleting_the_topic_ends_its_move(broker: Broker, disks: Disks) -> None:
    filled(broker)
    move(broker, "/b")
    at_once(broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
    assert broker.moves.moves == []


@pytest.mark.parametrize("path", ["/a", "/b"])
def test_a_folder_that_fails_ends_its_moves(broker: Broker, path: str) -> None:
    partition = filled(broker)
    append(create(broker, "other")[0])
    move(broker, "/b")
    [folder] = [folder for folder in broker.log_dirs.dirs if folder.path == path]
    broker.take_offline(folder, EIO)
    assert broker.moves.moves == []
    assert partition.closed == (path == "/a")


def test_a_move_whose_folders_cannot_be_renamed_restarts_at_the_next_start() -> None:
    disks = new_disks("/a", "/b", "/c")
    broker = open_broker(disks, "metadata.log.dir=/a")
    create(broker, "first")
    partition = filled(broker)
    assert folder_path(broker, partition) == "/b"
    under_way = begin_move(broker, "/c")
    disks["/b"].before_operation = failing("rename", "t-0")
    expected = values(partition)
    trio.run(broker.moves._carry_out, under_way)
    assert refusal(partition.leader) == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.log_dirs.dirs[1].failed is not None
    disks["/b"].before_operation = None
    broker.close()
    again = open_broker(killed(disks))
    assert folder_path(again, again.partitions.find("t", 0)) == "/b"
    assert values(again.partitions.find("t", 0)) == expected
    carry_out(again)
    assert folder_path(again, again.partitions.find("t", 0)) == "/c"
    assert values(again.partitions.find("t", 0)) == [*expected, b"after the copy"]
    again.close()


@pytest.mark.parametrize("path", ["/b", "/c"])
def test_a_swap_that_a_want_of_descriptors_refuses_is_done_by_the_next_start(path: str) -> None:
    def refuse(operation: str, where: str) -> None:
        if operation == "rename" and "/" not in where:
            raise OSError(errno.EMFILE, "Too many open files")

    disks = new_disks("/a", "/b", "/c")
    broker = open_broker(disks, "metadata.log.dir=/a")
    create(broker, "first")
    partition = filled(broker)
    create(broker, "neighbour")
    under_way = begin_move(broker, "/c")
    disks[path].before_operation = refuse
    expected = values(partition)
    trio.run(broker.moves._carry_out, under_way)
    assert refusal(partition.leader) == ErrorCode.KAFKA_STORAGE_ERROR
    assert [it.failed for it in broker.log_dirs.dirs] == [None, None, None]
    append(broker.partitions.find("neighbour", 0))
    disks[path].before_operation = None
    for folder in broker.log_dirs.dirs:
        folder.finish_deletions()
    broker.close()
    again = open_broker(disks)
    assert folder_path(again, again.partitions.find("t", 0)) == "/c"
    assert values(again.partitions.find("t", 0)) == expected
    again.close()


def test_a_copy_waits_while_the_folder_of_its_original_is_away() -> None:
    disks = new_disks("/a", "/b", "/c")
    broker = open_broker(disks)
    create(broker, "first")
    partition = filled(broker)
    assert folder_path(broker, partition) == "/b"
    move(broker, "/c")
    broker.close()
    lame = open_broker({**killed(disks), "/b": FaultyDisk()})
    assert refusal(lambda: lame.partitions.find("t", 0)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert lame.moves.moves == []
    lame.close()
    again = open_broker(killed(disks))
    assert [it.key for it in again.moves.moves] == [("t", 0)]
    carry_out(again)
    assert folder_path(again, again.partitions.find("t", 0)) == "/c"
    again.close()


def test_a_target_without_room_ends_the_move_and_nothing_else(broker: Broker, disks: Disks) -> None:
    partition = filled(broker)
    move(broker, "/b")
    disks["/b"].before_operation = failing("append", "t-0.", errno.ENOSPC)
    [under_way] = broker.moves.moves
    trio.run(broker.moves._carry_out, under_way)
    assert broker.moves.moves == []
    assert broker.log_dirs.dirs[1].failed is None
    assert append(partition) == 20


def test_who_waits_for_an_fsync_is_answered_by_the_swap(broker: Broker) -> None:
    partition = create(broker, "t", flush_messages="2")[0]
    for _ in range(2):
        batch = memoryview(bytearray(build_batch([Record(timestamp=0, value=b"x")])))
        result = partition.append(batch, read_header(batch), acks=1, now_ms=0)
    old = partition.flush_gate
    waiting = acknowledgement(partition, result.last_offset)
    assert not waiting.is_set
    flush = old.begin()
    swap(broker, begin_move(broker, "/b"))
    assert value_of(waiting) is None
    assert partition.high_watermark == 2
    # A flush of the original that was under way finds its files gone; the flusher heeds that the gate is closed.
    assert old.closed
    with pytest.raises(StorageError):
        flush.run()
    assert append(partition) == 2
    assert partition.flush_gate.log is partition.log
    assert partition.log.recovery_point == 2


def test_a_log_that_is_on_its_way_is_not_compacted_and_one_that_is_compacted_waits(broker: Broker) -> None:
    partition = create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0")[0]
    for number in range(6):
        batch = memoryview(bytearray(build_batch([Record(timestamp=0, key=b"k", value=b"%d" % number)])))
        partition.append(batch, read_header(batch), acks=1, now_ms=0)
        log_files(partition).roll(0)
    cleaner = broker.cleaner
    move(broker, "/b")
    assert trio.run(cleaner.clean_all) == 0
    partition.is_cleaning = True
    [under_way] = broker.moves.moves

    async def wait() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.moves._carry_out, under_way)
            await trio.sleep(1)
            assert under_way.copied_bytes == 0
            partition.is_cleaning = False

    trio.run(wait, clock=MockClock(autojump_threshold=0.05))
    assert folder_path(broker, partition) == "/b"
    log_files(partition).roll(0)  # all is in one segment there
    assert trio.run(cleaner.clean_all) == 1
    cleaned = log_files(partition).cleaned_offset
    assert cleaned > 0
    move(broker, "/a")
    carry_out(broker)
    assert log_files(partition).cleaned_offset == cleaned
    assert values(partition)[-2:] == [b"5", b"after the copy"]


def test_a_log_whose_first_records_were_compacted_begins_where_it_did(broker: Broker) -> None:
    partition = create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0")[0]
    for number in range(6):
        batch = memoryview(bytearray(build_batch([Record(timestamp=0, key=b"k", value=b"%d" % number)])))
        partition.append(batch, read_header(batch), acks=1, now_ms=0)
    log_files(partition).roll(0)
    assert trio.run(broker.cleaner.clean_all) == 1
    assert log_files(partition).read(0, max_bytes=1000, max_offset=6).base_offset == 5
    for path in ("/b", "/a"):
        move(broker, path)
        carry_out(broker)
        assert folder_path(broker, partition) == path
        assert partition.log_start_offset == 0
        assert values(partition)[0] == b"5"
        assert log_files(partition).damage == []


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_a_move_that_another_one_took_the_place_of_does_not_come_back_with_a_restart(ending: str) -> None:
    disks = new_disks("/a", "/b", "/c")
    broker = open_broker(disks)
    partition = create(broker, "t")[0]
    source = folder_path(broker, partition)
    first, second = sorted(disks.keys() - {source})
    append(partition)
    move(broker, second)
    move(broker, first)  # the copy for the second would be removed by the next turn of the mover
    if ending == "stop":
        broker.close()
    else:
        broker.log_dirs.abandon()
        disks = killed(disks)
    again = open_broker(disks)
    [under_way] = again.moves.moves
    assert ending == "kill" or under_way.target_folder.path == first
    target = under_way.target_folder.path
    carry_out(again)
    assert folder_path(again, again.partitions.find("t", 0)) == target
    trio.run(again.housekeeping.remove_deleted)
    assert [name for disk in disks.values() for name in disk.listdir("") if "-future" in name] == []
    again.close()
    assert open_broker(disks).moves.moves == []


def test_a_former_copy_in_the_same_folder_is_removed_at_the_start(broker: Broker, disks: Disks) -> None:
    partition = create(broker, "t")[0]
    append(partition)
    source, target = ("/a", "/b") if folder_path(broker, partition) == "/a" else ("/b", "/a")
    move(broker, target)
    move(broker, source)  # ends it
    move(broker, target)
    broker.log_dirs.abandon()
    disks = killed(disks)
    assert len([name for name in disks[target].listdir("") if "-future" in name]) == 2
    again = open_broker(disks)
    carry_out(again)
    trio.run(again.housekeeping.remove_deleted)
    assert [name for disk in disks.values() for name in disk.listdir("") if "-future" in name] == []
    again.close()


def test_a_move_ends_before_the_log_of_its_deleted_topic_goes(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker, "t")
    begin_move(broker, "/b")
    moving: list[object] = []
    close = Partition.close

    def noted(self: Partition) -> None:
        # A deletion takes several turns of the loop from here on, and in any of them the move might continue.
        moving.extend(broker.moves.moves)
        close(self)

    monkeypatch.setattr(Partition, "close", noted)
    at_once(broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
    assert moving == []
    assert not broker.partitions.by_name

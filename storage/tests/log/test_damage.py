"""Corrupt data is found, reported once, answered with an error, and got around; good data is never lost with it."""

from __future__ import annotations

import logging

import attrs
import pytest
from kwire_protocol.records import build_batch
from kwire_storage import names
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError, CorruptRangeError
from kwire_storage.log.damage import CorruptRange
from kwire_storage.log.log import Log

from testkit.storage.damaged import CONFIG, GARBAGE, all_but, filled, location, overwrite, path, readable, reopened
from testkit.storage.logs import append, open_log, records


@pytest.fixture
def closed() -> Log:
    log = filled()
    assert log.segments.bases == [0, 40, 80]
    log.close()
    return log


@pytest.mark.parametrize("by", [GARBAGE, bytes(30), b"\x7f"], ids=["ones", "zeros", "a length beyond the end"])
def test_a_broken_header_hides_its_own_batch_and_no_other(closed: Log, by: bytes) -> None:
    overwrite(closed, 5, 8, by)
    log = reopened(closed)
    assert readable(log) == all_but(5)
    (corrupt,) = log.damage
    position = location(5)[1]
    assert attrs.evolve(corrupt, reason="") == CorruptRange(path(0), position, location(6)[1], 10, 12, "")


def test_a_read_in_front_ends_there_and_one_inside_names_file_positions_and_offsets(closed: Log) -> None:
    overwrite(closed, 5, 8, GARBAGE)
    log = reopened(closed)
    with pytest.raises(CorruptRangeError, match=rf"{path(0)} is corrupt from \d+ to \d+: offsets 10 to 11 ") as refused:
        log.read(11, max_bytes=1000, max_offset=100)
    assert (refused.value.first_offset, refused.value.end_offset) == (10, 12)
    piece = log.read(0, max_bytes=10_000, max_offset=100)
    assert (piece.position, piece.size) == (0, location(5)[1])
    piece = log.read(12, max_bytes=10_000, max_offset=100)
    assert (piece.position, piece.position + piece.size) == (location(6)[1], log.segments[0].size)
    # Bounds in front of the range, inside it and behind it.
    for bound, end in ((4, 2), (11, 5), (12, 5), (14, 5)):
        assert log.read(0, max_bytes=10_000, max_offset=bound).size == location(end)[1]


def test_it_is_reported_once(closed: Log, caplog: pytest.LogCaptureFixture) -> None:
    overwrite(closed, 5, 8, GARBAGE)
    log = reopened(closed)
    for _ in range(3):
        readable(log)
        log.segments[0].rebuild()
    (logged,) = caplog.records
    assert logged.levelno == logging.ERROR
    assert "offsets 10 to 11" in logged.getMessage()
    assert "kwire log check" in logged.getMessage()


def test_a_segment_is_checked_once(closed: Log) -> None:
    overwrite(closed, 5, 8, GARBAGE)
    log = reopened(closed)
    readable(log)
    file = log.segments[0].file
    reads = 0
    read = file.read

    class Counting:
        size = file.size
        path = file.path

        def read(self, position: int, size: int) -> bytes:
            nonlocal reads
            reads += size
            return read(position, size)

    log.segments[0]._file = Counting()  # type: ignore[assignment]
    with pytest.raises(CorruptRangeError):
        log.read(10, max_bytes=1, max_offset=100)
    assert reads == 0


def test_without_damage_nothing_is_checked(closed: Log) -> None:
    log = reopened(closed)
    assert readable(log) == all_but()
    assert not any(segment.is_examined for segment in log.segments)


def test_a_wrong_offset_is_found_although_no_crc_covers_it(closed: Log) -> None:
    for wrong in (0, 9, 13, 2**40):
        copy = reopened(closed)
        overwrite(copy, 5, 0, wrong.to_bytes(8, "big"))
        copy = reopened(copy)
        assert readable(copy) == all_but(5), wrong
        overwrite(closed, 5, 0, (10).to_bytes(8, "big"))


def test_a_wrong_magic_is_found_although_no_crc_covers_it(closed: Log) -> None:
    overwrite(closed, 5, 16, b"\x07")
    assert readable(reopened(closed)) == all_but(5)


def test_bytes_that_were_cut_out_shift_what_follows_and_hide_nothing_else(closed: Log) -> None:
    file, position = location(5)
    data = closed.disk.read_bytes(file)
    closed.disk.write_bytes(file, data[: position + 50] + data[position + 60 :])
    assert readable(reopened(closed)) == all_but(5)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_whole_batches_that_were_cut_out_are_missed_and_none_that_a_wrong_index_leads_past(policy: str) -> None:
    log = filled(config=attrs.evolve(CONFIG, index_interval_bytes=600, cleanup_policy=policy))
    log.close()
    data = log.disk.read_bytes(path(0))
    log.disk.write_bytes(path(0), data[: location(3)[1]] + data[location(6)[1] :])
    log = reopened(log)
    assert log.read(16, max_bytes=1, max_offset=100).base_offset == 16
    assert readable(log) == all_but(3, 4, 5)


def test_the_missing_end_of_a_segment_is_missed(closed: Log) -> None:
    closed.disk.write_bytes(path(0), closed.disk.read_bytes(path(0))[: location(15)[1]])
    log = reopened(closed)
    assert readable(log) == all_but(*range(15, 20))
    with pytest.raises(CorruptRangeError, match="without offsets 30 to 39, which are missing"):
        log.read(33, max_bytes=1, max_offset=100)


def test_a_missing_segment_is_missed_but_where_compaction_was_at_work() -> None:
    for policy in ("delete", "compact"):
        log = filled(config=attrs.evolve(CONFIG, cleanup_policy=policy))
        log.close()
        log.disk.remove(path(40))
        log = reopened(log)
        if policy == "delete":
            assert readable(log) == all_but(*range(20, 40))
        else:
            assert log.read(40, max_bytes=1, max_offset=100).base_offset == 80
            assert log.damage == []


def test_holes_that_compaction_left_before_the_policy_changed_are_none() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    for base in (0, 20):
        log.append_as_is(build_batch(records(10), base_offset=base))
    log.segments.end_offset = 40
    log.roll(0)
    log.append_as_is(build_batch(records(10), base_offset=40))
    log.flush()
    log = open_log(log.disk, CONFIG, clean=False, recovery_point=50)
    assert log.read(33, max_bytes=1, max_offset=50).base_offset == 40
    assert log.damage == []


# -- the end of the log


def test_a_log_whose_end_is_corrupt_continues_behind_it_in_a_new_segment(closed: Log) -> None:
    overwrite(closed, 49, 8, GARBAGE)
    log = reopened(closed)
    size = log.disk.size(path(80))
    assert append(log, 2).base_offset == 100
    assert log.segments.bases == [0, 40, 80, 100]
    assert readable(log) == [*all_but(49), 50]
    assert log.disk.size(path(80)) == size
    log.close()
    assert readable(reopened(log)) == [*all_but(49), 50]


def test_a_log_that_lost_its_end_continues_at_the_next_offset(closed: Log) -> None:
    closed.disk.write_bytes(path(80), closed.disk.read_bytes(path(80))[: location(45)[1]])
    log = reopened(closed)
    with pytest.raises(CorruptRangeError, match="without offsets 90 to 99"):
        log.read(95, max_bytes=1, max_offset=100)
    assert append(log, 2).base_offset == 100
    assert log.segments.bases == [0, 40, 80, 100]
    assert readable(log) == [*all_but(*range(45, 50)), 50]
    log = reopened(log, recovery_point=102)
    assert readable(log) == [*all_but(*range(45, 50)), 50]


def test_a_log_that_lost_its_last_file_continues_at_the_next_offset(closed: Log) -> None:
    closed.disk.remove(path(80))
    log = reopened(closed)
    with pytest.raises(CorruptRangeError):
        log.read(80, max_bytes=1, max_offset=100)
    assert append(log, 2).base_offset == 100
    assert readable(log) == [*all_but(*range(40, 50)), 50]


def test_garbage_where_the_next_record_belongs_is_not_written_over() -> None:
    log = filled(40)
    log.roll(0)
    log.close()
    log.disk.write_bytes(path(80), b"whatever it was, it is not ours")
    log = reopened(log)
    for _ in range(2):
        with pytest.raises(CorruptLogError, match="bytes that are no batch"):
            append(log, 1)
    assert log.disk.read_bytes(path(80)) == b"whatever it was, it is not ours"


def test_a_clean_stop_without_snapshot_gives_no_offset_twice(closed: Log) -> None:
    for offset in closed.producer_state.snapshot_offsets:
        closed.disk.remove(f"orders-0/{offset:020d}.snapshot")
    overwrite(closed, 49, 8, GARBAGE)
    log = open_log(closed.disk, CONFIG, recovery_point=100)
    assert append(log, 1).base_offset == 100


# -- everybody else who walks over batches


def test_times_are_found_around_it(closed: Log) -> None:
    overwrite(closed, 5, 8, GARBAGE)
    log = reopened(closed)
    found = [log.offset_for_timestamp(1000 + 10 * number, max_offset=100) for number in range(50)]
    assert [it.offset if it else None for it in found] == [2 * (6 if number == 5 else number) for number in range(50)]
    overwrite(closed, 49, 8, GARBAGE)
    newest = reopened(closed).max_timestamp_offset(max_offset=100)
    assert newest is not None
    assert newest.offset == 97


def test_a_batch_that_cannot_be_decoded_is_passed_over_by_time(closed: Log) -> None:
    overwrite(closed, 5, 70, GARBAGE[:5])
    log = reopened(closed)
    found = log.offset_for_timestamp(1050, max_offset=100)
    assert found is not None
    assert found.offset == 12
    assert [it.first_offset for it in log.damage] == [10]


def test_producers_are_known_from_what_is_left(closed: Log) -> None:
    for offset in closed.producer_state.snapshot_offsets:
        closed.disk.remove(f"orders-0/{offset:020d}.snapshot")
    overwrite(closed, 5, 8, GARBAGE)
    log = open_log(closed.disk, CONFIG, recovery_point=100)
    assert log.producers.entries[1].last_sequence == 99


def test_a_lost_index_over_a_corrupt_range_is_made_again(closed: Log) -> None:
    overwrite(closed, 5, 8, GARBAGE)
    for suffix in (names.INDEX, names.TIME_INDEX):
        closed.disk.remove(f"orders-0/{names.offset_name(0, suffix)}")
    log = reopened(closed)
    assert readable(log) == all_but(5)
    assert len(log.damage) == 1
    log.close()
    assert readable(reopened(log)) == all_but(5)


@pytest.mark.parametrize(("at", "by"), [(8, GARBAGE), (70, GARBAGE[:5])], ids=["a header", "a record"])
def test_replay_for_those_who_need_everything_stops_at_it(closed: Log, at: int, by: bytes) -> None:
    overwrite(closed, 5, at, by)
    log = reopened(closed)
    replay = log.batches()
    assert [next(replay)[0].base_offset // 2 for _ in range(5)] == list(range(5))
    with pytest.raises(CorruptLogError, match=path(0)):
        next(replay)
    assert [header.base_offset for header, _ in log.batches(12)][:2] == [12, 14]


def test_replay_for_those_who_need_everything_stops_where_something_is_missing(closed: Log) -> None:
    closed.disk.remove(path(40))
    with pytest.raises(CorruptLogError, match="missing"):
        list(reopened(closed).batches(12))


def test_truncating_into_it_takes_all_of_it(closed: Log) -> None:
    overwrite(closed, 45, 8, GARBAGE)
    log = reopened(closed)
    log.truncate_to(91)
    assert (log.log_end_offset, log.damage) == (90, [])
    assert append(log, 2).base_offset == 90
    assert readable(log) == list(range(46))


def test_truncating_behind_it_keeps_it(closed: Log) -> None:
    overwrite(closed, 45, 8, GARBAGE)
    log = reopened(closed)
    log.truncate_to(94)
    assert log.log_end_offset == 94
    assert append(log, 2).base_offset == 94
    assert readable(log) == [number for number in range(48) if number != 45]


def test_retention_goes_by_what_is_left(closed: Log) -> None:
    overwrite(closed, 5, 8, GARBAGE)
    for suffix in (names.INDEX, names.TIME_INDEX):
        closed.disk.remove(f"orders-0/{names.offset_name(0, suffix)}")
    log = open_log(closed.disk, attrs.evolve(CONFIG, retention_ms=100))
    assert log.apply_retention(1191 + 101, 100) == 1
    assert log.log_start_offset == 40
    assert log.damage == []


def test_a_lost_epoch_file_is_made_up_for_by_the_batches() -> None:
    log = open_log(MemoryDisk(), CONFIG)
    for number in range(10):
        append(log, 2, leader_epoch=number // 4)
    log.close()
    log.disk.write_bytes("orders-0/leader-epoch-checkpoint", b"nonsense")
    assert reopened(log).leader_epochs.entries == [(0, 0), (1, 8), (2, 16)]

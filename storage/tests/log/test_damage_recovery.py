"""Corrupt data in a log's recovery: left below the recovery point, cut behind it, and reported in either case."""

from __future__ import annotations

import attrs
import pytest
from kwire_storage.errors import CorruptLogError
from kwire_storage.log.log import Log

from testkit.storage.damaged import CONFIG, GARBAGE, all_but, filled, location, overwrite, path, readable, reopened
from testkit.storage.logs import append


@pytest.fixture
def closed() -> Log:
    log = filled()
    assert log.segments.bases == [0, 40, 80]
    log.close()
    return log


@pytest.mark.parametrize("batch", [3, 25, 45, 49])
def test_below_the_recovery_point_nothing_is_cut(closed: Log, batch: int) -> None:
    overwrite(closed, batch, 70, GARBAGE[:5])
    sizes = [closed.disk.size(path(base)) for base in (0, 40, 80)]
    log = reopened(closed, recovery_point=100)
    assert log.recovery is not None
    assert (log.recovery.cut_bytes, log.recovery.deleted_segments, log.log_end_offset) == (0, 0, 100)
    assert [log.disk.size(path(base)) for base in (0, 40, 80)] == sizes
    scanned = batch >= 40
    assert readable(log) == (all_but(batch) if scanned else all_but())
    assert append(log, 2).base_offset == 100
    assert log.read(100, max_bytes=1, max_offset=102).base_offset == 100


@pytest.mark.parametrize("recovery_point", [60, 100])
def test_a_missing_segment_below_the_recovery_point_takes_no_later_one_with_it(
    closed: Log, recovery_point: int
) -> None:
    closed.disk.remove(path(40))
    log = reopened(closed, recovery_point=recovery_point)
    assert log.recovery is not None
    assert (log.recovery.deleted_segments, log.segments.bases[:2]) == (0, [0, 80])
    assert readable(log) == all_but(*range(20, 40))


def test_a_missing_segment_behind_the_recovery_point_ends_the_log(closed: Log) -> None:
    closed.disk.remove(path(40))
    log = reopened(closed, recovery_point=40)
    assert log.recovery is not None
    assert (log.recovery.deleted_segments, log.log_end_offset) == (1, 40)
    assert (log.recovery.lost_batches, log.recovery.lost_end_offset) == (10, 100)


def test_behind_the_recovery_point_bad_bytes_end_the_log_and_what_goes_with_them_is_counted(closed: Log) -> None:
    overwrite(closed, 25, 70, GARBAGE[:5])
    size = closed.disk.size(path(40))
    log = reopened(closed, recovery_point=40)
    recovery = log.recovery
    assert recovery is not None
    assert log.log_end_offset == 50
    assert readable(log) == list(range(25))
    assert recovery.cut_bytes == size - location(25)[1]
    assert recovery.deleted_segments == 1
    assert (recovery.lost_batches, recovery.lost_end_offset) == (24, 100)
    assert recovery.lost_bytes == 24 * (recovery.cut_bytes // 15)


def test_a_torn_tail_is_no_loss_of_good_batches(closed: Log) -> None:
    overwrite(closed, 49, 70, GARBAGE)
    log = reopened(closed, recovery_point=40)
    assert log.recovery is not None
    assert log.recovery.cut_bytes > 0
    assert (log.log_end_offset, log.recovery.lost_batches) == (98, 0)


def test_damage_below_the_recovery_point_does_not_save_a_torn_tail_behind_it(closed: Log) -> None:
    overwrite(closed, 42, 70, GARBAGE[:5])
    overwrite(closed, 48, 70, GARBAGE[:5])
    log = reopened(closed, recovery_point=90)
    assert log.recovery is not None
    assert log.log_end_offset == 96
    assert (log.recovery.lost_batches, log.recovery.lost_end_offset) == (1, 100)
    assert readable(log) == [number for number in range(48) if number != 42]
    assert [it.first_offset for it in log.damage] == [84]


def test_a_log_that_is_synced_one_by_one_is_refused_rather_than_cut_in_the_middle(closed: Log) -> None:
    closed.config = attrs.evolve(CONFIG, synced_one_by_one=True)
    overwrite(closed, 45, 70, GARBAGE[:5])
    sizes = [closed.disk.size(path(base)) for base in (0, 40, 80)]
    with pytest.raises(
        CorruptLogError, match=rf"{path(80)} is corrupt at {location(45)[1]}: good batches up to offset 99"
    ):
        reopened(closed, recovery_point=0)
    assert [closed.disk.size(path(base)) for base in (0, 40, 80)] == sizes
    overwrite(closed, 45, 70, b"x" * 5)

"""A cleaning cut off at every step, with larger segments and more of them than in `power_cuts`: nothing is lost."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from kwire_protocol.records import iter_records
from kwire_storage.compaction import swap
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.medium import Fate, Names
from kwire_storage.log.log import Log

from testkit.storage.compacting import COMPACTED, compact, pairs, put, steps, table
from testkit.storage.logs import end_transaction, open_log


class PowerCutError(Exception):
    """The power fails at this point."""


def filled(disk: FaultyDisk) -> Log:
    log = open_log(disk, COMPACTED)
    for number in range(36):
        put(log, (f"k{number % 4}", f"{number}" + "." * 100), (f"once{number}", None if number % 3 else "here"))
        if number % 9 == 4:
            put(log, ("k0", "aborted"), producer_id=7, sequence=number, transactional=True)
            end_transaction(log, 7, commit=False)
    log.roll(0)
    # Once: then there are small segments, of which the next cleaning makes one.
    compact(log)
    for number in range(6):
        put(log, (f"k{number % 4}", f"again {number}"), (f"once{number}", None))
    log.roll(0)
    put(log, ("k1", "last"))
    log.flush()
    return log


def operations_of_a_cleaning() -> int:
    disk = FaultyDisk()
    log = filled(disk)
    count = 0

    def counted(_name: str, _path: str) -> None:
        nonlocal count
        count += 1

    disk.before_operation = counted
    compact(log)
    return count


def is_found(log: Log, row: tuple[int, str, str | None]) -> bool:
    """Finds it as a consumer with an offset does; the indexes are part of it."""
    piece = log.read(row[0], max_bytes=1, max_offset=log.log_end_offset)
    return any(record.offset == row[0] for record in iter_records(piece.read()))


def committed(rows: list[tuple[int, str, str | None]]) -> list[tuple[int, str, str | None]]:
    return [row for row in rows if row[2] != "aborted"]


def test_completing_a_swap_may_itself_be_cut_off_at_any_operation() -> None:
    def interrupted() -> FaultyDisk:
        """Makes a disk after the swap was committed."""
        disk = FaultyDisk()
        log = filled(disk)
        cleaning = steps(log)
        swap.commit(cleaning)
        return disk.crash()

    reference = open_log(interrupted(), COMPACTED, clean=False)
    expected = pairs(reference)
    for stop_at in range(200):
        disk = interrupted()
        left = stop_at

        def cut(_name: str, _path: str) -> None:
            nonlocal left
            if left == 0:
                raise PowerCutError
            left -= 1

        disk.before_operation = cut
        try:
            open_log(disk, COMPACTED, clean=False)
        except PowerCutError:
            disk.before_operation = None
            assert pairs(open_log(disk.crash(), COMPACTED, clean=False)) == expected, stop_at
            assert pairs(open_log(disk.kill(), COMPACTED, clean=False)) == expected, stop_at
        else:
            assert stop_at > 10
            return
    raise AssertionError("an opening takes more than 200 operations")


def any_names(random_: random.Random) -> Fate:
    """Keeps any of the changes to names that were not synced, and of contents what was synced."""

    def kept(_number: int, folder: Names) -> list[int]:
        share = random_.random()
        return [number for number in range(len(folder.pending)) if random_.random() <= share]

    return Fate(lambda _number, file: file.durable, kept)


def ending(disk: FaultyDisk, suffix: str) -> list[int]:
    """Returns the offsets of the log's files that end so, ascending."""
    return sorted(int(name[:20]) for name in disk.listdir("orders-0") if name.endswith(suffix))


REPLACED = [group.segments[0].base_offset for group in steps(filled(FaultyDisk())).groups]
"""What a cleaning of `filled` makes."""


def test_names_may_reach_the_medium_in_any_order() -> None:
    total = operations_of_a_cleaning()
    seed = random.randrange(2**32)
    random_ = random.Random(seed)
    for stop_at in [*range(total), *range(total)]:
        disk = FaultyDisk()
        log = filled(disk)
        before, end_offset = pairs(log), log.log_end_offset
        old_bases, was_deleted = list(log.segments.bases), ending(disk, ".deleted")
        left = stop_at

        def cut(_name: str, _path: str) -> None:
            nonlocal left
            if left == 0:
                raise PowerCutError
            left -= 1

        disk.before_operation = cut
        with pytest.raises(PowerCutError):
            compact(log)
        disk.before_operation = None
        is_replacing = ending(disk, ".deleted") != was_deleted
        after = disk.crash(any_names(random_))
        if not is_replacing:
            swapped, not_yet = ending(after, ".log.swap"), ending(after, ".cleaned")
            counted = [base for base in swapped if not not_yet or base < not_yet[0]]
            assert counted == [base for base in old_bases if base in REPLACED][: len(counted)], f"{stop_at}, {seed}"
        reopened = open_log(after, COMPACTED, clean=False, recovery_point=log.recovery_point)
        where = f"operation {stop_at}, seed {seed}"
        rows = pairs(reopened)
        assert reopened.recovery is None or reopened.recovery.cut_bytes == 0, where
        assert reopened.log_end_offset == end_offset, where
        assert table(committed(rows)) == table(committed(before)), where
        assert set(rows) <= set(before), where
        assert all(is_found(reopened, row) for row in rows), where


def test_names_may_reach_the_medium_in_any_order_while_an_exchange_is_completed() -> None:
    seed = random.randrange(2**32)
    random_ = random.Random(seed)
    for stop_at in range(100):
        disk = FaultyDisk()
        log = filled(disk)
        expected = table(committed(pairs(log)))
        cleaning = steps(log)
        assert max(len(group.segments) for group in cleaning.groups) > 1
        swap.commit(cleaning)
        left = stop_at

        def cut(_name: str, _path: str) -> None:
            nonlocal left
            if left == 0:
                raise PowerCutError
            left -= 1

        disk.before_operation = cut
        with suppress(PowerCutError):
            open_log(disk, COMPACTED, clean=False, recovery_point=log.recovery_point)
        disk.before_operation = None
        again = open_log(disk.crash(any_names(random_)), COMPACTED, clean=False, recovery_point=log.recovery_point)
        rows = pairs(again)
        where = f"operation {stop_at}, seed {seed}"
        assert table(committed(rows)) == expected, where
        assert all(is_found(again, row) for row in rows), where
        for segment, its_end in again.segments.from_offset(0):
            assert segment.last_offset_in_file() < its_end, f"{where}: an old one stands beside what it became part of"

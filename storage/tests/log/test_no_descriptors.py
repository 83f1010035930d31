"""A process that has no descriptor, or no memory, when a log opens something: at each of its openings."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from kwire_storage.config import LogConfig
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.log import Log

from testkit.storage.logs import append, open_log, read_all

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
MOST_OPENINGS = 10_000


class Lacking:
    """A fault that refuses the opening of one number."""

    def __init__(self, disk: MemoryDisk, refused: int, code: int) -> None:
        self.left = refused
        self._code = code
        disk.before_open = self._before_open

    def _before_open(self, path: str) -> None:
        self.left -= 1
        if self.left == -1:
            raise OSError(self._code, os.strerror(self._code), path)


def carry_out(log: Log, act: Callable[[Log], object]) -> None:
    """Repeats the operation once if it was refused, as a caller would."""
    try:
        act(log)
    except OSError:
        assert log.failed is None
        act(log)


ACTS: list[Callable[[Log], object]] = [
    *[lambda log: append(log, 3)] * 9,
    Log.flush,
    lambda log: log.roll(1),
    lambda log: append(log, 2),
    lambda log: log.truncate_to(log.segments.bases[-2] + 1),
    lambda log: append(log, 4),
    lambda log: log.advance_log_start(5),
    *[lambda log: append(log, 3)] * 3,
    Log.flush,
    lambda log: log.truncate_to(log.segments.bases[2]),
    lambda log: append(log, 2),
]


def life(disk: MemoryDisk, refused: int, code: int, acts: list[Callable[[Log], object]]) -> tuple[Log, Lacking]:
    log = open_log(disk, CONFIG)
    lacking = Lacking(disk, refused, code)
    for act in acts:
        carry_out(log, act)
    return log, lacking


@pytest.mark.parametrize("acts", [ACTS, [*ACTS, lambda log: log.truncate_fully_and_start_at(77), ACTS[0]]])
@pytest.mark.parametrize("code", PASSING)
def test_a_refused_opening_passes_and_nothing_is_lost(code: int, acts: list[Callable[[Log], object]]) -> None:
    plain, _ = life(MemoryDisk(), MOST_OPENINGS, code, acts)
    expected = plain.log_start_offset, plain.log_end_offset, read_all(plain)
    for number in range(MOST_OPENINGS):
        disk = MemoryDisk()
        log, lacking = life(disk, number, code, acts)
        assert (log.log_start_offset, log.log_end_offset, read_all(log)) == expected, number
        disk.before_open = None
        log.close()
        again = open_log(disk, CONFIG)
        assert (again.log_end_offset, read_all(again)[-2:]) == (expected[1], expected[2][-2:]), number
        if lacking.left >= 0:
            return
    raise AssertionError("it opens without end")

"""The offset map of one partition, from offsets of the source to offsets of the target. Pure.

The offsets differ: the target has markers of the mirror's transactions and lacks those of the source, and records that
were compacted away at the source leave no gap at the target. But in long stretches both have consecutive offsets. Such
a stretch is a run: a number of records, with its first offset at the source and at the target.

    run                      source 100 .. 149 -> target 90 .. 139
    run                      source 152 .. 160 -> target 141 .. 149

A consumer at 120 of the source continues at 110 of the target. One at 150, where only markers follow, continues at 140,
after the first run. So the translation of an offset is exact: the next record is the same in both clusters.

Each transaction makes a run of its own, so the map would grow without end. `superfluous` selects the runs to drop:
every other one of the older half, so that the map is fine where groups are, and coarse where they were. An offset in a
dropped run is translated to the end of the run before it. That is earlier than necessary but never too late: records
are read again, and none is skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import attrs

MOST_RUNS: Final = 512
"""The maximum number of runs of a partition; beyond it some are dropped."""


@attrs.frozen
class Run:
    """`count` records with consecutive offsets at the source and at the target."""

    source: int
    target: int
    count: int

    @property
    def source_end(self) -> int:
        """The next offset after it."""
        return self.source + self.count

    @property
    def target_end(self) -> int:
        return self.target + self.count


def runs_of(source_offsets: Sequence[int], target: int) -> list[Run]:
    """The runs of a batch that was written from offset `target` on."""
    runs: list[Run] = []
    for at, source in enumerate(source_offsets, target):
        last = runs[-1] if runs else None
        if last is not None and last.source_end == source:
            runs[-1] = attrs.evolve(last, count=last.count + 1)
        else:
            runs.append(Run(source, at, 1))
    return runs


def joined(runs: Sequence[Run], more: Sequence[Run]) -> list[Run]:
    """`more` after `runs`. Two runs without a gap between them on either side become one."""
    if not runs or not more:
        return [*runs, *more]
    last, first = runs[-1], more[0]
    if (last.source_end, last.target_end) != (first.source, first.target):
        return [*runs, *more]
    return [*runs[:-1], attrs.evolve(last, count=last.count + first.count), *more[1:]]


def renewed(runs: Sequence[Run], newer: Sequence[Run]) -> list[Run]:
    """`newer` after `runs`. Its first run may be the last of `runs`, now longer."""
    if not newer:
        return [*runs]
    return [*(it for it in runs if it.source < newer[0].source), *newer]


def translated(runs: Sequence[Run], begin: int, source: int) -> int:
    """Returns the target offset at which a consumer at offset `source` of the source continues.

    runs: some of the partition's runs, in order; with fewer runs the answer may be earlier.
    begin: the target's offset where the mirror began, for offsets before all runs.
    """
    index = bisect_right(runs, source, key=lambda it: it.source) - 1
    if index < 0:
        return begin
    run = runs[index]
    return run.target + min(source - run.source, run.count)


def superfluous(runs: Sequence[Run], log_start: int, *, most: int = MOST_RUNS) -> list[Run]:
    """The runs to drop: those of records that the source no longer has, and some of the oldest others.

    The last run stays, and so does the last one that begins before the source's log start.
    """
    gone = max(0, bisect_right(runs, log_start, key=lambda it: it.source) - 1)
    dropped, left = list(runs[:gone]), runs[gone:]
    if len(left) > most:
        dropped += left[1 : len(left) // 2 : 2]
    return dropped

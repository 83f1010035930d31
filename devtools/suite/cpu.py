"""CPU seconds of this process and of all that it has started, whether they have ended or not.

Wall time depends more on other users of the machine than on the tests; CPU time hardly changes beside a busy loop.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")

REFERENCE_S = 0.13
"""The CPU seconds that `machine_slowness` measures on the machine that the budgets were written for."""


def cpu_seconds() -> float:
    """The CPU seconds so far. Without /proc, only ended processes count, and only if their parent waited for them."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return own + _of_running_children(os.getpid())


def _of_running_children(pid: int) -> float:
    children: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        children[int(fields[1])].append((int(stat.parent.name), sum(map(int, fields[11:15]))))
    ticks, parents = 0, [pid]
    while parents:
        for child, spent in children[parents.pop()]:
            ticks += spent
            parents.append(child)
    return ticks / _TICKS_PER_S


def machine_slowness() -> float:
    """The ratio of this machine's CPU seconds to the reference machine's, for the same work, just now."""

    def work() -> float:
        begin = time.process_time()
        table: dict[int, int] = {}
        for number in range(1_000_000):
            table[number % 1000] = table.get(number % 997, 0) + number
        return time.process_time() - begin

    return sorted(work() for _ in range(5))[2] / REFERENCE_S

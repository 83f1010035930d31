"""Cores, CPU time and memory as Linux reports them; all of it comes from /proc.

The broker has cores of its own and the load has others, so that neither takes time from the other. What else runs on
the broker's cores cannot be kept away, but it can be counted: the kernel keeps the idle time of each core, and time
that was neither idle nor the broker's was another process's.

CPU time of a process comes in ticks of 10 ms: enough over seconds, too coarse for anything shorter.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import attrs

Cores = frozenset[int]

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Reading(NamedTuple):
    """The state of three clocks at one moment, in seconds."""

    clock_s: float
    broker_s: float
    idle_s: float


@attrs.frozen
class Usage:
    """The time that passed between two readings."""

    seconds: float
    cpu_s: float  # of the broker, user and system
    others_s: float  # used on the broker's cores by others


@attrs.frozen
class Meter:
    """Holds the broker's CPU time against the clock; that of all its nodes, if it is a cluster."""

    pids: Sequence[int]
    cores: Cores

    def read(self) -> Reading:
        return Reading(time.monotonic(), cpu_s(*self.pids), idle_s(self.cores))

    def since(self, start: Reading) -> Usage:
        return self.between(start, self.read())

    def between(self, start: Reading, end: Reading) -> Usage:
        seconds = end.clock_s - start.clock_s
        broker_s = end.broker_s - start.broker_s
        others_s = seconds * len(self.cores) - (end.idle_s - start.idle_s) - broker_s
        return Usage(seconds, broker_s, max(others_s, 0.0))


def process_tree(*pids: int) -> list[int]:
    """Processes and all that live below them."""
    members = [*pids]
    for member in members:  # grows while we walk
        for thread in _entries(f"/proc/{member}/task"):
            members.extend(map(int, _text(f"/proc/{member}/task/{thread}/children").split()))
    return members


def cpu_s(*pids: int) -> float:
    """User and system time of process trees; of children that have ended too."""
    ticks = 0
    for member in process_tree(*pids):
        # The name, in parentheses, may hold blanks. Behind it: state, ... utime, stime, cutime, cstime.
        ticks += sum(map(int, _text(f"/proc/{member}/stat").rpartition(")")[2].split()[11:15]))
    return ticks * _TICK_S


def resident_mib(*pids: int, peak: bool = False) -> float:
    """Resident memory of process trees, now or at its highest."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    lines = (line for member in process_tree(*pids) for line in _text(f"/proc/{member}/status").splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith(wanted)) / 1024


def wake_ups(*pids: int) -> dict[str, int]:
    """Returns how often each thread of process trees has gone to sleep, which is how often it was woken."""
    counts = {}
    for member in process_tree(*pids):
        for thread in _entries(f"/proc/{member}/task"):
            for line in _text(f"/proc/{member}/task/{thread}/status").splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    counts[thread] = int(line.split()[1])
    return counts


def idle_s(cores: Cores) -> float:
    """Idle time of the cores, added up. The kernel counts it exactly, while its figures of work are samples."""
    names = {f"cpu{core}" for core in cores}
    fields = [line.split() for line in _text("/proc/stat").splitlines()]
    return sum(int(field[4]) + int(field[5]) for field in fields if field[0] in names) * _TICK_S


def own_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def parse_cores(text: str) -> Cores:
    """`0`, `0,2` or `0-3`. ValueError if it is none of these."""
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


@contextmanager
def pinned(cores: Cores) -> Iterator[None]:
    """This thread, and every process and thread that it starts meanwhile, runs on `cores`."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def allow_open_files() -> int:
    """Raises this process's limit, which brokers inherit, as far as it may; returns it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def drop_from_cache(folder: Path) -> None:
    """Writes the files of a folder out and lets the page cache forget them."""
    for parent, _, names in os.walk(folder):  # passes over what a broker removes meanwhile; rglob raises
        for name in names:
            try:
                with Path(parent, name).open("rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:  # a file that is just being removed
                continue


def describe() -> dict[str, str]:
    """The machine, for the record."""
    models = [line.partition(": ")[2] for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "cpu": models[0] if models else os.uname().machine,
        "cores": str(os.cpu_count()),
        "memory": f"{memory_gib:.0f} GiB",
        "kernel": os.uname().release,
        "load average at the start": f"{os.getloadavg()[0]:.1f}",
    }


def _text(path: str) -> str:
    """A file's content; empty when its process is gone."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return []

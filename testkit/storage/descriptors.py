"""The descriptors of this process: those of a folder, and a limit that leaves only a few."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def open_below(folder: Path) -> list[Path]:
    """Returns the files below the folder that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        # The one that lists them is gone already, and so may be those of other threads.
        with suppress(FileNotFoundError):
            path = descriptor.readlink()
            if path.is_relative_to(folder):
                found.append(path)
    return found


def descriptors_of(folder: Path) -> int:
    """Returns how many files below the folder this process has open."""
    return len(open_below(folder))


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Limits the process to `count` descriptors more than it has. A file that it closes leaves it one more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        limit = max(int(it.name) for it in Path("/proc/self/fd").iterdir()) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
        with suppress(OSError):
            while True:  # The limit is of the highest number, so the gaps below it are filled.
                taken.append(os.open(os.devnull, os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit + count, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)

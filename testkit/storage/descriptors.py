"""The descriptors of this process: how many a folder has, and a limit that leaves only a few."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def descriptors_of(folder: Path) -> int:
    """The number of files below the folder that this process has open."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            found += str(descriptor.readlink()).startswith(str(folder))
    return found


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

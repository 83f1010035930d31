"""A limit on the resources of all segments in a process: open files, and indexes in memory.

A caller gets a file or index from its segment, and a segment that has none requests it here. At the limit, one that was
not used recently is closed. Uses are not recorded. Instead a file is first put aside: its segment takes it back at the
next use, and it is closed only if it is still aside when its turn comes again. So an append to an open segment costs
the same as without a limit, and the first one after the file was put aside costs one assignment.

A file with unsynced writes may be closed: the pages belong to the file and not to the descriptor, and a later fsync on
another descriptor writes them. If the system failed to write them meanwhile, that fsync fails: Linux (since 4.17)
reports an unreported error also to descriptors that are opened later. One risk remains: under memory pressure the
system may drop the file's inode, including the error, between the failure and the next fsync. A broker that restarts
after a kill has the same risk.

Everything else that a disk opens is not held here. If the process has no descriptor left for it, half of the segments'
files are closed, and it is opened again (`with_room`).

Thread-safe, since logs may be recovered concurrently: the sets of open resources change under a lock, and a segment's
references are only ever replaced as a whole.
"""

from __future__ import annotations

import errno
import sys
from collections import OrderedDict
from collections.abc import Callable
from threading import RLock
from typing import Protocol, TypeVar

T = TypeVar("T")
F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)

UNLIMITED = sys.maxsize
MAX_INDEX_BYTES = 64 << 20
"""About twelve full segments of 1 GiB. A dropped index is read again: 5 MiB at the most, mostly far less."""

_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_LOCKED_WITHIN_S = 0.1


class Holder(Protocol[F_co]):
    """The holder of a file and its indexes: a segment."""

    def take_file_back(self) -> F_co | None:
        """Returns the file, if it is open."""

    def open_file(self) -> F_co:
        """Opens the file. Raises OSError."""

    def release_file(self) -> bool:
        """Closes the file. Returns False if it was used since the last call, or must stay open."""

    def needs_indexes(self) -> bool:
        """Returns True if the indexes were used since the last call; otherwise drops them, and returns False."""


class OpenFiles:
    """The limits: at most `max_files` open segment files, and `max_index_bytes` of indexes that their files have, too.

    Indexes with entries that are in no file yet are not counted: they stay until they are written.
    """

    def __init__(self, max_files: int = UNLIMITED, max_index_bytes: int = MAX_INDEX_BYTES) -> None:
        assert max_files > 0
        self.max_files = max_files
        self.max_index_bytes = max_index_bytes
        self.index_bytes = 0
        self.is_full = False
        """True if one more file means that another one must be closed; data being sent may keep that one open."""
        self._lock = RLock()
        self._files: OrderedDict[Holder[object], None] = OrderedDict()
        self._indexes: OrderedDict[Holder[object], int] = OrderedDict()

    def __len__(self) -> int:
        """The number of open files."""
        return len(self._files)

    def open(self, segment: Holder[F]) -> F:
        """Returns the segment's file, and opens it unless it was only put aside. Raises OSError."""
        with self._lock:
            file = segment.take_file_back()
            if file is not None:
                return file
            self._make_room(self.max_files - 1)
            file = segment.open_file()
            self._files[segment] = None
            self.is_full = len(self._files) >= self.max_files
            return file

    def with_room(self, open_it: Callable[[], T]) -> T:
        """Returns the result of `open_it`. Calls it again if the process had no descriptor left. Raises OSError."""
        try:
            return open_it()
        except OSError as error:
            if error.errno not in _TOO_MANY or not self._close_half():
                raise
        return open_it()

    def _close_half(self) -> bool:
        """Closes half of the files. Returns False if it could close none."""
        # The caller may hold the lock of a lease, and the thread that has this lock may wait for that one (`open`). So
        # this must not wait for long.
        if not self._lock.acquire(timeout=_LOCKED_WITHIN_S):
            return False
        try:
            before = len(self._files)
            self._make_room(before // 2)
            self.is_full = len(self._files) >= self.max_files
            return len(self._files) < before
        finally:
            self._lock.release()

    def _make_room(self, most: int) -> None:
        files = self._files
        # Two rounds: one to put each file aside, one to close it. Files that must stay open may exceed the limit.
        for _ in range(2 * len(files)):
            if len(files) <= most:
                break
            segment, _ = files.popitem(last=False)
            if not segment.release_file():
                files[segment] = None

    def index_loaded(self, segment: Holder[object], size: int) -> None:
        """Counts a segment's indexes, of so many bytes, that are in its files as well. May drop those of others."""
        with self._lock:
            self.index_bytes += size - self._indexes.pop(segment, 0)
            self._indexes[segment] = size
            for _ in range(2 * len(self._indexes)):
                if self.index_bytes <= self.max_index_bytes or len(self._indexes) == 1:
                    break
                oldest, size_of_oldest = self._indexes.popitem(last=False)
                if oldest is segment or oldest.needs_indexes():
                    self._indexes[oldest] = size_of_oldest
                else:
                    self.index_bytes -= size_of_oldest

    def forget(self, segment: Holder[object]) -> None:
        """Stops counting a segment that has closed its file and dropped its indexes."""
        with self._lock:
            self._files.pop(segment, None)
            self.is_full = len(self._files) >= self.max_files
            self.index_bytes -= self._indexes.pop(segment, 0)

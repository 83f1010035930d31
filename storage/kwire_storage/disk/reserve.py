"""Reserved disk space, so that the broker can still make its own writes on a full disk.

A file of `size_bytes` is allocated in advance. If a write that the broker itself needs finds the disk full (a topic's
deletion in the metadata log, a checkpoint, the files of a clean stop), the file is removed and the write is retried:
`spend`. From then on the reserve is out, and appends for clients call `check` first, so that no producer uses the space
that the stop will need. The reserve is restored, completely or not at all, once the disk has that much space: a refused
append checks that, and so does `reconcile`, which is called now and then. Nothing waits and nothing polls.

Clients' writes never spend it: clients get an error that the disk is full, and nothing else changes. Without a reserve
(size 0, or a disk without limits) writes only succeed or fail.

Thread-safety: `spend` may run in a worker thread; everything else belongs to the thread that appends. The file is
removed before `is_out` is set, and `is_out` is cleared before the file is created: at worst it is out although the file
exists.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from kwire_storage import names
from kwire_storage.callbacks import ignore
from kwire_storage.disk.files import Disk, DiskSpace
from kwire_storage.errors import StorageError, SyncFailedError, is_full

T = TypeVar("T")

NEW_FOLDER_BYTES = 16_384
"""The disk space of a partition without records: a folder, `partition.metadata`, and their entries in other blocks."""
ROOM_BYTES = 1 << 20
"""The least free space with which a disk does not count as full: most batches fit."""


class Reserve:
    """See the module. `open` allocates it, or finds the one of the last process."""

    def __init__(self, disk: Disk, size_bytes: int = 0) -> None:
        self._disk = disk
        self.size_bytes = size_bytes
        self.is_out = False
        self.is_full = False
        """True if a write has found the disk full, and no room was found since."""
        self.on_change: Callable[[], None] = ignore
        """Called, in any thread, when `is_full` has changed."""

    def open(self) -> None:
        """Allocates the reserve if there is room. A disk without limits is never full and needs no reserve."""
        if self._disk.space() is None:
            self.size_bytes = 0
        elif not self.size_bytes:
            self._disk.remove(names.RESERVE)
        else:
            self.is_out = True
            if not self.take_back():
                self._set_full(True)

    def spend(self, write: Callable[[], T]) -> T:
        """Calls `write`. If the disk is full, removes the reserve and calls it again.

        Raises what `write` raises if there is no reserve to remove, or it is not enough. A sync that failed is never
        repeated.
        """
        # Read before: another thread may release it while this one writes, and then there is room for both.
        may_let_go = self.size_bytes > 0 and not self.is_out
        try:
            return write()
        except OSError as error:
            self.note(error)
            if not may_let_go or not is_full(error) or isinstance(error, SyncFailedError):
                raise
        self._disk.remove(names.RESERVE)
        self.is_out = True
        return write()

    def note(self, error: OSError) -> None:
        """Notes the error of a failed write. If the disk was full, it sets `is_full`."""
        if is_full(error):
            self._set_full(True)

    def check(self) -> None:
        """Raises StorageError(ENOSPC) for an append that is not the broker's own while the reserve is out.

        If there is room again, the reserve is taken back first, and the append may continue.
        """
        if self.is_out and not self.take_back():
            raise self._refusal("no room is left but what the broker itself needs")

    def check_new(self, partitions: int) -> None:
        """Like `check`. Also raises if there is no room for the folders of so many new partitions."""
        self.check()
        space = self._disk.space()
        if space is not None and space.usable_bytes < max(partitions, 1) * NEW_FOLDER_BYTES:
            raise self._refusal(f"{space.usable_bytes} bytes are left, too few for {partitions} new partitions")

    def reconcile(self) -> DiskSpace | None:
        """Returns the free space. Restores the reserve if it is out, and checks whether the disk is still full."""
        space = self._disk.space()
        if self.is_out:
            self.take_back()
        elif self.is_full and (space is None or space.usable_bytes >= ROOM_BYTES):
            self._set_full(False)
        return space

    def take_back(self) -> bool:
        """Restores the reserve if there is room for all of it. Returns True if it exists now."""
        space = self._disk.space()
        if space is not None and not self._disk.exists(names.RESERVE) and space.usable_bytes < self.size_bytes:
            return False
        self.is_out = False
        try:
            self._disk.allocate(names.RESERVE, self.size_bytes)
        except OSError as error:
            # A part of the reserve is of more use to others.
            with suppress(OSError):
                self._disk.remove(names.RESERVE)
            self.is_out = True
            if not is_full(error):
                raise
            return False
        self._set_full(False)
        return True

    def _refusal(self, why: str) -> StorageError:
        self._set_full(True)
        return StorageError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {why}", names.RESERVE)

    def _set_full(self, full: bool) -> None:
        if full != self.is_full:
            self.is_full = full
            self.on_change()

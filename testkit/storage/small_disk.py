"""A disk in memory that can be full: of bytes, and of names, which take `ENTRY_BYTES` each.

`capacity_bytes` may change at any time, as when others use the disk or its owner makes it larger. An append for which
there is room in part is written in part, cut back and refused, as `RealFile` does it.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from kwire_storage.config import LogConfig
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import DiskSpace, File
from kwire_storage.disk.medium import Medium
from kwire_storage.errors import StorageError, is_full
from kwire_storage.log.log import Log

from testkit.storage.logs import SMALL, append

if TYPE_CHECKING:
    from typing_extensions import Buffer

ENTRY_BYTES = 64
TOPIC_ID = bytes(range(16))
RESERVE = 8192


class SmallFile:
    """A file of a small disk."""

    def __init__(self, disk: SmallDisk, inner: File, path: str) -> None:
        self._disk = disk
        self._inner = inner
        self.path = path

    @property
    def size(self) -> int:
        return self._inner.size

    @size.setter
    def size(self, size: int) -> None:
        self._inner.size = size

    def append(self, data: Buffer) -> None:
        view = memoryview(data)
        room = self._disk.room_bytes
        if len(view) > room:
            start = self._inner.size
            if room > 0:
                self._inner.append(view[:room])
                self._inner.truncate(start)
            raise self._disk.full(self.path)
        self._inner.append(view)

    def read(self, position: int, size: int) -> bytes:
        return self._inner.read(position, size)

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)

    def sync(self) -> None:
        if self._disk.syncs_fail_with:
            raise OSError(self._disk.syncs_fail_with, os.strerror(self._disk.syncs_fail_with), self.path)
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()

    def fileno(self) -> int | None:
        return self._inner.fileno()


class SmallDisk(FaultyDisk):
    """A disk that raises ENOSPC, or the given `code`, when there is no room."""

    def __init__(self, capacity_bytes: int, code: int = errno.ENOSPC, medium: Medium | None = None) -> None:
        super().__init__(medium=medium)
        self.capacity_bytes = capacity_bytes
        self.code = code
        self.syncs_fail_with = 0

    @property
    def used_bytes(self) -> int:
        return self._used("")

    @property
    def room_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes)

    def fill(self, room_bytes: int = 0) -> None:
        """Takes all but so many bytes, as another process would."""
        self.capacity_bytes = self.used_bytes + room_bytes

    def full(self, path: str) -> OSError:
        return OSError(self.code, os.strerror(self.code), path)

    def space(self) -> DiskSpace:
        return DiskSpace(self.capacity_bytes, self.room_bytes)

    def open_append(self, path: str) -> SmallFile:  # type: ignore[override]
        if not self.exists(path):
            self._take_entry(path)
        return SmallFile(self, super().open_append(path), path)

    def mkdir(self, path: str) -> None:
        if not self.exists(path):
            self._take_entry(path)
        super().mkdir(path)

    def kill(self) -> SmallDisk:
        return SmallDisk(self.capacity_bytes, self.code, self.medium.copy())

    def _take_entry(self, path: str) -> None:
        if self.room_bytes < ENTRY_BYTES:
            raise self.full(path)

    def _used(self, folder: str) -> int:
        used = 0
        for name in self.listdir(folder):
            path = f"{folder}/{name}" if folder else name
            try:
                used += ENTRY_BYTES + self.size(path)
            except IsADirectoryError:
                used += ENTRY_BYTES + self._used(path)
        return used


def open_folder(disk: FaultyDisk, *, reserve_bytes: int = 0) -> LogDir:
    return LogDir.open(disk, cluster_id="c", node_id=1, directory_id=TOPIC_ID, reserve_bytes=reserve_bytes)


def create(folder: LogDir, partition: int = 0, config: LogConfig = SMALL) -> Log:
    return folder.create_log("orders", partition, TOPIC_ID, config, now_ms=0)


def fill_up(log: Log, *, leader_epoch: int = 0) -> int:
    """Appends until the disk is full; how many batches it took."""
    count = 0
    while True:
        try:
            append(log, leader_epoch=leader_epoch)
        except StorageError as error:
            if not is_full(error):
                raise
            return count
        count += 1

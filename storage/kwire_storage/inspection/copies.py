"""The copies of what a repair removes, and their folders.

    orders-0/kwire-repair-20260131T120000Z/00000000000000004711.log.8192-9000   a range of a file
    orders-0/kwire-repair-20260131T120000Z/00000000000000004711.index           a whole file
    recovery-point-offset-checkpoint.kwire-repair-20260131T120000Z              a file of the log dir itself

They are in the partition's folder, because that is on the same file system, and because brokers ignore folders there.
They cannot be in the log dir itself: Apache Kafka does not start on a log dir that has a folder without a partition's
name.

A copy is durable before anything is changed.
"""

from __future__ import annotations

import errno

from kwire_storage import names
from kwire_storage.disk.files import Disk
from kwire_storage.errors import StorageError
from kwire_storage.inspection.layout import REPAIR_MARK

_CHUNK_BYTES = 1 << 20


class Copies:
    """`stamp` names the repair, such as `20260131T120000Z`."""

    def __init__(self, disk: Disk, stamp: str) -> None:
        self._disk = disk
        self._mark = REPAIR_MARK + stamp
        self._folders: set[str] = set()
        self.paths: list[str] = []
        """The paths of the copies, in order."""

    def replace(self, path: str, content: bytes) -> None:
        """Replaces the file's content, durably, with a copy of the old content, if there was any."""
        if self._disk.exists(path):
            self._copy(path, self._free_path(path), 0, self._disk.size(path))
        self._disk.write_atomic(path, content)

    def set_aside(self, path: str) -> None:
        """Moves the file away, if it exists."""
        if self._disk.exists(path):
            copy_path = self._free_path(path)
            self._disk.rename(path, copy_path)
            self._disk.sync_dir(_folder_of(copy_path))
            self._disk.sync_dir(_folder_of(path))
            self.paths.append(copy_path)

    def cut(self, path: str, size: int) -> None:
        """Keeps the first `size` bytes of the file, and a copy of the others."""
        self._copy(path, self._free_path(path, f".{size}-{self._disk.size(path)}"), size, self._disk.size(path))
        file = self._disk.open_append(path)
        try:
            file.truncate(size)
            file.sync()
        finally:
            file.close()

    def take_out(self, path: str, ranges: list[tuple[int, int]]) -> None:
        """Removes the ranges (start, end; ascending, apart) from the file, with a copy of each."""
        for start, end in ranges:
            self._copy(path, self._free_path(path, f".{start}-{end}"), start, end)
        temporary = names.temporary(path)
        self._disk.remove(temporary)
        source, target = self._disk.open_read(path), self._disk.open_append(temporary)
        try:
            position = 0
            for start, end in [*ranges, (source.size, source.size)]:
                while position < start:
                    data = source.read(position, min(_CHUNK_BYTES, start - position))
                    if not data:
                        raise StorageError(errno.EIO, f"the file ends at {position}", path)
                    target.append(data)
                    position += len(data)
                position = end
            target.sync()
        finally:
            source.close()
            target.close()
        self._disk.rename(temporary, path)
        self._disk.sync_dir(_folder_of(path))

    def _copy(self, path: str, copy_path: str, start: int, end: int) -> None:
        source, target = self._disk.open_read(path), self._disk.open_append(copy_path)
        try:
            while start < end:
                data = source.read(start, min(_CHUNK_BYTES, end - start))
                if not data:
                    break
                target.append(data)
                start += len(data)
            target.sync()
        finally:
            source.close()
            target.close()
        self._disk.sync_dir(_folder_of(copy_path))
        self.paths.append(copy_path)

    def _free_path(self, path: str, suffix: str = "") -> str:
        """A path that does not exist yet."""
        folder, name = _folder_of(path), path.rpartition("/")[2]
        if not folder:
            copy_path = f"{name}{suffix}.{self._mark}"
        else:
            copies = f"{folder}/{self._mark}"
            if copies not in self._folders:
                self._disk.mkdir(copies)
                self._disk.sync_dir(folder)
                self._folders.add(copies)
            copy_path = f"{copies}/{name}{suffix}"
        free, number = copy_path, 1
        while self._disk.exists(free):
            number += 1
            free = f"{copy_path}.{number}"
        return free


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]

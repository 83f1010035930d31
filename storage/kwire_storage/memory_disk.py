"""A disk in memory: the twin of `RealDisk`, for tests of crashes and for brokers that must leave nothing behind.

It keeps two states. The live one is what programs see; the durable one is what a power cut leaves: contents as of the
last `File.sync`, names as of the last `sync_dir`. `crash()` gives a new disk with the durable state, `kill()` one with
the live state (the process dies, the machine does not); both drop all locks, and the old disk goes on by itself.

`before_operation` is called before each change with the operation's name and path. It may raise to make it fail: an
OSError as a disk would, `TornAppendError` to fail after a part of the bytes was written, or anything else to stop a
test at that point.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kwire_storage.errors import FolderLockedError
from kwire_storage.open_files import OpenFiles

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kwire_storage.files import DiskSpace

Survives = Callable[[str, int], int]
"""Given a path and a count of unsynced bytes at its end: how many of them the power cut spares."""


class TornAppendError(OSError):
    """Raised by `before_operation`: the disk takes `written_bytes` of the append, fails, and cannot cut them off."""

    def __init__(self, written_bytes: int, code: int = errno.EIO) -> None:
        super().__init__(code, os.strerror(code))
        self.written_bytes = written_bytes


class Inode:
    """One file's bytes: live, and as they are on the medium."""

    __slots__ = ("data", "durable", "durable_is_prefix")

    def __init__(self, data: bytes | bytearray = b"", durable: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytearray(durable)
        # True while the durable bytes are a prefix of the live ones, so that a sync copies only the growth.
        self.durable_is_prefix = True

    def sync(self) -> None:
        if self.durable_is_prefix:
            self.durable += self.data[len(self.durable) :]
        else:
            self.durable[:] = self.data
            self.durable_is_prefix = True

    def truncate(self, size: int) -> None:
        if size < len(self.durable):
            self.durable_is_prefix = False
        if size <= len(self.data):
            del self.data[size:]
        else:
            self.data += bytes(size - len(self.data))

    def after_crash(self, path: str, survives: Survives | None) -> Inode:
        spared = b""
        if survives is not None and self.durable_is_prefix and len(self.data) > len(self.durable):
            unsynced = self.data[len(self.durable) :]
            spared = bytes(unsynced[: survives(path, len(unsynced))])
        content = bytes(self.durable) + spared
        return Inode(content, content)


class Folder:
    """Names: live, and as they are on the medium."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}

    def after_crash(self, path: str, survives: Survives | None) -> Folder:
        copy = Folder()
        copy.entries = {
            name: node.after_crash(f"{path}{name}", survives)
            if isinstance(node, Inode)
            else node.after_crash(f"{path}{name}/", survives)
            for name, node in self.durable.items()
        }
        copy.durable = dict(copy.entries)
        return copy

    def copy(self) -> Folder:
        copies: dict[int, Inode | Folder] = {}

        def of(node: Inode | Folder) -> Inode | Folder:
            if id(node) not in copies:
                if isinstance(node, Folder):
                    copies[id(node)] = node.copy()
                else:
                    twin = copies[id(node)] = Inode(node.data, node.durable)
                    twin.durable_is_prefix = node.durable_is_prefix
            return copies[id(node)]

        copy = Folder()
        copy.entries = {name: of(node) for name, node in self.entries.items()}
        copy.durable = {name: of(node) for name, node in self.durable.items()}
        return copy


class MemoryFile:
    """An inode, opened."""

    __slots__ = ("_disk", "_inode", "path", "size")

    def __init__(self, disk: MemoryDisk, inode: Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path
        self.size = len(inode.data)

    def append(self, data: Buffer) -> None:
        inode = self._inode
        if len(inode.data) > self.size:
            inode.truncate(self.size)
        try:
            self._disk.operation("append", self.path)
        except TornAppendError as torn:
            inode.data += memoryview(data)[: torn.written_bytes]
            raise
        inode.data += data
        self.size = len(inode.data)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._inode.data[position : position + size])

    def truncate(self, size: int) -> None:
        self._disk.operation("truncate", self.path)
        self._inode.truncate(size)
        self.size = size

    def sync(self) -> None:
        self._disk.operation("sync", self.path)
        self._inode.sync()

    def close(self) -> None:
        """Nothing is held."""

    def fileno(self) -> int | None:
        return None


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name


class MemoryDisk:
    """Folders and files that live as long as this object."""

    def __init__(self, open_files: OpenFiles | None = None) -> None:
        self.open_files = OpenFiles() if open_files is None else open_files
        self.before_operation: Callable[[str, str], None] | None = None
        self._root = Folder()
        self._locks: set[str] = set()

    def operation(self, name: str, path: str) -> None:
        """Announces a change that is about to happen."""
        if self.before_operation is not None:
            self.before_operation(name, path)

    def crash(self, survives: Survives | None = None) -> MemoryDisk:
        """What a power cut leaves; `survives` may spare some of the bytes that were never synced."""
        disk = MemoryDisk()
        disk._root = self._root.after_crash("", survives)
        return disk

    def kill(self) -> MemoryDisk:
        """What is there when the process dies and the machine goes on."""
        disk = MemoryDisk()
        disk._root = self._root.copy()
        return disk

    def _folder(self, path: str) -> Folder:
        folder = self._root
        for name in path.split("/") if path else ():
            node = folder.entries.get(name)
            if node is None:
                raise _error(errno.ENOENT, path)
            if not isinstance(node, Folder):
                raise _error(errno.ENOTDIR, path)
            folder = node
        return folder

    def _inode(self, path: str) -> Inode:
        folder, name = _split(path)
        node = self._folder(folder).entries.get(name)
        if not isinstance(node, Inode):
            raise _error(errno.EISDIR if node else errno.ENOENT, path)
        return node

    def open_append(self, path: str) -> MemoryFile:
        folder, name = _split(path)
        if name not in self._folder(folder).entries:
            self.operation("create", path)
            self._folder(folder).entries[name] = Inode()
        return MemoryFile(self, self._inode(path), path)

    def open_read(self, path: str) -> MemoryFile:
        return MemoryFile(self, self._inode(path), path)

    def listdir(self, path: str) -> list[str]:
        return list(self._folder(path).entries)

    def mkdir(self, path: str) -> None:
        folder = self._root
        for name in path.split("/") if path else ():
            if name not in folder.entries:
                self.operation("mkdir", path)
                folder.entries[name] = Folder()
            node = folder.entries[name]
            if not isinstance(node, Folder):
                raise _error(errno.EEXIST, path)
            folder = node

    def rename(self, old: str, new: str) -> None:
        (old_folder, old_name), (new_folder, new_name) = _split(old), _split(new)
        source, target = self._folder(old_folder), self._folder(new_folder)
        if old_name not in source.entries:
            raise _error(errno.ENOENT, old)
        self.operation("rename", old)
        target.entries[new_name] = source.entries.pop(old_name)

    def remove(self, path: str) -> None:
        folder, name = _split(path)
        entries = self._folder(folder).entries
        if name in entries:
            self.operation("remove", path)
            del entries[name]

    def remove_tree(self, path: str) -> None:
        self.remove(path)

    def exists(self, path: str) -> bool:
        folder, name = _split(path)
        try:
            return not name or name in self._folder(folder).entries
        except OSError:
            return False

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def sync_dir(self, path: str) -> None:
        folder = self._folder(path)
        self.operation("sync_dir", path)
        folder.durable = dict(folder.entries)

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._inode(path).data)

    def write_bytes(self, path: str, data: bytes) -> None:
        if not self.exists(path):
            self._fill(path, data)
            return
        temporary = path + ".tmp"
        self._fill(temporary, data)
        self.rename(temporary, path)

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        self._fill(temporary, data)
        self.open_read(temporary).sync()
        self.rename(temporary, path)
        self.sync_dir(_split(path)[0])

    def _fill(self, path: str, data: bytes) -> None:
        try:
            file = self.open_append(path)
            if file.size:
                file.truncate(0)
            file.append(data)
        except OSError:
            with suppress(OSError):
                self.remove(path)
            raise

    def allocate(self, path: str, size: int) -> None:
        file = self.open_append(path)
        if file.size < size:
            file.append(bytes(size - file.size))
        elif file.size > size:
            file.truncate(size)

    def space(self) -> DiskSpace | None:
        """There is room as long as there is memory."""
        return None

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise FolderLockedError(errno.EAGAIN, "another broker uses this folder", path)
        self.open_append(path)
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def is_locked(self, path: str) -> bool:
        return path in self._locks


class MemoryLock:
    """Held until released; a crashed disk's twin knows nothing of it."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)

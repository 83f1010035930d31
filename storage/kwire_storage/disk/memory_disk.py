"""A disk in memory: the twin of `RealDisk`, for brokers that must leave nothing behind, and for tests.

It has one state, the one that programs see, and loses nothing while it exists. `faulty_disk.py` models power cuts, on
top of the small steps here that change contents and names.

`before_operation` is called before each change with the operation's name and path. It may raise to make it fail: an
OSError as a disk would, `TornAppendError` to fail after a part of the bytes was written, or anything else to stop a
test at that point. `before_open` is called with the path before each operation for which a real disk needs a
descriptor, and may raise the OSError of a process that has none left.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from kwire_storage.disk.files import OpenFolder, WholeFiles
from kwire_storage.disk.open_files import OpenFiles
from kwire_storage.errors import FolderLockedError, SyncFailedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kwire_storage.disk.files import DiskSpace


class TornAppendError(OSError):
    """Raised by `before_operation`: the disk takes `written_bytes` of the append, fails, and cannot cut them off."""

    def __init__(self, written_bytes: int, code: int = errno.EIO) -> None:
        super().__init__(code, os.strerror(code))
        self.written_bytes = written_bytes


class Inode:
    """One file's bytes."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)

    def truncate(self, size: int) -> None:
        if size <= len(self.data):
            del self.data[size:]
        else:
            self.data += bytes(size - len(self.data))


class Folder:
    """The names in a folder, each with its file or folder."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Folder] = {}


class MemoryFile:
    """An open file."""

    __slots__ = ("_disk", "_inode", "path", "size")

    def __init__(self, disk: MemoryDisk, inode: Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path
        self.size = len(inode.data)

    def append(self, data: Buffer) -> None:
        inode, start = self._inode, self.size
        try:
            self._disk.operation("append", self.path)
        except TornAppendError as torn:
            inode.data[start : start + torn.written_bytes] = memoryview(data)[: torn.written_bytes]
            raise
        if len(inode.data) == start:
            inode.data += data
            self.size = len(inode.data)
        else:
            # A torn append has left more than this one covers: the rest stays in the file, behind the known size.
            view = memoryview(data)
            inode.data[start : start + len(view)] = view
            self.size = start + len(view)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._inode.data[position : position + size])

    def truncate(self, size: int) -> None:
        self._disk.operation("truncate", self.path)
        self._inode.truncate(size)
        self.size = size

    def sync(self) -> None:
        self._disk.operation("sync", self.path)

    def close(self) -> None:
        """Nothing is held."""

    def fileno(self) -> int | None:
        return None


class OpenMemoryFolder(OpenFolder):
    """An open folder."""

    def __init__(self, disk: MemoryDisk, folder: Folder, path: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = path

    def sync(self) -> None:
        try:
            self._disk.sync_names(self._folder, self._path)
        except OSError as error:
            raise SyncFailedError.of(error, self._path) from error

    def close(self) -> None:
        """Nothing is held."""


def error_of(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def split_path(path: str) -> tuple[str, str]:
    """Returns the folder and the name."""
    folder, _, name = path.rpartition("/")
    return folder, name


class MemoryDisk(WholeFiles):
    """Folders and files that live as long as this object."""

    def __init__(self, open_files: OpenFiles | None = None) -> None:
        self.open_files = OpenFiles() if open_files is None else open_files
        self.before_operation: Callable[[str, str], None] | None = None
        self.before_open: Callable[[str], None] | None = None
        self._root = Folder()
        self._locks: set[str] = set()

    def operation(self, name: str, path: str) -> None:
        """Announces a change that is about to happen."""
        if self.before_operation is not None:
            self.before_operation(name, path)

    def _take_descriptor(self, path: str) -> None:
        if self.before_open is not None:
            self.before_open(path)

    # -- the steps that everything is made of

    def _open(self, inode: Inode, path: str) -> MemoryFile:
        return MemoryFile(self, inode, path)

    def _link(self, folder: Folder, name: str, node: Inode | Folder, path: str) -> None:
        """Gives a new file or folder its name."""
        self.operation("create" if isinstance(node, Inode) else "mkdir", path)
        folder.entries[name] = node

    def _move(self, source: Folder, old_name: str, target: Folder, new_name: str, path: str) -> None:
        self.operation("rename", path)
        target.entries[new_name] = source.entries.pop(old_name)

    def _unlink(self, folder: Folder, name: str, path: str) -> None:
        self.operation("remove", path)
        del folder.entries[name]

    def sync_names(self, _folder: Folder, path: str) -> None:
        self.operation("sync_dir", path)

    # -- looking up

    def _folder(self, path: str) -> Folder:
        folder = self._root
        for name in path.split("/") if path else ():
            node = folder.entries.get(name)
            if node is None:
                raise error_of(errno.ENOENT, path)
            if not isinstance(node, Folder):
                raise error_of(errno.ENOTDIR, path)
            folder = node
        return folder

    def _inode(self, path: str) -> Inode:
        folder, name = split_path(path)
        node = self._folder(folder).entries.get(name)
        if not isinstance(node, Inode):
            raise error_of(errno.EISDIR if node else errno.ENOENT, path)
        return node

    # -- the disk

    def open_append(self, path: str) -> MemoryFile:
        self._take_descriptor(path)
        folder, name = split_path(path)
        listing = self._folder(folder)
        if name not in listing.entries:
            self._link(listing, name, Inode(), path)
        return self._open(self._inode(path), path)

    def open_read(self, path: str) -> MemoryFile:
        self._take_descriptor(path)
        return self._open(self._inode(path), path)

    def listdir(self, path: str) -> list[str]:
        self._take_descriptor(path)
        return list(self._folder(path).entries)

    def mkdir(self, path: str) -> None:
        folder = self._root
        for name in path.split("/") if path else ():
            if name not in folder.entries:
                self._link(folder, name, Folder(), path)
            node = folder.entries[name]
            if not isinstance(node, Folder):
                raise error_of(errno.EEXIST, path)
            folder = node

    def rename(self, old: str, new: str) -> None:
        (old_folder, old_name), (new_folder, new_name) = split_path(old), split_path(new)
        source, target = self._folder(old_folder), self._folder(new_folder)
        if old_name not in source.entries:
            raise error_of(errno.ENOENT, old)
        self._move(source, old_name, target, new_name, old)

    def remove(self, path: str) -> None:
        folder, name = split_path(path)
        listing = self._folder(folder)
        if name in listing.entries:
            self._unlink(listing, name, path)

    def remove_tree(self, path: str) -> None:
        folder, name = split_path(path)
        listing = self._folder(folder)
        node = listing.entries.get(name)
        if isinstance(node, Folder):
            self._take_descriptor(path)
            for child in list(node.entries):
                self.remove_tree(f"{path}/{child}")
        if node is not None:
            self._unlink(listing, name, path)

    def exists(self, path: str) -> bool:
        folder, name = split_path(path)
        try:
            return not name or name in self._folder(folder).entries
        except OSError:
            return False

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def open_folder(self, path: str) -> OpenMemoryFolder:
        self._take_descriptor(path)
        return OpenMemoryFolder(self, self._folder(path), path)

    def sync_dir(self, path: str) -> None:
        with self.open_folder(path) as folder:
            folder.sync()

    def read_bytes(self, path: str) -> bytes:
        self._take_descriptor(path)
        return bytes(self._inode(path).data)

    def allocate(self, path: str, size: int) -> None:
        file = self.open_append(path)
        if file.size < size:
            file.append(bytes(size - file.size))
        elif file.size > size:
            file.truncate(size)

    def space(self) -> DiskSpace | None:
        """There is room as long as there is memory."""
        return None

    def lock(self, path: str, *, wait: bool = False) -> MemoryLock:
        if path in self._locks:
            assert not wait, "no other thread could release it"
            raise FolderLockedError(errno.EAGAIN, "another broker uses this folder", path)
        self.open_append(path)
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def is_locked(self, path: str) -> bool:
        return path in self._locks

    def wait_for_lock(self, path: str) -> None:
        assert path not in self._locks, "nobody else could let go of it"

    def native_path(self, path: str) -> str | None:  # noqa: ARG002
        return None


class MemoryLock:
    """A lock held until it is released. A disk that a crash leaves has its own."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)

"""The disk as a small interface: the only module of the storage that touches the operating system.

Paths are relative to the disk's root and use "/". A `File` is a log's view of one file: it has its size, grows at its
end, and is read by position, never by a cursor. Appending is all or nothing for readers: when the system takes only a
part of the bytes, the file is cut back to its former size before the error is raised.

A file's descriptor is closed when the last reference to its `File` is dropped (or by `close`), so that a slice of a
segment that was rolled or deleted can still be sent. Failures are `OSError`s with their errno.

Names (creations, renames, removals) are durable after `sync_dir` of the folder, contents after `File.sync`;
`write_atomic` does both. Thread-safety: `read` and `sync` may run in a worker thread while another thread appends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from kwire_storage import names
from kwire_storage.disk.open_files import OpenFiles
from kwire_storage.errors import FolderLockedError, SyncFailedError

if TYPE_CHECKING:
    from typing_extensions import Buffer


_ZEROS_BYTES = 1 << 20


class File(Protocol):
    """One open file. `size` is its length in bytes, stored here so that reading it needs no system call."""

    path: str
    size: int

    def append(self, data: Buffer) -> None:
        """Writes all of it at the end, or nothing. Raises OSError on failure; the size is unchanged."""

    def read(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes; fewer at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Returns when the content is on the medium (fdatasync)."""

    def close(self) -> None: ...

    def fileno(self) -> int | None:
        """The descriptor for sendfile; None when there is none."""


class OpenFolder(ABC):
    """One open folder: its names can be synced without opening anything."""

    @abstractmethod
    def sync(self) -> None:
        """Returns when the names in the folder are on the disk. Raises SyncFailedError."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


class DiskLock(Protocol):
    def release(self) -> None: ...


class DiskSpace(NamedTuple):
    """The space of the file system that a disk is on, in bytes; `usable_bytes` is what this process may still write."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """A tree of folders and files."""

    open_files: OpenFiles
    """The open files of the disk's segments. Disks of one process may share it, as they share its descriptors."""

    def open_append(self, path: str) -> File:
        """Opens a file for reading and appending; creates it if it is absent."""

    def open_read(self, path: str) -> File: ...

    def listdir(self, path: str) -> list[str]: ...

    def mkdir(self, path: str) -> None:
        """Creates the folder and those above it, unless they exist."""

    def rename(self, old: str, new: str) -> None:
        """Replaces `new` if it exists."""

    def remove(self, path: str) -> None:
        """Removes a file, if it exists."""

    def remove_tree(self, path: str) -> None: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def open_folder(self, path: str) -> OpenFolder:
        """Opens a folder, for a caller that must be able to sync it after a change of names."""

    def sync_dir(self, path: str) -> None:
        """Does the same as `OpenFolder.sync`. Any error but SyncFailedError means that nothing was synced."""

    def read_bytes(self, path: str) -> bytes: ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replaces the content, with no guarantee after a crash. On failure the file has the old content, or none."""

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replaces the content, durably; a crash during the call leaves the old content whole."""

    def allocate(self, path: str, size: int) -> None:
        """Allocates a file of `size` bytes with disk space of its own; existing content is kept."""

    def space(self) -> DiskSpace | None:
        """The current size of the disk and its free space; None if there is no such limit."""

    def lock(self, path: str, *, wait: bool = False) -> DiskLock:
        """Takes the lock. If it is held already, waits, or raises FolderLockedError."""

    def is_locked(self, path: str) -> bool:
        """Returns True if the lock is held. Does not take it, and changes nothing."""

    def wait_for_lock(self, path: str) -> None:
        """Returns when the lock is free."""

    def native_path(self, path: str) -> str | None:
        """The path for other processes; None if they cannot, or must not, use it."""


class RealFile:
    """A descriptor and the length of its file."""

    __slots__ = ("_fd", "path", "size")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path
        self.size = os.fstat(fd).st_size

    def append(self, data: Buffer) -> None:
        start = self.size
        size = len(data)  # type: ignore[arg-type]
        try:
            written = os.pwrite(self._fd, data, start)
            if written != size:
                self._append_rest(data, start, written)
        except BaseException:
            # Even if this fails, the bytes are behind the known size: unreadable, and overwritten by the next append.
            with suppress(OSError):
                os.ftruncate(self._fd, start)
            raise
        self.size = start + size

    def _append_rest(self, data: Buffer, start: int, written: int) -> None:
        rest = memoryview(data)
        while written < len(rest):
            more = os.pwrite(self._fd, rest[written:], start + written)
            if more == 0:
                raise OSError(errno.EIO, "the system wrote nothing", self.path)
            written += more

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._fd, size, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def fileno(self) -> int | None:
        return self._fd

    def __del__(self) -> None:
        # Absent when the file could not be opened.
        if getattr(self, "_fd", -1) >= 0:
            self.close()


class RealFolder(OpenFolder):
    """A descriptor of a folder."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise SyncFailedError.of(error, self.path) from error

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class WholeFiles:
    """Replaces the content of files, with the other operations of a `Disk`. The same for every disk."""

    def write_bytes(self: Disk, path: str, data: bytes) -> None:
        """See `Disk`. On a full disk, writing in place would lose the old content."""
        replace_file(self, path, data, sync=False)

    def write_atomic(self: Disk, path: str, data: bytes) -> None:
        """See `Disk`."""
        replace_file(self, path, data, sync=True)
        self.sync_dir(path.rpartition("/")[0])


def sync_file(disk: Disk, path: str) -> None:
    """Puts the content of a file that is not open on the medium."""
    file = disk.open_read(path)
    try:
        file.sync()
    finally:
        file.close()


def replace_file(disk: Disk, path: str, data: bytes, *, sync: bool) -> None:
    target = names.temporary(path) if sync or disk.exists(path) else path
    try:
        file = disk.open_append(target)
        try:
            if file.size:
                file.truncate(0)
            file.append(data)
            if sync:
                file.sync()
        finally:
            file.close()
        if target != path:
            disk.rename(target, path)
    except OSError:
        with suppress(OSError):
            disk.remove(target)
        raise


class RealDisk(WholeFiles):
    """A folder of the operating system."""

    def __init__(self, root: str | os.PathLike[str], open_files: OpenFiles | None = None) -> None:
        self.root = os.fspath(root)
        self.open_files = OpenFiles() if open_files is None else open_files
        self._prefix = os.path.join(self.root, "")  # noqa: PTH118 - Path costs more than the system call on this path

    def open_append(self, path: str) -> RealFile:
        return RealFile(self._open(path, os.O_RDWR | os.O_CREAT), path)

    def open_read(self, path: str) -> RealFile:
        return RealFile(self._open(path, os.O_RDONLY), path)

    def _open(self, path: str, flags: int) -> int:
        return self.open_files.with_room(lambda: os.open(self._prefix + path, flags | os.O_CLOEXEC, 0o644))

    def listdir(self, path: str) -> list[str]:
        return self.open_files.with_room(lambda: os.listdir(self._prefix + path))  # noqa: PTH208 - no Paths needed

    def mkdir(self, path: str) -> None:
        try:
            Path(self._prefix + path).mkdir()
        except FileExistsError:
            pass
        except FileNotFoundError:
            Path(self._prefix + path).mkdir(parents=True, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        Path(self._prefix + old).replace(self._prefix + new)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            Path(self._prefix + path).unlink()

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.open_files.with_room(lambda: shutil.rmtree(self._prefix + path))

    def exists(self, path: str) -> bool:
        return Path(self._prefix + path).exists()

    def size(self, path: str) -> int:
        return Path(self._prefix + path).stat().st_size

    def open_folder(self, path: str) -> RealFolder:
        return RealFolder(self._open(path, os.O_RDONLY | os.O_DIRECTORY), path)

    def sync_dir(self, path: str) -> None:
        with self.open_folder(path) as folder:
            folder.sync()

    def read_bytes(self, path: str) -> bytes:
        return self.open_files.with_room(Path(self._prefix + path).read_bytes)

    def allocate(self, path: str, size: int) -> None:
        fd = self._open(path, os.O_RDWR | os.O_CREAT)
        try:
            there = os.fstat(fd).st_size
            if there > size:
                os.ftruncate(fd, size)
            if not _allocate(fd, size):
                for position in range(there, size, _ZEROS_BYTES):
                    os.pwrite(fd, bytes(min(_ZEROS_BYTES, size - position)), position)
        finally:
            os.close(fd)

    def space(self) -> DiskSpace:
        found = os.statvfs(self._prefix)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str, *, wait: bool = False) -> RealLock:
        fd = self._open(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock_descriptor(fd, wait=wait)
        except BlockingIOError:
            os.close(fd)
            raise FolderLockedError(errno.EAGAIN, "another broker uses this folder", self._prefix + path) from None
        except BaseException:
            os.close(fd)
            raise
        return RealLock(fd)

    def is_locked(self, path: str) -> bool:
        try:
            fd = self._open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return _is_locked(fd)
        finally:
            os.close(fd)

    def wait_for_lock(self, path: str) -> None:
        fd = self._open(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock_descriptor(fd, wait=True)
        finally:
            os.close(fd)

    def native_path(self, path: str) -> str | None:
        return os.path.abspath(self._prefix + path)  # noqa: PTH100 - a text is needed


# struct flock: l_type, l_whence, l_start, l_len (0: to the end), l_pid (0, as the system demands)
_FLOCK = struct.Struct("hhqqi0q")


def _is_locked(fd: int) -> bool:
    if hasattr(fcntl, "F_OFD_GETLK"):
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found: int = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, query))[0]
        return found != fcntl.F_UNLCK
    try:
        # A flock cannot be queried: it is taken, and released at once.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lock_descriptor(fd: int, *, wait: bool = False) -> None:
    # An open file description lock conflicts with our own in another broker of this process, with our own in another
    # process, and with the POSIX lock that Apache Kafka takes on the same file; flock would miss the last.
    if hasattr(fcntl, "F_OFD_SETLK"):
        command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        fcntl.fcntl(fd, command, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _allocate(fd: int, size: int) -> bool:
    """Returns False if the system, or this file system, can do so only by writing."""
    if not hasattr(os, "posix_fallocate"):
        return False
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        # musl's error; glibc writes instead.
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        return False
    return True


class RealLock:
    """A lock that is held until it is released, or until the process ends in any way."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

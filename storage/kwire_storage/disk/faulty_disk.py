"""A disk in memory on which the power can be cut: `MemoryDisk` with a `Medium` beneath it.

    disk = FaultyDisk()
    ...                                    # a broker writes
    disk.kill()                            # the process died, and the machine continued
    disk.crash()                           # the power failed, and nothing unsynced was written
    disk.crash(EVERYTHING)                 # the power failed, and everything had been written

Each returns a new disk without locks, and the old one continues independently. `journal` has every change in order:
applied change by change to a copy of the initial medium, it shows what could be left at each moment. Errors (EIO,
ENOSPC, a torn append) are injected by `before_operation`, as on any `MemoryDisk`.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from kwire_storage.disk.medium import (
    NOTHING_UNSYNCED,
    ROOT,
    Change,
    Fate,
    Link,
    Medium,
    Rename,
    Sync,
    SyncNames,
    Truncate,
    Unlink,
    Write,
)
from kwire_storage.disk.memory_disk import Folder, Inode, MemoryDisk, MemoryFile, TornAppendError
from kwire_storage.disk.open_files import OpenFiles

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Entry(NamedTuple):
    """One change, with a description for people."""

    change: Change
    what: str


class FaultyFile(MemoryFile):
    """Passes every change on to the medium, including the part that a failed one has written."""

    __slots__ = ("_faulty",)

    def __init__(self, disk: FaultyDisk, inode: Inode, path: str) -> None:
        super().__init__(disk, inode, path)
        self._faulty = disk

    def append(self, data: Buffer) -> None:
        start, written = self.size, bytes(data)
        try:
            super().append(data)
        except TornAppendError as torn:
            written = written[: torn.written_bytes]
            raise
        except BaseException:
            written = b""
            raise
        finally:
            if written:
                what = f"append {len(written)} bytes to {self.path}"
                self._faulty.note(Write(self._faulty.number(self._inode), start, written), what)

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._faulty.note(Truncate(self._faulty.number(self._inode), size), f"truncate {self.path} to {size}")

    def sync(self) -> None:
        number = self._faulty.number(self._inode)
        try:
            super().sync()
        except OSError:
            self._faulty.note(Sync(number, failed=True), f"sync {self.path}, which fails")
            raise
        self._faulty.note(Sync(number), f"sync {self.path}")


class FaultyDisk(MemoryDisk):
    """See the module. `medium`: what the disk begins with; a new disk is empty."""

    def __init__(self, open_files: OpenFiles | None = None, *, medium: Medium | None = None) -> None:
        super().__init__(open_files)
        self.medium = medium or Medium()
        self.journal: list[Entry] = []
        # Logs are flushed and cleaned in worker threads.
        self._changing = Lock()
        self._numbers: dict[int, int] = {}
        # Their ids must not be used for others.
        self._nodes: list[Inode | Folder] = []
        self._next_number = max(*self.medium.files, *self.medium.folders, ROOT) + 1
        self._grow(self._root, ROOT, {})

    def _grow(self, folder: Folder, number: int, known: dict[int, Inode]) -> None:
        self._register(folder, number)
        for name, node in self.medium.folders[number].live.items():
            if node in self.medium.folders:
                child = folder.entries[name] = Folder()
                self._grow(child, node, known)
            else:
                if node not in known:
                    known[node] = Inode(self.medium.files[node].live)
                    self._register(known[node], node)
                folder.entries[name] = known[node]

    def crash(self, fate: Fate = NOTHING_UNSYNCED) -> FaultyDisk:
        """Returns the disk that a power cut leaves."""
        with self._changing:
            return FaultyDisk(medium=self.medium.after_power_cut(fate))

    def kill(self) -> FaultyDisk:
        """Returns the disk that is left when the process dies and the machine continues."""
        with self._changing:
            return FaultyDisk(medium=self.medium.copy())

    def rot(self, path: str, position: int, bits: int = 0xFF) -> None:
        """Flips bits of one byte of a file that is on the medium."""
        inode = self._inode(path)
        self.medium.rot(self.number(inode), position, bits)
        inode.data[position] ^= bits

    # -- changes passed on to the medium

    def number(self, node: Inode | Folder) -> int:
        return self._numbers[id(node)]

    def note(self, change: Change, what: str) -> None:
        with self._changing:
            self.medium.apply(change)
            self.journal.append(Entry(change, what))

    def _register(self, node: Inode | Folder, number: int) -> None:
        self._numbers[id(node)] = number
        self._nodes.append(node)

    def _open(self, inode: Inode, path: str) -> MemoryFile:
        return FaultyFile(self, inode, path)

    def _link(self, folder: Folder, name: str, node: Inode | Folder, path: str) -> None:
        super()._link(folder, name, node, path)
        with self._changing:
            number = self._next_number
            self._next_number += 1
            self._register(node, number)
        is_folder = isinstance(node, Folder)
        what = f"{'mkdir' if is_folder else 'create'} {path}"
        self.note(Link(self.number(folder), name, number, is_folder), what)

    def _move(self, source: Folder, old_name: str, target: Folder, new_name: str, path: str) -> None:
        node = source.entries[old_name]
        super()._move(source, old_name, target, new_name, path)
        number, where = self.number(node), self.number(source)
        what = f"rename {path} to {new_name}"
        if source is target:
            self.note(Rename(where, old_name, new_name, number), what)
        else:
            self.note(Link(self.number(target), new_name, number, isinstance(node, Folder)), what)
            self.note(Unlink(where, old_name, number), what)

    def _unlink(self, folder: Folder, name: str, path: str) -> None:
        number = self.number(folder.entries[name])
        super()._unlink(folder, name, path)
        self.note(Unlink(self.number(folder), name, number), f"remove {path}")

    def sync_names(self, folder: Folder, path: str) -> None:
        number = self.number(folder)
        try:
            super().sync_names(folder, path)
        except OSError:
            self.note(SyncNames(number, failed=True), f"sync_dir {path}, which fails")
            raise
        self.note(SyncNames(number), f"sync_dir {path}")

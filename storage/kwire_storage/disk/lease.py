"""One log's access to the disk, for as long as the log owns its folder.

A partition's folder is named after its topic, and the name may soon belong to another one: the topic is deleted and
created again, or the partition moves to another log dir and back. Flushes and cleanings in worker threads still have
the old paths. So a log, and everything that works for it, uses the disk through a lease. `LogDir` ends the lease before
it takes the folder away from the log. From then on every operation fails as if the file did not exist, even if another
log has that name by then.

A process that was given the folder has no lease: the folder is lent to it, and is not removed until it has been
returned, even if it was renamed.

Thread-safety: any thread may use it, but only the log's thread lends. `end` returns when no operation that changes or
opens a name is under way, and it never waits for the disk to sync: contents are written and synced through files, which
a lease only opens.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock

from kwire_storage.disk.files import Disk, DiskLock, DiskSpace, File, OpenFolder, WholeFiles
from kwire_storage.disk.open_files import OpenFiles
from kwire_storage.errors import LeaseEndedError


class Lease(WholeFiles):
    """See the module; a `Disk`."""

    def __init__(self, disk: Disk, open_files: OpenFiles | None = None) -> None:
        self.disk = disk
        self.open_files = disk.open_files if open_files is None else open_files
        # Reentrant: an opening that finds no descriptor closes other files, perhaps of the same log.
        self._names = RLock()
        self._has_ended = False
        self._recall: Callable[[], object] | None = None

    @property
    def is_lent(self) -> bool:
        return self._recall is not None

    @contextmanager
    def lent(self, recall: Callable[[], object]) -> Iterator[None]:
        """Lends the folder to another process until the context ends. Only one process may have it.

        `recall` is called if the lease ends meanwhile: the folder is needed back.
        """
        assert self._recall is None, "the folder is lent already"
        self._recall = recall
        try:
            yield
        finally:
            self._recall = None

    def end(self) -> None:
        """Ends the lease: the log has no folder any more."""
        with self._names:
            self._has_ended = True
        if self._recall is not None:
            self._recall()

    def _check(self, path: str) -> None:
        if self._has_ended:
            raise LeaseEndedError(errno.ENOENT, "the log has given up its folder", path)

    def open_append(self, path: str) -> File:
        with self._names:
            self._check(path)
            return self.disk.open_append(path)

    def open_read(self, path: str) -> File:
        with self._names:
            self._check(path)
            return self.disk.open_read(path)

    def listdir(self, path: str) -> list[str]:
        with self._names:
            self._check(path)
            return self.disk.listdir(path)

    def mkdir(self, path: str) -> None:
        with self._names:
            self._check(path)
            self.disk.mkdir(path)

    def rename(self, old: str, new: str) -> None:
        with self._names:
            self._check(old)
            self.disk.rename(old, new)

    def remove(self, path: str) -> None:
        with self._names:
            self._check(path)
            self.disk.remove(path)

    def remove_tree(self, path: str) -> None:
        with self._names:
            self._check(path)
            self.disk.remove_tree(path)

    def exists(self, path: str) -> bool:
        with self._names:
            return not self._has_ended and self.disk.exists(path)

    def size(self, path: str) -> int:
        # Without the lock, so that `OpenFiles` does not wait: the file was the log's if the lease has not ended since.
        size = self.disk.size(path)
        self._check(path)
        return size

    def read_bytes(self, path: str) -> bytes:
        with self._names:
            self._check(path)
            return self.disk.read_bytes(path)

    def open_folder(self, path: str) -> OpenFolder:
        with self._names:
            self._check(path)
            return self.disk.open_folder(path)

    def sync_dir(self, path: str) -> None:
        # Without the lock, since it takes long. A sync of another folder of that name does no harm.
        self._check(path)
        self.disk.sync_dir(path)

    def allocate(self, path: str, size: int) -> None:
        with self._names:
            self._check(path)
            self.disk.allocate(path, size)

    def space(self) -> DiskSpace | None:
        return self.disk.space()

    def lock(self, path: str, *, wait: bool = False) -> DiskLock:
        return self.disk.lock(path, wait=wait)

    def is_locked(self, path: str) -> bool:
        return self.disk.is_locked(path)

    def wait_for_lock(self, path: str) -> None:
        self.disk.wait_for_lock(path)

    def native_path(self, path: str) -> str | None:
        with self._names:
            self._check(path)
            return self.disk.native_path(path)

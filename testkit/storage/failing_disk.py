"""A folder of the operating system's that fails when a test lets it: the real twin of what `MemoryDisk` can do.

`before_operation` is called before each append, each sync of a file ("sync") and each of a folder ("sync_dir"), with
the operation's name and the path, and may raise an OSError, as a disk would.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kwire_storage.disk.files import RealDisk, RealFile, RealFolder
from kwire_storage.errors import SyncFailedError

if TYPE_CHECKING:
    from typing_extensions import Buffer


class FailingFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, file: RealFile, disk: FailingDisk) -> None:
        descriptor = file.fileno()
        assert descriptor is not None
        super().__init__(os.dup(descriptor), file.path)
        file.close()
        self._disk = disk

    def append(self, data: Buffer) -> None:
        self._disk.operation("append", self.path)
        super().append(data)

    def sync(self) -> None:
        self._disk.operation("sync", self.path)
        super().sync()


class FailingFolder(RealFolder):
    def __init__(self, folder: RealFolder, path: str, disk: FailingDisk) -> None:
        super().__init__(os.dup(folder.fileno()), path)
        folder.close()
        self._disk = disk

    def sync(self) -> None:
        try:
            self._disk.operation("sync_dir", self.path)
        except OSError as error:
            raise SyncFailedError.of(error, self.path) from error
        super().sync()


class FailingDisk(RealDisk):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before_operation: Callable[[str, str], None] | None = None

    def native_path(self, path: str) -> str | None:
        return None  # Another process would not fail.

    def operation(self, name: str, path: str) -> None:
        if self.before_operation is not None:
            self.before_operation(name, path)

    def open_append(self, path: str) -> FailingFile:
        return FailingFile(super().open_append(path), self)

    def open_read(self, path: str) -> FailingFile:
        return FailingFile(super().open_read(path), self)

    def open_folder(self, path: str) -> FailingFolder:
        return FailingFolder(super().open_folder(path), path, self)

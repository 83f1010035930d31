"""A small file system that really is full: a tmpfs, mounted where only one process of ours sees it.

That process lives in namespaces of its own, which most systems let every user make; the others reach what it sees
through /proc. With it the file system goes.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT_S = 10.0
_FILLER = "filler"
_MOUNT = 'mount -t tmpfs -o "size=$1,nr_inodes=10000" kwire-test "$2" && echo mounted && exec cat'


class NoTmpfs(Exception):
    """The machine does not allow a tmpfs. The text is the system's message."""


class SmallTmpfs:
    """`path` is its root; `folder` is an empty one to mount it on."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        unshare = shutil.which("unshare")
        if unshare is None:
            raise NoTmpfs("there is no unshare")
        command = [unshare, "--mount", "--map-root-user", "sh", "-c", _MOUNT, "sh", str(size_bytes), str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        first_line = self._process.stdout.readline()
        if first_line != "mounted\n":
            self.close()
            raise NoTmpfs(first_line.strip())
        self.path = Path(f"/proc/{self._process.pid}/root{folder.absolute()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(START_TIMEOUT_S)
        self._process.stdout.close()

    @property
    def usable_bytes(self) -> int:
        return shutil.disk_usage(self.path).free

    def fill(self, leave_bytes: int = 0) -> None:
        """Takes all the room but so much of it."""
        fd = os.open(self.path / _FILLER, os.O_RDWR | os.O_CREAT)
        try:
            while (size := self.usable_bytes - leave_bytes) > 0:
                try:
                    os.posix_fallocate(fd, os.fstat(fd).st_size, size)
                    return
                except OSError as error:
                    # Another process took some of it meanwhile.
                    if error.errno != errno.ENOSPC:
                        raise
        finally:
            os.close(fd)

    def free(self) -> None:
        """Gives it back."""
        (self.path / _FILLER).unlink()

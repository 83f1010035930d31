"""What can go wrong with a log.

Disks fail with `OSError` and its errno. `StorageError` is the `OSError` that a log raises after it put its own state
right again: nothing of the failed operation can be read.
"""

from __future__ import annotations

from typing import Self


class StorageError(OSError):
    """The disk refused; `errno`, `strerror` and `filename` as in OSError."""

    @classmethod
    def of(cls, error: OSError, path: str) -> Self:
        """The same failure, told of the file it concerns."""
        return cls(error.errno, error.strerror or str(error), path)


class SyncFailedError(StorageError):
    """A sync failed: nobody knows what the medium has, and asking again may be answered with a lie."""


class FolderLockedError(StorageError):
    """Another broker uses this data folder."""


class CorruptLogError(Exception):
    """Bytes of a log file contradict what was promised of them."""


class OffsetOutOfRange(Exception):
    """The offset is below the log start or beyond the log end."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside of {log_start_offset}..{log_end_offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

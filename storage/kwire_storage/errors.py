"""The errors of a log.

Disks fail with `OSError` and its errno. `StorageError` is the `OSError` that a log raises after it has restored its own
state: nothing of the failed operation can be read.
"""

from __future__ import annotations

import errno
from typing import Final, Self

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_MISTAKES: Final = frozenset(
    {errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EBADF, errno.EINVAL}
)
_PASSING: Final = _FULL | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR}


class StorageError(OSError):
    """The disk refused; `errno`, `strerror` and `filename` as in OSError."""

    @classmethod
    def of(cls, error: OSError, path: str) -> Self:
        """The same failure, with the file that it concerns."""
        return cls(error.errno, error.strerror or str(error), path)


class SyncFailedError(StorageError):
    """A sync failed: it is unknown what the medium has, and a second sync may falsely succeed."""


def is_passing(error: OSError) -> bool:
    """Returns True if a later attempt may succeed: room, memory or descriptors are missing. Else the disk has failed.

    Kafka takes a log dir offline for every IOException, these included.
    """
    return error.errno in _PASSING and not isinstance(error, SyncFailedError)


def is_mistake(error: OSError) -> bool:
    """Returns True if the disk works but its files have changed unexpectedly: a file is gone, a name is taken.

    Only a bug in kwire can cause that, or a person or program that changes the files of a running broker.
    """
    return error.errno in _MISTAKES


def is_full(error: OSError) -> bool:
    """Returns True if a write failed for lack of space: on the disk, or in the user's quota."""
    return error.errno in _FULL


class LeaseEndedError(StorageError, FileNotFoundError):
    """The log has given up its folder: its topic was deleted, or the partition is in another log dir now."""


class FolderLockedError(StorageError):
    """Another broker uses this log dir."""


class ForeignFolderError(StorageError):
    """The log dir is not this broker's: of another node, of another cluster, or a copy of another folder."""


class CorruptLogError(Exception):
    """The bytes of a log file contradict its format, or other files."""


class CorruptRangeError(CorruptLogError):
    """The requested offset is in a range known to be corrupt: `first_offset..end_offset`, without the last."""

    def __init__(self, text: str, first_offset: int, end_offset: int) -> None:
        super().__init__(text)
        self.first_offset = first_offset
        self.end_offset = end_offset


class OwnershipError(AssertionError):
    """Two owners used an object that has one at a time: a bug in kwire, never the fault of a disk or a client."""


class OffsetOutOfRange(Exception):
    """The offset is below the log start or beyond the log end."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside of {log_start_offset}..{log_end_offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

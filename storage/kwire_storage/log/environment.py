"""The resources that the logs of one log dir share: randomness, the files to remove, the disk reserve."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import attrs

from kwire_storage import names
from kwire_storage.disk.files import Disk
from kwire_storage.disk.open_files import OpenFiles
from kwire_storage.disk.reserve import Reserve
from kwire_storage.errors import is_full

Draw = Callable[[int], int]
"""Returns a random number from 0 up to, and without, the argument."""


def never_any(_bound: int) -> int:
    """The draw of logs that need no randomness."""
    return 0


class DeletedFiles(NamedTuple):
    """Renamed files, and the time (ms) after which they may be removed."""

    due_ms: int
    paths: list[str]


class Deleted(NamedTuple):
    """Folders and files that only wait for their removal."""

    folders: list[str]
    files: list[str]


@attrs.define(eq=False)
class LogEnvironment:
    """`deleted` are the files of deleted segments: removing a large file takes long, so it is done elsewhere.

    `draw` spreads events that would otherwise happen to many logs at the same time (`segment.jitter.ms`).
    """

    draw: Draw = never_any
    reserve: Reserve | None = None
    open_files: OpenFiles | None = None
    """The limit that these logs' files count against; None for that of the disk."""
    deleted: list[DeletedFiles] = attrs.field(factory=list)

    def delete_later(self, disk: Disk, paths: Iterable[str], due_ms: int) -> None:
        """Renames files to `*.deleted`, in this order, for their removal at that time (Kafka's asyncDeleteFiles).

        Raises OSError. A file that is not there is left out.
        """
        renamed: list[str] = []
        for path in paths:
            with suppress(FileNotFoundError):
                try:
                    disk.rename(path, path + names.DELETED)
                    renamed.append(path + names.DELETED)
                except OSError as error:
                    if not is_full(error):
                        raise
                    # A longer name may need another block of the folder. The removal of a file needs none.
                    disk.remove(path)
        self.deleted.append(DeletedFiles(due_ms, renamed))

    def take_deleted(self, now_ms: int) -> list[str]:
        """Returns the files that are due, for the caller to remove."""
        due = [path for deleted in self.deleted if deleted.due_ms <= now_ms for path in deleted.paths]
        if due:
            self.deleted = [deleted for deleted in self.deleted if deleted.due_ms > now_ms]
        return due

"""Classifies the DIR of a command line: a log dir, a partition's folder, or one file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

import attrs
import click
from kwire_storage import names
from kwire_storage.disk.files import RealDisk
from kwire_storage.inspection.log_dir_check import CHECKPOINTS

_LOG_FILE = re.compile(r"(\d{20})(?:-\d{10}\.checkpoint|\.log)(?:\.deleted|\.cleaned|\.swap|\.\d+-\d+)*")
"""`.log`, also renamed for deletion or by compaction; a range that a repair kept; KRaft's metadata snapshots."""
_SEGMENT_FILES = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.SNAPSHOT)
_SMALL_FILES = {
    *CHECKPOINTS,
    names.META_PROPERTIES,
    names.CLEAN_SHUTDOWN,
    names.PARTITION_METADATA,
    names.LEADER_EPOCH_CHECKPOINT,
}


class Shape(Enum):
    FOLDER = "a log dir"
    PARTITION = "a partition's folder"
    FILE = "a file"


@attrs.frozen
class Target:
    """`disk` is rooted at the log dir, or at its substitute; `path` is relative to it, "" for the folder."""

    disk: RealDisk
    shape: Shape
    path: str

    @property
    def partition(self) -> str:
        """The partition's folder; "" for a log dir and its own files."""
        return self.path if self.shape is Shape.PARTITION else self.path.rpartition("/")[0]


def log_file_base(name: str) -> int | None:
    """The base offset of a file of batches; None for any other file."""
    found = _LOG_FILE.fullmatch(name)
    return int(found[1]) if found else None


def is_known_file(name: str) -> bool:
    parsed = names.parse_offset_name(name)
    return (
        log_file_base(name) is not None
        or (parsed is not None and parsed[1].startswith(_SEGMENT_FILES))
        or name in _SMALL_FILES
    )


def find_target(given: Path) -> Target:
    """Raises click.UsageError if `given` is none of these."""
    path = given.resolve()
    if path.is_file():
        if not is_known_file(path.name):
            raise click.UsageError(
                f"{given} is not a log file: expected .log, .index, .timeindex, .txnindex, .snapshot, a checkpoint, "
                f"{names.PARTITION_METADATA} or {names.META_PROPERTIES}"
            )
        if path.name in (*CHECKPOINTS, names.META_PROPERTIES, names.CLEAN_SHUTDOWN):
            return Target(RealDisk(path.parent), Shape.FILE, path.name)
        return Target(RealDisk(path.parent.parent), Shape.FILE, f"{path.parent.name}/{path.name}")
    try:
        listed = [child.name for child in path.iterdir()]
    except OSError as error:
        raise click.ClickException(f"cannot list {given}: {error.strerror}") from None
    marks = {*CHECKPOINTS, names.META_PROPERTIES, names.CLEAN_SHUTDOWN}
    if not marks & set(listed) and any(map(is_known_file, listed)):
        return Target(RealDisk(path.parent), Shape.PARTITION, path.name)
    if marks & set(listed) or any(
        names.parse_partition_folder(name) is not None and (path / name).is_dir() for name in listed
    ):
        return Target(RealDisk(path), Shape.FOLDER, "")
    raise click.UsageError(
        f"{given} is neither a log dir nor a partition's folder: it contains no {names.META_PROPERTIES}, no "
        "checkpoint, no folder such as orders-0 and no .log file"
    )


@contextmanager
def disk_errors() -> Iterator[None]:
    """Reports an OSError in one line."""
    try:
        yield
    except BrokenPipeError:  # not the disk, but a reader that went away: click ends quietly
        raise
    except OSError as error:
        raise click.ClickException(f"cannot read {error.filename or 'the folder'}: {error.strerror or error}") from None

"""The offset checkpoints of a log dir: the known offsets of its logs, and those in the files.

They name partitions, not topic ids. So the entry of a removed partition must be gone before another one gets its name,
and a write in progress in a worker thread must not bring it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from kwire_storage import names
from kwire_storage.checkpoints import TopicPartition, decode_offsets, encode_offsets, nonzero_offsets
from kwire_storage.disk.files import Disk
from kwire_storage.disk.reserve import Reserve
from kwire_storage.log.log import Log

Checkpoints = dict[str, dict[TopicPartition, int]]
"""The contents of files, by their names."""


class OffsetCheckpoints:
    """The checkpoints by file. `listed` are the folder's entries. The offsets of logs that are not open stay as read.

    Raises CorruptLogError when a checkpoint cannot be read.
    """

    def __init__(self, disk: Disk, listed: set[str], reserve: Reserve) -> None:
        def read(name: str) -> dict[TopicPartition, int]:
            return decode_offsets(disk.read_bytes(name), name) if name in listed else {}

        self._disk = disk
        self._reserve = reserve
        self.recovery_points = read(names.RECOVERY_POINT_CHECKPOINT)
        self.log_starts = read(names.LOG_START_CHECKPOINT)
        self.high_watermarks = read(names.HIGH_WATERMARK_CHECKPOINT)
        self.cleaned = read(names.CLEANER_CHECKPOINT)
        self._all: Checkpoints = {
            names.RECOVERY_POINT_CHECKPOINT: self.recovery_points,
            names.LOG_START_CHECKPOINT: self.log_starts,
            names.HIGH_WATERMARK_CHECKPOINT: self.high_watermarks,
            names.CLEANER_CHECKPOINT: self.cleaned,
        }
        self._written = {name: nonzero_offsets(offsets) for name, offsets in self._all.items()}
        # Held while files are written: by a worker thread, or for a partition that is created again.
        self._writing = Lock()

    def forget(self, key: TopicPartition) -> None:
        """Drops the entries of a partition that the folder does not have any more."""
        for known in self._all.values():
            known.pop(key, None)

    def take(self, logs: Mapping[TopicPartition, Log], high_watermarks: Mapping[TopicPartition, int]) -> Checkpoints:
        """Returns the contents as of now, for `write`; files without changes are left out."""
        for key, log in logs.items():
            self.recovery_points[key] = log.recovery_point
            _note(self.log_starts, key, log.checkpointed_log_start)
            # An offset of 1 only means that a cleaning has begun: there is one record at most below it.
            _note(self.cleaned, key, log.checkpointed_cleaned_offset)
        self.high_watermarks.update(high_watermarks)
        return {name: dict(now) for name, now in self._all.items() if self._is_news(name, logs)}

    def take_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> Checkpoints:
        """Does the same as `take`, for the high watermarks' file alone. Does not read the logs."""
        self.high_watermarks.update(high_watermarks)
        name = names.HIGH_WATERMARK_CHECKPOINT
        return {name: dict(self.high_watermarks)} if self._is_news(name, {}) else {}

    def _is_news(self, name: str, logs: Mapping[TopicPartition, Log]) -> bool:
        """Returns True if the file would change anything for the next start."""
        written, now = self._written[name], self._all[name]
        if name != names.RECOVERY_POINT_CHECKPOINT:
            return written != nonzero_offsets(now)
        return not written.keys() <= now.keys() or any(
            # Recovery begins with a segment: a point that moved on within one changes nothing.
            offset < written.get(key, 0)
            or _scan_start(logs.get(key), offset) != _scan_start(logs.get(key), written.get(key, 0))
            for key, offset in now.items()
        )

    def lower_recovery_point(self, key: TopicPartition, recovery_point: int) -> None:
        """Writes the recovery point, durably, if it is lower than the one that was read, which would cover new
        appends."""
        if recovery_point < self.recovery_points.get(key, 0):
            self.recovery_points[key] = recovery_point
            self.write({names.RECOVERY_POINT_CHECKPOINT: self.recovery_points})

    def lower(self, key: TopicPartition, offset: int) -> None:
        """Lowers, durably, every larger offset of that log, which is about to be cut at this one."""
        changed: Checkpoints = {}
        for name, known in self._all.items():
            if max(known.get(key, 0), self._written[name].get(key, 0)) > offset:
                known[key] = offset
                changed[name] = known
        self.write(changed)

    def take_before_cleaning(self, key: TopicPartition, log: Log, least: int) -> Checkpoints:
        """Returns the files to `write`, so that they have a recovery point of `least` or above, and a begun cleaning.

        Empty if they have both already.
        """
        assert least <= log.recovery_point, f"{least} is not on the medium, which has {log.recovery_point}"
        self.recovery_points[key] = log.recovery_point
        _note(self.cleaned, key, log.checkpointed_cleaned_offset)
        taken: Checkpoints = {}
        if self._written[names.RECOVERY_POINT_CHECKPOINT].get(key, 0) < least:
            taken[names.RECOVERY_POINT_CHECKPOINT] = dict(self.recovery_points)
        if not self._written[names.CLEANER_CHECKPOINT].get(key, 0):
            taken[names.CLEANER_CHECKPOINT] = dict(self.cleaned)
        return taken

    def announce(self, key: TopicPartition, log_start_offset: int, cleaned_offset: int) -> None:
        """Writes, durably, the entries of a log that is about to be assigned here; an offset of 0 counts as no
        entry."""
        changed: Checkpoints = {}
        for name, offset in (
            (names.LOG_START_CHECKPOINT, log_start_offset),
            (names.CLEANER_CHECKPOINT, cleaned_offset),
        ):
            known = self._all[name]
            if known.get(key, 0) != offset or self._written[name].get(key, 0) != offset:
                known[key] = offset
                changed[name] = known
        self.write(changed)

    def write(self, checkpoints: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Writes these files, durably, without entries of partitions that were forgotten since. Raises OSError."""
        with self._writing:
            self._write(checkpoints)

    def write_all(self) -> None:
        """Does the same as `write`, for all files."""
        self.write(self._all)

    def write_files_with(self, key: TopicPartition) -> None:
        """Does the same as `write`, for the files that still have an entry of a partition that was forgotten."""
        with self._writing:
            self._write({name: now for name, now in self._all.items() if key in self._written[name]})

    def _write(self, checkpoints: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        for name, taken in checkpoints.items():
            # The entries as of now: entries taken later may have been written before, and be relied on.
            known = dict(self._all[name])
            offsets = {key: known[key] for key in taken if key in known}
            content = encode_offsets(offsets)
            self._reserve.spend(lambda name=name, content=content: self._disk.write_atomic(name, content))  # type: ignore[misc]
            self._written[name] = nonzero_offsets(offsets)


def _note(offsets: dict[TopicPartition, int], key: TopicPartition, offset: int) -> None:
    """Stores an offset; 0 has no entry."""
    if offset:
        offsets[key] = offset
    else:
        offsets.pop(key, None)


def _scan_start(log: Log | None, recovery_point: int) -> int:
    if log is None:
        return recovery_point
    return log.scans_from(recovery_point)

"""The metadata log that the processes of one machine share: one `Log` in one folder, and a lock for each operation.

An operation holds the lock, so it finds all earlier ones complete and durable. If a process died in the middle of one,
the kernel has released its lock; the next operation, of any process, cuts the incomplete batch off, and syncs the
batches that the dead process had appended and not synced, before they are read (`Log.open` after an unclean stop).

A process reuses its `Log` in the next operation. If the files are not as its last operation left them, another
process has appended, or has replaced old segments by a snapshot, and it opens a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, Self, TypeVar

import attrs
from kwire_storage import names
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError, is_passing
from kwire_storage.log.log import Log

from kwire.metadata.log import METADATA_LOG_CONFIG, METADATA_TOPIC, AppendConflict, LogTruncated, Watcher
from kwire.metadata.log_batches import (
    EPOCH,
    ReadRecords,
    append_batch,
    leader_change,
    newest_snapshot,
    read_records,
    snapshot_path,
    snapshots_of,
    values_batch,
)
from kwire.metadata.snapshots import Snapshot, snapshot_batches
from kwire.runtime.callbacks import ignore
from kwire.runtime.loop import Loop
from kwire.runtime.workers import Worker

LOCK: Final = "cluster.lock"
FOLDER: Final = names.partition_folder(METADATA_TOPIC, 0)

T = TypeVar("T")


class _NotTakenBackError(Exception):
    """An append failed, and its batches could not be cut off the log.

    Every process reads them like the append of another process; the next operation syncs them before that.
    """

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset


def _is_cut(log: Log, end_offset: int) -> bool:
    try:
        log.truncate_to(end_offset)
    except OSError:
        return False
    return True


@attrs.define(eq=False)
class SharedMetadataLog:
    """A `MetadataLog` of this process and others. Create it with `open`.

    `announce` is called after each append, to notify the other processes; they call `refresh`.
    """

    disk: Disk
    node_id: int
    now_ms: Callable[[], int]
    loop: Loop = attrs.field(factory=Loop)
    announce: Callable[[], None] = ignore
    _end_offset: int = 0
    _watchers: list[Watcher] = attrs.field(factory=list)
    _log: Log | None = None
    """Used only under the lock, which also serializes the workers of this process."""
    _files: list[tuple[str, int]] | None = None
    """Names and sizes after this process's last operation; None if that failed."""
    _durable_end: int = 0
    """The end offset after that operation."""

    @classmethod
    def open(cls, disk: Disk, node_id: int, now_ms: Callable[[], int], loop: Loop | None = None) -> Self:
        """Opens the log. Raises StorageError, CorruptLogError."""
        log = cls(disk, node_id, now_ms, loop or Loop())
        log._end_offset = log._end()
        return log

    @property
    def end_offset(self) -> int:
        return self._end_offset

    async def append(self, values: Sequence[bytes], *, expected_end_offset: int) -> None:
        try:
            end_offset, appended = await self._in_worker(partial(self._append, values, expected_end_offset))
        except _NotTakenBackError as left:
            end_offset, appended = left.end_offset, False
            self.announce()
        if not appended:
            self._ends_at(end_offset)
            raise AppendConflict(f"the metadata log ends at {end_offset}, not at {expected_end_offset}")
        self.announce()
        self._ends_at(end_offset)

    async def read(self, offset: int) -> ReadRecords:
        found = await self._in_worker(partial(self._read, offset))
        self._ends_at(found.next_offset)
        return found

    async def read_snapshot(self) -> Snapshot | None:
        return await self._in_worker(self._read_snapshot)

    async def write_snapshot(self, values: Sequence[bytes], *, end_offset: int) -> None:
        await self._in_worker(partial(self._write_snapshot, values, end_offset))

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    async def refresh(self) -> None:
        """Finds the new end after appends of other processes. Raises OSError, CorruptLogError."""
        self._ends_at(await self._in_worker(self._end))

    def _ends_at(self, end_offset: int) -> None:
        if end_offset > self._end_offset:
            self._end_offset = end_offset
            for watcher in self._watchers:
                watcher()

    async def _in_worker(self, work: Callable[[], T]) -> T:
        return (await self.loop.in_worker(Worker.METADATA, work)).unwrap()

    # In a worker

    @contextmanager
    def _held(self) -> Iterator[Log]:
        """Holds the lock, and yields the log in its current state."""
        lock = self.disk.lock(LOCK, wait=True)
        try:
            log = self._log
            if log is None or self._files != self._listed():
                log = self._log = self._opened_again(log)
            self._files = None
            yield log
            self._durable_end = log.log_end_offset
            with suppress(OSError):  # The append is done. The next operation opens the log again.
                self._files = self._listed()
        finally:
            lock.release()

    def _opened_again(self, before: Log | None) -> Log:
        known_end = self._durable_end
        if before is not None:
            before.close(clean=False)
        log = Log.open(
            self.disk,
            FOLDER,
            METADATA_LOG_CONFIG,
            now_ms=self.now_ms(),
            clean_shutdown=False,
            recovery_point=known_end,
        )
        if log.log_end_offset < known_end:
            raise CorruptLogError(f"{FOLDER} ends at {log.log_end_offset}, and ended at {known_end} before")
        log.flush()
        return log

    def _listed(self) -> list[tuple[str, int]]:
        if not self.disk.exists(FOLDER):
            return []
        found = [f"{FOLDER}/{it}" for it in self.disk.listdir(FOLDER) if it.endswith((names.LOG, ".checkpoint"))]
        return [(path, self.disk.size(path)) for path in sorted(found)]

    def _end(self) -> int:
        with self._held() as log:
            return log.log_end_offset

    def _append(self, values: Sequence[bytes], expected_end_offset: int) -> tuple[int, bool]:
        with self._held() as log:
            if log.log_end_offset != expected_end_offset:
                return log.log_end_offset, False
            now_ms = self.now_ms()
            try:
                if expected_end_offset == 0:
                    append_batch(log, leader_change(self.node_id, now_ms), now_ms)
                    log.flush()
                append_batch(log, values_batch(values, now_ms), now_ms)
                log.flush()
            except OSError as error:
                # The error means that nothing changed, so no other process may find the batch either.
                is_taken_back = _is_cut(log, expected_end_offset)
                if not is_passing(error):
                    log.fail(error)
                elif not is_taken_back:
                    raise _NotTakenBackError(log.log_end_offset) from error
                raise
            return log.log_end_offset, True

    def _read(self, offset: int) -> ReadRecords:
        with self._held() as log:
            if offset < log.log_start_offset:
                raise LogTruncated(f"the metadata log begins at {log.log_start_offset}, after {offset}")
            return read_records(log, offset, log.log_end_offset)

    def _read_snapshot(self) -> Snapshot | None:
        with self._held() as log:
            return newest_snapshot(log, self.now_ms())

    def _write_snapshot(self, values: Sequence[bytes], end_offset: int) -> None:
        now_ms = self.now_ms()
        content = b"".join(snapshot_batches(values, epoch=EPOCH, now_ms=now_ms))
        with self._held() as log:
            known = snapshots_of(log)
            if any(end >= end_offset for end, _ in known):
                return  # another process was first
            log.disk.write_atomic(snapshot_path(log, end_offset), content)
            if log.active.base_offset < log.log_end_offset:
                log.roll(now_ms)
                log.flush()
            log.advance_log_start(end_offset, now_ms=now_ms)
            # All readers hold the lock, so none is reading the files that are removed.
            for path in (*(path for _, path in known), *log.environment.take_deleted(1 << 62)):
                log.disk.remove(path)

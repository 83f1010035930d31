"""Getting a log onto the medium: flushes, snapshots, and what a clean stop leaves behind.

A flush covers the records of every segment from the recovery point on, and of sealed segments the indexes: only then
may the recovery point pass them, because recovery trusts what is below it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from kwire_storage import names
from kwire_storage.directory.checkpoints import encode_epochs
from kwire_storage.errors import SyncFailedError
from kwire_storage.producers.snapshots import encode_snapshot

if TYPE_CHECKING:
    from kwire_storage.disk.files import Disk, File
    from kwire_storage.disk.reserve import Reserve
    from kwire_storage.log.log import Log


@attrs.define(eq=False)
class Flush:
    """What must happen so that everything below `end_offset` is on the medium.

    `records` are files that were open anyway, or the paths of those that were not: these are opened one at a time, so
    that ten thousand flushes can wait for their turn without a descriptor each.
    """

    disk: Disk
    reserve: Reserve
    end_offset: int
    active_base: int
    """Where the segment began whose records are covered and whose indexes are not."""
    # How often names changed, and the end was cut, before this flush began.
    name_changes: int
    truncations: int
    records: list[File | str] = attrs.field(factory=list)
    files: list[str] = attrs.field(factory=list)
    contents: dict[str, bytes] = attrs.field(factory=dict)
    folders: list[str] = attrs.field(factory=list)

    @property
    def has_work(self) -> bool:
        return bool(self.records or self.files or self.contents or self.folders)

    def run(self) -> None:
        """Blocks until the medium has it; may run in a worker thread.

        Raises SyncFailedError when a sync failed: nobody knows then what the medium has. Any other OSError left nothing
        undecided and the flush may be tried again.
        """
        # Records before names: a segment whose name is there before its forerunner's records looks like a loss.
        for file in (*self.records, *self.files):
            if isinstance(file, str):
                sync_path(self.disk, file)
            else:
                sync(file)
        for path in self.folders:
            try:
                self.disk.sync_dir(path)
            except OSError as error:
                raise SyncFailedError.of(error, path) from error
        self.reserve.spend(self._write)

    def _write(self) -> None:
        for path, content in self.contents.items():
            self.disk.write_atomic(path, content)


def begin_flush(log: Log) -> Flush:
    """See `Log.begin_flush`."""
    flush = Flush(log.disk, log.reserve, log.log_end_offset, log.bases[-1], log.name_changes, log.truncations)
    if log.log_end_offset > log.recovery_point:
        for segment, _ in log.segments_from(log.recovery_point):
            if segment is not log.active:
                note_written(log, log.reserve.spend(segment.save_indexes))
            flush.records.append(segment.open_file_or_none or segment.records_path)
        flush.name_changes = log.name_changes
    if log.epochs_or_none is not None and log.epochs_or_none.dirty:
        flush.contents[epochs_path(log)] = encode_epochs(log.epochs_or_none.entries)
    flush.files = sorted(log.unsynced_files)
    if log.name_changes > log.name_changes_synced:
        flush.folders.append(log.path)
    if log.folder_unsynced:
        flush.folders.append(log.path.rpartition("/")[0])
    return flush


def finish_flush(log: Log, flush: Flush) -> None:
    """See `Log.finish_flush`."""
    if log.truncations != flush.truncations:
        # What was synced is not what stands there now; the next flush covers it.
        return
    if flush.end_offset == flush.active_base or flush.end_offset not in log.bases:
        log.recovery_point = max(log.recovery_point, flush.end_offset)
    # Else a roll has sealed just what this flush covers: its indexes are for the next one.
    log.unsynced_files.difference_update(flush.files)
    log.folder_unsynced = False
    log.name_changes_synced = max(log.name_changes_synced, flush.name_changes)
    if epochs_path(log) in flush.contents:
        log.leader_epochs.dirty = encode_epochs(log.leader_epochs.entries) != flush.contents[epochs_path(log)]


def make_folder(log: Log) -> None:
    """The folder of a new partition, with what is in it from the beginning. May be done again after it failed."""
    assert log.make_folder is not None, "the folder is there"
    log.make_folder(log)
    log.make_folder = None
    log.folder_unsynced = True
    log.name_changes += 1


def note_written(log: Log, paths: list[str]) -> None:
    """These files were written anew, and may have got new names for it: the next flush syncs both."""
    log.unsynced_files.update(paths)
    log.name_changes += len(paths)


def settle_names(log: Log) -> None:
    """Puts the changes of names so far on the medium, before others that must not overtake them. Raises StorageError.

    A file system may keep any of the changes that no sync has covered, and lose any.
    """
    if log.name_changes == log.name_changes_synced:
        return
    try:
        log.disk.sync_dir(log.path)
    except OSError as error:
        failed = SyncFailedError.of(error, log.path)
        log.fail(failed)
        raise failed from error
    log.name_changes_synced = log.name_changes


def settle_files(log: Log) -> None:
    """Puts the files that were written since the last flush on the medium, with their names. Raises StorageError.

    It only syncs, so it may run while a flush is under way.
    """
    for path in sorted(log.unsynced_files):
        try:
            sync_path(log.disk, path)
        except SyncFailedError as error:
            log.fail(error)
            raise
    log.unsynced_files.clear()
    settle_names(log)


def sync_path(disk: Disk, path: str) -> None:
    """Raises SyncFailedError. A file that is gone has nothing to sync: its segment was deleted."""
    with suppress(FileNotFoundError):
        file = disk.open_read(path)
        try:
            sync(file)
        finally:
            file.close()


def sync(file: File) -> None:
    """Raises SyncFailedError."""
    try:
        file.sync()
    except OSError as error:
        raise SyncFailedError.of(error, file.path) from error


def epochs_path(log: Log) -> str:
    return f"{log.path}/{names.LEADER_EPOCH_CHECKPOINT}"


def snapshot_path(log: Log, offset: int) -> str:
    return f"{log.path}/{names.offset_name(offset, names.SNAPSHOT)}"


def write_snapshot(log: Log) -> None:
    """The producers as of the log's end, unless that is written already; the last one of its kind goes.

    An empty log has producers, too, if its records were deleted.
    """
    end = log.log_end_offset
    if end in log.snapshot_offsets or (end == log.bases[0] and not log.producers.entries):
        return
    path = snapshot_path(log, end)
    log.disk.write_bytes(path, encode_snapshot(log.producers.entries.values()))
    log.unsynced_files.add(path)
    log.name_changes += 1
    stray = [offset for offset in log.snapshot_offsets if offset not in log.bases]
    for offset in stray:
        remove_snapshot(log, offset)
    log.snapshot_offsets.append(end)


def remove_snapshot(log: Log, offset: int) -> None:
    path = snapshot_path(log, offset)
    log.disk.remove(path)
    log.unsynced_files.discard(path)
    log.snapshot_offsets.remove(offset)


def drop_snapshots_above(log: Log, end_offset: int) -> None:
    """Removes, for good, the snapshots of a future that the log no longer has."""
    stale = [offset for offset in log.snapshot_offsets if offset > end_offset]
    for offset in stale:
        remove_snapshot(log, offset)
    if stale:
        # Should one come back after a power cut, when other records stand below its offset, it would be believed.
        log.disk.sync_dir(log.path)


def begin_close(log: Log) -> Flush:
    """Writes what lets the next opening do without reading: indexes, the producers' snapshot, epochs."""
    log.reserve.spend(lambda: write_snapshot(log))
    for segment in log.segments:
        note_written(log, log.reserve.spend(segment.save_indexes))
    return begin_flush(log)

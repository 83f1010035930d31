"""The durability of a log: its recovery point, flushes, and syncs of names.

`recovery_point` is the guarantee: everything below it survives a power cut. A flush covers the records of every segment
from there on, and the indexes of sealed segments. Only then may the recovery point pass them, because recovery trusts
everything below it. `Durability.begin_flush` collects the files to sync, `Flush.run` may block and belongs in a worker
thread, `finish_flush` moves the recovery point. One flush of a log runs at a time.

After a failed sync it is unknown what the disk has, so the log has `failed` and accepts no more appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import attrs

from kwire_storage.callbacks import ignore
from kwire_storage.disk.files import Disk, File
from kwire_storage.disk.reserve import Reserve
from kwire_storage.errors import OwnershipError, StorageError, SyncFailedError, is_passing
from kwire_storage.log.log_segments import LogSegments


@attrs.define(eq=False)
class Flush:
    """The syncs after which everything below `end_offset` is on the medium.

    `records` are files that were open anyway, or the paths of those that were not: these are opened one at a time, so
    that ten thousand flushes can wait for their turn without a descriptor each.
    """

    disk: Disk
    reserve: Reserve
    end_offset: int
    active_base: int
    """The base offset of the segment whose records the flush covers without its indexes."""
    # The number of changes of names, and of cuts of the end, before this flush began.
    name_changes: int
    truncations: int
    contents: dict[str, bytes]
    """Small files to be replaced, by their paths."""
    records: list[File | str] = attrs.field(factory=list)
    files: list[str] = attrs.field(factory=list)
    folders: list[str] = attrs.field(factory=list)

    @property
    def has_work(self) -> bool:
        return bool(self.records or self.files or self.contents or self.folders)

    def run(self) -> None:
        """Syncs, and blocks until the data is on the medium; may run in a worker thread.

        Raises SyncFailedError if a sync failed: then it is unknown what the medium has. After any other OSError the
        state is known, and the flush may be tried again.
        """
        # Records before names: if a segment's name is durable before its predecessor's records, it looks like a loss.
        for file in (*self.records, *self.files):
            if isinstance(file, str):
                sync_path(self.disk, file)
            else:
                _sync(file)
        for path in self.folders:
            self.disk.sync_dir(path)
        self.reserve.spend(self._write)

    def _write(self) -> None:
        for path, content in self.contents.items():
            self.disk.write_atomic(path, content)


@attrs.define(eq=False)
class Durability:
    """See the module. `recovery_point` is an offset; `path` is the log's folder."""

    _disk: Disk
    _path: str
    _reserve: Reserve
    recovery_point: int = 0
    folder_unsynced: bool = False
    """True if the folder's own name is not on the medium yet."""
    truncations: int = 0
    """The number of times that the end was cut: synced data behind it may have been replaced since."""
    failed: OSError | None = None
    on_failed: Callable[[OSError], None] = ignore
    """Called once, by `fail`, for the log dir."""
    may_lack_cut: bool = False
    """True if an earlier process may have died between a cut, down to the recovery point, and its sync."""
    name_changes: int = 0
    """The number of changes of names in the folder; a flush does not cover those after its beginning."""
    _name_changes_synced: int = 0
    _unsynced_files: set[str] = attrs.field(factory=set)
    """The paths of files other than records that the next flush has to sync."""
    _flush: Flush | None = None
    """The flush that is running."""

    def fail(self, error: OSError) -> None:
        """Stops all appends: the disk cannot be trusted with this log any more, and only a restart changes that."""
        if self.failed is None:
            self.failed = error
            self.on_failed(error)

    def detach(self) -> None:
        """Stops the reports of failures: the log is not served any more."""
        # The callback refers to the log. Without it the log is freed at once, not by the garbage collector.
        self.on_failed = ignore

    # -- changes that are not synced yet

    def note_written(self, paths: Iterable[str]) -> None:
        """Notes that these files were rewritten, perhaps under new names: the next flush syncs both."""
        for path in paths:
            self._unsynced_files.add(path)
            self.name_changes += 1

    def note_folder_made(self, paths: Iterable[str]) -> None:
        """Notes that the folder was created, with these files in it."""
        self.note_written(paths)
        self.folder_unsynced = True
        self.name_changes += 1

    def note_deleted(self, paths: Iterable[str]) -> None:
        """Notes that these files have lost their names."""
        self._unsynced_files.difference_update(paths)
        self.name_changes += 1

    def note_nothing_synced(self) -> None:
        """Notes that an earlier process may have left anything unsynced: the first flush covers it all."""
        self.folder_unsynced = True
        self.may_lack_cut = True
        self.name_changes += 1

    def note_truncated(self, end_offset: int) -> None:
        """Notes that the log ends there now."""
        self.recovery_point = min(self.recovery_point, end_offset)
        self.truncations += 1
        self.name_changes += 1

    # -- flushes

    def begin_flush(self, segments: LogSegments, contents: dict[str, bytes]) -> Flush:
        """See `Log.begin_flush`; `contents` are small files to be replaced when the rest is synced, by their paths."""
        self.check_no_flush()
        flush = Flush(
            self._disk,
            self._reserve,
            segments.end_offset,
            segments.bases[-1],
            self.name_changes,
            self.truncations,
            contents,
        )
        if segments.end_offset > self.recovery_point or self.may_lack_cut:
            # The offset before the recovery point is in the segment that ends there.
            start = self.recovery_point - 1 if self.may_lack_cut else self.recovery_point
            for segment, _ in segments.from_offset(start):
                if segment is not segments.active:
                    self.note_written(self._reserve.spend(segment.save_indexes))
                flush.records.append(segment.open_file_or_none or segment.records_path)
            flush.name_changes = self.name_changes
        flush.files = sorted(self._unsynced_files)
        if self.name_changes > self._name_changes_synced:
            flush.folders.append(self._path)
        if self.folder_unsynced:
            flush.folders.append(self._path.rpartition("/")[0])
        self._flush = flush
        return flush

    def finish_flush(self, flush: Flush, segments: LogSegments) -> bool:
        """Notes that a flush has succeeded. Returns False if the log was cut meanwhile, which the next flush covers."""
        self.give_up_flush(flush)
        if self.truncations != flush.truncations:
            return False
        if flush.end_offset == flush.active_base or flush.end_offset not in segments.bases:
            self.recovery_point = max(self.recovery_point, flush.end_offset)
        # Else a roll has sealed the segment of this flush: its indexes are for the next one.
        self._unsynced_files.difference_update(flush.files)
        self.folder_unsynced = self.may_lack_cut = False
        self._name_changes_synced = max(self._name_changes_synced, flush.name_changes)
        return True

    def give_up_flush(self, flush: Flush) -> None:
        """Notes that the flush failed, or never ran."""
        if flush is not self._flush:
            raise OwnershipError(f"{self._path}: this flush is not the one that is under way")
        self._flush = None

    def check_no_flush(self) -> None:
        """Raises OwnershipError while a flush is under way."""
        if self._flush is not None:
            raise OwnershipError(f"{self._path}: a flush is under way, and a log has one at a time")

    # -- at once

    def settle_names(self) -> None:
        """Puts the changes of names so far on the medium, before others that must not overtake them.

        A file system may keep any of the changes that no sync has covered, and lose any. Raises StorageError.
        """
        if self.name_changes == self._name_changes_synced:
            return
        try:
            self._disk.sync_dir(self._path)
        except OSError as error:
            raise self._refused(error, self._path) from error
        self._name_changes_synced = self.name_changes

    def settle_files(self) -> None:
        """Puts the files that were written since the last flush on the medium, with their names. Raises StorageError.

        It only syncs, so it may run while a flush is under way.
        """
        if not self._unsynced_files:
            return
        for path in sorted(self._unsynced_files):
            try:
                sync_path(self._disk, path)
            except OSError as error:
                raise self._refused(error, path) from error
        self._unsynced_files.clear()
        self.settle_names()

    def _refused(self, error: OSError, path: str) -> StorageError:
        """Returns the error to raise. If nothing was synced, for example for lack of a descriptor, it may be tried
        again."""
        if not is_passing(error):
            self.fail(error)
        return error if isinstance(error, StorageError) else StorageError.of(error, path)


def sync_path(disk: Disk, path: str) -> None:
    """Syncs a file, if it exists: its segment may have been deleted. Raises SyncFailedError."""
    with suppress(FileNotFoundError):
        file = disk.open_read(path)
        try:
            _sync(file)
        finally:
            file.close()


def _sync(file: File) -> None:
    """Syncs a file. Raises SyncFailedError."""
    try:
        file.sync()
    except OSError as error:
        raise SyncFailedError.of(error, file.path) from error

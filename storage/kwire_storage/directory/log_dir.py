"""A whole log dir: its owner, its logs, and the outcome of its last stop.

Opening takes the lock, reads `meta.properties` (or writes it, for a new folder), reads the offset checkpoints, and
consumes the mark of a clean stop. The mark is removed, durably, before anything is written, so that a crash from here
on is recognized. Logs are opened one by one, since the settings of a topic are themselves in a log here. The
checkpoints' entries of a log that was never opened stay unchanged.

A folder whose disk fails is out of service from then on (`fail`). Nothing is written to it any more, in particular no
mark of a clean stop, and only the recovery of the next opening determines what the disk has. The owner gets one call of
`on_failed`, no matter which log detects the failure. If the disk works but a log's files are wrong, only that log is
out of service (`on_log_failed`).

Deleting a log renames its folder first, and its files are removed later, or by the next opening (`take_deleted`).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import attrs

from kwire_storage import names
from kwire_storage.callbacks import ignore
from kwire_storage.checkpoints import (
    MetaProperties,
    TopicPartition,
    decode_clean_shutdown,
    encode_clean_shutdown,
)
from kwire_storage.config import LogConfig
from kwire_storage.directory.folder_files import read_meta, read_topic_id, write_meta, write_topic_id
from kwire_storage.directory.offset_checkpoints import Checkpoints, OffsetCheckpoints
from kwire_storage.disk.files import Disk, DiskLock
from kwire_storage.disk.lease import Lease
from kwire_storage.disk.reserve import Reserve
from kwire_storage.errors import ForeignFolderError, StorageError, is_full, is_mistake
from kwire_storage.log.closing import close_all, in_turn
from kwire_storage.log.environment import Deleted, DeletedFiles, Draw, LogEnvironment, never_any
from kwire_storage.log.log import Log

_logger = logging.getLogger(__name__)


def _wait_for_cleaner(disk: Disk, path: str) -> None:
    """Waits for the process that compacts for a killed broker, which ends as soon as it detects the broker's death."""
    if disk.is_locked(names.CLEANER_LOCK):
        _logger.info("%s: waiting until the cleaner of the broker that was killed has ended", path or "the log dir")
        disk.wait_for_lock(names.CLEANER_LOCK)


class Checkpointed(NamedTuple):
    """The entries of one log in the offset checkpoints."""

    recovery_point: int
    log_start_offset: int
    cleaned_offset: int


class _Doomed(NamedTuple):
    """A folder that is to be removed, and the ended lease of the log that had it."""

    path: str
    lease: Lease | None = None

    @property
    def is_lent(self) -> bool:
        return self.lease is not None and self.lease.is_lent


class _Undeleted(NamedTuple):
    """A partition whose folder still has its name, because the disk refused to rename or remove it."""

    unique: bytes
    log: Log | None


@attrs.define(eq=False)
class LogDir:
    """See the module; create one with `LogDir.open`.

    `path` is its name in messages. `logs` are the open ones, `found` the partitions that had a folder at the start;
    `high_watermarks` are as of the last checkpoint. `clean_shutdown` is True if the last stop was clean, `failed` is
    the error for which the folder is out of service.
    """

    path: str
    disk: Disk
    meta: MetaProperties
    clean_shutdown: bool
    stopped_epoch: int
    """The broker epoch at the last stop if that was clean, or -1."""
    found: set[TopicPartition]
    _checkpoints: OffsetCheckpoints
    _lock: DiskLock
    _doomed: list[_Doomed]
    _environment: LogEnvironment
    futures: dict[TopicPartition, str]
    """Partitions that are, or were at the start, being moved here, with the folders of their copies."""
    strays: set[str]
    """Folders of partitions that were set aside, now or earlier."""
    _names_given_up: bool = False
    """Folders were renamed since the last sync of their names."""
    _undeleted: dict[TopicPartition, _Undeleted] = attrs.field(factory=dict)
    logs: dict[TopicPartition, Log] = attrs.field(factory=dict)
    failed: OSError | None = None
    on_failed: Callable[[LogDir, OSError], object] = ignore
    on_log_failed: Callable[[LogDir, TopicPartition, OSError], object] = ignore
    """Called when a log cannot continue although the disk works (`is_mistake`)."""
    reserve: Reserve = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reserve = self._environment.reserve or Reserve(self.disk)

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        cluster_id: str,
        node_id: int,
        directory_id: bytes,
        path: str = "",
        draw: Draw = never_any,
        reserve_bytes: int = 0,
    ) -> LogDir:
        """Locks and reads the folder for this node; the cluster and directory ids are used when the folder is new.

        `draw` is the logs' source of randomness; `reserve_bytes` are reserved for a full disk (`reserve.py`).
        Raises FolderLockedError if another broker uses it, ForeignFolderError if it belongs to another node,
        CorruptLogError if a checkpoint cannot be read.
        """
        disk.mkdir("")
        lock = disk.lock(names.LOCK)
        try:
            listed = set(disk.listdir(""))
            meta = read_meta(disk, listed) or write_meta(disk, MetaProperties(cluster_id, node_id, directory_id))
            if meta.node_id != node_id:
                raise ForeignFolderError(
                    errno.EPERM, f"the folder belongs to node {meta.node_id}, not {node_id}", names.META_PROPERTIES
                )
            if names.CLEANER_LOCK in listed:
                _wait_for_cleaner(disk, path)
            clean, stopped_epoch = names.CLEAN_SHUTDOWN in listed, -1
            if clean:
                stopped_epoch = decode_clean_shutdown(disk.read_bytes(names.CLEAN_SHUTDOWN))
                disk.remove(names.CLEAN_SHUTDOWN)
            for name in filter(lambda name: name.endswith(names.TEMPORARY), listed):
                disk.remove(name)
            # Also if there is none: the process that removed it may have died before the removal was on the medium.
            disk.sync_dir("")
            reserve = Reserve(disk, reserve_bytes)
            reserve.open()
            futures = {key: name for name in sorted(listed) if (key := names.parse_future_folder(name))}
            # A partition has one copy at a time. A broker killed before it removed an earlier one has left two.
            former = [name for name in listed if names.parse_future_folder(name) and name not in futures.values()]
            return cls(
                path=path,
                disk=disk,
                meta=meta,
                clean_shutdown=clean,
                stopped_epoch=stopped_epoch,
                found=set(filter(None, map(names.parse_partition_folder, listed))),
                checkpoints=OffsetCheckpoints(disk, listed, reserve),
                lock=lock,
                doomed=[_Doomed(it) for it in (*filter(names.is_deleted_folder, listed), *former)],
                environment=LogEnvironment(draw, reserve),
                futures=futures,
                strays=set(filter(names.is_stray_folder, listed)),
            )
        except BaseException:
            lock.release()
            raise

    # -- logs

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that have a folder here, their logs open or not."""
        return self.found | self.logs.keys()

    def open_log(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        is_clean: bool | None = None,
        on_scanned: Callable[[int], None] = ignore,
    ) -> Log:
        """Opens the log of a partition that has a folder, recovering it unless it `is_clean` (default: as the folder).

        Different logs may be opened in several threads; recovery passes `on_scanned` the number of bytes it has read.
        """
        key = topic, partition
        assert key not in self.logs, f"{topic}-{partition} is open"
        log = self.logs[key] = Log.open(
            self.disk,
            names.partition_folder(topic, partition),
            config,
            now_ms=now_ms,
            clean_shutdown=self.clean_shutdown if is_clean is None else is_clean,
            recovery_point=self._checkpoints.recovery_points.get(key, 0),
            log_start_offset=self._checkpoints.log_starts.get(key, 0),
            cleaned_offset=self._checkpoints.cleaned.get(key, 0),
            environment=self._environment,
            on_scanned=on_scanned,
        )
        log.durability.on_failed = partial(self._log_failed, key, log)
        self._checkpoints.lower_recovery_point(key, log.recovery_point)
        return log

    def create_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, now_ms: int) -> Log:
        """Creates the folder of a new partition. The .log file follows with the first record; both do on a full disk.

        Raises ValueError for a name that must not become a path, StorageError(EEXIST) if the partition exists.
        """
        folder = names.partition_folder(topic, partition)
        key = topic, partition
        if key in self.logs or key in self.found:
            raise StorageError(errno.EEXIST, "the partition has a folder already", folder)
        self._free_name(key)
        self._forget(key)
        log = Log.open(
            self.disk,
            folder,
            config,
            now_ms=now_ms,
            clean_shutdown=True,
            environment=self._environment,
            make_folder=lambda: self._make_folder(folder, key, topic_id),
        )
        self.logs[key] = log
        log.durability.on_failed = partial(self._log_failed, key, log)
        return log

    def set_topic_id(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Writes the topic id of an open log whose folder has none."""
        log = self.logs[topic, partition]
        log.durability.note_written([write_topic_id(self.disk, log.path, topic_id)])

    def _make_folder(self, folder: str, key: TopicPartition, topic_id: bytes) -> list[str]:
        # The checkpoints may still have entries of an earlier partition of that name: a log start above any new offset,
        # and a recovery point that recovery would trust after a crash.
        self._checkpoints.write_files_with(key)
        self.disk.mkdir(folder)
        return [write_topic_id(self.disk, folder, topic_id)]

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id in the partition's folder, 16 bytes; None if the folder has none."""
        return read_topic_id(self.disk, names.partition_folder(topic, partition))

    def delete_log(self, topic: str, partition: int, unique: bytes) -> None:
        """Deletes a partition's log, open or not; `unique` (16 bytes) becomes a part of the folder's new name.

        Raises OSError. If a later attempt may succeed, `finish_deletions` makes it, or the next user of the name does.
        """
        key = topic, partition
        log = self.logs.pop(key, None)
        if log is not None:
            log.give_up_folder()
        self._forget(key)
        self._undeleted[key] = _Undeleted(unique, log)
        self._finish_deletion(key)

    def finish_deletions(self) -> None:
        """Deletes the logs whose deletion was refused. Raises OSError if it still is."""
        for key in list(self._undeleted):
            self._finish_deletion(key)

    def _finish_deletion(self, key: TopicPartition) -> None:
        folder = names.partition_folder(*key)
        unique, log = self._undeleted[key]
        self._names_given_up = True
        if log is not None and not log.has_folder:
            self.disk.remove_tree(folder)
        else:
            self.doom(folder, unique, None if log is None else log.disk)
        del self._undeleted[key]

    def _free_name(self, key: TopicPartition) -> None:
        """Finishes a refused deletion before another folder gets the partition's name. Raises OSError."""
        if key in self._undeleted:
            self._finish_deletion(key)
            self.sync_given_up()

    def doom(self, folder: str, unique: bytes, lease: Lease | None = None) -> None:
        """Renames a folder, so that the next `take_deleted` returns it, or the next opening removes it.

        `lease` is that of its log: the folder may be lent.
        """
        doomed = names.deleted_folder(folder, unique)
        try:
            self.reserve.spend(lambda: self.disk.rename(folder, doomed))
            self._doomed.append(_Doomed(doomed, lease))
        except OSError as error:
            if not is_full(error):
                raise
            # A longer name may need another block of the folder above. The removal of files needs none.
            self.disk.remove_tree(folder)

    def set_aside(self, topic: str, partition: int, unique: bytes) -> None:
        """Renames the folder of an unknown partition, which is not open; `unique` is 16 bytes.

        Its files are kept: if the metadata were lost, nothing else would be left.
        """
        assert (topic, partition) not in self.logs, "an open log is deleted, not set aside"
        folder = names.partition_folder(topic, partition)
        stray = names.stray_folder(folder, unique)
        self.reserve.spend(lambda: self.disk.rename(folder, stray))
        self._names_given_up = True
        self._forget((topic, partition))
        self.strays.add(stray)

    def stray_topic_id(self, stray: str) -> bytes | None:
        """The topic id in a folder that was set aside, as in `topic_id`."""
        return read_topic_id(self.disk, stray)

    def doom_stray(self, stray: str, unique: bytes) -> None:
        """Does the same as `doom`, for a folder that was set aside and need not be kept."""
        self.strays.remove(stray)
        self.doom(stray, unique)

    def sync_given_up(self) -> None:
        """Syncs the renames of deleted folders, so that a new topic may have a deleted one's name. Raises OSError."""
        if self._names_given_up:
            # Before the sync: it may run in a worker thread, and folders that are renamed meanwhile need another one.
            self._names_given_up = False
            try:
                self.disk.sync_dir("")
            except BaseException:
                self._names_given_up = True
                raise

    def take_deleted(self, now_ms: int) -> Deleted | None:
        """Returns the folders of deleted logs and the due files of deleted segments; None if there are none."""
        files = self._environment.take_deleted(now_ms)
        folders = [it.path for it in self._doomed if not it.is_lent]
        self._doomed = [it for it in self._doomed if it.is_lent]
        return Deleted(folders, files) if folders or files else None

    def remove(self, deleted: Deleted) -> None:
        """Removes the files that `take_deleted` returned. May take long, and may run in a worker thread."""
        if self.failed is not None:
            return
        for folder in deleted.folders:
            self.disk.remove_tree(folder)
        for file in deleted.files:
            with suppress(FileNotFoundError):  # with its folder
                self.disk.remove(file)

    def give_back(self, deleted: Deleted) -> None:
        """Puts back what `take_deleted` returned, if it was not all removed: the next call returns it again."""
        self._doomed += map(_Doomed, deleted.folders)
        self._environment.deleted.append(DeletedFiles(0, deleted.files))

    def checkpointed(self, key: TopicPartition) -> Checkpointed:
        """The checkpoints' entries of a log, which need not be open; 0 for a missing entry."""
        known = self._checkpoints
        return Checkpointed(known.recovery_points.get(key, 0), known.log_starts.get(key, 0), known.cleaned.get(key, 0))

    def announce(self, key: TopicPartition, log_start_offset: int, cleaned_offset: int) -> None:
        """Writes the offsets that only checkpoints store, before the metadata assigns a partition. Raises OSError."""
        self._checkpoints.announce(key, log_start_offset, cleaned_offset)

    def take_in(self, key: TopicPartition, folder: str) -> None:
        """Gives a folder the partition's name. Of an earlier log of that name only the announced offsets remain."""
        self._free_name(key)
        self.reserve.spend(lambda: self.disk.rename(folder, names.partition_folder(*key)))
        known = self.checkpointed(key)
        self._forget(key)
        self._checkpoints.log_starts[key] = known.log_start_offset
        self._checkpoints.cleaned[key] = known.cleaned_offset
        self.found.add(key)

    def _forget(self, key: TopicPartition) -> None:
        self.found.discard(key)
        self._checkpoints.forget(key)

    # -- checkpoints

    def take_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> Checkpoints:
        """Returns all checkpoints as of now, for `write`; high watermarks that are not given stay as they were.

        The result is by file, without files that have the same content already. Each write needs a sync, with which a
        file system may write everything that waits, so needless writes are avoided. A failed folder has none.
        """
        if self.failed is not None:
            return {}
        return self._checkpoints.take(self.logs, high_watermarks or {})

    def take_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> Checkpoints:
        """Like `take_checkpoints`, for high watermarks only, which are written more often. Does not read the logs."""
        return {} if self.failed is not None else self._checkpoints.take_high_watermarks(high_watermarks)

    def take_before_cleaning(self, key: TopicPartition, least: int) -> Checkpoints:
        """Returns the files to `write` before a cleaning up to `least`, which must be flushed; often none.

        A cleaning relies on it, because it makes holes: a recovery begins at `least` or above, and the next opening of
        the log treats it as possibly compacted, no matter what its cleanup.policy is by then.
        """
        if self.failed is not None:
            return {}
        log = self.logs[key]
        log.segments.may_be_compacted = True
        return self._checkpoints.take_before_cleaning(key, log, least)

    def lower_checkpoints(self, key: TopicPartition, offset: int) -> None:
        """Lowers a log's checkpoints before a cut at the offset. Blocks, also for a running `write`. Raises OSError."""
        self._checkpoints.lower(key, offset)

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The high watermarks as of the last checkpoint."""
        return self._checkpoints.high_watermarks

    def write(self, checkpoints: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Writes the files that `take_checkpoints` returned, durably, without entries of partitions deleted since then.

        Blocks; may run in a worker thread.
        """
        self._checkpoints.write(checkpoints)

    def close(
        self,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        *,
        broker_epoch: int = -1,
        run_all: Callable[[list[Callable[[], None]]], None] = in_turn,
    ) -> None:
        """Stops cleanly: makes every log durable, writes the checkpoints, sets the mark, and releases the lock.

        If a log cannot be closed, the rest is closed, but the mark is not set, and the first error is raised. `run_all`
        gets the syncs to do, one for each log that needs any, some hundred at a time; in several threads they take a
        fraction of the time, since file systems commit pending syncs together. A folder that has failed is only
        released.
        """
        if self.failed is not None:
            self.abandon()
            return
        logs = [log for log in self.logs.values() if log.failed is None]
        failed = len(logs) < len(self.logs)
        try:
            errors = close_all(logs, run_all)
            self.take_checkpoints(high_watermarks)
            self._checkpoints.write_all()
            if not errors and not failed and (self.clean_shutdown or not self._unrecovered()):
                mark = encode_clean_shutdown(broker_epoch)
                self.reserve.spend(lambda: self.disk.write_atomic(names.CLEAN_SHUTDOWN, mark))
        finally:
            for log in self.logs.values():
                log.close(clean=False)
            self._lock.release()
        if errors:
            raise errors[0]

    def _unrecovered(self) -> set[TopicPartition]:
        """Logs that still need recovery, because they were not opened since this start."""
        return self.found - self.logs.keys()

    def fail(self, error: OSError) -> None:
        """Takes the folder out of service: its logs take no appends, and nothing of it is written any more."""
        self.failed = error
        for log in self.logs.values():
            log.durability.failed = log.failed or error

    def _log_failed(self, key: TopicPartition, log: Log, error: OSError) -> None:
        if self.failed is not None or self.logs.get(key) is not log:
            return
        if self.is_mistake(error):
            self.on_log_failed(self, key, error)
        else:
            self.on_failed(self, error)

    def is_mistake(self, error: OSError) -> bool:
        """Like `errors.is_mistake`, but if the folder itself is gone, so is its disk: it is not mounted any more."""
        if not is_mistake(error):
            return False
        try:
            return self.disk.exists(names.META_PROPERTIES)
        except OSError:
            return False

    def abandon(self) -> None:
        """Releases everything as a crash would; for a folder that has failed, and for tests."""
        for log in self.logs.values():
            log.close(clean=False)
        self._lock.release()

"""The log dirs of one broker (log.dirs): finds partitions, places new ones, and records which folders are offline.

Each folder is independent: it has its own lock, `meta.properties` with a directory id, checkpoints, and mark of a clean
stop. One of them has the metadata log, or a separate folder does (metadata.log.dir).

A folder that cannot be opened is offline, and the others are served. It must not be mistaken for a new, empty one: an
unmounted disk leaves an empty mount point, and a broker that starts over there loses what is on the disk. So a folder
without `meta.properties` counts as new only if all directory ids of this broker are accounted for (Kafka, which has a
separate step to format folders, refuses to start with such a folder).
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

import attrs

from kwire_storage import names
from kwire_storage.checkpoints import TopicPartition
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.directory.offset_checkpoints import Checkpoints
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError, ForeignFolderError, StorageError
from kwire_storage.log.environment import Draw, never_any


@attrs.define(eq=False)
class LogDirs:
    """See the module; create them with `LogDirs.open`.

    `folders` are those of log.dirs that could be opened, in that order, failed ones included; `offline` has the reason
    for each of the others, by path.
    """

    metadata: LogDir
    dirs: list[LogDir]
    offline: dict[str, Exception]

    @classmethod
    def open(
        cls,
        disks: Mapping[str, Disk],
        metadata: LogDir,
        *,
        known_ids: Collection[bytes],
        new_id: Callable[[], bytes],
        topic_id_of: Callable[[str], bytes | None],
        draw: Draw = never_any,
        reserve_bytes: int = 0,
    ) -> LogDirs:
        """Opens the log dirs. `disks` are log.dirs by path; `metadata` is open already, and may be one of them.

        `known_ids` are the last known directory ids of this broker, `topic_id_of(name)` is the id of an existing topic.
        Raises StorageError for folders that contradict each other: of another cluster or node, with one id, with the
        same partition.
        """
        opened: dict[str, LogDir] = {metadata.path: metadata}
        offline: dict[str, Exception] = {}

        def attempt(path: str) -> None:
            try:
                opened[path] = LogDir.open(
                    disks[path],
                    cluster_id=metadata.meta.cluster_id,
                    node_id=metadata.meta.node_id,
                    directory_id=new_id(),
                    path=path,
                    draw=draw,
                    reserve_bytes=reserve_bytes,
                )
            except ForeignFolderError:
                raise
            except (OSError, CorruptLogError) as error:
                offline[path] = error

        try:
            others = [path for path in disks if path != metadata.path]
            new = [path for path in others if not has_owner(disks[path])]
            for path in others:
                if path not in new:
                    attempt(path)
            missing = set(known_ids) - {folder.meta.directory_id for folder in opened.values()}
            for path in new:
                if len(missing) > len(offline):
                    offline[path] = _not_mounted(path)
                else:
                    attempt(path)
            dirs = [opened[path] for path in disks if path in opened]
            _check_ids(opened.values())
            _find_once(dirs, topic_id_of, new_id)
        except BaseException:
            for folder in opened.values():
                if folder is not metadata:
                    folder.abandon()
            raise
        return cls(metadata, dirs, offline)

    def __iter__(self) -> Iterator[LogDir]:
        """Yields every folder in service, including that of the metadata."""
        if self.metadata not in self.dirs:
            yield self.metadata
        yield from self.online

    @property
    def online(self) -> list[LogDir]:
        """The log dirs in service, in the order of log.dirs."""
        return [folder for folder in self.dirs if folder.failed is None]

    @property
    def stopped_epoch(self) -> int:
        """The broker epoch at the last stop if that was clean in every folder, or -1 (KIP-966)."""
        epochs = {folder.stopped_epoch for folder in self.dirs}
        is_whole = not self.offline and len(self.online) == len(self.dirs)
        return epochs.pop() if is_whole and len(epochs) == 1 else -1

    def find(self, topic: str, partition: int) -> LogDir | None:
        """The folder that has the partition, in service or not."""
        key = topic, partition
        return next((folder for folder in self.dirs if key in folder.logs or key in folder.found), None)

    def with_id(self, directory_id: bytes) -> LogDir | None:
        """The folder in service that has this directory id."""
        return next((folder for folder in self.online if folder.meta.directory_id == directory_id), None)

    def with_path(self, path: str) -> LogDir | None:
        return next((folder for folder in self.dirs if folder.path == path), None)

    def choose(self, count: int) -> list[bytes]:
        """The directory ids for `count` new partitions: each gets the folder with the fewest (LogManager.nextLogDirs),
        but no full disk while another has room.

        Raises StorageError when no folder is in service.
        """
        if not self.online:
            raise StorageError(errno.EIO, "no log dir is in service")
        online = [folder for folder in self.online if not folder.reserve.is_full] or self.online
        counts = [len(folder.partitions - {(names.CLUSTER_METADATA, 0)}) for folder in online]
        chosen = []
        for _ in range(count):
            fewest = counts.index(min(counts))
            counts[fewest] += 1
            chosen.append(online[fewest].meta.directory_id)
        return chosen

    # -- checkpoints and the end

    def take_checkpoints(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> list[tuple[LogDir, Checkpoints]]:
        """Returns the checkpoints to be written, by folder, for its `write`; those without changes are left out."""
        taken = [(folder, folder.take_checkpoints(_of(folder, high_watermarks))) for folder in self]
        return [(folder, checkpoints) for folder, checkpoints in taken if checkpoints]

    def take_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> list[tuple[LogDir, Checkpoints]]:
        """Does the same as `take_checkpoints`, for high watermarks only, which are written more often."""
        taken = [(folder, folder.take_high_watermarks(_of(folder, high_watermarks))) for folder in self]
        return [(folder, checkpoints) for folder, checkpoints in taken if checkpoints]

    def close(
        self,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        *,
        broker_epoch: int = -1,
        run_all: Callable[[list[Callable[[], None]]], None] | None = None,
    ) -> None:
        """Stops every folder cleanly; see `LogDir.close`. The first error is raised when all are closed."""
        errors: list[OSError] = []
        apart = [] if self.metadata in self.dirs else [self.metadata]
        for folder in [*self.dirs, *apart]:
            try:
                mine = _of(folder, high_watermarks)
                if run_all is None:
                    folder.close(mine, broker_epoch=broker_epoch)
                else:
                    folder.close(mine, broker_epoch=broker_epoch, run_all=run_all)
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def abandon(self) -> None:
        """Releases everything as a crash would."""
        for folder in {id(folder): folder for folder in [self.metadata, *self.dirs]}.values():
            folder.abandon()


def has_owner(disk: Disk) -> bool:
    """Returns True if the folder belongs to a broker; False if it is empty, absent or unreadable."""
    try:
        return disk.exists(names.META_PROPERTIES)
    except OSError:
        return False


def _of(folder: LogDir, offsets: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, int]:
    return {key: offset for key, offset in (offsets or {}).items() if key in folder.logs}


def _not_mounted(path: str) -> StorageError:
    return StorageError(
        errno.ENODEV,
        f"there is no {names.META_PROPERTIES} in it, and a folder that this broker had is missing. Is its disk not "
        "mounted? To continue without what was in it, start the broker once without it in log.dirs",
        path,
    )


def _check_ids(dirs: Collection[LogDir]) -> None:
    by_id: dict[bytes, LogDir] = {}
    first = next(iter(dirs))
    for folder in dirs:
        twin = by_id.setdefault(folder.meta.directory_id, folder)
        if twin is not folder:
            raise ForeignFolderError(
                errno.EEXIST,
                f"it has the same directory.id as {twin.path}, so it is a copy: leave one of them out of log.dirs",
                folder.path,
            )
        if folder.meta.cluster_id != first.meta.cluster_id:
            raise ForeignFolderError(
                errno.EPERM,
                f"it belongs to cluster {folder.meta.cluster_id}, but {first.path} to {first.meta.cluster_id}: "
                "leave one out of log.dirs",
                folder.path,
            )


def _find_once(dirs: list[LogDir], topic_id_of: Callable[[str], bytes | None], new_id: Callable[[], bytes]) -> None:
    """If two folders have the same partition, sets aside the one of an earlier topic of that name."""
    counts = Counter(key for folder in dirs for key in folder.found)
    for topic, partition in sorted(key for key, count in counts.items() if count > 1):
        here = []
        for folder in (it for it in dirs if (topic, partition) in it.found):
            if _stored_topic_id(folder, topic, partition) in (topic_id_of(topic), None):
                here.append(folder)
            else:
                folder.set_aside(topic, partition, new_id())
        if len(here) > 1:
            raise StorageError(
                errno.EEXIST,
                f"partition {topic}-{partition} is in two log dirs, {here[0].path} and {here[1].path}: "
                "move the one that should not be there to another place",
            )


def _stored_topic_id(folder: LogDir, topic: str, partition: int) -> bytes | None:
    try:
        return folder.topic_id(topic, partition)
    except CorruptLogError:
        return None

"""The partitions on this node, by topic name and by topic id.

The table follows the metadata image: `apply` takes the changes, and opens, configures and deletes logs accordingly.
Handlers find partitions only here.

A log is opened if this node has a replica of the partition. The metadata have its log dir
(PartitionRecord.directories, KIP-858). If that folder is not in service, requests get KAFKA_STORAGE_ERROR: a new log in
another folder would be empty.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import nullcontext, suppress
from functools import cache
from typing import TYPE_CHECKING, cast

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import NULL_UUID, Uuid
from kwire_storage import names
from kwire_storage.config import LogConfig
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.directory.log_dirs import LogDirs
from kwire_storage.directory.openings import LogOpening
from kwire_storage.errors import CorruptLogError, StorageError, is_passing
from kwire_storage.log.log import Log
from kwire_storage.log.recovery import Recovery

from kwire.config.definition import Value
from kwire.config.server import ServerConfig
from kwire.replicas.flush_gate import FlushDriver
from kwire.replicas.partition import IsrDriver, Partition
from kwire.replicas.roles import Absent, Role, role_of
from kwire.replicas.topic_settings import log_config, topic_rules
from kwire.replicas.validation import TopicRules
from kwire.runtime.callbacks import ignore
from kwire.runtime.clock import Clock
from kwire.runtime.garbage import lasting
from kwire.runtime.loop import Loop
from kwire.runtime.slices import Slices
from kwire.runtime.workers import Worker

if TYPE_CHECKING:
    from kwire.metadata.image import Changes, PartitionRegistration, TopicImage

log = logging.getLogger(__name__)

TopicRef = str | Uuid
"""The topic as a client names it: by name, or by id (from Produce and Fetch v13 on)."""

HostedPartition = Partition | Absent
"""A partition in the metadata: this node's replica, or the reason why it has none."""

CHANGED_PER_SLICE = 8
"""The number of partitions that are made or deleted before other work has a turn. Each takes a few file operations."""

MANY_PARTITIONS = 100
"""If this many are made at once, they are excluded from garbage collection."""

CONFIGURED_PER_SLICE, CONFIGS_COST = 100, 10
"""The number of partitions that are configured before other work has a turn, if a topic's configuration counts as
CONFIGS_COST of them."""

MOST_NAMED = 10
"""The maximum number of partitions that a log line names."""


def _log_loss(topic: str, index: int, opened: Log, recovery: Recovery) -> None:
    log.warning(
        "%s-%d was not closed cleanly: cut %d bytes and %d segments behind offset %d (%s)",
        topic,
        index,
        recovery.cut_bytes,
        recovery.deleted_segments,
        opened.log_end_offset,
        recovery.reason,
    )
    if recovery.lost_batches:
        log.error(
            "%s-%d lost %d good batches (%d bytes) up to offset %d: they stood behind bytes that are none, and had not "
            "been synced before the broker died. Deleted segments are kept as *.deleted until the next start",
            topic,
            index,
            recovery.lost_batches,
            recovery.lost_bytes,
            recovery.lost_end_offset - 1,
        )


class _OutOfServiceError(Exception):
    """The folder of a log is not in service."""


def _by_topic(added: list[tuple[TopicImage, int]]) -> list[tuple[TopicImage, range]]:
    """The topics, each with its new partitions, whose indexes are consecutive."""
    indexes: dict[Uuid, tuple[TopicImage, list[int]]] = {}
    for topic, index in added:
        indexes.setdefault(topic.topic_id, (topic, []))[1].append(index)
    return [(topic, range(found[0], found[-1] + 1)) for topic, found in indexes.values()]


def _named(partitions: list[str]) -> str:
    return ", ".join(partitions[:MOST_NAMED]) + (", ..." if len(partitions) > MOST_NAMED else "")


@attrs.define(eq=False)
class PartitionTable:
    """`topic_values(name)` is a topic's effective configuration by Kafka's names, `server_config()` the broker's.

    A log is deleted in a worker thread, and other work continues meanwhile. So `on_role` and `on_deleted` notify
    coordinators and moves of a change before the loop's next turn.
    """

    node_id: int
    log_dirs: LogDirs
    clock: Clock
    topic_values: Callable[[str], Mapping[str, Value]]
    server_config: Callable[[], ServerConfig]
    flush_driver: FlushDriver
    loop: Loop
    isr_driver: IsrDriver
    by_name: dict[str, list[HostedPartition]] = attrs.field(factory=dict)
    by_ref: dict[TopicRef, list[HostedPartition]] = attrs.field(factory=dict)
    """Each topic twice: by its name and by its id."""
    on_role: Callable[[str, int], None] = ignore
    """Called with a topic and a partition index after a change of metadata, when this node has its role for it."""
    on_deleted: Callable[[TopicImage], None] = ignore
    """Called with a deleted topic when it is no longer in the table."""
    _refused: dict[tuple[Uuid, int], TopicImage] = attrs.field(factory=dict, init=False)
    """The partitions whose logs could not be made, by topic id and index."""

    def __iter__(self) -> Iterator[Partition]:
        """Iterates over this node's replicas."""
        for hosted_partitions in self.by_name.values():
            for hosted in hosted_partitions:
                if type(hosted) is Partition:
                    yield hosted

    def find(self, topic: TopicRef, index: int) -> Partition:
        """Returns this node's replica, in any role.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        try:
            hosted = self.by_ref[topic][index]
        except IndexError:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None
        except KeyError:
            is_name = isinstance(topic, str)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_name else ErrorCode.UNKNOWN_TOPIC_ID
            raise KafkaError(error) from None
        if index < 0:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if type(hosted) is not Partition:
            raise hosted.refusal()
        return hosted

    def folder_of(self, partition: Partition) -> LogDir | None:
        """The folder that has the partition's log; None if it was deleted."""
        key = partition.topic, partition.index
        return next((it for it in self.log_dirs.dirs if it.logs.get(key) is partition.log), None)

    # -- at the start

    def openings(self, topics: Iterable[TopicImage]) -> list[LogOpening]:
        """The logs that need recovery, because their folders were not closed cleanly; the largest first.

        Run them in any order and in any threads, and pass them to `opened` before the first `apply`, which opens the
        other logs.
        """
        openings = []
        now_ms = self.clock.now_ms()
        for topic in topics:
            config = self._log_config(self.topic_values(topic.name))
            for index in range(len(topic.partitions)):
                if type(self._role(topic, index)) is Absent:
                    continue
                folder = self.log_dirs.find(topic.name, index)
                if folder is None or folder.clean_shutdown or folder.failed is not None:
                    continue
                if self._known_id(folder, topic.name, index) not in (topic.topic_id, None):
                    continue  # of another topic; it is set aside
                opening = LogOpening(folder, topic.name, index, config, now_ms)
                opening.measure()
                openings.append(opening)
        openings.sort(key=lambda opening: -opening.size_in_bytes)
        return openings

    def opened(self, openings: Iterable[LogOpening]) -> None:
        """Takes folders out of service if a log in them could not be opened. Raises CorruptLogError, OSError."""
        for opening in openings:
            error = opening.error
            if error is not None:
                if not isinstance(error, OSError) or is_passing(error):
                    raise error
                opening.folder.on_failed(opening.folder, error)

    def misplaced(self, topics: Iterable[str]) -> dict[tuple[Uuid, int], Uuid]:
        """The partitions of these topics in another folder than in the metadata: directory ids by topic id and
        index."""
        found = {}
        for partition in (hosted for name in topics for hosted in self.by_name.get(name, ())):
            if type(partition) is not Partition:
                continue
            folder = self.folder_of(partition)
            if folder is not None and folder.failed is None and partition.directory_id != folder.meta.directory_id:
                found[partition.topic_id, partition.index] = folder.meta.directory_id
        return found

    def report_unreachable(self) -> None:
        """Logs which partitions are out of service because of a folder that could not be opened."""
        lost = [
            f"{name}-{index}"
            for name, hosted_partitions in self.by_name.items()
            for index, hosted in enumerate(hosted_partitions)
            if type(hosted) is Absent and hosted.error is ErrorCode.KAFKA_STORAGE_ERROR
        ]
        if lost:
            log.error(
                "%d partitions are in log dirs that are not in service, and answer KAFKA_STORAGE_ERROR: %s. "
                "Bring the folders back and restart the broker, or delete the topics",
                len(lost),
                _named(lost),
            )

    # -- changes

    async def apply(self, changes: Changes) -> None:
        """Updates the logs to the metadata image after `changes`.

        While it runs, a new topic is not in the table yet, and a deleted one no longer is. Raises OSError if logs
        cannot be made; `make_refused` makes them later.
        """
        slices = Slices(self.loop, CHANGED_PER_SLICE)
        await self._delete(changes.topics_deleted, slices)
        added = len(changes.partitions_added) + sum(len(it.partitions) for it in changes.topics_created)
        with lasting() if added >= MANY_PARTITIONS else nullcontext():
            await self._create(changes, slices)

    async def _create(self, changes: Changes, slices: Slices) -> None:
        failed: OSError | None = None
        for topic in changes.topics_created:
            hosted_partitions: list[HostedPartition] = []
            try:
                await self._add(topic, range(len(topic.partitions)), hosted_partitions, slices)
            except OSError as error:
                failed = error
            self.by_name[topic.name] = self.by_ref[topic.name] = self.by_ref[topic.topic_id] = hosted_partitions
        for topic, indexes in _by_topic(changes.partitions_added):
            try:
                await self._add(topic, indexes, self.by_ref[topic.topic_id], slices)
            except OSError as error:
                failed = error
        for topic, index in changes.partitions_changed:
            await self._change(topic, index)
        if failed is not None:
            raise failed

    async def reconfigure(self, topics: Iterable[str]) -> None:
        """Configures these topics again: their effective configuration may have changed."""
        slices = Slices(self.loop, CONFIGURED_PER_SLICE)
        for name in topics:
            partitions = self.by_name.get(name)
            if partitions:
                values = self.topic_values(name)
                rules, config = topic_rules(values), self._log_config(values)
                await slices.after(CONFIGS_COST)
                for hosted in partitions:
                    if type(hosted) is Partition:
                        hosted.configure(rules, config)
                        await slices.after(1)

    async def _add(
        self, topic: TopicImage, indexes: range, hosted_partitions: list[HostedPartition], slices: Slices
    ) -> None:
        values = self.topic_values(topic.name)
        rules, config = topic_rules(values), self._log_config(values)
        await slices.after(1)
        now_ms = self.clock.now_ms()
        first = len(hosted_partitions)
        failed: OSError | None = None
        for index in indexes:
            try:
                hosted_partitions.append(self._host(topic, index, rules, config, now_ms))
            except OSError as error:
                failed = error
                hosted_partitions.append(self._refuse(topic, index))
            await slices.after(1)
        for index, hosted in enumerate(hosted_partitions[first:], start=first):
            # If the folder failed meanwhile, only the partitions that were in the table were taken offline.
            if type(hosted) is Partition and hosted.log.failed is not None:
                hosted.take_offline()
                hosted_partitions[index] = cast(Absent, hosted.role)
        if failed is not None:
            raise failed

    def _refuse(self, topic: TopicImage, index: int) -> Absent:
        """Returns the entry of a partition whose log cannot be made or opened now; `make_refused` tries again."""
        self._refused[topic.topic_id, index] = topic
        role = self._role(topic, index)
        return Absent(role.leader_id, role.leader_epoch, ErrorCode.KAFKA_STORAGE_ERROR)

    def make_refused(self) -> None:
        """Makes the logs for which there was no room, memory or descriptor.

        Raises OSError if there is still none for one of them, which the next call tries again.
        """
        failed: OSError | None = None
        for (topic_id, index), topic in list(self._refused.items()):
            hosted_partitions = self.by_ref.get(topic_id)
            if hosted_partitions is not None:
                values = self.topic_values(topic.name)
                rules, config = topic_rules(values), self._log_config(values)
                try:
                    hosted_partitions[index] = self._host(topic, index, rules, config, self.clock.now_ms())
                except OSError as error:
                    failed = error
                    continue
                self.on_role(topic.name, index)
            del self._refused[topic_id, index]
        if failed is not None:
            raise failed

    def _host(
        self, topic: TopicImage, index: int, rules: TopicRules, config: LogConfig, now_ms: int
    ) -> HostedPartition:
        role = self._role(topic, index)
        if type(role) is Absent:
            return role
        try:
            folder, opened = self._open_log(topic, index, config, now_ms)
        except _OutOfServiceError:
            return Absent(role.leader_id, role.leader_epoch, ErrorCode.KAFKA_STORAGE_ERROR)
        partition = Partition(
            topic.name,
            topic.topic_id,
            index,
            opened,
            rules,
            self.flush_driver,
            topic.partitions[index].directory_of(self.node_id),
            folder.high_watermarks.get((topic.name, index), 0),
            self.isr_driver,
        )
        partition.take_role(role)
        return partition

    async def _change(self, topic: TopicImage, index: int) -> None:
        hosted_partitions = self.by_ref[topic.topic_id]
        hosted, role = hosted_partitions[index], self._role(topic, index)
        if type(hosted) is Partition:
            hosted.directory_id = topic.partitions[index].directory_of(self.node_id)
            hosted.take_role(role)
            if type(role) is Absent:
                hosted_partitions[index] = role
        elif type(role) is Absent or hosted.error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            hosted_partitions[index] = Absent(role.leader_id, role.leader_epoch, hosted.error)
        else:
            values = self.topic_values(topic.name)
            rules, config = topic_rules(values), self._log_config(values)
            try:
                hosted_partitions[index] = self._host(topic, index, rules, config, self.clock.now_ms())
            except OSError:
                hosted_partitions[index] = self._refuse(topic, index)
                raise
        self.on_role(topic.name, index)
        if type(hosted) is Partition and type(role) is Absent:
            self._delete_log(hosted)
            await self._sync_given_up()

    def _role(self, topic: TopicImage, index: int) -> Role:
        it = topic.partitions[index]
        return role_of(
            self.node_id,
            leader_id=it.leader,
            leader_epoch=it.leader_epoch,
            replicas=it.replicas,
            isr=it.isr,
            partition_epoch=it.partition_epoch,
        )

    def _open_log(self, topic: TopicImage, index: int, config: LogConfig, now_ms: int) -> tuple[LogDir, Log]:
        """The partition's log and its folder. Raises _OutOfServiceError."""
        folder = self.log_dirs.find(topic.name, index)
        try:
            if folder is not None and folder.failed is not None:
                raise StorageError.of(folder.failed, folder.path)
            known_id = None if folder is None else self._known_id(folder, topic.name, index)
            if folder is not None and known_id not in (topic.topic_id, None):
                # The log of a deleted topic of the same name: the broker died before it could remove the log.
                folder.set_aside(topic.name, index, self.clock.uuid())
                folder.sync_given_up()
                folder = None
            if folder is None:
                folder = self._folder_for_new(self._directory_for_new(topic.partitions[index]))
                return folder, folder.create_log(topic.name, index, topic.topic_id, config, now_ms=now_ms)
            opened = folder.logs.get((topic.name, index))
            if opened is None:
                opened = folder.open_log(topic.name, index, config, now_ms=now_ms)
            if known_id is None:
                folder.set_topic_id(topic.name, index, topic.topic_id)
        except OSError as error:
            if is_passing(error):
                raise
            if folder is not None:
                folder.on_failed(folder, error)
            raise _OutOfServiceError from error
        if opened.recovery is not None and (opened.recovery.cut_bytes or opened.recovery.deleted_segments):
            _log_loss(topic.name, index, opened, opened.recovery)
        return folder, opened

    def _directory_for_new(self, registered: PartitionRegistration) -> Uuid:
        """The log dir that the metadata name; NULL_UUID, for any other, if the replica is copied again.

        If the broker has none of that id, its disk was replaced. A replica that cannot lead is copied from the leader
        again. One that is in sync or eligible, or that led last, is not copied again, because it might lead, and its
        records would be lost.
        """
        may_lead = {*registered.isr, *registered.eligible_leader_replicas, *registered.last_known_elr}
        directory_id = registered.directory_of(self.node_id)
        is_known = any(it.meta.directory_id == directory_id for it in self.log_dirs.dirs)
        if not is_known and not self.log_dirs.offline and self.node_id not in may_lead:
            return NULL_UUID
        return directory_id

    def _folder_for_new(self, directory_id: Uuid) -> LogDir:
        """The folder chosen for a new partition. Raises StorageError if it is not in service."""
        if directory_id == NULL_UUID:
            [directory_id] = self.log_dirs.choose(1)
        folder = self.log_dirs.with_id(directory_id)
        if folder is None:
            raise StorageError(errno.ENODEV, f"the log dir with directory.id {directory_id.hex()} is not in service")
        return folder

    def take_offline(self, folder: LogDir, error: OSError) -> list[Partition]:
        """Takes the folder and the partitions in it out of service. Returns the partitions."""
        if folder.failed is not None:
            return []
        folder.fail(error)
        lost = [it for it in self if folder.logs.get((it.topic, it.index)) is it.log]
        for partition in lost:
            self.take_partition_offline(partition)
        log.critical(
            "the log dir %s is out of service: %s; its %d partitions answer KAFKA_STORAGE_ERROR. "
            "Check the disk, then restart the broker: it checks the logs before it serves them",
            folder.path,
            error,
            len(folder.partitions - {(names.CLUSTER_METADATA, 0)}),
        )
        return lost

    def take_log_offline(self, folder: LogDir, key: tuple[str, int], error: OSError) -> Partition | None:
        """Takes one partition out of service: its log has failed although its disk works. Returns the partition."""
        log.critical(
            "%s-%d is out of service and answers KAFKA_STORAGE_ERROR: %s. The disk is well, but a file is not as kwire "
            "left it. Either something else changes files in %s, or this is a bug in kwire: please report it with what "
            "follows. A restart of the broker checks the partition and brings it back",
            *key,
            error,
            folder.path,
            exc_info=error,
        )
        name, index = key
        hosted_partitions = self.by_name.get(name, [])
        lost = hosted_partitions[index] if index < len(hosted_partitions) else None
        if type(lost) is not Partition:
            return None
        self.take_partition_offline(lost)
        return lost

    def take_partition_offline(self, partition: Partition) -> None:
        """Takes a partition out of service until the next start."""
        partition.take_offline()
        self.by_ref[partition.topic_id][partition.index] = cast(Absent, partition.role)

    def epochs_ahead(self) -> dict[tuple[Uuid, int], int]:
        """The latest leader epochs of the logs, by topic id and index, if they are later than the metadata's."""
        return {
            (partition.topic_id, partition.index): latest
            for partition in self
            if (latest := partition.log.leader_epochs.latest) > partition.role.leader_epoch
        }

    @staticmethod
    def _known_id(folder: LogDir, topic: str, index: int) -> Uuid | None:
        """The topic id in the partition's folder, if there is one."""
        try:
            return folder.topic_id(topic, index)
        except CorruptLogError as error:
            log.error("%s-%d: %s; the folder is taken for the topic's by its name", topic, index, error)
            return None

    def settle_strays(self, deleted_topic_ids: Callable[[], Set[Uuid]]) -> None:
        """Sets aside the folders of partitions that are not in the metadata, and logs them at each start.

        Kafka's LogManager does the same and keeps all of them: if metadata were lost, only they would remain. But if
        the metadata show that a deletion was interrupted, by a kill or an absent folder, the deletion is completed.
        """
        read_once = cache(deleted_topic_ids)
        for folder in list(self.log_dirs):
            try:
                self._settle_strays_of(folder, read_once)
            except OSError as error:
                if is_passing(error):
                    raise
                folder.on_failed(folder, error)

    def _settle_strays_of(self, folder: LogDir, deleted_topic_ids: Callable[[], Set[Uuid]]) -> None:
        for name, index in sorted(folder.found - folder.logs.keys()):
            folder.set_aside(name, index, self.clock.uuid())
        folder.sync_given_up()
        for stray in sorted(folder.strays):
            with suppress(CorruptLogError):  # its topic is unknown, so it is kept
                if folder.stray_topic_id(stray) in deleted_topic_ids():
                    folder.doom_stray(stray, self.clock.uuid())
                    log.info("%s: finishing the deletion of %s", folder.path, stray.rpartition(".")[0])
        if folder.strays:
            log.warning(
                "%s has %d partitions that no topic of the metadata has or had: %s. They are kept, and not served; "
                "remove the folders if they are not needed",
                folder.path,
                len(folder.strays),
                _named(sorted(folder.strays)),
            )

    async def _sync_given_up(self) -> None:
        """Syncs the removals, so that a new topic does not find a deleted one's records after a power cut."""
        for folder in list(self.log_dirs.online):
            try:
                (await self.loop.in_worker(Worker.NAMES, folder.sync_given_up)).unwrap()
            except OSError as error:
                # If it was only refused, it is done before the files are removed (`housekeeping.remove_deleted`).
                if not is_passing(error):
                    folder.on_failed(folder, error)

    async def _delete(self, topics: Iterable[TopicImage], slices: Slices) -> None:
        deleted: list[HostedPartition] = []
        for topic in topics:
            del self.by_name[topic.name], self.by_ref[topic.name]
            deleted += self.by_ref.pop(topic.topic_id)
            self.on_deleted(topic)
        for hosted in deleted:
            if type(hosted) is Partition:
                hosted.close()
                self._delete_log(hosted)
                await slices.after(1)
        if deleted:
            await self._sync_given_up()

    def _delete_log(self, partition: Partition) -> None:
        folder = self.folder_of(partition)
        if folder is None or folder.failed is not None:
            return  # The next start with this folder finds a partition that no topic has.
        try:
            folder.delete_log(partition.topic, partition.index, self.clock.uuid())
        except OSError as error:
            # If it was only refused, it is tried again when files are removed (`housekeeping.remove_deleted`).
            if not is_passing(error):
                folder.on_failed(folder, error)

    def _log_config(self, values: Mapping[str, Value]) -> LogConfig:
        return log_config(values, self.server_config())

"""The broker's periodic chores: retention, rolling by age, removal of deleted files, checkpoints.

Each chore sleeps for its whole interval (minutes, by default) and is skipped if there is nothing to do, so an idle
broker stays idle. Removing files and syncing them may take long, so both run in a worker thread. A round over all
partitions yields to other tasks, and makes only one or two checks on a log that needs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.errors import CorruptLogError, is_passing

from kwire.metadata.controller.access.delegation_tokens import remove_expired
from kwire.runtime import workers
from kwire.runtime.service import Service
from kwire.runtime.tasks import TimeSlice, in_this_task
from kwire.runtime.workers import Worker

if TYPE_CHECKING:
    from kwire_storage.directory.log_dir import LogDir
    from kwire_storage.directory.log_dirs import LogDirs
    from kwire_storage.directory.offset_checkpoints import Checkpoints

    from kwire.cluster.nodes import Nodes
    from kwire.config.server import ServerConfig
    from kwire.logs.disk_room import DiskRoom
    from kwire.metadata.service import MetadataService
    from kwire.replicas.partition import Partition
    from kwire.replicas.table import PartitionTable
    from kwire.runtime.clock import Clock

log = logging.getLogger(__name__)

LONGEST_REMOVAL_INTERVAL_MS, SHORTEST_REMOVAL_INTERVAL_MS = 30_000, 10
"""The bounds of the interval at which files are removed: log.segment.delete.delay.ms, as it was at the start."""


@attrs.define(eq=False)
class Housekeeping(Service):
    """The chores of one broker. `rooms` has the disk room of each log dir, by its path.

    The controller of a cluster also does the chores that only one node must do.
    """

    metadata: MetadataService
    log_dirs: LogDirs
    partitions: PartitionTable
    clock: Clock
    rooms: Mapping[str, DiskRoom]
    nodes: Nodes

    async def run(self) -> None:
        config = self.metadata.config
        async with trio.open_nursery() as nursery:

            def every(interval_ms: int, chore: Callable[[], Awaitable[object]]) -> None:
                nursery.start_soon(_every, interval_ms, chore)

            every(config.log_retention_check_interval_ms, self.apply_retention)
            every(config.log_flush_offset_checkpoint_interval_ms, self.write_checkpoints)
            if not self.metadata.is_alone:
                every(config.replica_high_watermark_checkpoint_interval_ms, self._write_high_watermarks)
            every(_removal_interval_ms(config), self.remove_deleted)
            every(_removal_interval_ms(config), self._make_refused)
            if config.delegation_token_secret_key is not None:
                every(config.delegation_token_expiry_check_interval_ms, self.remove_expired_tokens)

    def take_checkpoints(self) -> list[tuple[LogDir, Checkpoints]]:
        """The checkpoint files that are out of date, by log dir; for `LogDir.write`."""
        return self.log_dirs.take_checkpoints(self._replicated_high_watermarks())

    def _replicated_high_watermarks(self) -> dict[tuple[str, int], int]:
        """The high watermarks of partitions with other replicas. Those of the others are recovered from the log, so
        they are not worth an fsync while the broker runs."""
        return {(it.topic, it.index): it.high_watermark for it in self.partitions if not it.role.is_alone}

    async def write_checkpoints(self) -> None:
        """Writes the offset checkpoints that are out of date, and restores the reserves."""
        for folder in list(self.log_dirs):
            self.rooms[folder.path].reconcile()
        for folder, checkpoints in self.take_checkpoints():
            await _in_thread(Worker.CHECKPOINTS, folder, partial(folder.write, checkpoints))

    async def _write_high_watermarks(self) -> None:
        for folder, checkpoints in self.log_dirs.take_high_watermarks(self._replicated_high_watermarks()):
            await _in_thread(Worker.CHECKPOINTS, folder, partial(folder.write, checkpoints))

    async def _make_refused(self) -> None:
        """Makes the logs of new partitions for which there was no room, memory or descriptor before."""
        self.partitions.make_refused()

    async def remove_deleted(self) -> None:
        """Removes the files of deleted topics, and of deleted segments whose delay is over.

        Raises OSError at the end if a deletion is still refused: the removal of other files may make room for it.
        """
        refused: OSError | None = None
        for folder in list(self.log_dirs):
            refused = _finish_deletions(folder) or refused
            deleted = folder.take_deleted(self.clock.now_ms())
            if deleted is None:
                continue
            is_removed = False
            try:
                is_removed = await _in_thread(Worker.NAMES, folder, folder.sync_given_up) and await _in_thread(
                    Worker.REMOVAL, folder, partial(folder.remove, deleted)
                )
            finally:
                if not is_removed:
                    folder.give_back(deleted)
        if refused is not None:
            raise refused

    async def remove_expired_tokens(self) -> None:
        """Removes the delegation tokens that have expired."""
        if self.nodes.is_controller:
            try:
                while await in_this_task(self.metadata.change(remove_expired)):
                    pass
            except KafkaError as error:
                log.error("delegation tokens that have expired cannot be removed: %s", error.message)

    async def apply_retention(self) -> int:
        """Rolls and deletes segments that are too old or too many; returns the number of deleted segments."""
        now_ms = self.clock.now_ms()
        deleted = 0
        time_slice = TimeSlice()
        for partition in list(self.partitions):
            if time_slice.is_over:
                await time_slice.yield_to_others()
            count = 0
            while _maintain(partition, now_ms):
                count += 1
                await time_slice.yield_to_others()
            if count:
                log.info("retention deleted %d segments of %s-%d", count, partition.topic, partition.index)
            deleted += count
        return deleted


def _removal_interval_ms(config: ServerConfig) -> int:
    return max(SHORTEST_REMOVAL_INTERVAL_MS, min(config.log_segment_delete_delay_ms, LONGEST_REMOVAL_INTERVAL_MS))


async def _every(interval_ms: int, chore: Callable[[], Awaitable[object]]) -> None:
    last_error = ""
    while True:
        await trio.sleep(interval_ms / 1000)
        try:
            await chore()
        except OSError as error:
            # A disk may stay full for a week.
            if str(error) != last_error:
                log.error("%s; trying again every %d s", error, interval_ms // 1000)
            last_error = str(error)
        else:
            last_error = ""


def _finish_deletions(folder: LogDir) -> OSError | None:
    """Renames the folders of deleted partitions for which that was refused. Returns the error if it still is."""
    if folder.failed is None:
        try:
            folder.finish_deletions()
        except OSError as error:
            if is_passing(error):
                return error
            folder.on_failed(folder, error)
    return None


async def _in_thread(worker: Worker, folder: LogDir, work: Callable[[], object]) -> bool:
    """Runs blocking work in a thread, and returns True if it was done. Takes the folder out of service if its disk has
    failed. Raises OSError if it is full.

    A file that something else has changed does not stop the broker: an unwritten offset checkpoint makes the next
    recovery longer, a file that is not removed takes space. The error is logged with its traceback and the work is
    retried.
    """
    try:
        await workers.run(worker, work)
    except OSError as error:
        if folder.is_mistake(error):
            log.error(
                "%s in %s failed although the disk is well, and is tried again. Either something else changes files "
                "there, or this is a bug in kwire: please report it with what follows",
                worker.value,
                folder.path,
                exc_info=error,
            )
        elif is_passing(error):
            raise
        else:
            folder.on_failed(folder, error)
        return False
    return True


def _maintain(partition: Partition, now_ms: int) -> int:
    """Rolls the log, or deletes a segment; returns the number of deleted segments."""
    if partition.closed:
        return 0
    try:
        return partition.maintain(now_ms)
    except OSError as error:
        log.error("retention of %s-%d: %s", partition.topic, partition.index, partition.storage_error(error))
    except CorruptLogError as error:
        log.error("retention of %s-%d: %s", partition.topic, partition.index, error)
    return 0

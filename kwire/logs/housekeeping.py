"""The broker's periodic chores: retention, rolling by age, removal of deleted files, checkpoints.

Each chore sleeps for its whole interval (minutes, by default) and is skipped if there is nothing to do, so an idle
broker stays idle. Removing files and syncing them may take long, so both run in a worker thread. A round over all
partitions yields to other tasks, and makes only one or two checks on a log that needs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio
from kwire_storage.errors import CorruptLogError, is_passing

from kwire.runtime import workers
from kwire.runtime.tasks import Turns
from kwire.runtime.workers import Worker

if TYPE_CHECKING:
    from kwire_storage.directory.log_dir import LogDir

    from kwire.broker import Broker
    from kwire.config.server import ServerConfig
    from kwire.replicas.partition import Partition

log = logging.getLogger(__name__)

LONGEST_REMOVAL_INTERVAL_MS, SHORTEST_REMOVAL_INTERVAL_MS = 30_000, 10
"""How often the broker looks for files that may be removed: every log.segment.delete.delay.ms (as it was at the start),
within these bounds."""


async def run(broker: Broker) -> None:
    """Runs until cancelled."""
    config = broker.config
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_every, config.log_retention_check_interval_ms, lambda: apply_retention(broker))
        nursery.start_soon(_every, config.log_flush_offset_checkpoint_interval_ms, lambda: _checkpoints(broker))
        if broker.member is not None:
            nursery.start_soon(
                _every, config.replica_high_watermark_checkpoint_interval_ms, lambda: _high_watermarks(broker)
            )
        nursery.start_soon(_every, _removal_interval_ms(config), lambda: remove_deleted(broker))
        nursery.start_soon(_every, _removal_interval_ms(config), lambda: _make_refused(broker))


def _removal_interval_ms(config: ServerConfig) -> int:
    return max(SHORTEST_REMOVAL_INTERVAL_MS, min(config.log_segment_delete_delay_ms, LONGEST_REMOVAL_INTERVAL_MS))


async def _every(interval_ms: int, chore: Callable[[], Awaitable[object]]) -> None:
    told = ""
    while True:
        await trio.sleep(interval_ms / 1000)
        try:
            await chore()
        except OSError as error:
            # A disk may stay full for a week.
            if str(error) != told:
                log.error("%s; trying again every %d s", error, interval_ms // 1000)
            told = str(error)
        else:
            told = ""


async def _checkpoints(broker: Broker) -> None:
    for folder in list(broker.log_dirs):
        broker.rooms[folder.path].look()
    for folder, checkpoints in broker.take_checkpoints():
        await _in_thread(Worker.CHECKPOINTS, broker, folder, partial(folder.write, checkpoints))


async def _high_watermarks(broker: Broker) -> None:
    for folder, checkpoints in broker.take_high_watermarks():
        await _in_thread(Worker.CHECKPOINTS, broker, folder, partial(folder.write, checkpoints))


async def _make_refused(broker: Broker) -> None:
    """Makes the logs of new partitions for which there was no room, memory or descriptor before."""
    broker.partitions.make_refused()


async def remove_deleted(broker: Broker) -> None:
    """Removes the files of deleted topics, and of deleted segments whose delay is over.

    Raises OSError at the end if a deletion is still refused: the removal of other files may make the room for it.
    """
    refused: OSError | None = None
    for folder in list(broker.log_dirs):
        refused = _finish_deletions(broker, folder) or refused
        deleted = folder.take_deleted(broker.clock.now_ms())
        if deleted is None:
            continue
        is_removed = False
        try:
            is_removed = await _in_thread(Worker.NAMES, broker, folder, folder.sync_given_up) and await _in_thread(
                Worker.REMOVAL, broker, folder, partial(folder.remove, deleted)
            )
        finally:
            if not is_removed:
                folder.give_back(deleted)
    if refused is not None:
        raise refused


def _finish_deletions(broker: Broker, folder: LogDir) -> OSError | None:
    """Renames the folders of deleted partitions for which that was refused. Returns the error if it still is."""
    if folder.failed is None:
        try:
            folder.finish_deletions()
        except OSError as error:
            if is_passing(error):
                return error
            broker.take_offline(folder, error)
    return None


async def _in_thread(worker: Worker, broker: Broker, folder: LogDir, work: Callable[[], object]) -> bool:
    """Runs blocking work, and returns whether it was done. Takes the folder out of service if its disk has failed.
    Raises OSError if it is full.

    A file that is not as kwire left it does not stop the broker: an unwritten offset checkpoint makes the next recovery
    longer, a file that is not removed takes space. The error is logged with its traceback and the work is retried.
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
            broker.take_offline(folder, error)
        return False
    return True


async def apply_retention(broker: Broker) -> int:
    """Rolls and deletes segments that are too old or too many; returns how many were deleted."""
    now_ms = broker.clock.now_ms()
    deleted = 0
    turns = Turns()
    for partition in list(broker.partitions):
        if turns.is_over:
            await turns.give_way()
        count = 0
        while _tend(partition, now_ms):
            count += 1
            await turns.give_way()
        if count:
            log.info("retention deleted %d segments of %s-%d", count, partition.topic, partition.index)
        deleted += count
    return deleted


def _tend(partition: Partition, now_ms: int) -> int:
    """Rolls the log, or deletes a segment; returns how many were deleted."""
    if partition.closed:
        return 0
    try:
        return partition.tend(now_ms)
    except OSError as error:
        log.error("retention of %s-%d: %s", partition.topic, partition.index, partition.storage_error(error))
    except CorruptLogError as error:
        log.error("retention of %s-%d: %s", partition.topic, partition.index, error)
    return 0

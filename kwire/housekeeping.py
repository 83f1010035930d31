"""What a broker does by the clock: retention, rolling by age, removal of deleted files, checkpoints.

Each chore sleeps for its whole interval (minutes, by default) and is skipped where there is nothing to do, so an idle
broker stays idle. Removing files and syncing them may take long: both happen in a worker thread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio
from kwire_storage.errors import is_passing

if TYPE_CHECKING:
    from kwire_storage.data_folder import DataFolder

    from kwire.broker import Broker

log = logging.getLogger(__name__)

REMOVAL_INTERVAL_MS = 30_000
"""How often it is looked for the files of deleted partitions."""


async def run(broker: Broker) -> None:
    """Runs until cancelled."""
    config = broker.config
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_every, config.log_retention_check_interval_ms, lambda: _retention(broker))
        nursery.start_soon(_every, config.log_flush_offset_checkpoint_interval_ms, lambda: _checkpoints(broker))
        nursery.start_soon(_every, REMOVAL_INTERVAL_MS, lambda: _removal(broker))


async def _every(interval_ms: int, chore: Callable[[], Awaitable[object]]) -> None:
    while True:
        await trio.sleep(interval_ms / 1000)
        try:
            await chore()
        except OSError as error:
            log.error("%s; trying again in %d s", error, interval_ms // 1000)


async def _retention(broker: Broker) -> None:
    apply_retention(broker)


async def _checkpoints(broker: Broker) -> None:
    folder = broker.folder
    checkpoints = broker.take_checkpoints()
    if checkpoints:
        await _in_thread(broker, folder, lambda: folder.write(checkpoints))


async def _removal(broker: Broker) -> None:
    folder = broker.folder
    if folder.has_deleted:
        await _in_thread(broker, folder, folder.remove_deleted)


async def _in_thread(broker: Broker, folder: DataFolder, work: Callable[[], object]) -> None:
    """Does what blocks; takes the folder out of service if its disk has failed. Raises OSError if it is full."""
    try:
        await trio.to_thread.run_sync(work)
    except OSError as error:
        if is_passing(error):
            raise
        broker.take_offline(folder, error)


def apply_retention(broker: Broker) -> int:
    """Rolls and deletes what is old or too much; returns how many segments went."""
    now_ms = broker.clock.now_ms()
    deleted = 0
    for partition in broker.partitions:
        if partition.closed:
            continue
        try:
            partition.log.maybe_roll(now_ms)
            count = partition.log.apply_retention(now_ms, partition.high_watermark)
        except OSError as error:
            log.error("retention of %s-%d: %s", partition.topic, partition.index, partition.storage_error(error))
            continue
        if count:
            log.info("retention deleted %d segments of %s-%d", count, partition.topic, partition.index)
        deleted += count
    return deleted

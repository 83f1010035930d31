"""What a broker does by the clock: retention, rolling by age, removal of deleted files, checkpoints.

Each chore sleeps for its whole interval (minutes, by default) and is skipped where there is nothing to do, so an idle
broker stays idle. Removing files and syncing them may take long: both happen in a worker thread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
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
    checkpoints = broker.take_checkpoints()
    if checkpoints:
        await trio.to_thread.run_sync(broker.folder.write, checkpoints)


async def _removal(broker: Broker) -> None:
    if broker.folder.has_deleted:
        await trio.to_thread.run_sync(broker.folder.remove_deleted)


def apply_retention(broker: Broker) -> int:
    """Rolls and deletes what is old or too much; returns how many segments went."""
    now_ms = broker.clock.now_ms()
    deleted = 0
    for partition in broker.partitions:
        partition.log.maybe_roll(now_ms)
        count = partition.log.apply_retention(now_ms, partition.high_watermark)
        if count:
            log.info("retention deleted %d segments of %s-%d", count, partition.topic, partition.index)
        deleted += count
    return deleted

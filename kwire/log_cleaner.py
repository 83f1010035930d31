"""Compaction by the clock: which log has become dirty enough, and its cleaning beside the work of the broker.

As Kafka's `LogCleaner`, every log.cleaner.backoff.ms: of the compacted logs whose dirty part is larger than
min.cleanable.dirty.ratio of the whole, or older than max.compaction.lag.ms, the dirtiest is cleaned, and the next,
until there is none. One is cleaned at a time, by a worker thread (`storage/kwire_storage/compaction.py`), which pauses
as long as it works: it needs the interpreter, and so do producers. A log that cannot be read is left alone from then
on, and said so once.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio
from kwire_protocol.records import InvalidBatch
from kwire_storage import compaction, swap
from kwire_storage.compaction import AbandonedError, Compaction, Dirt
from kwire_storage.errors import CorruptLogError

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.partition import Partition

log = logging.getLogger(__name__)

WORK_S = 0.002
"""So long a cleaning works without a pause, which is as long."""

SWITCH_INTERVAL_S = 0.0005
"""So long others wait for the interpreter, at most, while a log is cleaned. Python's own 5 ms would be seen in the
latency of every request."""


@attrs.define(eq=False)
class LogCleaner:
    """The cleaner of one broker; `run` it beside the server."""

    broker: Broker
    _unreadable: set[Partition] = attrs.field(factory=set)

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            config = self.broker.config
            await trio.sleep(config.log_cleaner_backoff_ms / 1000)
            if self.broker.config.log_cleaner_enable:
                try:
                    await self.clean_all()
                except OSError as error:
                    log.error("a log could not be compacted: %s", error)

    async def clean_all(self) -> int:
        """Cleans what is dirty enough now; returns how many cleanings that took."""
        count = 0
        while (found := self._dirtiest()) is not None:
            await self._clean(*found)
            count += 1
        return count

    def _dirtiest(self) -> tuple[Partition, Dirt] | None:
        now_ms = self.broker.clock.now_ms()
        found: tuple[Partition, Dirt] | None = None
        for partition in self.broker.partitions:
            # With one segment there is nothing but the active one.
            if not partition.rules.compacted or len(partition.log.segments) == 1 or partition in self._unreadable:
                continue
            dirt = self._measure(partition, now_ms)
            if self._is_due(partition, dirt, now_ms) and (found is None or dirt.ratio > found[1].ratio):
                found = partition, dirt
        return found

    def _measure(self, partition: Partition, now_ms: int) -> Dirt:
        cleaned = self.broker.folder.cleaned.get((partition.topic, partition.index), 0)
        return compaction.measure(partition.log, cleaned, partition.last_stable_offset, now_ms)

    @staticmethod
    def _is_due(partition: Partition, dirt: Dirt, now_ms: int) -> bool:
        if not dirt.dirty_bytes or dirt.end_offset <= dirt.first_dirty_offset:
            return False
        config = partition.log.config
        is_late = dirt.dirty_since_ms is not None and now_ms - dirt.dirty_since_ms > config.max_compaction_lag_ms
        return is_late or dirt.ratio > config.min_cleanable_dirty_ratio

    async def _clean(self, partition: Partition, dirt: Dirt) -> None:
        broker, now_ms = self.broker, self.broker.clock.now_ms()
        cleaning = Compaction.begin(
            partition.log, dirt, now_ms=now_ms, map_bytes=broker.config.log_cleaner_dedupe_buffer_size
        )
        began = time.monotonic()
        try:
            await self._in_thread(cleaning)
            if partition.closed:
                raise AbandonedError
            swap.commit(cleaning)
            await trio.to_thread.run_sync(swap.sync, cleaning)
        except (CorruptLogError, InvalidBatch) as error:
            self._unreadable.add(partition)
            log.error("%s-%d cannot be compacted any more: %s", partition.topic, partition.index, error)
            swap.discard(cleaning)
            return
        except AbandonedError:
            swap.discard(cleaning)
            return
        except OSError:
            swap.discard(cleaning)
            if partition.closed:  # and its files are gone
                return
            raise
        except BaseException:
            swap.discard(cleaning)
            raise
        # From here on the old files go: it is brought to its end, which takes two syncs.
        with trio.CancelScope(shield=True):
            await self._replace(partition, cleaning, now_ms)
        log.info(
            "compacted %s-%d up to offset %d in %.1f s: read %d bytes, wrote %d",
            partition.topic,
            partition.index,
            cleaning.end_offset,
            time.monotonic() - began,
            cleaning.read_bytes,
            cleaning.written_bytes,
        )

    async def _replace(self, partition: Partition, cleaning: Compaction, now_ms: int) -> None:
        log = partition.log
        try:
            for step in (partial(swap.replace, log, cleaning, now_ms), partial(swap.finish, log, cleaning)):
                if partition.closed:
                    return
                step()
                await trio.to_thread.run_sync(swap.sync, cleaning)
            swap.sweep(cleaning)
        except OSError as error:
            if partition.closed:  # and its files are gone
                return
            # Half of the files have their names, and the next opening will put that right. Until then nothing is added.
            log.failed = error
            raise
        self.broker.folder.cleaned[partition.topic, partition.index] = cleaning.end_offset

    async def _in_thread(self, cleaning: Compaction) -> None:
        """Writes; when it is cancelled the thread is told, and waited for."""

        async def tell_when_cancelled() -> None:
            try:
                await trio.sleep_forever()
            finally:
                cleaning.is_abandoned = True

        most_bytes_per_s = self.broker.config.log_cleaner_io_max_bytes_per_second
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell_when_cancelled)
            error = await trio.to_thread.run_sync(_write, cleaning, most_bytes_per_s)
            nursery.cancel_scope.cancel()
        if error is not None:
            raise error


def _write(cleaning: Compaction, most_bytes_per_s: float) -> Exception | None:
    """Returns what went wrong: raised in a nursery, it would come out of it as a group."""
    began = worked_since = time.monotonic()
    size = 0
    try:
        with _short_switch_interval():
            for step in cleaning.write():
                size += step
                now = time.monotonic()
                if now - worked_since >= WORK_S:
                    time.sleep(max(now - worked_since, size / most_bytes_per_s - (now - began)))
                    worked_since = time.monotonic()
    except (AbandonedError, CorruptLogError, InvalidBatch, OSError) as error:
        return error
    return None


@contextmanager
def _short_switch_interval() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)

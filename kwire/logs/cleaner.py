"""Scheduled compaction: picks the logs that are dirty enough, and cleans them in the background.

Like Kafka's `LogCleaner`, it runs every log.cleaner.backoff.ms. It considers the compacted logs whose dirty part is
larger than min.cleanable.dirty.ratio of the whole, or older than max.compaction.lag.ms. It cleans the dirtiest, then
the next, until there is none, one at a time. This module chooses the log and swaps its segments
(`storage/kwire_storage/compaction/planning.py`, `swap.py`); `segment_writing.py` writes them.

A damaged log is reported once and then skipped. A log for which the disk has no room is tried again every time. As
everywhere, a disk that fails takes its folder out of service.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

import attrs
import trio
from kwire_protocol.records import InvalidBatch
from kwire_storage.compaction import planning as compaction
from kwire_storage.compaction import swap
from kwire_storage.compaction.planning import Compaction, Dirt
from kwire_storage.compaction.writing import AbandonedError, Written
from kwire_storage.errors import CorruptLogError, is_passing
from kwire_storage.log.log import Log

from kwire.logs.segment_writing import CleanerDiedError, CleanerProcess, write_in_thread
from kwire.metadata.image import Changes, ConfigResourceType
from kwire.runtime import workers
from kwire.runtime.service import Service
from kwire.runtime.tasks import TimeSlice
from kwire.runtime.workers import Worker

if TYPE_CHECKING:
    from kwire_storage.directory.log_dirs import LogDirs

    from kwire.logs.moves import LogMoves
    from kwire.metadata.service import MetadataService
    from kwire.replicas.flusher import Flusher
    from kwire.replicas.partition import Partition
    from kwire.replicas.table import PartitionTable
    from kwire.runtime.clock import Clock

log = logging.getLogger(__name__)

SHORTEST_BACKOFF_S = 0.001
"""The shortest wait between two rounds, since log.cleaner.backoff.ms may be 0."""

IDLE_S = 30.0
"""The idle time after which the process that writes segments is stopped. Its start takes a tenth of a second of CPU."""

SYNC_RETRY_S = 0.5
SYNC_TRIES = 20
"""The number of attempts to sync: an exchange of files is not given up halfway for lack of a descriptor."""


@attrs.define(eq=False)
class LogCleaner(Service):
    """Compacts the logs of one broker, one at a time."""

    metadata: MetadataService
    partitions: PartitionTable
    log_dirs: LogDirs
    moves: LogMoves
    flusher: Flusher
    clock: Clock
    _reconfigured: trio.Event = attrs.field(factory=trio.Event)
    _uncleanable: set[Partition] = attrs.field(factory=set)
    _refusals: dict[Partition, str] = attrs.field(factory=dict)
    """The logged reasons why partitions could not be cleaned the last time."""
    _process: CleanerProcess = attrs.field(init=False)
    _used_s: float = -math.inf
    """The time at which the process last had work, by trio's clock."""

    def __attrs_post_init__(self) -> None:
        self._process = CleanerProcess(self._most_bytes_per_s)

    async def run(self) -> None:
        """Runs until cancelled."""
        self.metadata.watch(self._follow)
        try:
            while True:
                self._reconfigured = trio.Event()
                with trio.move_on_after(max(self.metadata.config.log_cleaner_backoff_ms / 1000, SHORTEST_BACKOFF_S)):
                    await self._rest()
                if self.metadata.config.log_cleaner_enable:
                    await self.clean_all()
        finally:
            await self.end_process()

    async def _rest(self) -> None:
        """Waits for new settings, and meanwhile ends a process that has been idle for long."""
        if self._process.is_running:
            with trio.CancelScope(deadline=self._used_s + IDLE_S):
                await self._reconfigured.wait()
                return
            await self.end_process()
        await self._reconfigured.wait()

    async def end_process(self) -> None:
        """Ends the process; the next cleaning starts it again."""
        await self._process.end()

    def _follow(self, changes: Changes) -> None:
        if any(resource == ConfigResourceType.BROKER for resource, _ in changes.configs):
            self._reconfigured.set()
            self._process.follow_rate()

    async def clean_all(self) -> int:
        """Cleans the logs that are dirty enough now; returns the number of cleanings."""
        self._uncleanable = {it for it in self._uncleanable if not it.closed}
        self._refusals = {it: reason for it, reason in self._refusals.items() if not it.closed}
        count = 0
        tried: set[Partition] = set()
        while (partition := await self._dirtiest(tried)) is not None:
            partition.is_cleaning = True
            try:
                is_clean = await self._clean(partition)
            finally:
                partition.is_cleaning = False
            if is_clean:
                count += 1
            else:
                tried.add(partition)
        return count

    async def _dirtiest(self, tried: set[Partition]) -> Partition | None:
        found: tuple[float, Partition] | None = None
        time_slice = TimeSlice()
        for partition in list(self.partitions):
            if time_slice.is_over:
                await time_slice.yield_to_others()
            if not partition.rules.compacted or compaction.is_clean(_files(partition)):
                continue
            if partition in tried or partition in self._uncleanable:
                continue
            try:
                dirt = self._due(partition)
            except (CorruptLogError, InvalidBatch) as error:
                self._give_up(partition, error)
                continue
            except OSError as error:
                self._refuse(partition, error)
                continue
            if dirt is not None and (found is None or dirt.ratio > found[0]):
                found = dirt.ratio, partition
        return None if found is None else found[1]

    def _due(self, partition: Partition, *, is_flushed: bool = False) -> Dirt | None:
        """The part of a partition to clean now, or the part that could be cleaned after a flush."""
        files = _files(partition)
        if partition.closed or files.failed is not None:
            return None
        if self.moves.find(partition.topic, partition.index) is not None:
            return None  # As in Kafka: it is cleaned in its new log dir.
        # Cleaning needs disk space before it frees any, and the rest of a full disk is reserved.
        if files.reserve.is_out:
            return None
        now_ms = self.clock.now_ms()
        # Usually this is not enough, and then the transactions, which may have to be read first, are not needed.
        if not _is_due(partition, compaction.measure(files, partition.high_watermark, now_ms), now_ms):
            return None
        end_offset = partition.last_stable_offset
        if is_flushed:
            end_offset = compaction.cleanable_end(files, partition.high_watermark)
        dirt = compaction.measure(files, end_offset, now_ms)
        return dirt if _is_due(partition, dirt, now_ms) else None

    async def _clean(self, partition: Partition) -> bool:
        """Returns True if the partition was cleaned. If not, the reason was logged."""
        try:
            cleaning = await self._begin(partition)
        except (CorruptLogError, InvalidBatch) as error:
            self._give_up(partition, error)
            return False
        except OSError as error:
            if not partition.closed:
                self._refuse(partition, error)
            return False
        if cleaning is None:
            return False
        now_ms = cleaning.plan.now_ms
        began = time.monotonic()
        is_swapping = False
        try:
            written = await self._write(cleaning)
            swap.begin(_files(partition), cleaning)
            await workers.run(Worker.CLEANER, swap.commit, cleaning)
            is_swapping = True
        except (CorruptLogError, InvalidBatch) as error:
            self._give_up(partition, error)
            return False
        except AbandonedError:
            return False
        except CleanerDiedError as error:
            self._log_refusal(partition, f"the process that writes segments failed: {error}")
            return False
        except OSError as error:
            if not partition.closed:  # and its files are gone
                self._refuse(partition, error)
            return False
        finally:
            if not is_swapping:
                swap.discard(_files(partition), cleaning)
        # The old files are removed from now on, so the exchange is completed, which takes two syncs.
        with trio.CancelScope(shield=True):
            if not await self._replace(partition, cleaning, now_ms):
                return False
        self._refusals.pop(partition, None)
        log.info(
            "compacted %s-%d up to offset %d in %.1f s: read %d bytes, wrote %d",
            *_name(partition),
            cleaning.end_offset,
            time.monotonic() - began,
            written.read_bytes,
            written.written_bytes,
        )
        return True

    async def _begin(self, partition: Partition) -> Compaction | None:
        """Makes the part to be cleaned durable, and the recovery point above it too. Raises OSError."""
        files = _files(partition)
        if files.recovery_point < files.active.base_offset:  # seldom: a segment that is full is flushed
            await self.flusher.flush(partition.flush_gate)
        folder = self.log_dirs.find(*_name(partition))
        dirt = self._due(partition, is_flushed=True)
        if dirt is None or folder is None:
            return None
        config, now_ms = self.metadata.config, self.clock.now_ms()
        cleaning = Compaction.begin(files, dirt, now_ms=now_ms, map_bytes=config.log_cleaner_dedupe_buffer_size)
        await workers.run(
            Worker.CHECKPOINTS, folder.write, folder.take_before_cleaning(_name(partition), dirt.end_offset)
        )
        return cleaning

    def _give_up(self, partition: Partition, error: Exception) -> None:
        self._uncleanable.add(partition)
        log.error("%s-%d is not compacted any more, since it is damaged: %s", *_name(partition), error)

    def _refuse(self, partition: Partition, error: OSError) -> None:
        partition.storage_error(error)
        if partition.closed:  # with its folder, whose failure was logged
            return
        self._log_refusal(partition, str(error))

    def _log_refusal(self, partition: Partition, reason: str) -> None:
        if self._refusals.get(partition) != reason:
            self._refusals[partition] = reason
            log.error("%s-%d could not be compacted, which is tried again: %s", *_name(partition), reason)

    async def _replace(self, partition: Partition, cleaning: Compaction, now_ms: int) -> bool:
        files = _files(partition)
        time_slice = TimeSlice()
        try:
            for steps in (swap.replace(files, cleaning, now_ms), swap.finish(files, cleaning)):
                for _ in steps:
                    if time_slice.is_over:
                        await time_slice.yield_to_others()
                    if partition.closed:
                        return False
                await _sync(cleaning)
                if partition.closed:
                    return False
            swap.conclude(files, cleaning, self.clock.now_ms())
        except OSError as error:
            if partition.closed:  # and its files are gone
                return False
            if is_passing(error) and not files.is_exchanging:
                return True  # The exchange is done, and retention deletes the records below the log start.
            # Only half of the files are renamed. The next start repairs that, and nothing may change in between.
            files.fail(error)
            return False
        return True

    async def _write(self, cleaning: Compaction) -> Written:
        folder = cleaning.disk.native_path(cleaning.plan.folder)
        try:
            if folder is None:
                written = await write_in_thread(cleaning.disk, cleaning.plan, self._most_bytes_per_s)
            else:
                with trio.CancelScope() as scope, cleaning.disk.lent(scope.cancel):
                    written = await self._process.write(cleaning.plan, folder)
                if scope.cancelled_caught:
                    raise AbandonedError
        except CorruptLogError as error:
            raise CorruptLogError(f"{cleaning.plan.folder}/{error}") from error
        finally:
            self._used_s = trio.current_time()
        cleaning.take(written)
        return written

    def _most_bytes_per_s(self) -> float:
        return max(self.metadata.config.log_cleaner_io_max_bytes_per_second, 1.0)


async def _sync(cleaning: Compaction) -> None:
    """Raises OSError, but waits if the system lacks descriptors or memory."""
    for _ in range(SYNC_TRIES - 1):
        try:
            await workers.run(Worker.CLEANER, swap.sync, cleaning)
        except OSError as error:
            if not is_passing(error):
                raise
            await trio.sleep(SYNC_RETRY_S)
        else:
            return
    await workers.run(Worker.CLEANER, swap.sync, cleaning)


def _is_due(partition: Partition, dirt: Dirt, now_ms: int) -> bool:
    if not dirt.dirty_bytes or dirt.end_offset <= dirt.first_dirty_offset:
        return False
    config = partition.log.config
    is_late = dirt.dirty_since_ms is not None and now_ms - dirt.dirty_since_ms > config.max_compaction_lag_ms
    return is_late or dirt.ratio > config.min_cleanable_dirty_ratio


def _files(partition: Partition) -> Log:
    """The log, which has segments: others are not compacted."""
    assert isinstance(partition.log, Log)
    return partition.log


def _name(partition: Partition) -> tuple[str, int]:
    return partition.topic, partition.index

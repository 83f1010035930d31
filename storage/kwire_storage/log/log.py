"""One partition's log: segments in order, the last of which is appended to.

`log_start_offset <= ... <= log_end_offset`, and segment n covers `base(n)..base(n+1)`. Everything here is synchronous
and free of clocks; `now_ms` is handed in. An append is one write to the page cache and a few additions to lists; a read
finds two positions in a file. Nothing is decoded on either way.

After a clean stop opening costs one listing of the folder: the last producer snapshot's name tells the end of the log,
and files are opened when first needed. `activate` (the first append) checks that promise. After anything else
`recovery.py` walks over the segments from the recovery point on.

What is on the medium is told by `recovery_point`: everything below it survives a power cut. `begin_flush` collects what
to sync, `Flush.run` may block and belongs into a worker thread, `finish_flush` moves the recovery point. After a failed
sync nobody knows what the medium has, so the log refuses further appends (`failed`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import BatchHeader, assign, iter_headers, set_log_append_time

from kwire_storage import names
from kwire_storage.config import LogConfig
from kwire_storage.disk.files import Disk
from kwire_storage.disk.lease import Lease
from kwire_storage.disk.reserve import Reserve
from kwire_storage.errors import (
    CorruptLogError,
    CorruptRangeError,
    OffsetOutOfRange,
    OwnershipError,
    StorageError,
    SyncFailedError,
)
from kwire_storage.log import damage, durability, opening, replay, retention, rolling, search, truncation
from kwire_storage.log.damage import CorruptRange
from kwire_storage.log.durability import Flush
from kwire_storage.log.epochs import EpochCache
from kwire_storage.log.recovery import Recovery
from kwire_storage.log.search import TimestampOffset
from kwire_storage.log.segment import Segment
from kwire_storage.log.slices import LogSlice
from kwire_storage.log.surroundings import Surroundings
from kwire_storage.producers.markers import apply_batch, decode_marker
from kwire_storage.producers.states import ProducerStates
from kwire_storage.producers.txn_index import AbortedTxn

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AppendResult", "Flush", "Log", "LogConfig", "LogSlice", "TimestampOffset"]


def _nobody(*_told: object) -> None: ...


class AppendResult(NamedTuple):
    """Where an append ended up; `log_append_time_ms` is -1 unless the topic stamps its records."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int


class Log:
    """See the module. Create one with `Log.open`."""

    def __init__(
        self, disk: Disk, path: str, config: LogConfig, log_start_offset: int, surroundings: Surroundings
    ) -> None:
        self.disk = Lease(disk, surroundings.open_files)
        self.path = path
        self.reserve = surroundings.reserve or Reserve(disk)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.recovery_point = log_start_offset
        self.segments: list[Segment] = []
        self.failed: OSError | None = None
        self.on_failed: Callable[[OSError], None] = _nobody
        """Told once, by `fail`; the data folder listens."""
        self.snapshot_offsets: list[int] = []
        self.surroundings = surroundings
        self.bases: list[int] = []
        self.newest_so_far: list[int] = []
        """The largest timestamp of each sealed segment and those before it, as far as `search` has asked."""
        self.epochs_or_none: EpochCache | None = None
        self.producers_or_none: ProducerStates | None = None
        self.is_active = False
        # What a flush still has to make durable: names in the folder, the folder's own name, and files other than
        # records. The counts tell a flush that ran meanwhile that it has not seen the latest.
        self.name_changes = self.name_changes_synced = 0
        self.folder_unsynced = False
        self.make_folder: Callable[[Log], None] | None = None
        """Set while a full disk has no room for the folder of a new partition: the first append calls it."""
        self.unsynced_files: set[str] = set()
        self.truncations = 0
        self._flush: Flush | None = None
        """The one that is under way."""
        self.cleaned_offset = 0
        """Up to here the log was compacted: of each key only one record is left below it."""
        self.may_be_compacted = False
        """Whether a cleaning has ever begun here: then records that are missing are no loss."""
        self.is_exchanging = False
        """Whether cleaned segments are taking the place of others (`swap.py`): until then none is deleted."""
        self.roll_jitter_ms = 0
        self.quiet_until_ms = self.quiet_as_of = -1
        """Before this time there is nothing for retention to do, provided that the log still ends at that offset."""
        self.recovery: Recovery | None = None
        self.on_roll: Callable[[], None] = _nobody
        """Called when a segment is full and can be flushed for good."""
        self.config = config

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.quiet_until_ms = -1
        self._stamps = config.stamps
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes
            segment.fits_until_ms = -1
        if self.producers_or_none is not None:
            self.producers_or_none.expiration_ms = config.producer_id_expiration_ms
            self.producers_or_none.check_interval_ms = config.producer_id_expiration_check_interval_ms

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        config: LogConfig,
        *,
        now_ms: int,
        clean_shutdown: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_offset: int = 0,
        surroundings: Surroundings | None = None,
        make_folder: Callable[[Log], None] | None = None,
        on_scanned: Callable[[int], None] = _nobody,
    ) -> Log:
        """Opens the log in folder `path`, which is created if absent; by `make_folder`, if given.

        `cleaned_offset` is up to where compaction had come by the last checkpoint. On a full disk the folder follows
        with the first record. Raises OSError, and CorruptLogError when the files contradict each other beyond what
        recovery may cut.
        """
        log = cls(disk, path, config, log_start_offset, surroundings or Surroundings())
        log.cleaned_offset = cleaned_offset
        log.may_be_compacted = cleaned_offset > 0
        log.make_folder = make_folder or (lambda log: disk.mkdir(log.path))
        opening.load(
            log, now_ms=now_ms, clean_shutdown=clean_shutdown, recovery_point=recovery_point, on_scanned=on_scanned
        )
        return log

    # -- what is known

    @property
    def leader_epochs(self) -> EpochCache:
        if self.epochs_or_none is None:
            self.epochs_or_none = replay.load_epochs(self)
        return self.epochs_or_none

    @property
    def producers(self) -> ProducerStates:
        if self.producers_or_none is None:
            self.producers_or_none = replay.load_producers(self)
        return self.producers_or_none

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    # -- appending

    def append(
        self, batch: memoryview | bytearray, header: BatchHeader, *, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Gives a checked batch its offset, in place, and appends it with one write.

        `header` is the batch's own, which fills `batch`. Producers were asked before (`producers.check`); here they
        only learn. Raises StorageError, after which nothing of it can be read, and KafkaError(RECORD_LIST_TOO_LARGE)
        for more than `segment.bytes`.
        """
        if not self.is_active:
            self.activate(now_ms)
        base_offset = self.log_end_offset
        assign(batch, 0, base_offset, leader_epoch)
        timestamp = header[8]
        append_time = -1
        if self._stamps:
            set_log_append_time(batch, 0, now_ms)
            timestamp = append_time = now_ms
        self._write(batch, header, base_offset, timestamp, now_ms)
        if leader_epoch != self.epochs_or_none.latest:  # type: ignore[union-attr]
            self.leader_epochs.assign(leader_epoch, base_offset)
        return AppendResult(base_offset, base_offset + header[6], append_time)

    def append_as_is(self, buf: Buffer, *, now_ms: int = 0) -> AppendResult:
        """Appends checked batches that carry their offsets and epochs already; they begin at the log's end or above."""
        if not self.is_active:
            self.activate(now_ms)
        view = memoryview(buf)
        headers = list(iter_headers(view))
        end_offset = self.log_end_offset
        for _, header in headers:
            if header.base_offset < end_offset:
                raise ValueError(f"batch at offset {header.base_offset} where the log goes on at {end_offset}")
            end_offset = header.next_offset
        for position, header in headers:
            batch = view[position : position + header.size_in_bytes]
            self._write(batch, header, header.base_offset, header.max_timestamp, now_ms)
            self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        return AppendResult(headers[0][1].base_offset, end_offset - 1, -1)

    def _write(self, batch: Buffer, header: BatchHeader, base_offset: int, timestamp: int, now_ms: int) -> None:
        # A marker is decoded first: a malformed one must not get into the log.
        marker = decode_marker(memoryview(batch), 0, header) if header.is_control and header[9] >= 0 else None
        size = header[1] + 12
        last_offset = base_offset + header[6]
        if self.failed is not None:
            raise StorageError.of(self.failed, self.path)
        segment_bytes = self._config.segment_bytes
        if size > segment_bytes:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes do not fit into a segment")
        segment = self.segments[-1]
        file = segment.file
        position = file.size
        fits = (
            0 <= timestamp <= segment.fits_until_ms
            and position + size <= segment_bytes
            and last_offset <= segment.fits_until_offset
        )
        if not fits and rolling.must_roll(self, last_offset, size, timestamp, now_ms):
            self.roll(now_ms)
            segment = self.segments[-1]
            file = segment.file
            position = file.size
        try:
            file.append(batch)
        except OSError as error:
            self.reserve.note(error)
            raise StorageError.of(error, segment.path + names.LOG) from error
        segment.note(base_offset, last_offset, position, size, timestamp)
        self.log_end_offset = last_offset + 1
        if header[9] >= 0:
            apply_batch(self.producers, segment, header, base_offset, timestamp, marker)

    def activate(self, now_ms: int) -> None:
        """Makes the last segment ready for appending; the first append does it by itself."""
        rolling.activate(self, now_ms)

    def assign_epoch(self, leader_epoch: int) -> None:
        """This node leads from the log's end on, in that epoch."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    # -- rolling

    def maybe_roll(self, now_ms: int) -> bool:
        """Begins a new segment if the active one is older than `segment.ms`, and not empty; a full disk puts it off."""
        return rolling.maybe_roll(self, now_ms)

    def roll(self, now_ms: int) -> None:
        """Seals the active segment and begins one at the log's end. Raises StorageError, and then nothing changed."""
        rolling.roll(self, now_ms)

    # -- reading

    def read(self, offset: int, *, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> LogSlice:
        """Whole batches of one segment, from the one that holds `offset`, none of them reaching `max_offset`.

        At most `max_bytes`, but with `min_one_batch` the first batch whatever its size. Size 0 when there is nothing to
        read yet. Raises OffsetOutOfRange outside of log start and log end, CorruptLogError where nothing good is left.
        """
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, end_offset)
        bases = self.bases
        number = len(bases) - 1
        if offset < bases[number]:
            number = bisect_right(bases, offset) - 1
        while offset < max_offset and offset < end_offset:
            segment = self.segments[number]
            segment_end = bases[number + 1] if number + 1 < len(bases) else end_offset
            bound = max_offset if max_offset < segment_end else None
            try:
                found = segment.read(offset, max_bytes, bound, min_one_batch=min_one_batch)
                if found is not None:
                    if found.base_offset > offset and damage.examine_hole(self, segment):
                        continue
                    return found
                # A hole at the segment's end: what stood there was compacted away, or else it is lost.
                damage.check_end(self, segment, segment_end)
            except CorruptRangeError:
                raise
            except CorruptLogError:
                if not damage.examine(self, segment):
                    raise
                continue
            offset = segment_end
            number += 1
        return LogSlice.empty(offset)

    def batches(self, start_offset: int | None = None) -> Iterator[tuple[BatchHeader, LogSlice]]:
        """Every batch from the one that holds `start_offset` (default: log start) on; CorruptLogError if any is not."""
        return replay.batches(self, self.log_start_offset if start_offset is None else start_offset)

    def headers_from(self, offset: int) -> Iterator[tuple[Segment, BatchHeader, int]]:
        """Segment, header and position of every batch that does not end below the offset, as far as they are good."""
        return replay.headers_from(self, offset)

    @property
    def damage(self) -> list[CorruptRange]:
        """What is known to be corrupt, in order."""
        return [it for segment in self.segments for it in segment.damage]

    def segments_from(self, offset: int) -> list[tuple[Segment, int]]:
        """The segments that may hold the offset or later ones, each with its end offset."""
        first = max(bisect_right(self.bases, offset) - 1, 0)
        ends = [*self.bases[1:], self.log_end_offset]
        return list(zip(self.segments[first:], ends[first:], strict=True))

    def offset_for_timestamp(self, timestamp_ms: int, *, max_offset: int) -> TimestampOffset | None:
        """The first record at or after the time, below `max_offset`; looks into compressed batches."""
        return search.offset_for_timestamp(self, timestamp_ms, max_offset)

    def max_timestamp_offset(self, *, max_offset: int) -> TimestampOffset | None:
        """The newest record below `max_offset`, the first of equals."""
        return search.max_timestamp_offset(self, max_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch known up to the asked one, offset where the next begins); (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def aborted_transactions(self, start_offset: int, piece: LogSlice) -> list[AbortedTxn]:
        """The aborted transactions that a reader of this slice, from `start_offset` on, must know of."""
        return search.aborted_transactions(self, start_offset, piece)

    # -- shortening

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> None:
        """Removes everything from the offset on, with the whole batch that holds it."""
        truncation.truncate_to(self, offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Empties the log; it goes on at the offset."""
        truncation.truncate_fully(self, offset, now_ms)

    def advance_log_start(self, offset: int, *, now_ms: int = 0) -> bool:
        """Records below the offset are gone (DeleteRecords), segments wholly below it are deleted. False: no change."""
        return retention.advance_log_start(self, offset, now_ms)

    def apply_retention(self, now_ms: int, high_watermark: int) -> int:
        """Deletes segments by time, size and log start; returns how many."""
        return retention.apply(self, now_ms, high_watermark)

    def tend(self, now_ms: int, high_watermark: int) -> int:
        """`maybe_roll`, and the first of what `apply_retention` deletes: 1 if a segment went. Mostly costs nothing."""
        return retention.tend(self, now_ms, high_watermark)

    # -- making durable

    def begin_flush(self) -> Flush:
        """Writes what is kept in memory of sealed segments and epochs, and collects what must be synced.

        One flush at a time: until `finish_flush` or `give_up_flush` another one is an OwnershipError.
        """
        self._check_no_flush()
        self._flush = durability.begin_flush(self)
        return self._flush

    def finish_flush(self, flush: Flush) -> None:
        """The medium has it."""
        self.give_up_flush(flush)
        durability.finish_flush(self, flush)

    def give_up_flush(self, flush: Flush) -> None:
        """The flush failed, or never ran."""
        if flush is not self._flush:
            raise OwnershipError(f"{self.path}: this flush is not the one that is under way")
        self._flush = None

    def _check_no_flush(self) -> None:
        if self._flush is not None:
            raise OwnershipError(f"{self.path}: a flush is under way, and a log has one at a time")

    def flush(self) -> None:
        """Everything appended so far is on the medium afterwards. Raises StorageError; then the log takes no more."""
        self.run_flush(self.begin_flush())

    def run_flush(self, flush: Flush) -> None:
        """Runs and finishes what `begin_flush` or `begin_close` returned. Raises as `flush`."""
        try:
            flush.run()
        except BaseException as error:
            self.give_up_flush(flush)
            if isinstance(error, SyncFailedError):
                self.fail(error)
            raise
        self.finish_flush(flush)

    def fail(self, error: OSError) -> None:
        """The disk cannot be trusted with this log any more: it takes no appends, and only a restart changes that."""
        if self.failed is None:
            self.failed = error
            self.on_failed(error)

    def begin_close(self) -> Flush:
        """As `begin_flush`, with all that lets the next opening do without recovery; nothing may be appended after."""
        self._check_no_flush()
        self._flush = durability.begin_close(self)
        return self._flush

    def close(self, *, clean: bool = True) -> None:
        """Clean: everything is durable and the next opening needs no recovery. Not clean: files are just let go."""
        if clean and self.failed is None:
            self.run_flush(self.begin_close())
        for segment in self.segments:
            segment.release()

    def give_up_folder(self) -> None:
        """Before somebody else takes, renames or removes the folder: slices that are being sent stay readable.

        Whatever works for the log beside the event loop, a flush or a cleaning, finds no file from then on.
        """
        self.close(clean=False)
        self.disk.end()

    def delete(self) -> None:
        """Removes the folder; slices that are being sent stay readable."""
        for segment in self.segments:
            segment.release()
        self.disk.remove_tree(self.path)

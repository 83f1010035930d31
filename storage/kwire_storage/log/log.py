"""One partition's log: an ordered list of segments, where appends go to the last.

`log_start_offset <= ... <= log_end_offset`, and segment n covers `base(n)..base(n+1)`. Everything here is synchronous
and reads no clock; callers pass `now_ms`. An append is one write to the page cache and a few list appends; a read finds
two positions in a file. Neither decodes records.

A log has these parts, and each owns its own state:

    segments         the segments, the end of the last one, and reads from them        `LogSegments`
    producer_state   the producers' states and their snapshots                         `ProducerStateManager`
    leader_epochs    the start offset of each leader epoch                             `EpochCache`
    durability       the recovery point, what still has to be synced, flushes          `Durability`
    roll_policy      the limits of a segment                                           `RollPolicy`

`LogLoader` makes the parts from the files. After a clean stop that costs one listing of the folder: the name of the
last producer snapshot is the end of the log, and files are opened when first needed. `activate` (the first append)
checks that end. After any other stop `LogRecovery` reads the segments from the recovery point on.

This module has the changes that concern several parts: a roll, a truncation, a deletion. Their order makes them safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import LENGTH_OVERHEAD, BatchHeader, assign, iter_headers, set_log_append_time

from kwire_storage import names
from kwire_storage.callbacks import ignore
from kwire_storage.checkpoints import encode_epochs
from kwire_storage.config import NEVER, LogConfig
from kwire_storage.disk.files import Disk
from kwire_storage.disk.lease import Lease
from kwire_storage.disk.reserve import Reserve
from kwire_storage.errors import CorruptLogError, OffsetOutOfRange, StorageError, SyncFailedError, is_full, is_passing
from kwire_storage.log import retention, search
from kwire_storage.log.damage import CorruptRange
from kwire_storage.log.durability import Flush
from kwire_storage.log.environment import LogEnvironment
from kwire_storage.log.epochs import EpochCache, epochs_path, load_epochs
from kwire_storage.log.loading import LogLoader, LogParts, MakeFolder
from kwire_storage.log.recovery import first_to_scan
from kwire_storage.log.rolling import RollPolicy
from kwire_storage.log.search import TimestampOffset
from kwire_storage.log.segment import Segment
from kwire_storage.log.slices import LogSlice
from kwire_storage.producers.markers import apply_batch, decode_marker
from kwire_storage.producers.states import ProducerStates
from kwire_storage.producers.txn_index import AbortedTxn

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AppendResult", "Flush", "Log", "LogConfig", "LogSlice", "TimestampOffset"]


class AppendResult(NamedTuple):
    """The offsets of an append. `log_append_time_ms` is -1 unless the topic uses LogAppendTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int


class Log:
    """One partition's log (see the module). Create it with `Log.open`."""

    def __init__(
        self, disk: Lease, path: str, config: LogConfig, parts: LogParts, environment: LogEnvironment, reserve: Reserve
    ) -> None:
        self.disk = disk
        self.path = path
        self.reserve = reserve
        self.segments = parts.segments
        self.producer_state = parts.producer_state
        self.durability = parts.durability
        self.roll_policy = RollPolicy(config, environment.draw)
        self.log_start_offset = parts.log_start_offset
        self.recovery = parts.recovery
        self.cleaned_offset = 0
        """The offset up to which the log is compacted: below it each key has only one record."""
        self.is_exchanging = False
        """True while cleaned segments replace others (`compaction/swap.py`): no segment is deleted meanwhile."""
        self.on_roll: Callable[[], None] = ignore
        """Called when a segment is full and can be flushed for good."""
        self.environment = environment
        self._leader_epochs = parts.leader_epochs
        self._make_folder = parts.make_folder
        self._is_active = parts.recovery is not None
        """True if the active segment is ready for appends. Then leader epochs and producers are loaded too."""
        self._is_closed = False
        self._quiet_until_ms = self._quiet_as_of = -1
        """The time until which `maintain` has nothing to do, if the log still ends at this offset."""
        self._config = config
        self._stamps = config.stamps

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
        environment: LogEnvironment | None = None,
        make_folder: MakeFolder | None = None,
        on_scanned: Callable[[int], None] = ignore,
    ) -> Log:
        """Opens the log in folder `path`, and creates the folder if it does not exist; with `make_folder`, if given.

        `cleaned_offset` is the offset that compaction had reached at the last checkpoint. On a full disk the folder is
        created with the first record. Raises OSError, and CorruptLogError if the files contradict each other in a way
        that recovery may not repair by truncation.
        """

        def make_bare_folder() -> Iterable[str]:
            disk.mkdir(path)
            return ()

        environment = environment or LogEnvironment()
        reserve = environment.reserve or Reserve(disk)
        lease = Lease(disk, environment.open_files)
        loader = LogLoader(
            disk=lease,
            path=path,
            config=config,
            environment=environment,
            reserve=reserve,
            make_folder=make_folder or make_bare_folder,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            cleaned_offset=cleaned_offset,
            clean_shutdown=clean_shutdown,
            now_ms=now_ms,
            on_scanned=on_scanned,
        )
        parts = loader.load()
        log = cls(lease, path, config, parts, environment, reserve)
        if log.recovery is not None and log.active.damage:
            # A new segment, so that new records do not follow corrupt bytes in the same file.
            log.roll(now_ms)
        if log.recovery is not None:
            for segment, _ in log.segments.from_offset(log.recovery_point):
                if segment.indexes_dirty and segment.size:
                    log._show_indexes(segment)
        if log.log_end_offset < log.log_start_offset:
            # The records at the log start are lost, and no record below it may become visible again.
            reserve.spend(lambda: log.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms))
        elif log.log_start_offset and log.has_folder and not parts.has_file:
            # A power cut has left no segment. The name of a new one keeps the log start, since the next checkpoint
            # leaves out what a name has.
            reserve.spend(lambda: log.create_file(now_ms))
        log.cleaned_offset = min(cleaned_offset, log.log_end_offset)
        log.producer_state.drop_stray_snapshots()
        return log

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._stamps = config.stamps
        self._quiet_until_ms = -1
        self.roll_policy.config = config
        self.segments.configure(config)
        self.producer_state.configure(config)

    # -- offsets and damage

    @property
    def log_end_offset(self) -> int:
        return self.segments.end_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything survives a power cut."""
        return self.durability.recovery_point

    @property
    def active(self) -> Segment:
        return self.segments.active

    @property
    def leader_epochs(self) -> EpochCache:
        if self._leader_epochs is None:
            self._leader_epochs = load_epochs(
                self.disk,
                self.path,
                self.log_start_offset,
                lambda: (header for _, header, _ in self.segments.headers_from(self.segments.bases[0])),
            )
        return self._leader_epochs

    @property
    def producers(self) -> ProducerStates:
        states = self.producer_state.states_or_none
        return self.producer_state.load() if states is None else states

    @property
    def size_in_bytes(self) -> int:
        return self.segments.size_in_bytes

    @property
    def damage(self) -> list[CorruptRange]:
        """The known corrupt ranges, in order."""
        return [it for segment in self.segments for it in segment.damage]

    @property
    def checkpointed_log_start(self) -> int:
        """The log start for Kafka's checkpoint file, which leaves out a first segment's base offset: 0."""
        return self.log_start_offset if self.log_start_offset > self.segments.bases[0] else 0

    @property
    def checkpointed_cleaned_offset(self) -> int:
        """The cleaned offset for Kafka's checkpoint file; 1 after the first, unfinished cleaning, 0 without any."""
        return max(self.cleaned_offset, int(self.segments.may_be_compacted))

    def scans_from(self, recovery_point: int) -> int:
        """The offset from which recovery would read the log, given this recovery point."""
        return self.segments.bases[first_to_scan(self.segments.bases, recovery_point)]

    @property
    def has_folder(self) -> bool:
        """False if the disk has had no room for the folder so far."""
        return self._make_folder is None

    def adopt(self, source: Log) -> None:
        """Copies the state of `source` that the batches lack; this log has copies of its records.

        That is the log start, producers whose batches are gone, and epochs without a batch.
        """
        self.log_start_offset = max(self.log_start_offset, source.log_start_offset)
        self.producer_state.adopt(source.producers)
        if self.leader_epochs.entries != source.leader_epochs.entries:
            self._leader_epochs = EpochCache(source.leader_epochs.entries)
            self._leader_epochs.dirty = True

    # -- appending

    def append(
        self, batch: memoryview | bytearray, header: BatchHeader, *, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Gives a checked batch its offset, in place, and appends it with one write.

        `header` is the header of `batch`, which is a single batch. The caller has checked the producer's state
        (`producers.check`); this only updates it. Raises StorageError, after which nothing of the batch can be read
        (or all of it, if the disk failed when an index was written), and KafkaError(RECORD_LIST_TOO_LARGE) for more
        than `segment.bytes`.
        """
        if not self._is_active:
            self.activate(now_ms)
        base_offset = self.segments.end_offset
        assign(batch, 0, base_offset, leader_epoch)
        timestamp = header.max_timestamp
        append_time = -1
        if self._stamps:
            set_log_append_time(batch, 0, now_ms)
            timestamp = append_time = now_ms
        self._write(batch, header, base_offset, timestamp, now_ms)
        if leader_epoch != self._leader_epochs.latest:  # type: ignore[union-attr]
            self.leader_epochs.assign(leader_epoch, base_offset)
        return AppendResult(base_offset, base_offset + header.last_offset_delta, append_time)

    def append_as_is(self, buf: Buffer, *, now_ms: int = 0) -> AppendResult:
        """Appends checked batches that already have their offsets and epochs, from the log end or above.

        Batches of one segment are one write, as long as they fit without a check of each one.
        Raises StorageError, after which a part of them may be appended: whole batches, up to some offset.
        """
        if not self._is_active:
            self.activate(now_ms)
        view = memoryview(buf)
        headers = list(iter_headers(view))
        end_offset = self.log_end_offset
        for _, header in headers:
            if header.base_offset < end_offset:
                raise ValueError(f"batch at offset {header.base_offset} where the log continues at {end_offset}")
            end_offset = header.next_offset
        done = 0
        while done < len(headers):
            run = self._fitting(headers, done)
            if run > 1:
                self._write_run(view, headers[done : done + run], now_ms)
            else:
                run = 1
                position, header = headers[done]
                batch = view[position : position + header.size_in_bytes]
                # It may be from a time when the topic had a larger segment.bytes.
                self._write(batch, header, header.base_offset, header.max_timestamp, now_ms, takes_any_size=True)
                self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            done += run
        return AppendResult(headers[0][1].base_offset, end_offset - 1, -1)

    def _fitting(self, headers: Sequence[tuple[int, BatchHeader]], first: int) -> int:
        """The number of batches from `first` on that fit without `RollPolicy.must_roll`: each adds at most one index
        entry.

        Markers do not count. They are decoded, and may be malformed.
        """
        segment = self.segments.active
        size, count = segment.file.size, 0
        for _, header in headers[first : first + segment.index_room]:
            size += header.batch_length + LENGTH_OVERHEAD
            if (
                not 0 <= header.max_timestamp <= segment.fits_until_ms
                or size > self._config.segment_bytes
                or header.last_offset > segment.fits_until_offset
                or header.is_control
            ):
                break
            count += 1
        return count

    def _write_run(self, view: memoryview, run: Sequence[tuple[int, BatchHeader]], now_ms: int) -> None:
        """Does the same as `_write` for each of the batches, which `_fitting` has counted."""
        # After a cut they are loaded here, as in `_write`.
        producers = self.producers if any(header.producer_id >= 0 for _, header in run) else None
        if self.durability.failed is not None:
            raise StorageError.of(self.durability.failed, self.path)
        segments = self.segments
        segment = segments.active
        first, (last, last_header) = run[0][0], run[-1]
        base_position = segment.file.size - first
        try:
            segment.file.append(view[first : last + last_header.size_in_bytes])
        except OSError as error:
            self.reserve.note(error)
            raise StorageError.of(error, segment.path + names.LOG) from error
        is_due = False
        for position, header in run:
            base_offset, timestamp = header.base_offset, header.max_timestamp
            is_due |= segment.note(
                base_offset, header.last_offset, base_position + position, header.size_in_bytes, timestamp
            )
            segments.end_offset = header.next_offset
            if producers is not None and header.producer_id >= 0:
                apply_batch(producers, segment, header, base_offset, timestamp, None, now_ms)
            if header.partition_leader_epoch != self.leader_epochs.latest:
                self.leader_epochs.assign(header.partition_leader_epoch, base_offset)
        if is_due:
            self._show_indexes(segment)

    def _write(
        self,
        batch: Buffer,
        header: BatchHeader,
        base_offset: int,
        timestamp: int,
        now_ms: int,
        *,
        takes_any_size: bool = False,
    ) -> None:
        # A marker is decoded first, so that a malformed one does not get into the log.
        marker = decode_marker(memoryview(batch), 0, header) if header.is_control and header.producer_id >= 0 else None
        # After a cut they are loaded here, from a log that does not have this batch yet: it is applied below, once.
        producers = self.producers if header.producer_id >= 0 else None
        size = header.batch_length + LENGTH_OVERHEAD
        last_offset = base_offset + header.last_offset_delta
        if self.durability.failed is not None:
            raise StorageError.of(self.durability.failed, self.path)
        segment_bytes = self._config.segment_bytes
        segments = self.segments
        segment = segments.active
        file = segment.file
        position = file.size
        if not (
            0 <= timestamp <= segment.fits_until_ms
            and position + size <= segment_bytes
            and last_offset <= segment.fits_until_offset
        ):
            if size > segment_bytes and not takes_any_size:
                raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes do not fit into a segment")
            if self.roll_policy.must_roll(segment, last_offset, size, timestamp, now_ms):
                self.roll(now_ms)
                segment = segments.active
            # In either case an index may have been opened, and this file closed for it.
            file = segment.file
            position = file.size
        try:
            file.append(batch)
        except OSError as error:
            self.reserve.note(error)
            raise StorageError.of(error, segment.path + names.LOG) from error
        is_due = segment.note(base_offset, last_offset, position, size, timestamp)
        segments.end_offset = last_offset + 1
        if producers is not None:
            apply_batch(producers, segment, header, base_offset, timestamp, marker, now_ms)
            if marker is not None and segment.hides_aborted:
                is_due = True
        if is_due:
            self._show_indexes(segment)

    def _show_indexes(self, segment: Segment) -> None:
        """Calls `Segment.show_indexes`. Raises StorageError if the disk has failed; a full one is tried again later."""
        try:
            segment.show_indexes()
        except OSError as error:
            self.reserve.note(error)
            if not is_passing(error):
                raise StorageError.of(error, segment.path) from error

    def activate(self, now_ms: int) -> None:
        """Makes the last segment ready for appends; the first append calls this.

        Creates its file if needed, and reads the headers that its indexes do not cover. If the segment is corrupt, or
        ends before the log does, the log continues in a new segment, and the old one is left as it is. Raises
        StorageError, CorruptLogError; ValueError after `close`, because the next opening would trust such writes.
        """
        if self._is_closed:
            raise ValueError(f"append to the closed log {self.path}")
        if self.durability.failed is not None:
            raise StorageError.of(self.durability.failed, self.path)
        segment = self.active
        try:
            if self._make_folder is not None:
                self.durability.note_folder_made(self._make_folder())
                self._make_folder = None
            if not segment.size:
                self.durability.name_changes += 1
                segment.created_ms = now_ms
            end_offset = self._end_of(segment)
            self._show_indexes(segment)
            self.roll_policy.draw_jitter()
            # If they are loaded now, every append updates them. If they were loaded when a segment is full, the whole
            # segment would have to be read.
            _ = self.leader_epochs, self.producers
        except OSError as error:
            self.reserve.note(error)
            raise StorageError.of(error, segment.path) from error
        self._is_active = True
        if end_offset < self.log_end_offset or segment.damage:
            self._leave(segment, end_offset, now_ms)

    def _end_of(self, segment: Segment) -> int:
        """Makes the last segment ready for appends, and returns the end of its records. Raises CorruptLogError."""
        try:
            end_offset = segment.activate() + 1
        except CorruptLogError:
            if not self.segments.examine(segment):
                raise
            end_offset = segment.activate() + 1
        if end_offset > self.log_end_offset:
            raise CorruptLogError(
                f"{segment.path}: records up to {end_offset - 1}, the end was to be {self.log_end_offset}"
            )
        return end_offset

    def _leave(self, segment: Segment, end_offset: int, now_ms: int) -> None:
        if segment.size and segment.base_offset == self.log_end_offset:
            self._is_active = False
            raise CorruptLogError(f"{segment.path}: bytes that are no batch, where the log's next record has its place")
        if not any(it.end_offset >= self.log_end_offset for it in segment.damage):
            segment.note_missing(end_offset, self.log_end_offset)
        try:
            self.roll(now_ms)
        except OSError:
            self._is_active = False
            raise

    # -- rolling

    def maybe_roll(self, now_ms: int) -> bool:
        """Begins a new segment if the active one is older than `segment.ms` and not empty. A full disk delays it."""
        if not self.roll_policy.is_due(self.active, now_ms):
            return False
        try:
            self.roll(now_ms)
        except StorageError as error:
            if not is_full(error):
                raise
            return False
        return True

    def roll(self, now_ms: int) -> None:
        """Seals the active segment and begins one at the log end. Raises StorageError; then nothing has changed.

        An empty segment is not rolled, because its successor would have the same name.
        """
        if not self._is_active:
            self.activate(now_ms)
        segments, durability = self.segments, self.durability
        sealed = segments.active
        end = segments.end_offset
        if not sealed.size and sealed.base_offset == end:
            return
        if len(segments) == 1:
            # If only the later name reached the medium, the log would seem to begin there. (If a later segment is
            # missing, recovery sees the gap.)
            durability.settle_names()
        segment = segments.new_segment(end, now_ms)
        try:
            durability.note_written(self.producer_state.take_snapshot())
            durability.note_written(sealed.seal())
            if end == durability.recovery_point:
                # Recovery trusts a segment that ends at the recovery point, with its indexes, and no later flush would
                # include it. Its records are synced, unless an earlier process has cut some off.
                if durability.may_lack_cut:
                    durability.note_written([sealed.records_path])
                durability.settle_files()
            segment.activate()
            self._show_indexes(segment)
        except OSError as error:
            # The old segment gets the next appends, so the next opening must not find a new one.
            with suppress(OSError):
                for suffix in names.SEGMENT_SUFFIXES:
                    self.disk.remove(segment.path + suffix)
            self.reserve.note(error)
            raise StorageError.of(error, segment.path) from error
        durability.name_changes += 1
        self._quiet_until_ms = -1
        self.roll_policy.draw_jitter()
        segments.add(segment)
        self.on_roll()

    # -- reading

    def read(self, offset: int, *, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> LogSlice:
        """Returns whole batches of one segment, from the one that has `offset`, all below `max_offset`.

        At most `max_bytes`, but with `min_one_batch` always the first batch. Size 0 if there is nothing to read yet.
        Raises OffsetOutOfRange below the log start and above the log end, and CorruptLogError if no valid batch is
        left.
        """
        segments = self.segments
        if not self.log_start_offset <= offset <= segments.end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, segments.end_offset)
        return segments.read(offset, max_bytes, max_offset, min_one_batch)

    def batches(self, start_offset: int | None = None) -> Iterator[tuple[BatchHeader, LogSlice]]:
        """Yields every batch from the one that has `start_offset` (default: log start). Raises CorruptLogError."""
        return self.segments.batches(max(start_offset or 0, self.log_start_offset))

    def offset_for_timestamp(self, timestamp_ms: int, *, max_offset: int) -> TimestampOffset | None:
        """The first record below `max_offset` at or after the timestamp. Decompresses batches."""
        return search.offset_for_timestamp(self.segments, timestamp_ms, self.log_start_offset, max_offset)

    def max_timestamp_offset(self, *, max_offset: int) -> TimestampOffset | None:
        """The record below `max_offset` with the largest timestamp; the first of several."""
        return search.max_timestamp_offset(self.segments, self.log_start_offset, max_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and the offset where the next one begins; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def aborted_transactions(self, start_offset: int, piece: LogSlice) -> list[AbortedTxn]:
        """The aborted transactions that a reader of this slice needs, from `start_offset` on."""
        return search.aborted_transactions(self.segments, start_offset, piece)

    # -- shortening

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> None:
        """Removes everything from the offset on, including the whole batch that has it.

        A follower does this when its log has diverged. Checkpoints with a larger offset must be lowered durably first:
        after a power cut, a half-done truncation would look like damage of synced records. Leader epochs that begin at
        the offset or behind are removed even if there are no such records: a leader may never have appended in its
        epoch.
        """
        if offset < 0:
            raise ValueError(f"negative offset {offset}")
        segments, epochs = self.segments, self.leader_epochs
        if offset >= segments.end_offset:
            epochs.truncate_from_end(offset)
            return
        if offset < segments.bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        # Files for `cut` are opened before the first change: if there were no descriptor later, half of a truncation
        # would be done.
        gone = sum(base > offset for base in segments.bases)
        last = segments[-1 - gone]
        end_offset = offset
        found = segments.locate(last, offset)
        if found is not None:
            end_offset = min(offset, max(found[1], last.base_offset))
            last.load()
        self.producer_state.drop_snapshots_above(end_offset)
        self.durability.note_deleted(segments.delete_newest(gone, now_ms))
        if found is not None:
            last.cut(found[0])
            last.forget_aborted(end_offset)
        self._end_at(end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        if found is not None:
            self._show_indexes(last)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Deletes all records; the log continues at the offset."""
        epochs = self.leader_epochs
        # Before the new segment is created, because snapshots of records below it would be trusted.
        self.producer_state.drop_snapshots_above(-1)
        self.durability.note_deleted(self.segments.delete_all(now_ms))
        self.segments.begin_at(offset, now_ms)
        self.log_start_offset = offset
        self._end_at(offset)
        epochs.clear()
        self.create_file(now_ms)

    def create_file(self, now_ms: int) -> None:
        """Creates the file of a log without records: its name stores where the log continues.

        If that fails, the log is still correct, and the first append creates the file. Raises StorageError.
        """
        self._is_active = False
        self.activate(now_ms)
        self.durability.settle_names()

    def _end_at(self, end_offset: int) -> None:
        self.segments.end_offset = end_offset
        self.durability.note_truncated(end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self.producer_state.forget()
        self.leader_epochs.truncate_from_end(end_offset)
        self._quiet_until_ms = -1
        self._is_active = True

    def advance_log_start(self, offset: int, *, now_ms: int = 0) -> bool:
        """Moves the log start (DeleteRecords), and deletes segments below it. Returns False if nothing changed."""
        if offset <= self.log_start_offset:
            return False
        if offset > self.log_end_offset:
            raise ValueError(f"log start {offset} beyond the log end {self.log_end_offset}")
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.delete_below_start(now_ms)
        return True

    def delete_below_start(self, now_ms: int) -> None:
        """Deletes the segments that end at the log start or below."""
        if not self.is_exchanging:
            self._delete_oldest(sum(base <= self.log_start_offset for base in self.segments.bases[1:]), now_ms)

    def maintain(self, now_ms: int, high_watermark: int) -> int:
        """Calls `maybe_roll`, and `apply_retention` for one segment. Returns 1 if a segment was deleted. Usually free.

        It remembers when something can be due next, because hardly any of a thousand logs has anything to do.
        """
        if now_ms < self._quiet_until_ms and self.log_end_offset == self._quiet_as_of:
            return 0
        self.maybe_roll(now_ms)
        # One at a time: each needs a sync of names, and a thousand of them would delay all other work.
        count = self.apply_retention(now_ms, high_watermark, most=1)
        # Records that are not replicated are not deleted, and nothing calls back when they are replicated.
        if not count and high_watermark >= self.log_end_offset and not self.is_exchanging:
            self._quiet_as_of = self.log_end_offset
            self._quiet_until_ms = min(
                self.roll_policy.due_at_ms(self.active, now_ms), retention.expires_at_ms(self.segments, self._config)
            )
        return count

    def apply_retention(self, now_ms: int, high_watermark: int, *, most: int = NEVER) -> int:
        """Deletes up to `most` segments by time, size and log start, and returns their number. The files go later."""
        if self.is_exchanging:
            return 0
        count = retention.deletable(self.segments, self._config, self.log_start_offset, high_watermark, now_ms)
        if count == len(self.segments):
            try:
                self.reserve.spend(lambda: self.roll(now_ms))
            except StorageError as error:
                if not is_full(error):
                    raise
                # Deleting the others makes room for the next attempt.
                count -= 1
        count = min(count, most)
        self._delete_oldest(count, now_ms)
        return count

    def _delete_oldest(self, count: int, now_ms: int) -> None:
        """Removes the first `count` segments from the log, never the active one."""
        if not count:
            return
        self._quiet_until_ms = -1
        for _ in range(count):
            # If this name were gone while its predecessor's still exists, or before its successor's exists, the log
            # would have a hole after a power cut.
            self.durability.settle_names()
            base_offset = self.segments.bases[0]
            self.durability.note_deleted(self.segments.delete_oldest(now_ms))
            self._delete_snapshot(base_offset, now_ms)
            self.log_start_offset = max(self.log_start_offset, self.segments.bases[0])
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        self.durability.recovery_point = max(self.durability.recovery_point, self.segments.bases[0])

    def replace_segments(self, old: Sequence[Segment], new: Segment, now_ms: int) -> None:
        """Replaces adjacent sealed segments with a compacted one that has the base offset of the first."""
        assert new.base_offset == old[0].base_offset, "the name stays"
        self._quiet_until_ms = -1
        self.durability.note_deleted(self.segments.replace(old, new, now_ms))
        for segment in old[1:]:
            self._delete_snapshot(segment.base_offset, now_ms)

    def _delete_snapshot(self, offset: int, now_ms: int) -> None:
        paths = self.producer_state.take_out(offset)
        if paths:
            self.environment.delete_later(self.disk, paths, now_ms + self._config.file_delete_delay_ms)
            self.durability.note_deleted(paths)

    # -- making durable

    @property
    def failed(self) -> OSError | None:
        """The error after which the log accepts no more appends; None while the disk can be trusted."""
        return self.durability.failed

    def fail(self, error: OSError) -> None:
        """Stops all appends until the next restart, because the disk cannot be trusted with this log any more."""
        self.durability.fail(error)

    def begin_flush(self) -> Flush:
        """Writes the indexes of sealed segments and the epochs, and collects the files that must be synced.

        One flush at a time: before `finish_flush` or `give_up_flush` another one raises OwnershipError.
        """
        contents: dict[str, bytes] = {}
        epochs = self._leader_epochs
        if epochs is not None and epochs.dirty:
            contents[epochs_path(self.path)] = encode_epochs(epochs.entries)
        return self.durability.begin_flush(self.segments, contents)

    def finish_flush(self, flush: Flush) -> None:
        """Notes that the flush has succeeded: its data is on the medium."""
        if self.durability.finish_flush(flush, self.segments):
            written = flush.contents.get(epochs_path(self.path))
            if written is not None:
                self.leader_epochs.dirty = encode_epochs(self.leader_epochs.entries) != written

    def give_up_flush(self, flush: Flush) -> None:
        """Notes that the flush has failed, or was not run."""
        self.durability.give_up_flush(flush)

    def flush(self) -> None:
        """Puts everything appended so far on the medium. Raises StorageError; then the log accepts no more appends."""
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

    def begin_close(self) -> Flush:
        """Does the same as `begin_flush`, with all files that save the next opening from reading. No append may follow.

        These are the indexes, the producers' snapshot and the epochs.
        """
        self.durability.check_no_flush()
        self.durability.note_written(self.reserve.spend(self.producer_state.take_snapshot))
        for segment in self.segments:
            self.durability.note_written(self.reserve.spend(segment.save_indexes))
        return self.begin_flush()

    def close(self, *, clean: bool = True) -> None:
        """Closes the log. If `clean`, everything is made durable first, and the next opening needs no recovery."""
        if clean and self.failed is None:
            self.run_flush(self.begin_close())
        for segment in self.segments:
            segment.release()
        self._is_active, self._is_closed = False, True

    def give_up_folder(self) -> None:
        """Releases the folder, before it is handed over, renamed or removed. Slices that are being sent stay readable.

        A flush or a cleaning in another thread finds no file of this log from then on.
        """
        self.close(clean=False)
        self.durability.detach()
        self.disk.end()

"""Compaction: writing segments anew with the latest record of each key, as Kafka's log cleaner does.

    flush, measure, begin (log's thread) -> write (a worker thread, step by step) -> the recovery point into its file
    -> the steps of `swap.py`, by turns in both

A cleaning reads the dirty stretch, from where the last one ended, into a map of keys (`key_map.py`), as far as memory
allows; then it writes everything up to the end of that stretch anew (`cleaning.py` decides what stays), small
neighbours into one segment. Nothing that a reader or an appender sees changes before the swap.

The active segment, what is not older than `min.compaction.lag.ms` and what is above the last stable offset are not
touched; nor is what a power cut may still take, or a transaction whose marker it may take (`cleanable_end`): an older
record must not go for the sake of a newer one that goes too. Before the swap the checkpoints must say that a cleaning has
begun, and have a recovery point at or above the end of what was cleaned (`DataFolder.take_before_cleaning`): otherwise
records that are missing are taken for lost. At any time one file of the log is open for reading and one for writing,
however many segments there are.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import attrs
from kwire_protocol.records import BATCH_HEADER_SIZE, BatchHeader, read_header

from kwire_storage import names
from kwire_storage.cleaning import Cleaning, LastRecord, Transactions, note_keys
from kwire_storage.errors import CorruptLogError
from kwire_storage.index import TIME_ENTRY_BYTES
from kwire_storage.key_map import KeyMap
from kwire_storage.scan import scan_batches
from kwire_storage.segment import Segment
from kwire_storage.swap import sync_file
from kwire_storage.txn_index import AbortedTxn, decode_aborted

if TYPE_CHECKING:
    from kwire_storage.files import Disk, File
    from kwire_storage.log import Log

MAX_OFFSETS_IN_SEGMENT = MAX_BYTES_IN_SEGMENT = 2**31 - 1
_WRITE_BYTES = 1 << 20


class AbandonedError(Exception):
    """A cleaning was told to end, or what it was to clean has gone."""


class Dirt(NamedTuple):
    """What a cleaning would find: offsets `first_dirty..end` were never compared with what came before them."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    dirty_since_ms: int | None
    """When the oldest dirty segment was begun, by the clock of the records; None where they have none."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable_end(log: Log, high_watermark: int) -> int:
    """Below it every record is flushed, and every transaction decided by a marker that is."""
    flushed = min(high_watermark, log.recovery_point)
    unstable = log.producers.first_unstable_offset(flushed)
    return flushed if unstable is None else min(flushed, unstable)


def measure(log: Log, cleanable_end: int, now_ms: int) -> Dirt:
    """What is dirty, and may be cleaned (Kafka's `LogCleanerManager.cleanableOffsets`).

    To look without having to read transactions, or to flush, give the high watermark; to clean, `cleanable_end`.
    """
    log_start, cleaned = log.bases[0], log.cleaned_offset
    first_dirty = cleaned if log_start <= cleaned <= log.active.base_offset else log_start
    end = min(log.active.base_offset, cleanable_end)
    clean = dirty = 0
    since: int | None = None
    for segment, segment_end in log.segments_from(log_start):
        if segment is log.active or segment_end > end:
            break
        if segment_end <= first_dirty:
            clean += segment.size
            continue
        written_ms = segment.largest_timestamp if segment.largest_timestamp >= 0 else segment.created_ms
        if log.config.min_compaction_lag_ms > 0 and written_ms > now_ms - log.config.min_compaction_lag_ms:
            end = segment.base_offset
            break
        dirty += segment.size
        begun_ms = segment.first_timestamp_ms
        if begun_ms > 0 and (since is None or begun_ms < since):
            since = begun_ms
    return Dirt(first_dirty, max(_boundary(log, end), first_dirty), clean, dirty, since)


def _boundary(log: Log, offset: int) -> int:
    """The largest beginning of a segment up to the offset: whole segments are cleaned."""
    return max((base for base in log.bases if base <= offset), default=log.bases[0])


@attrs.frozen(eq=False)
class Source:
    """A sealed segment as it was when the cleaning began."""

    segment: Segment
    end_offset: int
    size: int


@attrs.define(eq=False)
class Group:
    """Neighbours that become one segment; `cleaned` is that segment once it is written."""

    sources: list[Source]
    cleaned: Segment | None = None

    @property
    def path(self) -> str:
        """Of the segment that it becomes, without the suffix."""
        return self.sources[0].segment.path


@attrs.define(eq=False)
class Compaction:
    """One cleaning of one log. `end_offset` and `groups` are known when everything is written."""

    disk: Disk
    path: str
    sources: list[Source]
    aborted: list[AbortedTxn | str]
    """The log's aborted transactions; a str is the file of those that have to be read."""
    first_dirty_offset: int
    end_offset: int
    last_records: dict[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    map_bytes: int
    truncations: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    groups: list[Group] = attrs.field(factory=list)
    read_bytes: int = 0
    written_bytes: int = 0
    is_whole: bool = True
    """Whether all groups were swapped in, or have nothing left in the log."""
    is_abandoned: bool = False
    """To be set, from any thread, to have `write` end soon."""

    @classmethod
    def begin(cls, log: Log, dirt: Dirt, *, now_ms: int, map_bytes: int) -> Compaction:
        """In the log's thread; reads nothing."""
        assert dirt.end_offset <= log.recovery_point, "what is cleaned is flushed first"
        config = log.config
        return cls(
            disk=log.disk,
            path=log.path,
            sources=[
                Source(segment, end_offset, segment.size)
                for segment, end_offset in log.segments_from(log.bases[0])
                if end_offset <= dirt.end_offset and segment is not log.active
            ],
            # A transaction stands where its marker does, which may be beyond what is cleaned.
            aborted=[it for segment in log.segments for it in _aborted_or_file(segment)],
            first_dirty_offset=dirt.first_dirty_offset,
            end_offset=dirt.end_offset,
            last_records={entry.producer_id: LastRecord.of(entry) for entry in log.producers.entries.values()},
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            map_bytes=map_bytes,
            truncations=log.truncations,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
        )

    def write(self) -> Iterator[int]:
        """In a worker thread: writes and syncs everything; yields the bytes read or written since the last time.

        Raises AbandonedError, CorruptLogError or InvalidBatch for a segment that cannot be read, OSError when the disk
        refuses; in each case what was written is to be discarded (`swap.discard`).
        """
        # Should files of an earlier cleaning come back after a power cut, then not beside those of this one.
        self.disk.sync_dir(self.path)
        aborted = self._read_aborted()
        keys = yield from self._read_keys(aborted)
        keys.close()
        self.end_offset = keys.end_offset
        cleaning = Cleaning(
            keys,
            Transactions(aborted),
            self.last_records,
            first_dirty_offset=self.first_dirty_offset,
            now_ms=self.now_ms,
            delete_retention_ms=self.delete_retention_ms,
        )
        self.groups = [Group(sources) for sources in self._grouped()]
        for group in self.groups:
            yield from self._clean(group, cleaning)
        self.disk.sync_dir(self.path)

    def _read_aborted(self) -> list[AbortedTxn]:
        found: list[AbortedTxn] = []
        for it in self.aborted:
            if isinstance(it, AbortedTxn):
                found.append(it)
            else:
                with suppress(FileNotFoundError):
                    found += decode_aborted(self.disk.read_bytes(it))
        return found

    def _read_keys(self, aborted: list[AbortedTxn]) -> Generator[int, None, KeyMap]:
        keys = KeyMap(self.map_bytes, self.first_dirty_offset)
        transactions = Transactions(aborted)
        for source in self.sources:
            if source.end_offset <= self.first_dirty_offset:
                continue
            for batch, header in self._batches(source):
                yield len(batch)
                if header.next_offset <= self.first_dirty_offset:
                    continue
                if not note_keys(keys, transactions, batch, header):
                    return keys
            keys.end_offset = source.end_offset
        return keys

    def _batches(self, source: Source) -> Iterator[tuple[memoryview, BatchHeader]]:
        path = source.segment.path + names.LOG
        try:
            file = self.disk.open_read(path)
        except FileNotFoundError:
            # Retention took it meanwhile, or the partition was deleted.
            raise AbandonedError from None
        try:
            for batch, header in scan_batches(file, source.size):
                if self.is_abandoned:
                    raise AbandonedError
                self.read_bytes += len(batch)
                yield batch, header
        except CorruptLogError as error:
            raise CorruptLogError(f"{path} at {error}") from error
        finally:
            file.close()

    def _grouped(self) -> Iterator[list[Source]]:
        """Neighbours that fit into one segment together, by bytes, index entries and offsets."""
        # As many bytes as an entry of the indexes stands for, at least.
        interval = max(self.index_interval_bytes, BATCH_HEADER_SIZE)
        most_indexed_bytes = self.segment_index_bytes // TIME_ENTRY_BYTES * interval
        most_bytes = min(self.segment_bytes, most_indexed_bytes)
        group: list[Source] = []
        for source in self.sources:
            if source.segment.base_offset >= self.end_offset:
                break
            together = [*group, source]
            if group and not (
                sum(it.size for it in together) <= most_bytes
                and source.end_offset - 1 - group[0].segment.base_offset <= MAX_OFFSETS_IN_SEGMENT
            ):
                yield group
                together = [source]
            group = together
        if group:
            yield group

    def _clean(self, group: Group, cleaning: Cleaning) -> Iterator[int]:
        path = group.path + names.LOG + names.CLEANED
        self.disk.remove(path)
        newest_ms = group.sources[-1].segment.created_ms
        base_offset = group.sources[0].segment.base_offset
        segment = Segment(self.disk, self.path, base_offset, self.index_interval_bytes, newest_ms)
        segment.begin_rebuild()
        file = self.disk.open_append(path)
        try:
            yield from self._clean_records(group, cleaning, file, segment)
            file.sync()
        finally:
            # At once, also when the cleaning is given up: a removed file keeps its room for as long as it is open.
            file.close()
        for aborted in cleaning.transactions.take_kept():
            segment.add_aborted(aborted)
        for written in segment.save_indexes(names.CLEANED):
            sync_file(self.disk, written)
        segment.forget_recent()
        segment.forget_indexes()
        group.cleaned = segment

    def _clean_records(self, group: Group, cleaning: Cleaning, file: File, segment: Segment) -> Iterator[int]:
        pending = bytearray()
        room = MAX_BYTES_IN_SEGMENT - sum(source.size for source in group.sources)
        for source in group.sources:
            for batch, header in self._batches(source):
                # With a delete horizon the times of its records take more bytes each, but never twice as many in all.
                kept = cleaning.clean(batch, header, may_grow=room >= len(batch))
                size = 0 if kept is None else len(kept)
                room += len(batch) - size
                if kept is not None:
                    now = header if kept is batch else read_header(kept)
                    position = file.size + len(pending)
                    segment.note(now.base_offset, now.last_offset, position, size, now.newest_record_ms)
                    pending += kept
                    if len(pending) >= _WRITE_BYTES:
                        self._write_out(file, pending)
                yield len(batch) + size
        self._write_out(file, pending)

    def _write_out(self, file: File, pending: bytearray) -> None:
        file.append(pending)
        self.written_bytes += len(pending)
        pending.clear()


def _aborted_or_file(segment: Segment) -> Iterable[AbortedTxn | str]:
    known = segment.aborted_in_memory
    return [segment.path + names.TXN_INDEX] if known is None else known

"""Writes the segments of a compaction: takes a plan and a disk, writes new files and returns their names.

    write(disk, plan) -> *.cleaned in the log's folder, `Written`

The `Plan`, made in the log's thread (`planning.py`), has all the data that is needed from the log. Sealed segments do
not change, so this may run anywhere: in a worker thread, or in a separate process that gets the plan as JSON and the
folder as a descriptor (`kwire/logs/cleaner_process.py`).

The dirty range, from the end of the last cleaning, is read into a map of keys (`offset_map.py`) as far as memory
allows. Then everything up to the end of that range is rewritten (`cleaning.py` decides which records stay), with small
neighbours merged into one segment. At any time one file of the log is open for reading and one for writing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

import attrs
from kwire_protocol.records import BATCH_HEADER_SIZE, BatchHeader, read_header

from kwire_storage import names
from kwire_storage.compaction.cleaning import Cleaning, LastRecord, Transactions, note_keys
from kwire_storage.compaction.offset_map import OffsetMap
from kwire_storage.disk.files import Disk, File, sync_file
from kwire_storage.errors import CorruptLogError
from kwire_storage.log.index import TIME_ENTRY_BYTES
from kwire_storage.log.scan import scan_batches
from kwire_storage.log.segment import Segment
from kwire_storage.producers.txn_index import AbortedTxn, decode_aborted

MAX_OFFSETS_IN_SEGMENT = MAX_BYTES_IN_SEGMENT = 2**31 - 1
_WRITE_BYTES = 1 << 20


class AbandonedError(Exception):
    """A cleaning was cancelled, or the segments that it was to clean are gone."""


@attrs.frozen
class Source:
    """A sealed segment as it was when the plan was made; the size in bytes of its records."""

    base_offset: int
    end_offset: int
    size: int
    created_ms: int


@attrs.frozen
class Plan:
    """The input of a cleaning; times in ms."""

    folder: str
    """The log's folder, on its disk."""
    sources: tuple[Source, ...]
    aborted: tuple[AbortedTxn | str, ...]
    """The log's aborted transactions; a str is the name of a file that has more of them."""
    first_dirty_offset: int
    end_offset: int
    last_records: dict[int, LastRecord]
    """The last record of each active producer, by producer id."""
    now_ms: int
    delete_retention_ms: int
    map_bytes: int
    """The maximum size of the map of keys."""
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int

    def to_fields(self) -> dict[str, Any]:
        """Returns the plan in JSON's types."""
        fields = attrs.asdict(self, recurse=False)
        fields["sources"] = [attrs.astuple(source) for source in self.sources]
        fields["last_records"] = list(self.last_records.items())
        return fields

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Plan:
        """The reverse of `to_fields`, after a round trip through JSON."""
        sources = tuple(Source(*source) for source in fields["sources"])
        aborted = tuple(it if isinstance(it, str) else AbortedTxn(*it) for it in fields["aborted"])
        last_records = {producer_id: LastRecord(*last) for producer_id, last in fields["last_records"]}
        return cls(**{**fields, "sources": sources, "aborted": aborted, "last_records": last_records})


@attrs.frozen
class Written:
    """The result of `write`: the log is clean up to `end_offset` once the new segments have replaced the old ones."""

    end_offset: int
    group_sizes: tuple[int, ...]
    """The number of the plan's sources that each new segment replaces, in order; later sources stay as they are."""
    read_bytes: int
    written_bytes: int

    def to_fields(self) -> dict[str, Any]:
        """Returns the fields in JSON's types."""
        return attrs.asdict(self)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Written:
        """The reverse of `to_fields`, after a round trip through JSON."""
        return cls(**{**fields, "group_sizes": tuple(fields["group_sizes"])})


def write(disk: Disk, plan: Plan) -> Generator[int, None, Written]:
    """Writes and syncs everything; yields the bytes read or written since the last time. To abandon it, close it.

    Raises AbandonedError if a segment was deleted, CorruptLogError or InvalidBatch for one that cannot be read, OSError
    if the disk refuses. In each case the written files must be discarded (`swap.discard`).
    """
    return (yield from _Writing(disk, plan).run())


@attrs.define(eq=False)
class _Writing:
    disk: Disk
    plan: Plan
    end_offset: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def run(self) -> Generator[int, None, Written]:
        plan = self.plan
        # If files of an earlier cleaning come back after a power cut, they must not be mixed with those of this one.
        self.disk.sync_dir(plan.folder)
        aborted = self._read_aborted()
        keys = yield from self._read_keys(aborted)
        keys.close()
        self.end_offset = keys.end_offset
        cleaning = Cleaning(
            keys,
            Transactions(aborted),
            plan.last_records,
            first_dirty_offset=plan.first_dirty_offset,
            now_ms=plan.now_ms,
            delete_retention_ms=plan.delete_retention_ms,
        )
        groups = list(self._grouped())
        for group in groups:
            yield from self._clean(group, cleaning)
        self.disk.sync_dir(plan.folder)
        return Written(self.end_offset, tuple(map(len, groups)), self.read_bytes, self.written_bytes)

    def _read_aborted(self) -> list[AbortedTxn]:
        found: list[AbortedTxn] = []
        for it in self.plan.aborted:
            if isinstance(it, AbortedTxn):
                found.append(it)
            else:
                with suppress(FileNotFoundError):
                    found += decode_aborted(self.disk.read_bytes(f"{self.plan.folder}/{it}"))
        return found

    def _read_keys(self, aborted: list[AbortedTxn]) -> Generator[int, None, OffsetMap]:
        first_dirty_offset = self.plan.first_dirty_offset
        keys = OffsetMap(self.plan.map_bytes, first_dirty_offset)
        transactions = Transactions(aborted)
        for source in self.plan.sources:
            if source.end_offset <= first_dirty_offset:
                continue
            for batch, header in self._batches(source):
                yield len(batch)
                if header.next_offset <= first_dirty_offset:
                    continue
                if not note_keys(keys, transactions, batch, header):
                    return keys
            keys.end_offset = source.end_offset
        return keys

    def _batches(self, source: Source) -> Iterator[tuple[memoryview, BatchHeader]]:
        name = names.offset_name(source.base_offset, names.LOG)
        try:
            file = self.disk.open_read(f"{self.plan.folder}/{name}")
        except FileNotFoundError:
            # Retention deleted it meanwhile, or the partition was deleted.
            raise AbandonedError from None
        try:
            for batch, header in scan_batches(file, source.size):
                self.read_bytes += len(batch)
                yield batch, header
        except CorruptLogError as error:
            raise CorruptLogError(f"{name} at {error}") from error
        finally:
            file.close()

    def _grouped(self) -> Iterator[list[Source]]:
        """Yields groups of adjacent segments that fit into one, by bytes, index entries and offsets."""
        # As many bytes as an entry of the indexes stands for, at least.
        interval = max(self.plan.index_interval_bytes, BATCH_HEADER_SIZE)
        most_indexed_bytes = self.plan.segment_index_bytes // TIME_ENTRY_BYTES * interval
        most_bytes = min(self.plan.segment_bytes, most_indexed_bytes)
        group: list[Source] = []
        for source in self.plan.sources:
            if source.base_offset >= self.end_offset:
                break
            together = [*group, source]
            if group and not (
                sum(it.size for it in together) <= most_bytes
                and source.end_offset - 1 - group[0].base_offset <= MAX_OFFSETS_IN_SEGMENT
            ):
                yield group
                together = [source]
            group = together
        if group:
            yield group

    def _clean(self, group: list[Source], cleaning: Cleaning) -> Iterator[int]:
        folder, base_offset = self.plan.folder, group[0].base_offset
        segment = Segment(self.disk, folder, base_offset, self.plan.index_interval_bytes, group[-1].created_ms)
        path = segment.path + names.LOG + names.CLEANED
        self.disk.remove(path)
        segment.begin_rebuild()
        file = self.disk.open_append(path)
        try:
            yield from self._clean_records(group, cleaning, file, segment)
            file.sync()
        finally:
            # At once, also if the cleaning is abandoned: a removed file takes up disk space for as long as it is open.
            file.close()
        for aborted in cleaning.transactions.take_retained():
            segment.add_aborted(aborted)
        for written in segment.save_indexes(names.CLEANED):
            sync_file(self.disk, written)

    def _clean_records(self, group: list[Source], cleaning: Cleaning, file: File, segment: Segment) -> Iterator[int]:
        pending = bytearray()
        room = MAX_BYTES_IN_SEGMENT - sum(source.size for source in group)
        for source in group:
            for batch, header in self._batches(source):
                # With a delete horizon the times of its records take more bytes each, but never twice as many in all.
                cleaned = cleaning.clean(batch, header, may_grow=room >= len(batch))
                size = 0 if cleaned is None else len(cleaned)
                room += len(batch) - size
                if cleaned is not None:
                    now = header if cleaned is batch else read_header(cleaned)
                    position = file.size + len(pending)
                    segment.note(now.base_offset, now.last_offset, position, size, now.newest_record_ms)
                    pending += cleaned
                    if len(pending) >= _WRITE_BYTES:
                        self._write_out(file, pending)
                yield len(batch) + size
        self._write_out(file, pending)

    def _write_out(self, file: File, pending: bytearray) -> None:
        file.append(pending)
        self.written_bytes += len(pending)
        pending.clear()

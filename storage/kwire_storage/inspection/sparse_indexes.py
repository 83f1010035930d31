"""Compares `.index` and `.timeindex` with the batches they point to, one batch after the other.

An entry of the offset index must have the position of a batch and that batch's last offset. Brokers that put several
batches in with one append (Apache Kafka up to 3.8, on followers) wrote the last offset of the last of them: that is
allowed too, since a look-up only scans a little more. An entry of the time index must have an offset within a batch,
and that batch's timestamp, than which no record before it may have a later one. A batch that compaction emptied needs
no entry (`BatchHeader.newest_record_ms`); Apache Kafka may give it one.

For each kind of error only the first entry is reported, with the number of such entries. Entries that point into a
damaged range are skipped, since the range itself is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kwire_protocol.records import BatchHeader

from kwire_storage import names
from kwire_storage.disk.files import Disk, File
from kwire_storage.inspection.findings import Finding, Kind
from kwire_storage.inspection.layout import Layout
from kwire_storage.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex

_ENTRIES_AT_ONCE = 8192


def index_entries(file: File) -> Iterator[tuple[int, int]]:
    """Yields (relative offset, position) of every whole entry, padding included, in bounded memory."""
    for data in _pieces(file, OFFSET_ENTRY_BYTES):
        index = OffsetIndex.of_any_bytes(data)
        yield from zip(index.offsets, index.positions, strict=True)


def time_index_entries(file: File) -> Iterator[tuple[int, int]]:
    """Yields (timestamp in ms, relative offset) of every whole entry, padding included, in bounded memory."""
    for data in _pieces(file, TIME_ENTRY_BYTES):
        index = TimeIndex.of_any_bytes(data)
        yield from zip(index.timestamps, index.offsets, strict=True)


def _pieces(file: File, entry_bytes: int) -> Iterator[bytes]:
    position = 0
    while data := file.read(position, entry_bytes * _ENTRIES_AT_ONCE):
        yield data
        position += len(data)


class _Entries:
    """The entries, up to the zeros of a preallocated file, or to one that does not ascend, which is a finding."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        entry_bytes: int,
        read: Callable[[File], Iterator[tuple[int, int]]],
    ) -> None:
        self.path = path
        self._entry_bytes = entry_bytes
        self._file = disk.open_read(path)
        self._entries = read(self._file)
        self._count = self._file.size // entry_bytes
        self._number = -1
        self._previous = (-1, -1)
        self._wrong: dict[str, tuple[int, Finding]] = {}
        self.findings: list[Finding] = []
        if self._file.size % entry_bytes:
            self.findings.append(
                Finding(Kind.INDEX_SIZE, path, f"{self._file.size} bytes are no whole entries of {entry_bytes}")
            )
        self.current: tuple[int, int] | None = None
        self.advance()

    def advance(self) -> None:
        self._number += 1
        entry = next(self._entries, None)
        what = ""
        if entry == (0, 0) and (self._number or self._count > 1):
            entry = next((other for other in self._entries if other != (0, 0)), None)
            what = f"zeros from entry {self._number} on, then {entry}"
        elif entry is not None and (entry[0] <= self._previous[0] or entry[1] <= self._previous[1]):
            what = f"entry {self._number} {entry} does not ascend from {self._previous}"
        if what and entry is not None:
            position = self._number * self._entry_bytes
            self.findings.append(Finding(Kind.INDEX_ORDER, self.path, what, position=position))
            entry = None
        if entry is not None:
            self._previous = entry
        self.current = entry

    def wrong(self, reason: str, what: str) -> None:
        """Reports that the current entry is wrong; the finding is the first entry for each reason, and their number."""
        count, finding = self._wrong.get(reason, (0, None))
        if finding is None:
            finding = Finding(
                Kind.INDEX_ENTRY, self.path, f"entry {self._number} {what}", position=self._number * self._entry_bytes
            )
        self._wrong[reason] = count + 1, finding

    def finish(self) -> list[Finding]:
        self._file.close()
        for count, finding in self._wrong.values():
            more = f", and {count - 1} more such entries" if count > 1 else ""
            self.findings.append(Finding(finding.kind, finding.path, finding.what + more, position=finding.position))
        return self.findings


class OffsetIndexCheck:
    """Checks an offset index, given every good batch; `finish` returns the findings. Raises OSError."""

    def __init__(self, disk: Disk, layout: Layout, base_offset: int) -> None:
        self._base = base_offset
        self._entries = _Entries(disk, layout.of(base_offset, names.INDEX), OFFSET_ENTRY_BYTES, index_entries)
        self._due: int | None = None

    def batch(self, position: int, header: BatchHeader) -> None:
        entries = self._entries
        while entries.current is not None and entries.current[1] < position:
            entries.wrong("position", f"leads to position {entries.current[1]}, where no batch begins")
            entries.advance()
        if entries.current is not None and entries.current[1] == position:
            self._settle()
            offset = self._base + entries.current[0]
            if offset < header.last_offset:
                entries.wrong("offset", f"has offset {offset}, the batch at {position} ends at {header.last_offset}")
            elif offset > header.last_offset:
                self._due = offset
            entries.advance()
        elif self._due is not None and header.last_offset >= self._due:
            if header.last_offset == self._due:
                self._due = None
            self._settle()

    def damage(self, position: int, end: int) -> None:
        """Notes a damaged range. An entry that points into it may have been right."""
        entries = self._entries
        while entries.current is not None and entries.current[1] < end:
            if entries.current[1] < position:
                entries.wrong("position", f"leads to position {entries.current[1]}, where no batch begins")
            entries.advance()
        self._due = None

    def _settle(self) -> None:
        if self._due is not None:
            self._entries.wrong("offset", f"or the one before it has offset {self._due}, with which no batch ends")
            self._due = None

    def finish(self) -> list[Finding]:
        self._settle()
        entries = self._entries
        while entries.current is not None:
            entries.wrong("position", f"leads to position {entries.current[1]}, where no batch begins")
            entries.advance()
        return entries.finish()


class TimeIndexCheck:
    """Checks a time index, given every good batch; `finish` returns the findings. Raises OSError."""

    def __init__(self, disk: Disk, layout: Layout, base_offset: int) -> None:
        self._base = base_offset
        self._entries = _Entries(disk, layout.of(base_offset, names.TIME_INDEX), TIME_ENTRY_BYTES, time_index_entries)
        self._largest = -1
        self._indexed = -1
        self._after_damage = False

    def damage(self) -> None:
        """Notes a damaged range: the offsets up to the next batch may have been in it."""
        self._after_damage = True

    def batch(self, header: BatchHeader) -> None:
        entries = self._entries
        if self._after_damage:
            self._pass_over(header.base_offset)
        while entries.current is not None and self._base + entries.current[1] <= header.last_offset:
            timestamp, offset = entries.current[0], self._base + entries.current[1]
            if offset < header.base_offset:
                entries.wrong("offset", f"has offset {offset}, which is in no batch")
            elif timestamp != header.max_timestamp:
                entries.wrong(
                    "timestamp", f"has timestamp {timestamp}, the batch with offset {offset} {header.max_timestamp}"
                )
            elif timestamp < self._largest:
                entries.wrong("largest", f"has timestamp {timestamp}, a batch before it {self._largest}")
            self._indexed = max(self._indexed, timestamp)
            entries.advance()
        self._largest = max(self._largest, header.newest_record_ms)

    def _pass_over(self, offset: int | None = None) -> None:
        """Skips entries below the offset, or all that are left: there is no batch to compare them with."""
        entries = self._entries
        while entries.current is not None and (offset is None or self._base + entries.current[1] < offset):
            self._indexed = max(self._indexed, entries.current[0])
            entries.advance()
        self._after_damage = False

    def finish(self) -> list[Finding]:
        entries = self._entries
        if self._after_damage:
            self._pass_over()
        while entries.current is not None:
            entries.wrong("offset", f"has offset {self._base + entries.current[1]}, which is in no batch")
            entries.advance()
        findings = entries.finish()
        if not findings and self._indexed < self._largest:
            findings.append(
                Finding(
                    Kind.TIME_INDEX_SHORT,
                    entries.path,
                    f"its last entry has timestamp {self._indexed}, the segment has {self._largest}",
                )
            )
        return findings

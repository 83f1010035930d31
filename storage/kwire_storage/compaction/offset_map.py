"""The latest offset of each key in a range of a log, in bounded memory: Kafka's `SkimpyOffsetMap`.

Keys of up to 32 bytes are stored directly. Longer ones are stored as a hash (BLAKE2b of 33 bytes, which cannot equal a
short key), so that the bound does not depend on them.

The map also answers without keys: in a batch that was added completely, the records that stay are those whose offsets
are the latest of some key (`count_survivors`). So the second pass over the range need not decode a batch that loses
nothing, or everything. This requires that offsets rise from record to record, as they do unless a producer wrote
invalid records. The map notices such a log, and then records are compared key by key.
"""

from __future__ import annotations

from bisect import bisect_left
from hashlib import blake2b
from itertools import islice
from operator import lt

from kwire_protocol.records import BatchHeader, RecordScan

MAX_STORED_KEY_BYTES = 32
_DIGEST_BYTES = MAX_STORED_KEY_BYTES + 1

BYTES_OF_AN_ENTRY = 200
"""The bytes that a key takes in a dict that has just grown, its own bytes and its offset included."""

NOT_FOUND = -1


class OffsetMap:
    """The latest offset of each key among the records from `start_offset` up to `end_offset`."""

    def __init__(self, max_bytes: int, start_offset: int) -> None:
        self.start_offset = self.end_offset = start_offset
        self._max_entries = max(max_bytes // BYTES_OF_AN_ENTRY, 1)
        # Small numbers, which are quicker: offsets less `start_offset`, inverted (~) where the record has no value.
        self._latest: dict[bytes, int] = {}
        self._has_long_keys = False
        self._in_order = True
        self._survivors: list[int] | None = None
        self._tombstones: list[int] = []

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, scan: RecordScan) -> bool:
        """Adds the records of a batch, scanned with their keys; those below `start_offset` do not count.

        Returns False if there was no room for all: `end_offset` is at the first that is missing.
        """
        offsets, header, start_offset = scan.offsets, scan.header, self.start_offset
        first, last = offsets[0], offsets[-1]
        is_plain = (
            first >= max(self.end_offset, header.base_offset)
            and last <= header.last_offset
            and not scan.null_keys
            and not scan.null_values
            and len(self._latest) + len(offsets) <= self._max_entries
            and all(map(lt, offsets, islice(offsets, 1, None)))
        )
        if not is_plain:
            return self._add_one_by_one(scan)
        if last - first == len(offsets) - 1:
            numbers: range | list[int] = range(first - start_offset, last + 1 - start_offset)
        else:
            numbers = [offset - start_offset for offset in offsets]
        latest = self._latest
        for key, number in zip(scan.keys, numbers, strict=True):
            assert key is not None
            latest[key if len(key) <= MAX_STORED_KEY_BYTES else self._digest(key)] = number
        self.end_offset = last + 1
        return True

    def _add_one_by_one(self, scan: RecordScan) -> bool:
        header, latest = scan.header, self._latest
        null_values = set(scan.null_values)
        for index, (offset, key) in enumerate(zip(scan.offsets, scan.keys, strict=True)):
            if not header.base_offset <= offset <= header.last_offset:
                self._in_order = False
            if offset < self.start_offset:
                continue
            if offset < self.end_offset:
                self._in_order = False
            if key is not None:
                if len(key) > MAX_STORED_KEY_BYTES:
                    key = self._digest(key)
                if len(latest) >= self._max_entries and key not in latest:
                    return False
                number = offset - self.start_offset
                latest[key] = ~number if index in null_values else number
            self.end_offset = max(self.end_offset, min(offset, header.last_offset) + 1)
        return True

    def pass_batch(self, header: BatchHeader) -> None:
        """Ends a batch, or skips one of which nothing was added: `end_offset` moves behind it."""
        self.end_offset = max(self.end_offset, header.next_offset)

    def begin_batch(self, header: BatchHeader) -> None:
        """Must be called before records of a batch are added."""
        if max(header.base_offset, self.start_offset) < self.end_offset:
            self._in_order = False

    def close(self) -> None:
        """Must be called when the range was read, before the first query."""
        if not self._in_order:
            return
        numbers = self._latest.values()
        self._tombstones = sorted(~number for number in numbers if number < 0)
        self._survivors = sorted(
            [~number if number < 0 else number for number in numbers] if self._tombstones else numbers
        )

    def count_survivors(self, header: BatchHeader) -> int | None:
        """Returns the number of records of a batch that stay; None if its records must be compared key by key.

        The records of an aborted transaction were never added, and are not counted.
        """
        if self._survivors is None or header.base_offset < self.start_offset or header.next_offset > self.end_offset:
            return None
        low, high = self._range(self._survivors, header.base_offset, header.next_offset)
        return high - low

    def survivors_in(self, scan: RecordScan) -> list[int]:
        """Returns the indexes of the records that stay, of a batch that `count_survivors` has counted."""
        assert self._survivors is not None
        offsets, first_offset = scan.offsets, scan.offsets[0]
        low, high = self._range(self._survivors, first_offset, offsets[-1] + 1)
        numbers = self._survivors[low:high]
        if offsets[-1] - first_offset == len(offsets) - 1:
            first = first_offset - self.start_offset
            return [number - first for number in numbers]
        indexes = {offset: index for index, offset in enumerate(offsets)}
        return [indexes[self.start_offset + number] for number in numbers]

    def has_tombstones(self, header: BatchHeader) -> bool:
        """Returns True if some of the survivors of a batch have no value."""
        low, high = self._range(self._tombstones, header.base_offset, header.next_offset)
        return low < high

    def _range(self, numbers: list[int], offset: int, end_offset: int) -> tuple[int, int]:
        low = bisect_left(numbers, offset - self.start_offset)
        return low, bisect_left(numbers, end_offset - self.start_offset, low)

    def outdated(self, scan: RecordScan) -> list[int]:
        """Yields the indexes of the records, scanned with keys, that a later one replaces, or that have no key."""
        latest = self._latest
        if not scan.null_keys and not self._has_long_keys and latest.keys().isdisjoint(scan.keys):
            return []
        end_offset, outdated = self.end_offset, []
        for index, (offset, key) in enumerate(zip(scan.offsets, scan.keys, strict=True)):
            if offset < end_offset and (key is None or offset < self.latest(key)):
                outdated.append(index)
        return outdated

    def latest(self, key: bytes) -> int:
        """Returns the latest offset of a key; NOT_FOUND for a key that the range does not have."""
        number = self._latest.get(key if len(key) <= MAX_STORED_KEY_BYTES else self._digest(key))
        if number is None:
            return NOT_FOUND
        return self.start_offset + (~number if number < 0 else number)

    def _digest(self, key: bytes) -> bytes:
        self._has_long_keys = True
        return blake2b(key, digest_size=_DIGEST_BYTES).digest()

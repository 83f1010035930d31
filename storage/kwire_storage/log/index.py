"""The two sparse indexes of a segment: from an offset, and from a timestamp, to a position to start scanning.

`.index`, entries of 8 bytes, big-endian, ascending:
    int32 offset    last offset of a batch, relative to the segment's base offset
    int32 position  where that batch begins in the .log file
`.timeindex`, entries of 12 bytes, big-endian, ascending in both fields:
    int64 timestamp largest timestamp (ms) of all batches up to and including that offset
    int32 offset    last offset of the batch that holds it, relative to the base offset

An entry is added before a batch is written once more than `index.interval.bytes` went in since the last entry; when the
segment is sealed the time index gets a last entry with the segment's largest timestamp. Both rules are Kafka's.

In memory an index is two arrays for `bisect`, loaded with one read; nothing is mapped. New entries are added there too.
They are appended to the file now and then, for tools that read the folder, but nothing relies on that: the file counts
when the segment is sealed or the log closed. After a crash the indexes of every segment past the recovery point are
rebuilt.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12

_LITTLE_ENDIAN = sys.byteorder == "little"


def _big_endian(values: array[int]) -> array[int]:
    """Returns the same numbers, byte-swapped on a little-endian machine; for writing and for reading."""
    if _LITTLE_ENDIAN:
        values = values[:]
        values.byteswap()
    return values


class OffsetIndex:
    """The positions of batches. Offsets are relative to the segment's base."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    @classmethod
    def from_bytes(cls, data: bytes) -> OffsetIndex:
        """Reads entries up to the first that does not ascend, such as the zeros of a preallocated file."""
        index = cls.of_any_bytes(data)
        index._cut(_ascending(index.offsets))
        return index

    @classmethod
    def of_any_bytes(cls, data: bytes) -> OffsetIndex:
        """Reads every whole entry, valid or not; for inspection, not for look-ups."""
        index = cls()
        raw = array("i")
        raw.frombytes(data[: len(data) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES])
        raw = _big_endian(raw)
        index.offsets, index.positions = raw[0::2], raw[1::2]
        return index

    def to_bytes(self, first: int = 0) -> bytes:
        """The entries from number `first` on."""
        raw = array("i", bytes(OFFSET_ENTRY_BYTES * (len(self.offsets) - first)))
        raw[0::2], raw[1::2] = self.offsets[first:], self.positions[first:]
        return _big_endian(raw).tobytes()

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def position_before(self, relative_offset: int) -> int:
        """The position to start scanning from for the batch that has the offset: all before it end below the offset."""
        entry = bisect_left(self.offsets, relative_offset) - 1
        return self.positions[entry] if entry >= 0 else 0

    def boundary_before(self, position: int) -> int:
        """The last known beginning of a batch at or before the position."""
        entry = bisect_right(self.positions, position) - 1
        return self.positions[entry] if entry >= 0 else 0

    def offset_at_or_after(self, position: int) -> int | None:
        """The relative last offset of the first known batch that begins at or after the position."""
        entry = bisect_left(self.positions, position)
        return self.offsets[entry] if entry < len(self.offsets) else None

    def truncate(self, size: int) -> None:
        """Forgets the batches that begin at or after the position `size`."""
        self._cut(bisect_left(self.positions, size))

    def _cut(self, count: int) -> None:
        del self.offsets[count:]
        del self.positions[count:]


class TimeIndex:
    """The largest timestamps of the batches up to an offset. Offsets are relative to the segment's base."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")

    @classmethod
    def from_bytes(cls, data: bytes) -> TimeIndex:
        """Reads entries up to the first that does not ascend."""
        index = cls.of_any_bytes(data)
        index._cut(_ascending(index.timestamps))
        return index

    @classmethod
    def of_any_bytes(cls, data: bytes) -> TimeIndex:
        """Reads every whole entry, valid or not; for inspection, not for look-ups."""
        index = cls()
        raw = array("i")
        raw.frombytes(data[: len(data) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES])
        timestamps = array("i", bytes(8 * (len(raw) // 3)))
        # As stored: high half, low half, offset; byte-swapping requires numbers of one width.
        timestamps[0::2], timestamps[1::2] = raw[0::3], raw[1::3]
        wide = array("q")
        wide.frombytes(timestamps.tobytes())
        index.timestamps, index.offsets = _big_endian(wide), _big_endian(raw[2::3])
        return index

    def to_bytes(self, first: int = 0) -> bytes:
        """The entries from number `first` on."""
        halves = array("i")
        halves.frombytes(_big_endian(self.timestamps[first:]).tobytes())
        raw = array("i", bytes(TIME_ENTRY_BYTES * (len(self.offsets) - first)))
        raw[0::3], raw[1::3], raw[2::3] = halves[0::2], halves[1::2], _big_endian(self.offsets[first:])
        return raw.tobytes()

    def __len__(self) -> int:
        return len(self.timestamps)

    def maybe_append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Adds an entry unless the last one is as late already."""
        if timestamp_ms >= 0 and (not self.timestamps or timestamp_ms > self.timestamps[-1]):
            self.timestamps.append(timestamp_ms)
            self.offsets.append(relative_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """A relative offset up to which every timestamp is below the given one; -1 if none is known."""
        entry = bisect_left(self.timestamps, timestamp_ms) - 1
        return self.offsets[entry] if entry >= 0 else -1

    def truncate(self, relative_offset: int) -> None:
        """Forgets the entries at or after the offset."""
        self._cut(bisect_left(self.offsets, relative_offset))

    def _cut(self, count: int) -> None:
        del self.timestamps[count:]
        del self.offsets[count:]


def _ascending(values: array[int]) -> int:
    """The number of entries, from the first on, that ascend strictly (and are not negative)."""
    count = len(values)
    if count and values[0] >= 0 and (count == 1 or values[0] < values[-1]):
        # The file was closed properly: after a crash indexes are rebuilt, and not read.
        return count
    previous = -1
    for number, value in enumerate(values):
        if value <= previous:
            return number
        previous = value
    return count

"""`.txnindex`: the aborted transactions with markers in a segment, in the order of the markers.

Entries of 34 bytes: int16 version 0, int64 producer id, int64 first offset, int64 last offset (the marker's), int64 the
last stable offset after the marker. A reader of committed data gets the entries that overlap what it read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kwire_storage.errors import CorruptLogError

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_VERSION = 0


class AbortedTxn(NamedTuple):
    """One aborted transaction; offsets are absolute and inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(entries: list[AbortedTxn]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode_aborted(data: bytes) -> list[AbortedTxn]:
    """Returns the transactions. Raises CorruptLogError for an unknown version or a torn end."""
    if len(data) % _ENTRY.size:
        raise CorruptLogError(f"transaction index of {len(data)} bytes")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptLogError(f"transaction index entry of version {version}")
        entries.append(AbortedTxn(*fields))
    return entries


def overlapping(entries: list[AbortedTxn], start_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
    """Returns the transactions that overlap `start_offset..upper_bound`, and True if later segments have none."""
    found = []
    for entry in entries:
        if entry.last_offset >= start_offset and entry.first_offset < upper_bound:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound:
            return found, True
    return found, False

"""Records for property tests, and the tools to spoil a batch with."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c
from hypothesis import strategies as st
from kwire_protocol.records import Record

# Deltas of every length, and an absolute time that leaves room for them.
TIMESTAMPS = st.one_of(
    st.just(-1), st.integers(0, 2**62), st.integers(1_700_000_000_000 - 2**40, 1_700_000_000_000 + 2**40)
)
OPTIONAL_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=40)), max_size=5).map(tuple)
RECORDS = st.builds(Record, timestamp=TIMESTAMPS, key=OPTIONAL_BYTES, value=OPTIONAL_BYTES, headers=HEADERS)
RECORD_LISTS = st.lists(RECORDS, min_size=1, max_size=20)
CODECS = st.integers(0, 4)


def numbered(records: Sequence[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


def with_crc(batch: bytearray) -> bytearray:
    """Gives a spoilt batch the CRC that belongs to it."""
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


def patched(batch: bytes | bytearray, position: int, form: str, value: int, *, crc: bool = True) -> bytearray:
    """`batch` with one field overwritten."""
    out = bytearray(batch)
    struct.pack_into(">" + form, out, position, value)
    return with_crc(out) if crc else out


def with_content(batch: bytes | bytearray, content: bytes, *, codec: int = 0, count: int | None = None) -> bytearray:
    """`batch` with other bytes where its records are, `count` of them by the header."""
    out = bytearray(batch[:61]) + content
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">h", out, 21, codec)
    if count is not None:
        struct.pack_into(">i", out, 23, count - 1)
        struct.pack_into(">i", out, 57, count)
    return with_crc(out)

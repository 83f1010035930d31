"""Iterates over the batches of a file: headers only, with a few small reads, or everything, with large reads."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kwire_protocol.records import (
    BATCH_HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    InvalidBatch,
    check_batch,
    read_header,
)

from kwire_storage.disk.files import File
from kwire_storage.errors import CorruptLogError

# A look-up ends within one index interval (4 KiB unless configured) and one batch, so this is mostly one read.
_CHUNK_BYTES = 8192

_LARGE_CHUNK_BYTES = 128 << 10

# base offset, batch length, (leader epoch), magic, (CRC, attributes), last offset delta
_BATCH_POSITION = struct.Struct(">qi4xb6xi")
_MAGIC = 2
_LEAST_LENGTH = BATCH_HEADER_SIZE - LENGTH_OVERHEAD


def scan_positions(file: File, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (position, base offset, last offset, size) of each batch that begins in `position..end`.

    `position` must be the beginning of a batch. Raises CorruptLogError if there can be no batch: the header makes no
    sense, the offsets are not in order, or the batch would end behind `end`.
    """
    data = b""
    origin = position
    following = 0
    unpack = _BATCH_POSITION.unpack_from
    while position < end:
        at = position - origin
        if at + BATCH_HEADER_SIZE > len(data):
            data = file.read(position, min(_CHUNK_BYTES, end - position))
            origin, at = position, 0
            if len(data) < BATCH_HEADER_SIZE:
                raise CorruptLogError(f"{file.path}: {len(data)} bytes at position {position} are no batch")
        base, length, magic, delta = unpack(data, at)
        size = length + LENGTH_OVERHEAD
        if base < following or size > end - position or length < _LEAST_LENGTH or delta < 0 or magic != _MAGIC:
            raise CorruptLogError(
                f"{file.path}: no batch at position {position}: offset {base}, length {length}, magic {magic}, "
                f"last offset delta {delta}"
            )
        yield position, base, base + delta, size
        following = base + delta + 1
        position += size


def scan_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and whole header of each batch that begins in `position..end`; raises as `scan_positions`."""
    data = b""
    origin = position
    following = 0
    while position < end:
        at = position - origin
        if at + BATCH_HEADER_SIZE > len(data):
            data = file.read(position, min(_CHUNK_BYTES, end - position))
            origin, at = position, 0
            if len(data) < BATCH_HEADER_SIZE:
                raise CorruptLogError(f"{file.path}: {len(data)} bytes at position {position} are no batch")
        try:
            header = read_header(data, at)
        except InvalidBatch as error:
            raise CorruptLogError(f"{file.path}: no batch at position {position}: {error}") from error
        if header.base_offset < following or header.size_in_bytes > end - position or header.last_offset_delta < 0:
            raise CorruptLogError(f"{file.path}: no batch at position {position}: {header}")
        yield position, header
        following = header.next_offset
        position += header.size_in_bytes


def scan_batches(file: File, end: int) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Yields every batch of the file's first `end` bytes, whole and with a correct CRC.

    Raises CorruptLogError for anything else, and if the file is shorter.
    """
    position = 0
    wanted = _LARGE_CHUNK_BYTES
    while position < end:
        wanted = min(wanted, end - position)
        data = memoryview(file.read(position, wanted))
        if len(data) < wanted:
            # Someone has cut it. Without this check the rest would be read again and again.
            ends_at = position + len(data)
            raise CorruptLogError(f"{ends_at}: the file ends there, and has {end} bytes according to its log")
        at = 0
        wanted = _LARGE_CHUNK_BYTES
        while at < len(data):
            try:
                header = read_header(data, at)
                size = header.size_in_bytes
                if at + size > len(data) and position + at + size <= end:
                    wanted = max(size, _LARGE_CHUNK_BYTES)
                    break
                check_batch(data, header, at)
            except InvalidBatch as error:
                if len(data) - at < BATCH_HEADER_SIZE and position + len(data) < end:
                    break
                raise CorruptLogError(f"{position + at}: {error}") from error
            yield data[at : at + size], header
            at += size
        position += at

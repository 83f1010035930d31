"""`.snapshot`: the producers of a partition as of an offset, which is the file's name.

    int16  version 1
    uint32 CRC-32C of all that follows
    int32  count, then for each producer (46 bytes each):
        int64 producer id          int16 epoch                  int32 last sequence
        int64 last offset          int32 offset delta           int64 timestamp (ms)
        int32 coordinator epoch    int64 first offset of the open transaction, or -1

Memory has five batches of each, the file only the last one, as in Kafka; its last offset is -1 if there is none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c

from kwire_storage.errors import CorruptLogError
from kwire_storage.producers.states import MAX_SEQUENCE, BatchMetadata, ProducerEntry

_VERSION = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    body = bytearray(_COUNT.size)
    count = 0
    for entry in entries:
        count += 1
        last = entry.batches[-1] if entry.batches else None
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence if last else -1,
            last.last_offset if last else -1,
            last.last_offset - last.first_offset if last else 0,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            -1 if entry.txn_first_offset is None else entry.txn_first_offset,
        )
    _COUNT.pack_into(body, 0, count)
    return _HEADER.pack(_VERSION, crc32c(body)) + bytes(body)


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Returns the producers. Raises CorruptLogError if the version, the CRC or the length is wrong."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise CorruptLogError(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if version != _VERSION:
        raise CorruptLogError(f"producer snapshot of version {version}")
    if crc32c(body) != crc:
        raise CorruptLogError("the CRC of the producer snapshot is wrong")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptLogError(f"producer snapshot of {count} producers in {len(data)} bytes")
    return [_entry(*_ENTRY.unpack_from(body, _COUNT.size + number * _ENTRY.size)) for number in range(count)]


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(
        producer_id, epoch, coordinator_epoch, timestamp_ms, None if txn_first_offset < 0 else txn_first_offset
    )
    if last_offset >= 0:
        first_sequence = -1 if last_sequence < 0 else (last_sequence - offset_delta) % (MAX_SEQUENCE + 1)
        entry.batches.append(
            BatchMetadata(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp_ms)
        )
    return entry

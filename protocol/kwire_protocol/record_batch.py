"""The 61 bytes in front of a batch of records (magic 2), and the checks and patches that need no more than them.

    at  size  field                     at  size  field
     0   8    base offset               21   2    attributes
     8   4    batch length (what        23   4    last offset delta
              follows it: size - 12)    27   8    base timestamp
    12   4    partition leader epoch    35   8    max timestamp
    16   1    magic                     43   8    producer id
    17   4    CRC-32C of byte 21        51   2    producer epoch
              to the end                53   4    base sequence
                                        57   4    records count

Everything is big-endian and signed but the CRC. A broker sets the first 17 bytes, which the CRC leaves out for that
reason: it assigns a batch its offset and epoch by patching them in place. Attributes: bits 0-2 codec, 3 log-append
time, 4 transactional, 5 control, 6 the base timestamp is the delete horizon (KIP-534).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from crc32c import crc32c

from kwire_protocol.batch_errors import CorruptBatch, InvalidBatch
from kwire_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    Buffer = bytes | bytearray | memoryview

BATCH_HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12
"""The bytes of a batch that `batch_length` does not count."""
MAGIC_POSITION: Final = 16

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

_SEQUENCES = 1 << 31

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_LEAST_LENGTH = BATCH_HEADER_SIZE - LENGTH_OVERHEAD
LEAST_LEGACY_LENGTH: Final = 14
"""The length of a message of magic 0 without key and value."""

_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__


class BatchHeader(NamedTuple):
    """The fields as they are in the bytes; reading them checks only magic and the minimum length."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_in_bytes(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's number, see `compression.py`; 5 to 7 are unknown ones."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME; under the latter every record has the batch's max timestamp."""
        return (self.attributes & LOG_APPEND_TIME_FLAG) >> 3

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 without sequences. Sequences continue with 0 after 2^31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    @property
    def newest_record_ms(self) -> int:
        """The largest timestamp of its records; -1 if it has none, although an emptied batch has a max timestamp."""
        return self.max_timestamp if self.records_count else NO_TIMESTAMP

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which compaction may drop this batch's tombstones; stored in the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Returns the header of the batch at `pos`. `check_batch` checks the rest of the batch.

    Raises CorruptBatch for fewer than 61 bytes, a length too small for a header or an unknown magic, and
    InvalidBatch(INVALID_RECORD) for the message formats before Kafka 0.11 (magic 0 and 1).
    """
    try:
        fields = _unpack_header(buf, pos)
    except struct.error:
        _refuse_header(buf, pos)
    if fields[3] != 2 or fields[1] < _LEAST_LENGTH:
        _refuse_header(buf, pos)
    return _new_tuple(BatchHeader, fields)


def _refuse_header(buf: Buffer, pos: int) -> NoReturn:
    there = len(buf) - pos
    if there > MAGIC_POSITION:
        length = int.from_bytes(buf[pos + 8 : pos + 12], "big", signed=True)
        magic = int.from_bytes(buf[pos + 16 : pos + 17], "big", signed=True)
        if length < (_LEAST_LENGTH if magic == 2 else LEAST_LEGACY_LENGTH):
            raise CorruptBatch(f"batch length {length} is less than any batch of magic {magic} has")
        if 0 <= magic < 2:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, f"message format {magic} is no longer served, only 2 is")
        if magic != 2:
            raise CorruptBatch(f"unknown magic {magic}")
    raise CorruptBatch(f"{there} bytes are too few for a batch header")


def check_batch(buf: Buffer, header: BatchHeader, pos: int = 0) -> None:
    """Raises unless the bytes at `pos` are a whole, consistent batch: length, CRC-32C, counts.

    These are all checks that apply to a batch in a log (compaction leaves fewer records than offsets, or none); further
    rules for a producer's batch are in `record_validation.py`. Raises CorruptBatch, or InvalidBatch(INVALID_RECORD) for
    negative counts. Codec and records are not checked.
    """
    end = pos + header[1] + 12
    if end > len(buf):
        raise CorruptBatch(f"the batch has {header[1] + 12} bytes by its length, {len(buf) - pos} are there")
    if crc32c(buf[pos + 21 : end]) != header[4]:
        raise CorruptBatch(f"the stored CRC is {header[4]}, the bytes' is {crc32c(buf[pos + 21 : end])}")
    if header[12] < 0 or header[6] < 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"negative records count {header[12]} or last offset delta {header[6]}"
        )


def iter_headers(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of every whole batch; stops before one that is cut short.

    Raises as `read_header` for bytes that cannot be a batch. No CRC is checked.
    """
    pos = 0
    end = len(buf)
    while end - pos > MAGIC_POSITION:
        if end - pos < BATCH_HEADER_SIZE:
            if pos + LENGTH_OVERHEAD + int.from_bytes(buf[pos + 8 : pos + 12], "big", signed=True) > end:
                return
            _refuse_header(buf, pos)
        header = read_header(buf, pos)
        following = pos + header.size_in_bytes
        if following > end:
            return
        yield pos, header
        pos = following


def assign(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Sets the offset and epoch of the batch at `pos`, in the received bytes; the CRC does not cover these fields."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _LEADER_EPOCH.pack_into(buf, pos + 12, leader_epoch)


def set_log_append_time(buf: bytearray | memoryview, pos: int, timestamp_ms: int) -> None:
    """Marks the batch at `pos` as stamped by the broker and computes its CRC again; the records are unchanged."""
    attributes = _ATTRIBUTES.unpack_from(buf, pos + 21)[0] | LOG_APPEND_TIME_FLAG
    _TIMESTAMP.pack_into(buf, pos + 35, timestamp_ms)
    _set_attributes(buf, pos, attributes)


def build_empty_batch(header: BatchHeader) -> bytes:
    """Returns the batch without its records: compaction keeps it for the fields of its header (`writeEmptyHeader`)."""
    out = bytearray(BATCH_HEADER_SIZE)
    HEADER.pack_into(
        out,
        0,
        *header._replace(
            batch_length=_LEAST_LENGTH,
            crc=0,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG),
            base_timestamp=NO_TIMESTAMP,
            records_count=0,
        ),
    )
    _CRC.pack_into(out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)


def set_create_time(buf: bytearray | memoryview, pos: int) -> None:
    """Removes the log-append flag of the batch at `pos`, as for a topic of create time, and computes its CRC again."""
    _set_attributes(buf, pos, _ATTRIBUTES.unpack_from(buf, pos + 21)[0] & ~LOG_APPEND_TIME_FLAG)


def _set_attributes(buf: bytearray | memoryview, pos: int, attributes: int) -> None:
    _ATTRIBUTES.pack_into(buf, pos + 21, attributes)
    size = LENGTH_OVERHEAD + int.from_bytes(buf[pos + 8 : pos + 12], "big", signed=True)
    with memoryview(buf) as view:
        _CRC.pack_into(buf, pos + 17, crc32c(view[pos + 21 : pos + size]))

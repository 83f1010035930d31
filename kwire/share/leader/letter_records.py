"""The records of a dead-letter topic (KIP-1191): the copied record, and headers with its origin and the cause.

`kwire_protocol.letter_headers` names these headers. If the group copies records, key, value and headers of the record
come with them, the headers first. A record that is not in the log any more, or cannot be read, leaves only these
headers. A dead letter that fails again loses the headers of the first time.

The names and sentences are those of Kafka 4.4's ShareGroupDLQStateManager and ShareGroupDLQ. It does not copy the
headers of the record, which the KIP allows for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kwire_protocol import letter_headers
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import BATCH_HEADER_SIZE, InvalidBatch, Record, iter_headers, iter_records

from kwire.replicas.validation import MAX_DECOMPRESSED_BATCH_BYTES
from kwire.share.leader.effects import DeadLetter
from kwire.share.leader.states import Cause

if TYPE_CHECKING:
    from kwire.replicas.partition import Partition

MAX_READ_BYTES: Final = 1 << 20
"""The maximum size of the log that is decoded at once, unless one batch is larger. As in Kafka."""

MAX_BATCH_BYTES: Final = 1 << 20
"""The maximum size of the batches of letters, unless one letter is larger."""

_MESSAGES: Final = {
    Cause.REJECTED: b"Offset rejected by client.",
    Cause.DELIVERY_COUNT: b"Offset delivery count exceeded the threshold.",
}
_RECORD_BYTES: Final = 32
_HEADER_BYTES: Final = 10
"""The maximum overhead of a record, and of a header, in addition to their contents."""


async def read_originals(partition: Partition, first: int, last: int) -> tuple[dict[int, Record], int]:
    """Returns the existing records of these offsets, up to some offset of them, which is returned too.

    Raises KafkaError KAFKA_STORAGE_ERROR.
    """
    if first < partition.log_start_offset:
        return {}, min(last, partition.log_start_offset - 1)
    if first >= partition.log_end_offset:
        return {}, last
    try:
        # They were delivered, so they are committed, even if this leader's high watermark is not there yet.
        end = partition.log_end_offset
        read = partition.read(first, max_bytes=MAX_READ_BYTES, max_offset=end, min_one_batch=True)
        piece = await partition.arrived(read)
        content = memoryview(piece.read())
    except OSError as error:
        raise partition.storage_error(error) from error
    except KafkaError as error:
        if error.code not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE):
            raise
        return {}, first
    return _decoded(content, first, last)


def _decoded(content: memoryview, first: int, last: int) -> tuple[dict[int, Record], int]:
    found: dict[int, Record] = {}
    through = first - 1
    try:
        for position, header in iter_headers(content):
            if header.base_offset > last:
                return found, last
            if not header.is_control:
                found.update(_records(content, position, first, last))
            through = header.last_offset
    except InvalidBatch:
        pass
    # A piece without a whole batch cannot be read.
    return found, min(max(through, first), last)


def _records(content: memoryview, position: int, first: int, last: int) -> dict[int, Record]:
    try:
        batch = iter_records(content, position, max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES)
        return {it.offset: it for it in batch if first <= it.offset <= last}
    except InvalidBatch:
        return {}


def copied(content: memoryview, group_id: str, partition: Partition, first: int, last: int) -> tuple[set[int], int]:
    """Returns a partition's offsets with letters of this group in a piece of a dead-letter topic; and the next offset.

    The next offset is -1 if the piece has no whole batch, or one that cannot be read.
    """
    found: set[int] = set()
    following = -1
    origin = (partition.topic.encode(), b"%d" % partition.index, group_id.encode())
    try:
        for position, header in iter_headers(content):
            following = header.last_offset + 1
            if header.is_control:
                continue
            for record in iter_records(content, position, max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES):
                headers = dict(record.headers)
                names = (letter_headers.ORIGIN_TOPIC, letter_headers.ORIGIN_PARTITION, letter_headers.GROUP)
                if tuple(map(headers.get, names)) == origin:
                    found.update(_offset_of(headers.get(letter_headers.ORIGIN_OFFSET), first, last))
    except InvalidBatch:
        return found, -1
    return found, following


def _offset_of(text: bytes | None, first: int, last: int) -> list[int]:
    """Parses the header leniently, since any producer may write to a dead-letter topic."""
    if text is None or not text.isdigit() or len(text) > len(str(last)):
        return []
    return [offset] if first <= (offset := int(text)) <= last else []


def letters(
    group_id: str,
    partition: Partition,
    letter: DeadLetter,
    originals: Mapping[int, Record],
    through: int,
    *,
    max_bytes: int,
    now_ms: int,
) -> list[Record]:
    """A record for each offset of the letter up to `through`, as far as they fit into one batch; at least one.

    `max_bytes` is the topic's max.message.bytes. An original that is too large for that is left out: its letter has
    headers only.
    """
    records: list[Record] = []
    room = min(max_bytes, MAX_BATCH_BYTES) - BATCH_HEADER_SIZE
    for offset in range(letter.first_offset, through + 1):
        own = _headers(group_id, partition, offset, letter)
        original = originals.get(offset)
        record = Record(0, now_ms, None, None, own)
        if original is not None:
            others = [it for it in original.headers if not it[0].startswith(letter_headers.PREFIX)]
            copy = Record(0, now_ms, original.key, original.value, [*others, *own])
            if _size(copy) <= max_bytes - BATCH_HEADER_SIZE:
                record = copy
        size = _size(record)
        if records and size > room:
            break
        records.append(record)
        room -= size
    return records


def _headers(group_id: str, partition: Partition, offset: int, letter: DeadLetter) -> list[tuple[str, bytes | None]]:
    return [
        (letter_headers.ORIGIN_TOPIC, partition.topic.encode()),
        (letter_headers.ORIGIN_PARTITION, b"%d" % partition.index),
        (letter_headers.ORIGIN_OFFSET, b"%d" % offset),
        (letter_headers.GROUP, group_id.encode()),
        (letter_headers.DELIVERY_COUNT, b"%d" % letter.delivery_count),
        (letter_headers.MESSAGE, _MESSAGES[letter.cause]),
    ]


def _size(record: Record) -> int:
    headers = sum(len(name.encode()) + len(value or b"") + _HEADER_BYTES for name, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers

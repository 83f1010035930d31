"""Validates a produced batch against the topic's configuration, before the log (Kafka's LogValidator).

For nearly every topic the batch's 61-byte header and its CRC-32C are enough (`read_produced_batch`). Records are
decoded only if the configuration requires it: a compacted topic needs keys, a topic with its own compression.type
stores batches in that codec, and if the header's timestamps are out of bounds, the offending records must be found.
Everything here is a pure function of the bytes, the rules and `now_ms`.
"""

from __future__ import annotations

import attrs
from kwire_protocol.compression import NONE
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import (
    CREATE_TIME,
    LENGTH_OVERHEAD,
    BatchHeader,
    RecordError,
    build_batch,
    iter_records,
    read_header,
    read_produced_batch,
    validate_records,
)
from kwire_protocol.wire import Buffer

from kwire.replicas.quotas import NO_REPLICAS, ThrottledReplicas

ZSTD_FIRST_PRODUCE_VERSION = 7
COMPRESSION_OF_PRODUCER = -1
"""The value of compression.type=producer: batches stay in the producer's codec."""

MAX_DECOMPRESSED_BATCH_BYTES = 64 * 1024 * 1024
"""The maximum size of a decompressed batch whose records must be decoded."""

NEVER_TOO_OLD = 2**63 - 1


@attrs.frozen
class TopicRules:
    """The topic configurations that appends and fetches check; sizes in bytes, times in ms."""

    max_message_bytes: int = 1_048_588
    compacted: bool = False
    deletable: bool = True
    """True if cleanup.policy contains delete; DeleteRecords is refused otherwise."""
    compression: int = COMPRESSION_OF_PRODUCER
    compression_level: int | None = None
    timestamp_type: int = CREATE_TIME
    timestamp_before_max_ms: int = NEVER_TOO_OLD
    timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    throttled_leaders: ThrottledReplicas = NO_REPLICAS
    throttled_followers: ThrottledReplicas = NO_REPLICAS
    accepts_unchanged: bool = attrs.field(init=False)
    """True if a batch with no timestamp too far ahead may be appended unchanged, as in the default configuration."""

    @accepts_unchanged.default
    def _accepts_unchanged(self) -> bool:
        return (
            not self.compacted
            and self.compression == COMPRESSION_OF_PRODUCER
            and self.timestamp_type == CREATE_TIME
            and self.timestamp_before_max_ms == NEVER_TOO_OLD
        )


class InvalidRecords(KafkaError):
    """A refused batch, with the offending records (Produce v8's record_errors)."""

    def __init__(self, record_errors: list[RecordError]) -> None:
        late = any(error.code == ErrorCode.INVALID_TIMESTAMP for error in record_errors)
        super().__init__(
            ErrorCode.INVALID_TIMESTAMP if late else ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected{' due to invalid timestamp' if late else ''}: "
            f"{len(record_errors)} of the batch, the first at index {record_errors[0].batch_index}: "
            f"{record_errors[0].message}",
        )
        self.record_errors = record_errors


def check_produced(
    records: Buffer | None, rules: TopicRules, *, version: int, now_ms: int
) -> tuple[memoryview, BatchHeader]:
    """Checks the records field of one partition in a Produce request of `version`.

    Returns the batch to append, whose bytes are writable, and its header. Raises KafkaError: CORRUPT_MESSAGE,
    INVALID_RECORD (several batches, a control batch, a null key in a compacted topic), MESSAGE_TOO_LARGE,
    INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, UNSUPPORTED_FOR_MESSAGE_FORMAT.
    """
    view = None if records is None else memoryview(records)
    header = read_produced_batch(
        view,
        max_message_bytes=rules.max_message_bytes,
        zstd_allowed=version >= ZSTD_FIRST_PRODUCE_VERSION,
        timestamp_type=rules.timestamp_type,
    )
    assert view is not None
    batch = view if header.batch_length + LENGTH_OVERHEAD == len(view) else view[: header.size_in_bytes]
    if rules.accepts_unchanged and header.max_timestamp <= now_ms + rules.timestamp_after_max_ms:
        return batch, header
    converts = rules.compression not in (COMPRESSION_OF_PRODUCER, header.compression)
    suspicious = rules.timestamp_type == CREATE_TIME and _has_timestamp_out_of_bounds(header, rules, now_ms)
    if rules.compacted or converts or suspicious:
        _validate_records(batch, header, rules, now_ms)
    return _recompressed(batch, header, rules) if converts else (batch, header)


def _has_timestamp_out_of_bounds(header: BatchHeader, rules: TopicRules, now_ms: int) -> bool:
    """True if some record may be too early or too late, as far as the header shows without decoding."""
    return header.max_timestamp > now_ms + rules.timestamp_after_max_ms or (
        rules.timestamp_before_max_ms != NEVER_TOO_OLD
        and 0 <= header.base_timestamp < now_ms - rules.timestamp_before_max_ms
    )


def _validate_records(batch: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int) -> None:
    bounded = rules.timestamp_type == CREATE_TIME
    errors = validate_records(
        batch,
        0,
        header,
        require_keys=rules.compacted,
        min_timestamp_ms=max(0, now_ms - rules.timestamp_before_max_ms) if bounded else None,
        max_timestamp_ms=now_ms + rules.timestamp_after_max_ms if bounded else None,
        max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES,
    )
    if errors:
        raise InvalidRecords(errors)


def _recompressed(batch: memoryview, header: BatchHeader, rules: TopicRules) -> tuple[memoryview, BatchHeader]:
    rebuilt = memoryview(
        bytearray(
            build_batch(
                list(iter_records(batch, max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES)),
                compression=rules.compression,
                compression_level=rules.compression_level if rules.compression != NONE else None,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
            )
        )
    )
    return rebuilt, read_header(rebuilt)

"""What a client may append to a topic: the checks between the wire and the log (Kafka's LogValidator).

The batch's 61-byte header and its CRC-32C are enough for nearly every topic; its records are decoded only where the
topic's configuration gives them a meaning: a compacted topic needs keys, a topic with its own compression.type stores
batches in that codec. Everything here is a pure function of the bytes, the rules and `now_ms`.
"""

from __future__ import annotations

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import (
    BatchHeader,
    RecordError,
    build_batch,
    check_client_batch,
    iter_records,
    read_header,
    validate_records,
)

ZSTD = 4
ZSTD_FIRST_PRODUCE_VERSION = 7
COMPRESSION_PRODUCER = -1
"""compression.type=producer: batches stay in the codec they came in."""

LOG_APPEND_TIME = "LogAppendTime"
MAX_DECOMPRESSED_BATCH_BYTES = 256 * 1024 * 1024
"""No batch may unfold to more than this when its records must be looked at."""


@attrs.frozen
class TopicRules:
    """The topic configurations that an append looks at; sizes in bytes, times in ms."""

    max_message_bytes: int = 1_048_588
    compacted: bool = False
    compression: int = COMPRESSION_PRODUCER
    message_timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    deletable: bool = True
    """cleanup.policy contains delete; DeleteRecords is refused otherwise."""

    @property
    def looks_into_records(self) -> bool:
        return self.compacted or self.compression != COMPRESSION_PRODUCER


@attrs.define(eq=False)
class CheckedBatches:
    """One batch that may be appended: `header` describes the bytes at `position` in `buffer`, which is writable."""

    buffer: memoryview
    position: int
    header: BatchHeader


class InvalidRecords(KafkaError):
    """A refused batch, with the records that were to blame (Produce v8's record_errors)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def check_produced(records: memoryview, rules: TopicRules, *, version: int, now_ms: int) -> CheckedBatches:
    """Checks the records field of one partition in a Produce request of `version`.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD (several batches, a control batch, a null key in a compacted
    topic), MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE, UNSUPPORTED_FOR_MESSAGE_FORMAT.
    """
    header = read_header(records)
    if header.size_in_bytes > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size_in_bytes} bytes, max.message.bytes is {rules.max_message_bytes}",
        )
    check_client_batch(records, header)
    if header.size_in_bytes != len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request carries one batch for each partition")
    if header.compression == ZSTD and version < ZSTD_FIRST_PRODUCE_VERSION:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    if rules.message_timestamp_type != LOG_APPEND_TIME:
        _check_timestamp(header, rules, now_ms)
    if rules.looks_into_records:
        return _look_into_records(records, header, rules)
    return CheckedBatches(records, 0, header)


def _check_timestamp(header: BatchHeader, rules: TopicRules, now_ms: int) -> None:
    # Kafka looks at each record; the batch's own bounds decide the same without decoding one.
    if header.max_timestamp - now_ms > rules.timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the timestamp {header.max_timestamp} lies more than message.timestamp.after.max.ms "
            f"({rules.timestamp_after_max_ms}) in the future",
        )
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > rules.timestamp_before_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the timestamp {header.base_timestamp} lies more than message.timestamp.before.max.ms "
            f"({rules.timestamp_before_max_ms}) in the past",
        )


def _look_into_records(records: memoryview, header: BatchHeader, rules: TopicRules) -> CheckedBatches:
    errors = validate_records(
        records, 0, header, require_keys=rules.compacted, max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES
    )
    if errors:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "One or more records have been rejected", errors)
    if rules.compression in (COMPRESSION_PRODUCER, header.compression):
        return CheckedBatches(records, 0, header)
    rebuilt = memoryview(
        bytearray(
            build_batch(
                list(iter_records(records, max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES)),
                compression=rules.compression,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
            )
        )
    )
    return CheckedBatches(rebuilt, 0, read_header(rebuilt))

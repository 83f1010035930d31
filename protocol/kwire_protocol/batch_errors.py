"""The errors of record batches, with the error code that the producer gets."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError


class InvalidBatch(KafkaError):
    """A batch, or a record in it, that must not be stored or cannot be read."""

    message: str

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)


class CorruptBatch(InvalidBatch):
    """Bytes that are not a batch at all: cut short, impossible lengths, unknown magic, wrong CRC."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)

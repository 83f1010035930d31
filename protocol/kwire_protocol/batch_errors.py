"""What can be wrong with a record batch, said with the error code that Kafka gives a producer for it."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    MESSAGE_TOO_LARGE = 10
    CORRUPT_MESSAGE = 2
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87


class InvalidBatch(Exception):  # noqa: N818
    """A batch, or a record in it, that must not be stored or cannot be read."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class CorruptBatch(InvalidBatch):
    """Bytes that are not a batch at all: cut short, impossible lengths, unknown magic, wrong CRC."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)

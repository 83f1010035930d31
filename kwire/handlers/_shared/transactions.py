"""What the APIs of transactions share."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode

FIRST_VERSION_WITH_FENCED = 2


def older_error(error: int, version: int) -> int:
    """PRODUCER_FENCED as AddPartitionsToTxn, AddOffsetsToTxn and EndTxn knew it before v2 (KIP-588)."""
    if error == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error

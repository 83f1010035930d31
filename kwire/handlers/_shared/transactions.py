"""A helper of the transaction APIs."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode

FIRST_VERSION_WITH_FENCED = 2


def older_error(error: int, version: int) -> int:
    """Returns the error code for AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: before v2, INVALID_PRODUCER_EPOCH
    instead of PRODUCER_FENCED (KIP-588)."""
    if error == ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error

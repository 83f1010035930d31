"""Control records, which brokers write in batches of their own, with the control flag.

Key: version (int16, 0), type (int16). Value: version (int16), then a message of that version; those of types 2 to 6 are
generated (`kwire_protocol.internal`), the end of a transaction is small enough to be here:
version (int16, 0), coordinator epoch (int32). Consumers skip such batches, and see no records at their offsets.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from kwire_protocol.batch_errors import InvalidBatch
from kwire_protocol.errors import ErrorCode
from kwire_protocol.record_codec import Record, build_batch

_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")
_VERSION = struct.Struct(">h")


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_KNOWN_TYPES = frozenset(ControlType)


def control_key(control_type: int) -> bytes:
    return _KEY.pack(0, control_type)


def read_control_type(key: bytes | None) -> ControlType | None:
    """Returns the type of a control record; None for a type of a later Kafka, which readers skip.

    Later key versions are read as the known one. Raises InvalidBatch(INVALID_RECORD) for any other key.
    """
    if key is None or len(key) < _KEY.size or key[0] & 0x80:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"no key of a control record: {key!r}")
    control_type = _KEY.unpack_from(key)[1]
    return ControlType(control_type) if control_type in _KNOWN_TYPES else None


def end_transaction_value(coordinator_epoch: int) -> bytes:
    return _END_TRANSACTION.pack(0, coordinator_epoch)


def read_coordinator_epoch(value: bytes | None) -> int:
    """The coordinator epoch in the value of an ABORT or COMMIT. Raises InvalidBatch(INVALID_RECORD) for others."""
    if value is None or len(value) < _END_TRANSACTION.size or value[0] & 0x80:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"no value of an end of a transaction: {value!r}")
    epoch: int = _END_TRANSACTION.unpack_from(value)[1]
    return epoch


def build_control_batch(
    control_type: int,
    value: bytes,
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Returns a batch of one control record of a Raft log; `value` begins with its version, see `versioned`."""
    return build_batch(
        (Record(0, timestamp_ms, control_key(control_type), value),),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        control=True,
    )


def build_end_transaction_batch(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Returns the marker that ends a producer's transaction in one partition."""
    control_type = ControlType.COMMIT if commit else ControlType.ABORT
    return build_batch(
        (Record(0, timestamp_ms, control_key(control_type), end_transaction_value(coordinator_epoch)),),
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )


def versioned(version: int, message: bytes) -> bytes:
    """Encodes a version and a message, as Kafka writes control values and the records of its internal topics."""
    return _VERSION.pack(version) + message

"""Committed offsets as records of `__consumer_offsets`.

    type    key                        value
    1       group, topic, partition    offset, metadata, when (version 4, or 1 when the client gave its own retention)

Type 0 is the form of type 1 that brokers before 0.9 wrote.
"""

from __future__ import annotations

from typing import Final

import attrs
from kwire_protocol.internal.consumer_offsets import LegacyOffsetCommitKey, OffsetCommitKey, OffsetCommitValue
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.coordinators.effects import KeyedRecord
from kwire.groups.records import KEY_VERSION, read_head, write_record

RECORD_TYPES: Final = frozenset({LegacyOffsetCommitKey.api_key, OffsetCommitKey.api_key})

VALUE_VERSION = 4
VALUE_VERSION_WITH_EXPIRY = 1

NO_EXPIRY = -1


@attrs.frozen
class CommittedOffset:
    """A committed offset; `leader_epoch` is -1 if the client did not send it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    """Set only by OffsetCommit v2-4 with a retention of its own."""
    topic_id: Uuid = NULL_UUID


@attrs.frozen
class OffsetChange:
    """An offset was committed, or (None) removed."""

    group_id: str
    topic: str
    partition: int
    offset: CommittedOffset | None

    def record(self) -> KeyedRecord:
        key = OffsetCommitKey(self.group_id, self.topic, self.partition)
        offset = self.offset
        if offset is None:
            return write_record(OffsetCommitKey.api_key, key)
        value = OffsetCommitValue(
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            commit_timestamp=offset.commit_timestamp_ms,
            expire_timestamp=offset.expire_timestamp_ms,
            topic_id=offset.topic_id,
        )
        version = VALUE_VERSION if offset.expire_timestamp_ms == NO_EXPIRY else VALUE_VERSION_WITH_EXPIRY
        return write_record(OffsetCommitKey.api_key, key, value, version)


def read_offset(key: bytes, value: bytes | None) -> OffsetChange | None:
    """Decodes an offset's record; None for records of other types.

    Raises ProtocolError if the bytes are not a record, UnsupportedVersion if the value's version is newer than ours.
    """
    record_type, key_reader = read_head(key)
    if record_type not in RECORD_TYPES:
        return None
    offset_key = OffsetCommitKey.read(key_reader, KEY_VERSION)
    if value is None:
        return OffsetChange(offset_key.group, offset_key.topic, offset_key.partition, None)
    version, value_reader = read_head(value)
    stored = OffsetCommitValue.read(value_reader, version)
    committed = CommittedOffset(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp,
        expire_timestamp_ms=stored.expire_timestamp,
        topic_id=stored.topic_id,
    )
    return OffsetChange(offset_key.group, offset_key.topic, offset_key.partition, committed)

"""The records of `__share_group_state`, byte for byte Kafka's.

A key is an int16 kind, then group id, topic id and partition. A value is an int16 version, 0, then its fields.

    0  ShareSnapshot: the whole state. Without a value it is a tombstone, for a state that was deleted.
    1  ShareUpdate: the changes since the last snapshot or update; it has no state epoch. A start offset or a leader
       epoch of -1 stands for the one before it. Its batches are combined with those so far.

Unknown kinds are skipped. The topic is not compacted: records before the last snapshots of all share-partitions are
deleted (`effects.Prune`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs
from kwire_protocol.internal.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)
from kwire_protocol.wire import Reader, Writer

from kwire.coordinators.effects import KeyedRecord
from kwire.share.coordinator.batches import combined
from kwire.share.coordinator.state import (
    NO_EPOCH,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    StateBatch,
    StoredState,
)

SNAPSHOT_KIND = ShareSnapshotKey.api_key
UPDATE_KIND = ShareUpdateKey.api_key
VERSION = 0


@attrs.frozen
class Snapshot:
    """The whole state of a share-partition; None if it is deleted."""

    key: SharePartitionKey
    state: StoredState | None

    def record(self) -> KeyedRecord:
        key = Writer()
        key.int16(SNAPSHOT_KIND)
        ShareSnapshotKey(*self.key).write(key, VERSION)
        if self.state is None:
            return key.getvalue(), None
        state = self.state
        stored = ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.created_ms,
            write_timestamp=state.written_ms,
            state_batches=[ShareSnapshotValueStateBatch(*batch) for batch in state.batches],
        )
        value = Writer()
        value.int16(VERSION)
        stored.write(value, VERSION)
        return key.getvalue(), value.getvalue()


@attrs.frozen
class Update:
    """A change of a share-partition's state."""

    key: SharePartitionKey
    snapshot_epoch: int
    """The epoch of the snapshot to which it belongs."""
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]

    def record(self) -> KeyedRecord:
        key = Writer()
        key.int16(UPDATE_KIND)
        ShareUpdateKey(*self.key).write(key, VERSION)
        stored = ShareUpdateValue(
            snapshot_epoch=self.snapshot_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            state_batches=[ShareUpdateValueStateBatch(*batch) for batch in self.batches],
        )
        value = Writer()
        value.int16(VERSION)
        stored.write(value, VERSION)
        return key.getvalue(), value.getvalue()

    def applied_to(self, state: StoredState | None) -> StoredState:
        """Returns the state after it. Without a state before it, its snapshot was pruned, and another one follows."""
        if state is None:
            return StoredState(
                snapshot_epoch=self.snapshot_epoch,
                state_epoch=0,
                leader_epoch=self.leader_epoch,
                start_offset=self.start_offset,
                delivery_complete_count=self.delivery_complete_count,
                batches=combined((), self.batches),
            )
        start_offset = state.start_offset if self.start_offset == UNINITIALIZED_START_OFFSET else self.start_offset
        return attrs.evolve(
            state,
            leader_epoch=state.leader_epoch if self.leader_epoch == NO_EPOCH else self.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=self.delivery_complete_count,
            batches=combined(state.batches, self.batches, start_offset),
        )


Change: TypeAlias = Snapshot | Update


def read_record(key: bytes, value: bytes | None) -> Change | None:
    """Decodes a record; None for unknown kinds of keys, and for an update without a value.

    Raises ProtocolError if the bytes are not a record, UnsupportedVersion if the value's version is newer than ours.
    """
    key_reader = Reader(key)
    kind = key_reader.int16()
    if kind == SNAPSHOT_KIND:
        snapshot_key = ShareSnapshotKey.read(key_reader, VERSION)
        name = SharePartitionKey(snapshot_key.group_id, snapshot_key.topic_id, snapshot_key.partition)
        return Snapshot(name, None if value is None else _state(value))
    if kind == UPDATE_KIND and value is not None:
        update_key = ShareUpdateKey.read(key_reader, VERSION)
        return _update(SharePartitionKey(update_key.group_id, update_key.topic_id, update_key.partition), value)
    return None


def _state(value: bytes) -> StoredState:
    reader = Reader(value)
    stored = ShareSnapshotValue.read(reader, reader.int16())
    return StoredState(
        snapshot_epoch=stored.snapshot_epoch,
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        delivery_complete_count=stored.delivery_complete_count,
        batches=combined((), _batches(stored.state_batches)),
        created_ms=stored.create_timestamp,
        written_ms=stored.write_timestamp,
    )


def _update(key: SharePartitionKey, value: bytes) -> Update:
    reader = Reader(value)
    stored = ShareUpdateValue.read(reader, reader.int16())
    return Update(
        key=key,
        snapshot_epoch=stored.snapshot_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        delivery_complete_count=stored.delivery_complete_count,
        batches=tuple(_batches(stored.state_batches)),
    )


def _batches(stored: Sequence[ShareSnapshotValueStateBatch | ShareUpdateValueStateBatch]) -> list[StateBatch]:
    return [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in stored
    ]

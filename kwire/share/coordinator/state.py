"""The state of one share-partition: values without behaviour. All offsets are those of the topic's partition."""

from __future__ import annotations

from typing import Final, NamedTuple

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid, uuid_from_text, uuid_to_text

UNINITIALIZED_START_OFFSET: Final = -1
"""The start offset if the leader has to choose it; in a write, if it does not change."""
NO_EPOCH: Final = -1
"""The epoch in a request that is not checked."""
NO_COUNT: Final = -1
"""The number of completed deliveries if it is unknown (KIP-1226)."""


class SharePartitionKey(NamedTuple):
    """A share-partition. Kafka's class of this name."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def text(self) -> str:
        """The key in FindCoordinator, whose hash selects the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """Parses `text`; a group id may contain colons. Raises KafkaError(INVALID_REQUEST)."""
        group_id, *rest = text.rsplit(":", 2)
        if len(rest) < 2 or not group_id.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a share-partition is group:topic id:partition")
        try:
            return cls(group_id, uuid_from_text(rest[0]), _int32(rest[1]))
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "not the topic id or partition of a share-partition") from error


class StateBatch(NamedTuple):
    """A run of offsets, both ends included, with one state. Kafka's `PersisterStateBatch`.

    States are those of RecordState: 0 available, 2 acknowledged, 3 archiving, 4 archived. Only the leader of the
    share-partition gives them a meaning.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        """The rank of the state: of two states of one offset, the one of the higher rank is the later one."""
        return self.delivery_count, self.delivery_state


@attrs.frozen
class StoredState:
    """The whole stored state of a share-partition. Kafka's `ShareGroupOffset`."""

    snapshot_epoch: int
    """The number of the snapshot."""
    state_epoch: int
    """The epoch that grows when the group's offsets are reset: writes of a leader with an older one are obsolete."""
    leader_epoch: int
    """The epoch of the last leader of the topic's partition that has read the state; 0 before the first."""
    start_offset: int
    """The start offset. Records below it are done."""
    delivery_complete_count: int
    """The number of records at or above the start offset that are done, or NO_COUNT."""
    batches: tuple[StateBatch, ...] = ()
    """The batches, sorted and disjoint, none below the start offset; adjacent ones differ in their states."""
    created_ms: int = 0
    """The time of the last snapshot that a request has made."""
    written_ms: int = 0
    """The time of the last snapshot. It is later than `created_ms` if that one only repeated the state."""


@attrs.frozen
class ShareState:
    """The state with which the leader of a share-partition begins."""

    state_epoch: int
    start_offset: int
    """The start offset; UNINITIALIZED_START_OFFSET if the leader has to choose it."""
    batches: tuple[StateBatch, ...]


@attrs.frozen
class ShareStateSummary:
    """The summary for administrators. A share-partition without a state has start offset -1 and epochs 0."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    error: ErrorCode = ErrorCode.NONE


def _int32(text: str) -> int:
    value = int(text)
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError("the partition is not an int32")
    return value

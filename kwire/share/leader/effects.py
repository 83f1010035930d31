"""What the machine of a share partition asks its driver to do, in order.

* `Write`: send it to the share coordinator, and call `SharePartition.written` with the outcome. The writes of one
  partition must take effect in the order in which they were handed out; their outcomes may come in any order.
* `Acknowledged`: respond to the caller that the token stands for. Every token gets exactly one.
* `DeadLetter`: copy the records to the dead-letter topic, and say how it went.
* `Wake`: fetches that wait for this share partition may find more now.
* `Ended`: drop the share partition, and initialize another one if this broker still leads.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.share.leader.states import Cause, RecordState

Token: TypeAlias = object


class StateBatch(NamedTuple):
    """A run of records in one state, as it is persisted (Kafka's PersisterStateBatch)."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int


class Effect:
    """A request of a share partition to its driver."""

    __slots__ = ()


@attrs.define(eq=False)
class Write(Effect):
    """WriteShareGroupState of one partition.

    With a token it is somebody's request. Its records can be neither acquired nor acknowledged until the outcome is
    known, and go back to where they were if that is a failure. Without, it tells what has happened in any case: that a
    lock has timed out, or that a dead letter was written.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int = -1
    delivery_complete_count: int = -1
    """Of KIP-1226: records at or after the start offset that need no more delivery."""
    batches: list[StateBatch] = attrs.field(factory=list)
    token: Token | None = None
    letters: list[DeadLetter] = attrs.field(factory=list)
    """To be handed out once their new state is persisted."""

    def add(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        """Joins it to the batch before, if that ends right there and is in the same state."""
        if self.batches:
            before = self.batches[-1]
            if before[1] == first - 1 and before[2:] == (state, delivery_count):
                self.batches[-1] = StateBatch(before[0], last, state, delivery_count)
                return
        self.batches.append(StateBatch(first, last, state, delivery_count))


@attrs.define(eq=False)
class Acknowledged(Effect):
    token: Token
    error: ErrorCode


@attrs.frozen
class DeadLetter(Effect):
    """Records that are ARCHIVING. After a restart, or a failure, they are handed out again."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause
    is_doubtful: bool = False
    """An earlier leader may have copied them, and ended before it could persist that."""


@attrs.frozen
class Wake(Effect):
    pass


@attrs.frozen
class Ended(Effect):
    """With what clients are told: the write that ended it was refused for good."""

    error: ErrorCode

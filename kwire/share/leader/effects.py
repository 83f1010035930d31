"""The effects that the machine of a share partition requests of its driver, in order.

* `Write`: send it to the share coordinator, and call `SharePartition.written` with the outcome. The writes of one
  partition must take effect in the order in which they were returned; their outcomes may come in any order.
* `Acknowledged`: respond to the caller that the token identifies. Every token gets exactly one.
* `DeadLetter`: copy the records to the dead-letter topic, and report the outcome.
* `Wake`: wake the fetches that wait for this share partition, since they may find more records.
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

    With a token it belongs to a request. Its records can be neither acquired nor acknowledged until the outcome is
    known, and return to their former state if that is a failure. Without one, it reports a change that has already
    happened: a lock has timed out, or a dead letter was written.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int = -1
    delivery_complete_count: int = -1
    """The number of records at or after the start offset that need no more delivery (KIP-1226)."""
    batches: list[StateBatch] = attrs.field(factory=list)
    token: Token | None = None
    letters: list[DeadLetter] = attrs.field(factory=list)
    """The dead letters to return as effects once their new state is persisted."""

    def add(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        """Adds a range of records. Joins it to the previous batch, if that is adjacent and in the same state."""
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
    """Records that are ARCHIVING. After a restart, or a failure, this effect is returned again."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause
    is_doubtful: bool = False
    """True if an earlier leader may have copied them, and ended before it could persist that."""


@attrs.frozen
class Wake(Effect):
    pass


@attrs.frozen
class Ended(Effect):
    """The share partition has ended, with the error for clients, because a write was refused for good."""

    error: ErrorCode

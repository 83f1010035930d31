"""The effects that a machine requests of its driver, in order.

A method of the shard returns a list of effects. The driver carries them out in order:

* `Reply`: give the response to the caller that the token identifies. Every token gets exactly one reply.
* `Append`: append the records to the shard's partition, then call `done` with the outcome, and carry out the effects
  that `done` returns before the rest of the list. Nothing else may enter the shard in between: an append is a `writev`
  into the page cache, not a wait. (With replicas, the replies behind it will wait for the high watermark.)

So a reply that depends on a record comes after its append, and a record takes effect in `done`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode

Token: TypeAlias = object
"""A token of one pending request; the machine only passes it back."""

KeyedRecord: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of one record of the internal topic; no value is a tombstone."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer's id and epoch: the owner of a transaction."""

    producer_id: int
    epoch: int


class Now(NamedTuple):
    """One reading of both clocks, in milliseconds.

    Times in the log, and everything that depends on them (retention, the age of an id), use the wall clock. Pending
    requests have deadlines on the monotonic clock, since the wall clock may be set while they wait.
    """

    wall_ms: int
    """Milliseconds since 1970."""
    monotonic_ms: int
    """Milliseconds since an arbitrary moment of this process."""


class Effect:
    """A request of a machine to its driver. Effects of a single coordinator are defined in its own package."""

    __slots__ = ()


@attrs.define(eq=False)
class Reply(Effect):
    token: Token
    response: object


@attrs.define(eq=False)
class Append(Effect):
    """`done` is called once, with NONE or with the error that kept the records from being appended.

    With a `producer` the records are part of its transaction, and its epoch is checked (INVALID_PRODUCER_EPOCH).
    """

    records: list[KeyedRecord]
    then: Callable[[Step, ErrorCode], None]
    producer: ProducerIdAndEpoch | None = None
    base_offset: int = -1
    """The offset of the first record, set by the driver before `done`; the others follow without gaps."""

    def done(self, error: ErrorCode, *, now: Now) -> list[Effect]:
        step = Step(now, base_offset=self.base_offset)
        self.then(step, error)
        return step.effects


class Step:
    """One call into the machine: its time, and its effects so far."""

    __slots__ = ("base_offset", "effects", "has_append", "now")

    def __init__(self, now: Now, *, base_offset: int = -1) -> None:
        self.now = now
        self.effects: list[Effect] = []
        self.has_append = False
        self.base_offset = base_offset
        """The offset of the first record of an append, in the call after it."""

    def reply(self, token: Token, response: object) -> None:
        self.effects.append(Reply(token, response))

    def append(
        self,
        records: Iterable[KeyedRecord],
        then: Callable[[Step, ErrorCode], None],
        *,
        producer: ProducerIdAndEpoch | None = None,
    ) -> None:
        self.effects.append(Append(list(records), then, producer))
        self.has_append = True

    def reply_when_appended(self, token: Token, response: object, failed: Callable[[ErrorCode], object]) -> None:
        """Replies with `response` once this turn's records are appended, or with `failed(error)` if the append fails.

        Replies at once if the turn appends nothing. A turn that uses this has at most one append.
        """
        append = next((effect for effect in self.effects if isinstance(effect, Append)), None)
        if append is None:
            self.reply(token, response)
            return
        then = append.then

        def appended(step: Step, error: ErrorCode) -> None:
            then(step, error)
            step.reply(token, response if error is ErrorCode.NONE else failed(response_error(error)))

        append.then = appended

    def take(self) -> list[Effect]:
        """Removes and returns the effects so far, so that they can be put behind an append."""
        taken, self.effects = self.effects, []
        return taken


def lasts(append_error: ErrorCode) -> bool:
    """True if the error concerns the partition, so that other records could not be appended either."""
    return append_error in _OF_THE_PARTITION


_OF_THE_PARTITION = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


def response_error(append_error: ErrorCode) -> ErrorCode:
    """The error for a client whose request could not be recorded, translated as in Kafka 4.

    Kafka does this in TransactionStateManager for transactions and in CoordinatorOperationExceptionHelper for groups.
    They differ only in errors that cannot occur: a group's append does not wait for replicas, so it cannot lack them
    afterwards.
    """
    match append_error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return append_error

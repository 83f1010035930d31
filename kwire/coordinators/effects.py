"""What the machine asks of its driver, in the order in which it must be done.

A method of the shard returns a list of effects. The driver works through it from the front:

* `Reply`: hand the response to whoever the token stands for. Every token that was handed in is answered exactly once.
* `Append`: append the records to the shard's partition, then call `done` with the outcome, and do the effects that
  `done` returns before the rest of the list. Nothing else may enter the shard in between: an append is a `writev` into
  the page cache, not a wait. (With replicas, what will wait for the high watermark are the replies behind it.)

So a reply that depends on a record stands behind its append, and what a record says becomes visible in `done`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode

Token: TypeAlias = object
"""Stands for one request that waits for its response; the machine only hands it back."""

KeyedRecord: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of one record of the internal topic; no value is a tombstone."""


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer is: whose transaction something is part of."""

    producer_id: int
    epoch: int


class Now(NamedTuple):
    """One reading of both clocks, in milliseconds.

    What is written to the log, and what is counted from there (retention, the age of an id), goes by the wall clock.
    Whoever waits here and now has a deadline on the monotonic one: the wall clock may be set while they wait.
    """

    wall_ms: int
    """Since 1970."""
    monotonic_ms: int
    """Since some moment of this process."""


class Effect:
    """What a machine asks for. Those of one coordinator alone are beside its machine."""

    __slots__ = ()


@attrs.define(eq=False)
class Reply(Effect):
    token: Token
    response: object


@attrs.define(eq=False)
class Append(Effect):
    """`done` is called once, with NONE or with the error that kept the records from being appended.

    With a `producer` the records are part of its transaction. Its epoch is checked: INVALID_PRODUCER_EPOCH.
    """

    records: list[KeyedRecord]
    then: Callable[[Step, ErrorCode], None]
    producer: ProducerIdAndEpoch | None = None

    def done(self, error: ErrorCode, *, now: Now) -> list[Effect]:
        step = Step(now)
        self.then(step, error)
        return step.effects


@attrs.define(eq=False)
class Step:
    """One entry into the machine: the time it happens at, and what has come of it so far."""

    now: Now
    effects: list[Effect] = attrs.field(factory=list)
    has_append: bool = False

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
        """Answers with `response` once what this turn appends is in, or with `failed(error)` if it could not be.

        A turn that appends nothing answers at once. There is at most one append in a turn that uses this.
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
        """Removes and returns what has been asked for, so that it can be put behind an append."""
        taken, self.effects = self.effects, []
        return taken


def response_error(append_error: ErrorCode) -> ErrorCode:
    """What a client is told when the record behind its request could not be appended, as Kafka 4 translates it.

    Kafka does so in TransactionStateManager for transactions, in CoordinatorOperationExceptionHelper for groups. They
    differ in what cannot happen: a group's append does not wait for replicas, so it cannot lack them afterwards.
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

"""The life cycle of the coordinator of one partition, and how it is loaded.

    Elsewhere ---> Loading ---> Active
        ^             |           |       the partition is elected, is read to its end;
        +-------------+-Unloading-+       leads in another epoch, or no longer; is deleted, or offline
        v
    Unavailable                           its log cannot be read

A partition is read in slices, between the broker's other work; requests get COORDINATOR_LOAD_IN_PROGRESS meanwhile.
Only transaction markers are appended while it loads. The load reads up to the log's end, including those markers, and
the partition becomes active in the same step. Kafka's `CoordinatorState` (in `CoordinatorRuntime`) and
`CoordinatorLoaderImpl`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeAlias, TypeVar

import attrs
from kwire_protocol.wire import ProtocolError, UnsupportedVersion

from kwire.coordinators.effects import Effect, Now
from kwire.coordinators.internal_topic import EndedTransaction, InternalTopic, LoggedRecord
from kwire.runtime.clock import Clock

log = logging.getLogger(__name__)

SLICE_MS = 3
"""The time for which a load may block the event loop; reading a batch may exceed it."""

AT_ONCE_MS = 100
"""The time for which a start may block the event loop to load small partitions, before clients can connect."""

_RECORDS_PER_CHECK = 32
"""The number of records per reading of the clock. A reading costs nearly as much as a record."""


class Shard(Protocol):
    """The machine of one partition; see `effects.py` for what its methods return."""

    def apply(self, key: bytes, value: bytes | None, producer_id: int, *, offset: int) -> None:
        """Replays one record. It belongs to that producer's transaction unless `producer_id` is -1.

        Raises ProtocolError or UnsupportedVersion on bytes that it cannot read.
        """

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A marker was replayed or appended: the producer's transaction is committed or aborted."""

    def loaded(self, *, now: Now) -> list[Effect]:
        """The replay is complete."""

    def next_deadline_ms(self) -> int | None:
        """Returns the time before which nothing is due."""

    def expire(self, *, now: Now) -> list[Effect]:
        """Handles what is due, up to the first append; called again while `next_deadline_ms` is not after `now`."""

    def appends_succeed(self) -> None:
        """Appends succeed again after failures: the work that waits for that is now due."""

    def unload(self, *, now: Now) -> list[Effect]:
        """The partition is no longer here: answers all pending requests. No call follows."""


S = TypeVar("S", bound=Shard)


class Slice:
    """A slice of the event loop's time."""

    def __init__(self, clock: Clock, length_ms: int) -> None:
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + length_ms
        self._records = 0

    def is_over(self) -> bool:
        """Returns True if the slice is over. Call it after each record."""
        self._records += 1
        return not self._records % _RECORDS_PER_CHECK and self._clock.monotonic_ms() >= self._ends_ms


@attrs.define(eq=False)
class Load(Generic[S]):
    """The replay of one partition into its machine.

    Between two slices it holds only an offset and the rest of a batch: the unread part may be compacted meanwhile.
    """

    topic: InternalTopic
    index: int
    shard: S
    _next_offset: int = 0
    _batch: Iterator[LoggedRecord | EndedTransaction] = attrs.field(factory=lambda: iter(()))

    def advance(self, is_over: Callable[[], bool]) -> bool:
        """Replays until `is_over`, or up to the log's end, and then returns True.

        Raises CorruptLogError if a part of the log is missing, OSError if it cannot be read.
        """
        if not self._replay_batch(is_over):
            return False
        for next_offset, batch in self.topic.replay(self.index, self._next_offset):
            self._next_offset, self._batch = next_offset, batch
            if not self._replay_batch(is_over):
                return False
        return True

    def _replay_batch(self, is_over: Callable[[], bool]) -> bool:
        shard = self.shard
        for logged in self._batch:
            if isinstance(logged, EndedTransaction):
                shard.end_transaction(logged.producer_id, committed=logged.committed)
            else:
                try:
                    shard.apply(logged.key, logged.value, logged.producer_id, offset=logged.offset)
                except (ProtocolError, UnsupportedVersion) as error:
                    log.error("%s-%d, offset %d: not a record: %s", self.topic.name, self.index, logged.offset, error)
            if is_over():
                return False
        return True


@attrs.define(eq=False)
class Loading(Generic[S]):
    """`began_ms` is on the monotonic clock. `then` are the machine's steps that wait until it is active."""

    leader_epoch: int
    load: Load[S]
    began_ms: int
    then: list[Callable[[S, Now], list[Effect]]] = attrs.field(factory=list)


@attrs.define(eq=False)
class Active(Generic[S]):
    """The machine acts only in this leader epoch."""

    leader_epoch: int
    shard: S


@attrs.define(eq=False)
class Unloading(Generic[S]):
    """The machine no longer acts; its pending requests are still to be answered."""

    shard: S


@attrs.frozen
class Elsewhere:
    """Another node leads the partition."""


@attrs.frozen
class Unavailable:
    """There is no coordinator until the next start."""

    reason: str


State: TypeAlias = Loading[S] | Active[S] | Unloading[S] | Elsewhere | Unavailable

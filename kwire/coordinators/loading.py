"""The life of a coordinator in one partition, and how it is loaded.

    Elsewhere ---> Loading ---> Active
        ^             |           |       the partition is elected, is read to its end;
        +-------------+-Unloading-+       leads in another epoch, or no longer; is deleted, or offline
        v
    Unavailable                           its log cannot be read

A partition is read in slices, beside the work of the broker; requests are answered COORDINATOR_LOAD_IN_PROGRESS
meanwhile. Nothing but markers of transactions is appended while it loads. The load goes on to the log's end, so it
comes upon those as well, and the partition becomes active in the same step. Kafka's `CoordinatorState` (in
`CoordinatorRuntime`) and `CoordinatorLoaderImpl`.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeAlias, TypeVar

import attrs
from kwire_protocol.wire import ProtocolError, UnsupportedVersion

from kwire.clock import Clock
from kwire.coordinators.effects import Effect, Now
from kwire.coordinators.internal_topic import EndedTransaction, InternalTopic, LoggedRecord

log = logging.getLogger(__name__)

SLICE_MS = 3
"""How long a load holds the event loop; a batch that is read may make it longer."""

AT_ONCE_MS = 100
"""How long a start may hold the event loop to load what is small before anybody can connect."""

_RECORDS_PER_LOOK = 32
"""To ask for the time costs a good part of what a record does."""


class Shard(Protocol):
    """The machine of one partition; see `effects.py` for what its methods return."""

    def apply(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Replays one record, of that producer's transaction unless it is -1.

        Raises ProtocolError or UnsupportedVersion on bytes that it cannot read.
        """

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A marker is in the partition, at the replay or now: the producer's transaction counts, or does not."""

    def loaded(self, *, now: Now) -> list[Effect]:
        """After the replay."""

    def next_deadline_ms(self) -> int | None:
        """Nothing is due before it."""

    def expire(self, *, now: Now) -> list[Effect]:
        """Does what is due, up to the first append; called again while `next_deadline_ms` is not after `now`."""

    def unload(self, *, now: Now) -> list[Effect]:
        """The partition is no longer here: answers whoever waits. No call follows."""


S = TypeVar("S", bound=Shard)


class Slice:
    """A stretch of the event loop's time."""

    def __init__(self, clock: Clock, length_ms: int) -> None:
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + length_ms
        self._records = 0

    def is_over(self) -> bool:
        """To be asked after each record."""
        self._records += 1
        return not self._records % _RECORDS_PER_LOOK and self._clock.monotonic_ms() >= self._ends_ms


@contextmanager
def lasting() -> Iterator[None]:
    """What is made within stays: the garbage collector need not look at it, now or later.

    Of a million offsets it would look at all that there are, again and again, for some 500 ms at a time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@attrs.define(eq=False)
class Load(Generic[S]):
    """The replay of one partition into its machine.

    Between two slices it holds no more of the log than an offset and the rest of a batch: what is not read yet may be
    compacted meanwhile.
    """

    topic: InternalTopic
    index: int
    shard: S
    _next_offset: int = 0
    _batch: Iterator[LoggedRecord | EndedTransaction] = attrs.field(factory=lambda: iter(()))

    def advance(self, is_over: Callable[[], bool]) -> bool:
        """Replays until `is_over`, or up to the log's end: then it is True.

        Raises CorruptLogError when what is to be read is not all there, OSError when it cannot be read.
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
                    shard.apply(logged.key, logged.value, logged.producer_id)
                except (ProtocolError, UnsupportedVersion) as error:
                    log.error("%s-%d, offset %d: not a record: %s", self.topic.name, self.index, logged.offset, error)
            if is_over():
                return False
        return True


@attrs.define(eq=False)
class Loading(Generic[S]):
    """`then` are steps for the machine that have to wait for it to be active."""

    leader_epoch: int
    load: Load[S]
    then: list[Callable[[S], list[Effect]]] = attrs.field(factory=list)


@attrs.define(eq=False)
class Active(Generic[S]):
    """It acts in this leader epoch only."""

    leader_epoch: int
    shard: S


@attrs.define(eq=False)
class Unloading(Generic[S]):
    """It acts no longer; who waits for it is still to be answered."""

    shard: S


@attrs.frozen
class Elsewhere:
    """Another node leads the partition."""


@attrs.frozen
class Unavailable:
    """There is no coordinator until the next start."""

    reason: str


State: TypeAlias = Loading[S] | Active[S] | Unloading[S] | Elsewhere | Unavailable

"""A share partition with a clock, and its requested effects, for tests of one sequence of events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import attrs
from kwire_protocol.errors import ErrorCode

from kwire.share.leader.acknowledgements import AcknowledgementBatch
from kwire.share.leader.acquiring import Fetched
from kwire.share.leader.effects import Acknowledged, DeadLetter, Effect, Ended, StateBatch, Wake, Write
from kwire.share.leader.share_partition import PersistedState, SharePartition
from kwire.share.leader.states import AcquireMode, RecordState, ShareLimits

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Range = tuple[int, int]


@attrs.define(eq=False)
class Scene:
    partition: SharePartition
    now_ms: int = 0
    writes: list[Write] = attrs.field(factory=list)
    """The writes without an answer."""
    answers: list[ErrorCode] = attrs.field(factory=list)
    letters: list[DeadLetter] = attrs.field(factory=list)
    wakes: int = 0
    ended: ErrorCode | None = None
    _tokens: count[int] = attrs.field(factory=count)

    def follow(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Write():
                    self.writes.append(effect)
                case Acknowledged():
                    self.answers.append(effect.error)
                case DeadLetter():
                    self.letters.append(effect)
                case Wake():
                    self.wakes += 1
                case Ended():
                    self.ended = effect.error

    def fetch(
        self,
        member: str,
        *batches: Range,
        at: int | None = None,
        max_records: int = 500,
        batch_size: int = 500,
        exactly: bool = False,
        archive: Sequence[Range] = (),
    ) -> list[tuple[int, int, int]]:
        fetched = Fetched(self.partition.next_fetch_offset if at is None else at, batches, archive)
        mode = AcquireMode.RECORD_LIMIT if exactly else AcquireMode.BATCH_OPTIMIZED
        acquired = self.partition.acquire(
            member, fetched, max_records=max_records, batch_size=batch_size, mode=mode, now_ms=self.now_ms
        )
        return [(first, last, delivery_count) for first, last, delivery_count in acquired]

    def acknowledge(self, member: str, *batches: tuple[int, int, int | Sequence[int]], may_renew: bool = True) -> None:
        """Acknowledges with one type for all, or one for each; the write is left open."""
        acknowledgements = [
            AcknowledgementBatch(first, last, [kind] if isinstance(kind, int) else kind)
            for first, last, kind in batches
        ]
        self.follow(
            self.partition.acknowledge(
                next(self._tokens), member, acknowledgements, may_renew=may_renew, now_ms=self.now_ms
            )
        )

    def answer(self, error: ErrorCode = ErrorCode.NONE, at: int = 0) -> Write:
        write = self.writes.pop(at)
        self.follow(self.partition.written(write, error, now_ms=self.now_ms))
        return write

    def done(self, member: str, *batches: tuple[int, int, int | Sequence[int]]) -> None:
        """Acknowledged and written."""
        self.acknowledge(member, *batches)
        self.answer()
        assert self.answers.pop() is ErrorCode.NONE

    def release(self, member: str) -> None:
        self.follow(self.partition.release(next(self._tokens), member))

    def wait(self, until_ms: int) -> None:
        self.now_ms = until_ms
        self.follow(self.partition.expire(now_ms=until_ms))

    def states(self) -> list[tuple[int, int, RecordState, int]]:
        """(first, last, state, delivery count) of all runs."""
        runs = [run for batch in self.partition.in_flight.batches for run in batch.runs]
        return [(it.first, it.last, it.state, it.delivery_count) for it in runs]


def scene(
    start_offset: int = 0,
    *persisted: tuple[int, int, RecordState, int],
    limits: ShareLimits | None = None,
) -> Scene:
    partition = SharePartition(leader_epoch=3, limits=ShareLimits() if limits is None else limits)
    it = Scene(partition)
    it.follow(partition.initialize(PersistedState(start_offset, 7, [StateBatch(*each) for each in persisted])))
    return it

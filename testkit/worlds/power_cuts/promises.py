"""The answers to transactional producers and groups, and the promises that follow from them after a crash.

An event is noted with the moments at which it began and was answered, as in `testkit.worlds.power_cuts.history`. An
event without an answer may have happened or not, but not in part: a transaction counts everywhere or nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import attrs
from kwire_protocol.messages.describe_transactions import TransactionState

from testkit.scenes.direct.broker_driver import TopicPartition
from testkit.scenes.direct.clients import Identity

EventT = TypeVar("EventT", bound="Event")
NOT_YET = math.inf
Given = Mapping[TopicPartition, Collection[bytes]]
"""The values that a read_committed reader is given."""


@attrs.define(eq=False)
class Event:
    began: float
    answered: float = attrs.field(default=NOT_YET, kw_only=True)

    @property
    def is_answered(self) -> bool:
        return self.answered < NOT_YET


@attrs.define(eq=False)
class Sending(Event):
    tp: TopicPartition
    values: tuple[bytes, ...]


@attrs.define(eq=False)
class End(Event):
    committed: bool


@attrs.define(eq=False)
class Work:
    """A transaction; `seen` is when a reader was first given something of it."""

    transactional_id: str
    identity: Identity
    began: float
    sendings: list[Sending] = attrs.field(factory=list)
    added: list[Event] = attrs.field(factory=list)
    """One for each request that made it be open at the coordinator."""
    end: End | None = None
    seen: float = NOT_YET

    @property
    def is_open(self) -> bool:
        return self.end is None

    @property
    def is_known(self) -> bool:
        """True if the coordinator has the transaction."""
        return any(it.is_answered for it in self.added)

    def is_given(self, given: Given) -> bool:
        """All that was acknowledged, or nothing. Fails on a part."""
        found = {
            (it.tp, value): value in given.get(it.tp, ())
            for it in self.sendings
            if it.is_answered
            for value in it.values
        }
        assert len(set(found.values())) <= 1, f"{self.text}: readers are given a part: {found}"
        return any(found.values())

    @property
    def text(self) -> str:
        return f"the transaction of {self.transactional_id} as {self.identity}"


@attrs.define(eq=False)
class Committed(Event):
    """An offset, outside of transactions without `work`."""

    group_id: str
    tp: TopicPartition
    offset: int
    work: Work | None = None


@attrs.define(eq=False)
class Promises:
    works: list[Work] = attrs.field(factory=list)
    commits: list[Committed] = attrs.field(factory=list)

    def open_work(self, transactional_id: str) -> Work | None:
        return next((it for it in self.works if it.transactional_id == transactional_id and it.is_open), None)

    def check(self, given: Given, now: float) -> None:
        """Notes what readers are given for the first time."""
        for work in self.works:
            if work.seen == NOT_YET and any(it.values[0] in given.get(it.tp, ()) for it in work.sendings):
                work.seen = now

    def at(self, moment: float) -> Promises:
        """Returns the promises that had begun by then; those that were answered by then were answered at 0."""

        def was(at: float) -> float:
            return 0 if at <= moment else NOT_YET

        works = {
            work: attrs.evolve(
                work,
                began=0,
                sendings=[_since(it, moment) for it in work.sendings if it.began <= moment],
                added=[_since(it, moment) for it in work.added if it.began <= moment],
                end=None if work.end is None or work.end.began > moment else _since(work.end, moment),
                seen=was(work.seen),
            )
            for work in self.works
            if work.began <= moment
        }
        commits = [
            attrs.evolve(_since(it, moment), work=None if it.work is None else works[it.work])
            for it in self.commits
            if it.began <= moment
        ]
        return Promises(list(works.values()), commits)

    # -- what must hold, of promises `at` a moment

    def check_at_start(self, given: Given, describe: Callable[[str], TransactionState]) -> None:
        """Checks that decided transactions count, or do not; open ones are open at their coordinator."""
        for work in self.works:
            self._check_outcome(work, given)
            if work.is_open and work.is_known:
                known = describe(work.transactional_id)
                assert known.transaction_state == "Ongoing", f"{work.text} is open, {known}"
                assert (known.producer_id, known.producer_epoch) == work.identity, f"{work.text} is open, {known}"
                partitions = {(topic.topic, index) for topic in known.topics for index in topic.partitions}
                missing = {it.tp for it in work.sendings if it.is_answered} - partitions
                assert not missing, f"{work.text} will have no marker in {missing}"

    def check_at_end(self, given: Given, describe: Callable[[str], TransactionState]) -> None:
        """Checks, after enough time for everything, that nothing is open, and that the coordinator and the readers
        agree.
        """
        latest = {work.transactional_id: (work, self._check_outcome(work, given)) for work in self.works}
        for transactional_id, (work, is_given) in latest.items():
            state = describe(transactional_id).transaction_state
            assert state not in ("Ongoing", "PrepareCommit", "PrepareAbort"), f"{transactional_id} is {state}"
            if state.startswith("Complete") and work.is_known:
                assert is_given == (state == "CompleteCommit"), f"{transactional_id} is {state}, to readers it is not"

    def _check_outcome(self, work: Work, given: Given) -> bool:
        is_given, end = work.is_given(given), work.end
        if work.seen < NOT_YET:
            assert is_given, f"{work.text} was visible, and is not any more"
        if end is not None and end.is_answered and any(it.is_answered for it in work.sendings):
            assert is_given == end.committed, f"{work.text} was answered, committed: {end.committed}"
        assert not is_given or (end is not None and end.committed), f"{work.text} is visible, nobody commits it"
        return is_given

    def check_offsets(self, given: Given, answers: Callable[[str, TopicPartition], int]) -> None:
        """Checks that a group's offset is that of the last commit that counts."""
        possible: dict[tuple[str, TopicPartition], set[int]] = {}
        for it in self.commits:
            offsets = possible.setdefault((it.group_id, it.tp), {-1})
            if it.work is not None and not it.work.is_given(given):
                continue
            if it.is_answered:
                offsets.clear()
            offsets.add(it.offset)
        for (group_id, tp), offsets in possible.items():
            offset = answers(group_id, tp)
            assert offset in offsets, f"group {group_id} gets {offset} for {tp}, not one of {offsets}"

    def settle(self, given: Given, now: float) -> None:
        """Notes that everything that may have been decided is decided by now."""
        for work in self.works:
            if work.end is None or not work.end.is_answered:
                began = now if work.end is None else work.end.began
                work.end = End(began, work.is_given(given), answered=now)


def _since(event: EventT, moment: float) -> EventT:
    return attrs.evolve(event, began=0, answered=0 if event.answered <= moment else NOT_YET)

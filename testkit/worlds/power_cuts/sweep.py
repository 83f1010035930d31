"""Cuts the power after every change of a trace, in every legal way up to a bound, and kills the process there.

A trace runs once, on a disk that has a journal. The journal is then applied to a copy of the medium change by change,
and each possible content at each moment is made into a disk of its own, on which the trace checks its promises. From
some of these states a next life begins, whose every change is swept as well: its restart and its writes.

A state is named by trace, seed and numbers (`State.name`); `python -m testkit.worlds.power_cuts NAME` shows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple, Protocol

import attrs
from kwire_storage.disk.faulty_disk import Entry, FaultyDisk
from kwire_storage.disk.medium import Medium, Write

from testkit.worlds.power_cuts.states import choices

SEED = 20


class Moment(NamedTuple):
    """After so many changes; whether the power failed, or only the process died."""

    position: int
    lost_power: bool


class Trace(Protocol):
    """A program that uses a disk, and its promises afterwards."""

    name: str

    def run(self, disk: FaultyDisk) -> None:
        """All of it, from an opening on."""

    def check(self, disk: FaultyDisk, moment: Moment) -> None:
        """Restarts on the disk of that moment. Raises AssertionError, or any error of the program."""

    def next_life(self, moment: Moment) -> Trace:
        """Returns the trace of a program that restarts on the disk of that moment."""


@attrs.frozen
class Bounds:
    """`states`: power cuts tried at each moment; in next lives `states_again`.

    `lives`: of so many states on average one is lived on from. `every`: of so many moments one is looked at; in next
    lives `every_again`, and each of these lives begins with another of its moments.
    """

    states: int = 40
    states_again: int = 3
    lives: int = 150
    every: int = 1
    every_again: int = 1


@attrs.define(eq=False)
class State:
    """One thing that may be left."""

    name: str
    moment: Moment
    medium: Medium
    description: list[str]

    def disk(self) -> FaultyDisk:
        return FaultyDisk(medium=self.medium.copy())


class BrokenPromise(AssertionError):
    """A state that violates a promise; the cause has the details."""


@attrs.define(eq=False)
class Tally:
    """The number of checked states, by name of trace; those of next lives have a name of their own."""

    states: dict[str, int] = attrs.field(factory=dict)

    def add(self, name: str) -> None:
        self.states[name] = self.states.get(name, 0) + 1

    @property
    def total(self) -> int:
        return sum(self.states.values())


TALLY = Tally()
"""The tally of this process; shown at the end of a test run."""


def sweep(
    trace: Trace, bounds: Bounds, *, seed: int = SEED, tally: Tally = TALLY, until: Callable[[], bool] = lambda: False
) -> None:
    """Runs the trace and checks its states, to the last or `until` that is so. Raises BrokenPromise."""
    chance = Random(f"{seed} {trace.name}")
    journal = journal_of(trace, Medium())
    for state in states(f"{trace.name}@{seed}", Medium(), journal, bounds.states, every=bounds.every):
        if until():
            return
        examine(trace, state)
        tally.add(trace.name)
        if chance.randrange(bounds.lives) == 0:
            _live_on(trace, state, bounds, tally)


def _live_on(trace: Trace, state: State, bounds: Bounds, tally: Tally) -> None:
    following = trace.next_life(state.moment)
    try:
        journal = journal_of(following, state.medium)
    except Exception as error:
        raise _broken(state, error) from error
    first = Random(state.name).randrange(bounds.every_again)
    for later in states(state.name, state.medium, journal, bounds.states_again, every=bounds.every_again, first=first):
        examine(following, later)
        tally.add(f"{trace.name}, a life later")


def journal_of(trace: Trace, medium: Medium) -> list[Entry]:
    """Returns the changes of the trace on a copy of the medium."""
    disk = FaultyDisk(medium=medium.copy())
    trace.run(disk)
    return disk.journal


def states(
    name: str, medium: Medium, journal: list[Entry], bound: int, *, every: int = 1, first: int = 0
) -> Iterator[State]:
    """Yields the possible contents after each change, and in the middle of each append; `name` is the seed of random
    choices.

    Of `every` so many moments only one, beginning with the `first`.
    """
    medium = medium.copy()
    for position in range(len(journal) + 1):
        if position:
            medium.apply(journal[position - 1].change)
        if position % every != first:
            continue
        where = f"{name}/{position}"
        last = [f"after change {position}: {journal[position - 1].what}" if position else "before the first change"]
        seen: set[tuple[object, ...]] = set()
        for number, choice in enumerate(choices(medium, bound, Random(where))):
            left = medium.after_power_cut(choice.fate())
            if (contents := left.durable_contents()) not in seen:
                seen.add(contents)
                description = [*last, "the power fails", *choice.description(medium)]
                yield State(f"{where}/cut{number}of{bound}", Moment(position, True), left, description)
        yield State(f"{where}/kill", Moment(position, False), medium.copy(), [*last, "the process dies"])
        change = journal[position].change if position < len(journal) else None
        if isinstance(change, Write) and len(change.data) > 1:
            torn = medium.copy()
            torn.apply(change._replace(data=change.data[: len(change.data) * 2 // 3]))
            description = [*last, f"the process dies within: {journal[position].what}"]
            yield State(f"{where}/torn", Moment(position, False), torn, description)


def examine(trace: Trace, state: State) -> None:
    """Raises BrokenPromise when the trace finds something wrong with the state."""
    try:
        trace.check(state.disk(), state.moment)
    except Exception as error:
        raise _broken(state, error) from error


def _broken(state: State, error: Exception) -> BrokenPromise:
    lines = [f"{type(error).__name__}: {error}", *state.description]
    return BrokenPromise(
        "\n  ".join([state.name, *lines, f"again: python -m testkit.worlds.power_cuts '{state.name}'"])
    )


def find(trace: Trace, name: str) -> tuple[Trace, State, list[Entry]]:
    """The state of that name, the life that it belongs to, and what was done in it."""
    begin, *steps = name.split("/")
    medium = Medium()
    while True:
        journal = journal_of(trace, medium)
        bound = int(steps[1].partition("of")[2] or 1)
        wanted = "/".join([begin, *steps[:2]])
        state = next(state for state in states(begin, medium, journal, bound) if state.name == wanted)
        steps = steps[2:]
        if not steps:
            return trace, state, journal
        trace, medium, begin = trace.next_life(state.moment), state.medium, wanted

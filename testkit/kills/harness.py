"""The loop of everything that is killed under load.

A scenario has clients and brokers, ways to kill them, and ledgers of the acknowledgements. The loop has the rest: the
kills of a lap and their order, the result of a run, and the context of a failure. A lap is some kills in a row with the
same topics and clients; then the scenario checks the final state. Laps bound the data of a long run.

The seed decides the way and the time of the next kill. The system decides when clients and brokers run, so a run that
failed is repeated only as far as scheduling allows.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, Generic, TypeVar

import attrs
import click

from testkit.kills.complaints import Complaints

K = TypeVar("K")


@attrs.define
class Account:
    """The result of a run so far. Its text is the complete result."""

    what: ClassVar[str] = "kills"
    columns: ClassVar[tuple[str, ...]] = ("killed", "times")
    """The columns of the table at the end of a long run."""
    kills: Counter[str] = attrs.field(factory=Counter)
    """The number of kills of each way."""

    def row(self, way: str) -> tuple[str, ...]:
        """The row of that table."""
        return way, f"{self.kills[way]:,}"

    @property
    def progress(self) -> str:
        """The text next to the progress bar of a long run."""
        return self.outcome

    @property
    def outcome(self) -> str:
        """The proven results."""
        raise NotImplementedError

    def __str__(self) -> str:
        ways = ", ".join(f"{count} {way}" for way, count in sorted(self.kills.items()))
        return f"{self.kills.total()} {self.what} ({ways}); {self.outcome}"


A = TypeVar("A", bound=Account)
OnKill = Callable[[A], None]


@attrs.define(eq=False)
class Lap:
    """Some kills in a row. The scenario gets the kills from it, and its ledgers add to its complaints."""

    number: int
    seed: str
    count: int
    account: Account
    on_kill: Callable[[], None]
    """Called after each kill, when everything is up again."""
    now: str = "before the first kill"
    """The place that a failure names; a scenario may change it."""
    complaints: Complaints = attrs.field(factory=Complaints)
    chance: random.Random = attrs.field(init=False)

    @chance.default
    def _chance(self) -> random.Random:
        return random.Random(self.seed)

    def kills(self, plan: Iterable[K], way: Callable[[K], str] = str) -> Iterator[K]:
        """Yields the first kills of the plan, each counted when the loop over them requests the next one.

        `way` returns the name of a kill. Ends the lap at the first complaint.
        """
        for kill in islice(plan, self.count):
            name = way(kill)
            self.now = f"kill {self.account.kills.total() + 1} ({name})"
            yield kill
            self.account.kills[name] += 1
            self.on_kill()
            self.complaints.check()
        self.now = "after the last kill"

    def each_equally(self, ways: Sequence[str]) -> Iterator[str]:
        """A plan: every way about equally often, in an order of its own."""
        while True:
            yield from self.chance.sample(ways, len(ways))


class Scenario(Generic[A]):
    """The system that is killed, and its promises."""

    account: A
    kills_in_lap: int | None = None
    """None for a single lap."""

    def run_lap(self, lap: Lap) -> None:
        """Kills so often, and judges what is left. Raises AssertionError at the first thing that is wrong."""
        raise NotImplementedError

    def state(self) -> str:
        """The state to add to a failure's message, such as the end of a log."""
        return ""


def run(scenario: Scenario[A], *, kills: int, seed: int, on_kill: OnKill[A] = lambda account: None) -> A:
    """Kills that often. Raises AssertionError with the problem, its context and the seed."""
    account, size = scenario.account, scenario.kills_in_lap or kills
    for number, first in enumerate(range(0, kills, size)):
        count = min(size, kills - first)
        lap = Lap(number, f"{seed} {number}", count, account, lambda: on_kill(account))
        try:
            scenario.run_lap(lap)
            lap.complaints.check()
        except AssertionError as problem:
            lines = "\n  ".join([f"seed {seed}, lap {number}, {lap.now}:", str(problem), *lap.complaints])
            raise AssertionError("\n".join(filter(None, [lines, scenario.state()]))) from problem
    return account


def seed_of_test(variable: str) -> int:
    """Returns the seed in the environment, or a new one. It is printed, and pytest shows it when the test fails in any
    way.
    """
    seed = int(os.environ.get(variable, random.randrange(1 << 32)))
    click.echo(f"{variable}={seed}")
    return seed


def kills_of_test(variable: str, default: int) -> int:
    return int(os.environ.get(variable, default))

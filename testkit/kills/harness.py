"""The loop of everything that is killed under load.

A scenario has clients and brokers, ways to kill them, and ledgers of what clients were told. The loop has the rest: the
kills of a lap and their order, what a run has come to, and what a failure says of its place. A lap is some kills in a
row with the same topics and clients; then the scenario judges what is left. Laps keep a long run level.

The seed decides which way the next kill takes, and when. When clients and brokers meet it is the system's to say, so a
run that failed is repeated as far as scheduling lets it be.
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
    """What a run has come to so far. As text it is the whole of it."""

    what: ClassVar[str] = "kills"
    columns: ClassVar[tuple[str, ...]] = ("killed", "times")
    """Of the table that a long run ends with."""
    kills: Counter[str] = attrs.field(factory=Counter)
    """How often each way was taken."""

    def row(self, way: str) -> tuple[str, ...]:
        """Of that table."""
        return way, f"{self.kills[way]:,}"

    @property
    def progress(self) -> str:
        """Beside the bar of a long run."""
        return self.outcome

    @property
    def outcome(self) -> str:
        """What was proven."""
        raise NotImplementedError

    def __str__(self) -> str:
        ways = ", ".join(f"{count} {way}" for way, count in sorted(self.kills.items()))
        return f"{self.kills.total()} {self.what} ({ways}); {self.outcome}"


A = TypeVar("A", bound=Account)
OnKill = Callable[[A], None]


@attrs.define(eq=False)
class Lap:
    """Some kills in a row. The scenario asks it which, and hands its complaints to its ledgers."""

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
        """The first of the plan, each counted when the loop over them asks for the next one.

        `way` is the name of one. Ends the lap at the first complaint.
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
    """What is killed, and what must be true of it."""

    account: A
    kills_in_lap: int | None = None
    """None for a single lap."""

    def run_lap(self, lap: Lap) -> None:
        """Kills so often, and judges what is left. Raises AssertionError at the first thing that is wrong."""
        raise NotImplementedError

    def state(self) -> str:
        """What a failure says besides, such as the end of a log."""
        return ""


def run(scenario: Scenario[A], *, kills: int, seed: int, on_kill: OnKill[A] = lambda account: None) -> A:
    """Kills so often. AssertionError tells what is wrong, where, and by which seed."""
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
    """The environment's, or a new one. It is printed, and pytest shows it when the test fails, in whatever way."""
    seed = int(os.environ.get(variable, random.randrange(1 << 32)))
    click.echo(f"{variable}={seed}")
    return seed


def kills_of_test(variable: str, default: int) -> int:
    return int(os.environ.get(variable, default))

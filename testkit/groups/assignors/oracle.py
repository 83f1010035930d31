"""Compares Kafka's own assignors of the broker (java/AssignorOracle.java) with ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import attrs
import click
from rich.console import Console
from rich.table import Table

from kwire.groups.assignors import ASSIGNORS
from kwire.groups.assignors.assignor import Assignment, GroupSpec
from kwire.groups.assignors.simple import SimpleAssignor
from testkit.groups.assignors import laws
from testkit.groups.assignors.lives import Life, topic_id
from testkit.java.java_host import JavaHost, java_host

ORACLE = "AssignorOracle"

OURS: dict[str, Callable[[GroupSpec], dict[str, Assignment]]] = {
    **{name: it.assign for name, it in ASSIGNORS.items()},
    "simple": lambda group: SimpleAssignor().assign(
        group, {topic: frozenset(range(it.partition_count)) for topic, it in group.topics.items()}
    ),
}
ROUNDS = 6


def kafkas(java: JavaHost, name: str, groups: Sequence[GroupSpec]) -> list[dict[str, Assignment]]:
    """Returns the answer of Kafka's assignor of that name."""
    ended = java.succeed(ORACLE, name, stdin="".join(map(_question, groups)))
    answers = ended.out.split("assigned\n")
    assert len(answers) == len(groups) + 1, "the oracle has not answered everything"
    return [_answer(group, text) for group, text in zip(groups, answers, strict=False)]


def _question(group: GroupSpec) -> str:
    lines = []
    for topic, topic_spec in group.topics.items():
        racks = ";".join(",".join(sorted(it)) for it in topic_spec.racks)
        lines.append(f"topic {_number(topic)} {topic_spec.partition_count} {racks or '-'}")
    for member_id, spec in group.members.items():
        topics = ",".join(str(_number(it)) for it in spec.topics)
        has = ",".join(f"{_number(topic)}:{it}" for topic, partitions in spec.assigned.items() for it in partitions)
        fields = (member_id, spec.rack_id or "-", spec.instance_id or "-", topics or "-", has or "-")
        lines.append(" ".join(("member", *fields)))
    return "\n".join((*lines, "assign", ""))


def _answer(group: GroupSpec, text: str) -> dict[str, Assignment]:
    # A group without topics gets no answer for its members.
    parts: dict[str, Assignment] = {member_id: {} for member_id in group.members}
    for line in text.split("\n"):
        if line:
            member_id, has = line.split(" ")
            parts[member_id] = _part(has)
    return parts


def _part(has: str) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for it in has.split(",") if has != "-" else ():
        topic, partition = map(int, it.split(":"))
        found.setdefault(topic_id(topic), set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in found.items()}


def _number(topic: bytes) -> int:
    return int.from_bytes(topic, "big")


@attrs.frozen
class Question:
    """One round of a group's life, and both answers."""

    life: Life
    group: GroupSpec
    ours: dict[str, Assignment]
    kafkas: dict[str, Assignment]

    @property
    def our_cost(self) -> laws.Cost:
        return laws.cost(self.group, self.ours)

    @property
    def kafkas_cost(self) -> laws.Cost:
        return laws.cost(self.group, self.kafkas)


def lives(seeds: Iterable[int]) -> list[Life]:
    """Half of them of members that subscribe alike, every third large."""
    return [Life(seed, alike=seed % 2 == 0, large=seed % 3 == 0) for seed in seeds]


def questions(java: JavaHost, name: str, some_lives: Sequence[Life]) -> Iterator[Question]:
    """Yields the questions of each round. Both assignors begin a round with the same assignment, ours and Kafka's
    alternately.
    """
    groups = [it.group() for it in some_lives]
    for round_number in range(ROUNDS):
        theirs = kafkas(java, name, groups)
        for index, life in enumerate(some_lives):
            ours = OURS[name](groups[index])
            yield Question(life, groups[index], ours, theirs[index])
            groups[index] = life.go_on(ours if (round_number + life.seed) % 2 else theirs[index])


Case: TypeAlias = tuple[str, str]
"""The comparison of our balance and our moves with Kafka's."""


@attrs.define
class Figures:
    """The number of differences of the uniform assignors, of partitions that were moved then, and of those that are
    near.
    """

    rounds: Counter[Case] = attrs.field(factory=Counter)
    our_moves: Counter[Case] = attrs.field(factory=Counter)
    kafkas_moves: Counter[Case] = attrs.field(factory=Counter)
    our_near: int = 0
    kafkas_near: int = 0

    def add(self, question: Question) -> None:
        (our_squares, our_moves), (their_squares, their_moves) = question.our_cost, question.kafkas_cost
        case = (
            _compared(our_squares, their_squares, "better", "worse"),
            _compared(our_moves, their_moves, "fewer", "more"),
        )
        self.rounds[case] += 1
        self.our_moves[case] += our_moves
        self.kafkas_moves[case] += their_moves
        self.our_near += laws.near(question.group, question.ours)
        self.kafkas_near += laws.near(question.group, question.kafkas)

    def table(self) -> Table:
        table = Table("our balance", "our moves", "rounds", "moved by ours", "moved by Kafka's")
        for case, rounds in sorted(self.rounds.items()):
            table.add_row(*case, f"{rounds:,}", f"{self.our_moves[case]:,}", f"{self.kafkas_moves[case]:,}")
        table.caption = f"near their owner: {self.our_near:,} partitions by ours, {self.kafkas_near:,} by Kafka's"
        return table


def _compared(ours: int, theirs: int, less: str, more: str) -> str:
    return "equal" if ours == theirs else less if ours < theirs else more


@click.command()
@click.option("--lives", "count", default=2_000, show_default=True, help="Groups to follow, for some rounds each.")
def main(count: int) -> None:
    """Compares the uniform assignor with Kafka's own, and prints how balance and movement compare."""
    figures = {"subscribe alike": Figures(), "do not subscribe alike": Figures()}
    with java_host() as java:
        for question in questions(java, "uniform", lives(range(count))):
            figures["subscribe alike" if question.life.alike else "do not subscribe alike"].add(question)
    for members, its in figures.items():
        table = its.table()
        table.title = f"members that {members}"
        Console().print(table)


if __name__ == "__main__":
    main(prog_name="python -m testkit.groups.assignors.oracle")

"""The laws find deliberate mistakes in the assignors, each within a few lives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kwire.groups.assignors import ASSIGNORS
from kwire.groups.assignors.assignor import GroupSpec
from testkit.groups.assignors import laws
from testkit.groups.assignors.lives import Life
from testkit.groups.assignors.mistakes import RACK_MISTAKES, RANGE_MISTAKES, UNIFORM_MISTAKES
from testkit.mutants.changes import Change, at_large

LIVES = 60
ROUNDS = 4


def lives() -> Iterator[Life]:
    return (Life(seed, alike=seed % 4 == 0, large=seed % 4 == 3) for seed in range(LIVES))


def rounds(name: str, life: Life) -> Iterator[GroupSpec]:
    group = life.group()
    for _ in range(ROUNDS):
        yield group
        group = life.go_on(ASSIGNORS[name].assign(group))


def is_found(name: str, mistake: Change) -> bool:
    with at_large(mistake):
        for life in lives():
            try:
                for group in rounds(name, life):
                    if name == "uniform":
                        laws.check_uniform(ASSIGNORS[name], group, small=not life.large)
                    else:
                        laws.check_range(ASSIGNORS[name], group)
            except Exception:  # whatever breaks by it
                return True
    return False


@pytest.mark.parametrize("mistake", UNIFORM_MISTAKES)
def test_a_mistake_in_the_uniform_assignor_is_found(mistake: str) -> None:
    assert is_found("uniform", UNIFORM_MISTAKES[mistake])


@pytest.mark.parametrize("mistake", RANGE_MISTAKES)
def test_a_mistake_in_the_range_assignor_is_found(mistake: str) -> None:
    assert is_found("range", RANGE_MISTAKES[mistake])


@pytest.mark.parametrize("mistake", RACK_MISTAKES)
def test_without_a_look_at_racks_less_is_near_its_owner(mistake: str) -> None:
    assigned = ASSIGNORS["uniform"].assign
    groups = [group for life in lives() for group in rounds("uniform", life)]
    near = sum(laws.near(group, assigned(group)) for group in groups)
    with at_large(RACK_MISTAKES[mistake]):
        assert sum(laws.near(group, assigned(group)) for group in groups) < near

"""Each deliberate mistake in consumer groups is seen by the lives of random groups."""

from __future__ import annotations

import pytest

from testkit.groups.consumer.lives import GroupLives
from testkit.groups.consumer.mistakes import MISTAKES
from testkit.mutants.changes import Mutant
from testkit.mutants.lives import Lives, assert_has_a_target

LIVES = Lives(GroupLives, seed=1)


@pytest.mark.parametrize("mutant", MISTAKES, ids=lambda mutant: mutant.name)
def test_a_mistake_finds_its_place(mutant: Mutant) -> None:
    assert_has_a_target(mutant.change)


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MISTAKES, ids=lambda mutant: mutant.name)
def test_a_mistake_is_found(mutant: Mutant) -> None:
    LIVES.assert_find(mutant.change)


@pytest.mark.soak
def test_without_a_mistake_nothing_is_found() -> None:
    LIVES.live()

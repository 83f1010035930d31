"""Each deliberate mistake in streams groups is seen by the lives of random groups."""

from __future__ import annotations

import pytest

from testkit.groups.streams.lives import StreamsLives
from testkit.groups.streams.mistakes import MISTAKES
from testkit.mutants.changes import Mutant
from testkit.mutants.lives import Lives, assert_has_a_target

LIVES = Lives(StreamsLives, seed=8)


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

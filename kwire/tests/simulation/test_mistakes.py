"""The simulation finds deliberate mistakes, each within a few seeds."""

from __future__ import annotations

import pytest

from testkit.mutants.changes import at_large
from testkit.worlds.simulation.mistakes import MISTAKES, kind_of
from testkit.worlds.simulation.simulation import simulate

SEEDS = 100
FAULTS_S = 2.0

QUICK_SEEDS = 20
QUICK = (
    "a leader acknowledges what only it has",
    "a leader commits one record too many",
    "a leader accepts records with fewer replicas than it must have",
    "an unclean stop passes for a clean one",
)
"""Found by one of the first seeds."""


def is_found(name: str, seeds: int) -> bool:
    with at_large(MISTAKES[name]):
        for seed in range(seeds):
            try:
                simulate(seed, faults_s=FAULTS_S, kind=kind_of(name))
            except Exception:  # whatever breaks by it
                return True
    return False


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_finds_its_place(name: str) -> None:
    with at_large(MISTAKES[name]):
        pass


@pytest.mark.parametrize("name", QUICK)
def test_a_gross_mistake_is_found_at_once(name: str) -> None:
    assert is_found(name, QUICK_SEEDS)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str) -> None:
    assert is_found(name, SEEDS)

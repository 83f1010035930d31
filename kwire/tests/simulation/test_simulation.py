"""A cluster keeps its promises, whatever happens to it. See `testkit.worlds.simulation`.

docs/testing.md describes how to run a seed again. Its `--seconds` is `faults_s`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from testkit.worlds.simulation.simulation import simulate

SHORT_S, LONG_S = 1.0, 5.0
"""How long things go wrong."""

SEEDS_OF_A_TEST = 25
SEEDS = 100
SEEDS_OF_MAKE_TEST = 13
SOAKED_SEEDS, SOAKED_OF_A_TEST = 20_000, 500
SHORT_FOR_A_LONG_ONE = 20


@pytest.mark.parametrize(
    "seeds",
    [
        range(SEEDS_OF_MAKE_TEST),
        pytest.param(range(SEEDS_OF_MAKE_TEST, SEEDS_OF_A_TEST), marks=pytest.mark.more),
        *(
            pytest.param(range(first, first + SEEDS_OF_A_TEST), marks=pytest.mark.more)
            for first in range(SEEDS_OF_A_TEST, SEEDS, SEEDS_OF_A_TEST)
        ),
    ],
    ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}",
)
def test_promises_are_kept(seeds: range) -> None:
    reports = [simulate(seed, faults_s=SHORT_S) for seed in seeds]
    assert all(it.acknowledged for it in reports)
    assert len({fault for it in reports for fault in it.faults}) > 5, "little went wrong"
    assert sum(it.transactions for it in reports) > len(seeds)
    assert sum(it.commits for it in reports) > len(seeds)
    assert sum(it.accepted for it in reports) > len(seeds)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SEEDS, SEEDS + SOAKED_SEEDS, SOAKED_OF_A_TEST))
def test_promises_are_kept_with_more_seeds(first: int) -> None:
    for seed in range(first, first + SOAKED_OF_A_TEST):
        simulate(seed, faults_s=SHORT_S if seed % SHORT_FOR_A_LONG_ONE else LONG_S)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second, other = (simulate(seed, faults_s=SHORT_S) for seed in (7, 7, 8))
    assert first == second
    assert first.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(["18704", "--count", "4"], marks=pytest.mark.more),
        ["1", "--group", "share"],
        ["1", "--group", "streams"],
    ],
)
def test_a_run_does_not_depend_on_the_order_of_sets(seeds: list[str]) -> None:
    """The order of a set of strings differs from process to process."""
    one, another = (
        subprocess.run(
            [sys.executable, "-m", "testkit.worlds.simulation", *seeds, "--seconds", str(SHORT_S)],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "6")
    )
    assert one == another

"""A broker with fast paths does the same as one without them, byte for byte. See `testkit.fast_paths`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from testkit.fast_paths import scripts
from testkit.fast_paths.mistakes import MISTAKES, Mistake, made
from testkit.fast_paths.story import run
from testkit.fast_paths.twins import Different

STEPS = 700
"""The length of a story: about 900 frames."""
SEEDS_OF_MAKE_TEST, SEEDS_OF_MORE = 24, 60
SEEDS_TO_FIND_A_MISTAKE = 30
SOAKED_SEEDS, SOAKED_OF_A_TEST = 11_400, 950
"""About ten million frames in twelve tests."""


@pytest.mark.parametrize(
    "seeds",
    [
        range(SEEDS_OF_MAKE_TEST),
        pytest.param(range(SEEDS_OF_MAKE_TEST, SEEDS_OF_MORE), marks=pytest.mark.more),
        *(
            pytest.param(range(first, first + SOAKED_OF_A_TEST), marks=pytest.mark.soak)
            for first in range(1_000, 1_000 + SOAKED_SEEDS, SOAKED_OF_A_TEST)
        ),
    ],
    ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}",
)
def test_two_brokers_do_the_same(seeds: range) -> None:
    answered_fast: Counter[str] = Counter()
    for seed in seeds:
        answered_fast += run(seed, STEPS)
    for api in ("produce", "fetch", "fetch in a session", "consumer_group_heartbeat"):
        assert answered_fast[api] > 4 * len(seeds), f"the stories hardly use this fast path: {api}"


@pytest.mark.parametrize("script", scripts.SCRIPTS, ids=lambda it: it.__name__)
def test_two_brokers_do_the_same_in_a_script(script: Callable[[scripts.Script], None]) -> None:
    scripts.run(script)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda it: it.name)
def test_each_mistake_can_still_be_made(mistake: Mistake) -> None:
    with made(mistake):
        pass


@pytest.mark.more
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda it: it.name)
def test_each_mistake_is_found(mistake: Mistake) -> None:
    with made(mistake), pytest.raises(Different):
        _run_all()


def _run_all() -> None:
    for script in scripts.SCRIPTS:
        scripts.run(script)
    for seed in range(SEEDS_TO_FIND_A_MISTAKE):
        run(seed, STEPS)

"""The worlds of the first seeds find each deliberate mistake, and nothing without one."""

from __future__ import annotations

import pytest

from devtools.suite.tiers import examples
from testkit.mutants.changes import at_large
from testkit.share.leader.mistakes import MISTAKES
from testkit.share.leader.world import live

SEEDS = 100
"""The mistakes that show only now and then need up to 60."""


def live_all(seeds: int) -> None:
    for seed in range(seeds):
        live(seed)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str) -> None:
    with at_large(MISTAKES[name]), pytest.raises(Exception):  # noqa: B017 - whatever breaks by it
        live_all(SEEDS)


def test_without_a_mistake_every_promise_is_kept() -> None:
    live_all(examples(150))

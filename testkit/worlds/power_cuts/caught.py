"""Checks that the states after power cuts show a mistake that is made while they are swept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from testkit.mutants.changes import Mutant, at_large
from testkit.worlds.power_cuts.sweep import Bounds, BrokenPromise, Tally, Trace, sweep

NO_LIVES = 10**9
SWEEPS = (Bounds(states=2, lives=NO_LIVES, every=10), Bounds(states=8, lives=NO_LIVES))
"""One after the other. The second is enough for every mistake of today to be made, the first for most of them."""
QUICK = (
    Bounds(states=8, lives=NO_LIVES),
    Bounds(states=40, lives=NO_LIVES),
    Bounds(states=4, states_again=2, lives=6),
)
"""One after the other; last with next lives, which take most of the time."""


def expect_made(trace: Callable[[str], Trace], mutant: Mutant) -> None:
    """Fails if the mistake is not made in the first states of its trace, caught or not."""
    with at_large(mutant.change) as made:
        for bounds in SWEEPS:
            with suppress(BrokenPromise):
                sweep(trace(mutant.trace), bounds, tally=Tally(), until=lambda: made.times > 0)
            if made.times:
                break
    assert made.times, f"{mutant.change.seen_by or mutant.trace} does not come to {mutant.change.target}"


def expect_caught(trace: Callable[[str], Trace], name: str) -> BrokenPromise:
    """Sweeps the trace of that name until something is wrong, and fails if nothing is."""
    try:
        for bounds in QUICK:
            sweep(trace(name), bounds, tally=Tally())
    except BrokenPromise as broken:
        return broken
    pytest.fail("no state of the trace shows the mistake")

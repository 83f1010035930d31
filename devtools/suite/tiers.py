"""Two sizes of one test: `make test` runs it small, `make soak` in full.

@small_and_full
def test_it_holds(*, full: bool) -> None: ...

A search by hypothesis gives the number of examples that `make test` tries. `make soak-examples` tries forty times as
many.

@settings(max_examples=examples(50))
"""

from __future__ import annotations

import os

import pytest

TIMES = "KWIRE_EXAMPLES_TIMES"
"""The environment variable with the factor by which the examples of `make test` are multiplied."""

small_and_full = pytest.mark.parametrize(
    "full", [pytest.param(False, id="small"), pytest.param(True, id="full", marks=pytest.mark.soak)]
)


def examples(in_make_test: int) -> int:
    """The number of examples that this run tries."""
    return in_make_test * int(os.environ.get(TIMES, "1"))

"""Each deliberate mistake in share groups is seen by the lives of random groups."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from kwire.tests.groups.share.mistakes import MISTAKES
from kwire.tests.groups.share.test_share_lives import ShareLives
from storage.tests.power_cuts.mutants import Mutant, at_large

SHORT = settings(
    max_examples=400,
    stateful_step_count=40,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


@pytest.mark.parametrize("mutant", MISTAKES, ids=lambda mutant: mutant.name)
def test_a_mistake_is_found(mutant: Mutant) -> None:
    with at_large(mutant.change) as made, pytest.raises(Exception):  # noqa: B017
        run_state_machine_as_test(seed(2)(ShareLives), settings=SHORT)
    assert made.times

"""Checks that random lives of a hypothesis machine show a deliberate mistake: the same lives each time, from one seed.

A machine that raises a false alarm would seem to find every mistake. So each set of mistakes also has a test that its
lives pass without one.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from testkit.mutants.changes import Change, at_large


@attrs.frozen
class Lives:
    machine: type[RuleBasedStateMachine]
    seed: int
    examples: int = 400
    steps: int = 40

    def live(self) -> None:
        """Lives. Raises the first error."""
        bounds: Any = settings(
            max_examples=self.examples,
            stateful_step_count=self.steps,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        run_state_machine_as_test(seed(self.seed)(self.machine), settings=bounds)

    def assert_find(self, change: Change) -> None:
        with at_large(change) as made, pytest.raises(Exception):  # noqa: B017 - whatever breaks by it
            self.live()
        assert made.times, "the lives fail without the mistake, or never come to its place"


def assert_has_a_target(change: Change) -> None:
    with at_large(change):
        pass

"""Random producers, zombies among them, against a whole broker that fails and restarts: exactly once, or not at all.

Coordinator, partitions with their logs, and groups are the real ones, behind the handlers; consumers filter as
clients do. What must be visible follows from the responses to producers (`model.py`).
"""

from __future__ import annotations

from hypothesis import settings

from devtools.suite.tiers import examples
from testkit.worlds.exactly_once.machine import ExactlyOnceMachine

TestExactlyOnce = ExactlyOnceMachine.TestCase
TestExactlyOnce.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)

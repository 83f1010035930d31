"""The share coordinator's machine against dictionaries, with failures, restarts and the passing of time.

The model has one entry for each offset. It has no batches, records, snapshots or logs. After every step the
replay of the log equals the machine, however much of the log was deleted.
"""

from __future__ import annotations

from hypothesis import settings

from devtools.suite.tiers import examples
from testkit.share.coordinator.machine import ShareStateMachine

TestShareStateMachine = ShareStateMachine.TestCase
TestShareStateMachine.settings = settings(max_examples=examples(30), stateful_step_count=40)

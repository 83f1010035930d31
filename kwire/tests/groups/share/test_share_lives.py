"""Random clients against the machine of share groups: whatever they do and whatever fails, its promises hold.

Epochs never go back. No member has a partition that it does not subscribe to, or that is not initialized. One that is
initialized has a state with the share coordinator. Once all members have sent heartbeats, every partition of a
subscribed topic has a member. A replay of the log is the same group.
"""

from __future__ import annotations

from hypothesis import settings

from devtools.suite.tiers import examples
from testkit.groups.share.lives import ShareLives

TestShareLives = ShareLives.TestCase
TestShareLives.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)

"""Random applications against the machine of streams groups: whatever they do and whatever fails, its promises hold.

A task is active on one member, and in one role in a process. No member keeps what was revoked, or runs what it was not
given. A task with state moves to a member that has warmed up, and few warm up at a time. Epochs never go back. Once
all members have sent heartbeats, every task is active, and members differ by one. A topology that was described stays
so, and while it is not, one member is solicited at a time. A replay of the log is the same group.
"""

from __future__ import annotations

from hypothesis import settings

from devtools.suite.tiers import examples
from testkit.groups.streams.lives import StreamsLives

TestStreamsLives = StreamsLives.TestCase
TestStreamsLives.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)

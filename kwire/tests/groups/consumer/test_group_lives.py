"""Random clients against the machine of consumer groups: whatever they do and whatever fails, its promises hold.

The test tracks what every client uses, and checks the group by that: a partition has one owner at a time, epochs never
go back, no member keeps what was revoked, and once all members have done what they are assigned, every partition has
an owner among its subscribers. A replay of the log is the same group.
"""

from __future__ import annotations

from hypothesis import settings

from devtools.suite.tiers import examples
from kwire.groups.config import MigrationPolicy
from testkit.groups.consumer.lives import NAMES, SUBSCRIPTIONS, GroupLives

TestGroupLives = GroupLives.TestCase
TestGroupLives.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)


def test_a_group_is_upgraded_after_its_topic_is_gone() -> None:
    for subscription in (SUBSCRIPTIONS[0], SUBSCRIPTIONS[3]):
        lives = GroupLives()
        lives.start(0, 3, [subscription] * len(NAMES), MigrationPolicy.UPGRADE)
        for _ in range(2):
            lives.all_classic_clients_act()
        lives.a_topic_goes("t")
        lives.a_client_heartbeats("a", is_lost=False)
        lives.a_partition_has_one_owner_at_a_time()
        lives.everybody_settles()

"""The machine notices mistakes: each of these breaks what replication rests on."""

from __future__ import annotations

from typing import Any

import pytest

from testkit.mutants.changes import Function, always, at_large, instead, without
from testkit.mutants.lives import Lives, assert_has_a_target
from testkit.worlds.replication.deleting import (
    the_answer_waits_until_every_live_replica_has_deleted_the_records as the_answer_waits,
)
from testkit.worlds.replication.machine import ReplicationMachine
from testkit.worlds.replication.newcomers import (
    a_newcomer_holds_back_the_high_watermark_before_its_change_is_recorded as a_newcomer_holds_back,
)
from testkit.worlds.replication.resting import (
    a_follower_that_fetches_no_more_is_behind_from_its_last_fetch_on as only_who_fetches_is_in_sync,
)
from testkit.worlds.replication.world import World
from testkit.worlds.simulation.mistakes import (
    FETCHER,
    IN_SYNC,
    LEADER,
    PARTITION,
    anyone_may_join,
    back_with_the_leaders,
    of_the_leader_alone,
    of_the_present_isr,
    to_the_high_watermark,
)

LIVES = Lives(ReplicationMachine, seed=6, examples=500, steps=50)


def to_the_leaders_end(cut: Function) -> Function:
    def mistaken(fetcher: Any, followed: Any, diverging: Any) -> None:
        followed.log.truncate(
            min(diverging.end_offset, followed.log.log_end_offset - 1), leader_epoch=followed.leader_epoch
        )
        fetcher._mark_changed(followed)

    return mistaken


MISTAKES = {
    "a leader acknowledges what only it has": instead(f"{LEADER}.committed_end", of_the_leader_alone),
    "a follower joins that lacks committed records": instead(f"{LEADER}.may_join", anyone_may_join),
    "a follower cuts to the leader's end only": instead(f"{FETCHER}._cut", to_the_leaders_end),
    "a follower does not tell the epoch of its last record": instead(
        "kwire.replication.followers:FollowedPartition.latest_epoch", always(-1)
    ),
    "what rests in a session is not woken": instead("kwire.replicas.fetch_sessions:CachedPartition.wake", always(None)),
    "nobody joins": without(f"{IN_SYNC}.fetched", f"{IN_SYNC}._propose"),
    "a high watermark goes back with the leader's": instead(f"{PARTITION}.follow_leader", back_with_the_leaders),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_finds_its_place(name: str) -> None:
    assert_has_a_target(MISTAKES[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str) -> None:
    LIVES.assert_find(MISTAKES[name])


@pytest.mark.soak
def test_without_a_mistake_nothing_is_noticed() -> None:
    LIVES.live()


def test_a_newcomer_that_does_not_hold_back_the_high_watermark_is_noticed() -> None:
    # Chance seldom brings about all that it takes.
    world = World()
    world.settle()
    with (
        at_large(instead(f"{LEADER}._count_followers", of_the_present_isr)),
        pytest.raises(AssertionError, match="node 3 may be in the ISR"),
    ):
        a_newcomer_holds_back(world)


def test_a_follower_that_begins_by_a_cut_to_its_high_watermark_is_noticed() -> None:
    world = World()
    world.settle()
    behind, other = (it for it in world.brokers if it != world.registered.leader)
    world.produce(world.registered.leader, b"acknowledged")
    for node_id in (behind, other, behind, other):
        world.fetch(node_id)
    assert [it.is_acknowledged for it in world.produced] == [True]
    assert world.partition(behind).high_watermark == 0
    assert world.elect(other, other)
    world.check()
    with at_large(instead(f"{FETCHER}.follow", to_the_high_watermark)):
        world.fetcher(behind)
    with pytest.raises(AssertionError, match="lost b'acknowledged'"):
        world.check()


def rested() -> World:
    world = World()
    world.settle()
    world.produce(world.registered.leader, b"known to all")
    world.settle()
    return world


def test_a_session_that_forgets_that_a_quiet_follower_is_alive_is_noticed() -> None:
    with at_large(instead("kwire.replicas.roles:FollowerState.rest", always(None))):
        world = rested()
        with pytest.raises(AssertionError):
            only_who_fetches_is_in_sync(world)


def test_a_quiet_follower_that_counts_as_alive_for_ever_is_noticed() -> None:
    world = rested()
    with (
        at_large(instead("kwire.replicas.roles:FollowerState.is_caught_up", always(True))),
        pytest.raises(AssertionError),
    ):
        only_who_fetches_is_in_sync(world)


def test_deleting_records_without_waiting_for_the_followers_is_noticed() -> None:
    world = rested()
    with (
        at_large(instead(f"{PARTITION}.when_deleted", always(None))),
        pytest.raises(AssertionError, match="it waits"),
    ):
        the_answer_waits(world)

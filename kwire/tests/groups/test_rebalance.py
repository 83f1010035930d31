"""Sessions, rebalance timeouts, SyncGroup and leaving: how generations come and go."""

from __future__ import annotations

import logging

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.coordinators.effects import Append, Now
from kwire.groups.config import GroupConfig
from kwire.groups.group import GroupType
from testkit.groups.consumer.clients import ClassicClient, Client
from testkit.groups.shard_driver import GROUP, ShardDriver, subscription
from testkit.groups.topics import FakeTopics


def generation_of_two(driver: ShardDriver) -> tuple[str, str]:
    """Makes two members that have joined generation 1 and have not synced; the leader's id first."""
    tokens = [driver.join(version=3), driver.join(version=3)]
    driver.advance(0)
    leader, follower = (driver.joined(token).member_id for token in tokens)
    return leader, follower


# SyncGroup


def test_followers_wait_for_the_leaders_assignment() -> None:
    driver = ShardDriver()
    leader, follower = generation_of_two(driver)
    waiting = driver.sync(follower, 1)
    assert not driver.is_answered(waiting)
    led = driver.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert driver.synced(led).assignment == b"L"
    synced = driver.synced(waiting)
    assert (synced.assignment, synced.protocol_type, synced.protocol_name) == (b"F", "consumer", "range")
    assert driver.state() == "Stable"


def test_a_sync_after_the_leaders_is_answered_at_once() -> None:
    driver = ShardDriver()
    leader, follower = generation_of_two(driver)
    driver.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert driver.synced(driver.sync(follower, 1)).assignment == b"F"
    assert driver.synced(driver.sync(follower, 1)).assignment == b"F", "and again, should the answer get lost"


def test_members_that_the_leader_left_out_get_nothing() -> None:
    driver = ShardDriver()
    leader, follower = generation_of_two(driver)
    driver.sync(leader, 1, {leader: b"L", "stranger": b"S"})
    assert driver.synced(driver.sync(follower, 1)).assignment == b""


def test_the_assignment_is_in_the_log_before_anybody_hears_of_it() -> None:
    driver = ShardDriver()
    leader, follower = generation_of_two(driver)
    waiting = driver.sync(follower, 1)
    driver.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    led = driver.sync(leader, 1, {leader: b"L", follower: b"F"})
    for token in (waiting, led):
        assert driver.synced(token).error_code == ErrorCode.NOT_COORDINATOR
        assert driver.synced(token).assignment == b""
    assert driver.state() == "PreparingRebalance"


@pytest.mark.parametrize(
    ("append_error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_append_errors_are_returned_as_coordinator_errors(append_error: ErrorCode, answer: ErrorCode) -> None:
    driver = ShardDriver()
    leader, _ = generation_of_two(driver)
    driver.append_error = append_error
    assert driver.synced(driver.sync(leader, 1)).error_code == answer


def test_whoever_joins_while_assignments_are_awaited_sends_everybody_back_to_joining() -> None:
    driver = ShardDriver()
    leader, follower = generation_of_two(driver)
    waiting = driver.sync(follower, 1)
    newcomer = driver.join(version=3)
    assert driver.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.synced(driver.sync(leader, 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower)
    driver.join(leader)
    assert driver.joined(newcomer).generation_id == 2


def test_a_sync_sent_twice_answers_the_first_one() -> None:
    driver = ShardDriver()
    leader, follower = generation_of_two(driver)
    first, second = driver.sync(follower, 1), driver.sync(follower, 1)
    assert driver.synced(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.sync(leader, 1, {follower: b"F"})
    assert driver.synced(second).assignment == b"F"


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_out() -> None:
    driver = ShardDriver()
    tokens = [driver.join(version=3, rebalance_timeout_ms=4_000) for _ in range(2)]
    driver.advance(0)
    leader, follower = (driver.joined(token).member_id for token in tokens)
    driver.sync(leader, 1, {})
    driver.advance_to(3_999)
    assert driver.state() == "Stable"
    driver.advance_to(4_000)
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


# Sessions


def test_a_silent_member_is_out_at_the_end_of_its_session() -> None:
    driver = ShardDriver()
    leader, follower = driver.stable_group("a", "b", session_timeout_ms=10_000)
    driver.advance_to(9_000)
    assert driver.heartbeat(leader, 1) is ErrorCode.NONE
    driver.advance_to(9_999)
    assert driver.state() == "Stable"
    driver.advance_to(10_000)
    assert driver.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_silent_member_leaves_an_empty_recorded_group() -> None:
    driver = ShardDriver()
    driver.stable_group("a")
    driver.advance(10_000)
    assert driver.state() == "Empty"
    driver.restart()
    assert driver.state() == "Empty"
    assert driver.groups[GROUP].generation == 2


def test_a_member_parked_in_a_rebalance_is_not_silent() -> None:
    driver = ShardDriver()
    leader, follower = driver.stable_group("a", "b", session_timeout_ms=6_000, rebalance_timeout_ms=30_000)
    waiting = driver.join(leader, session_timeout_ms=6_000, rebalance_timeout_ms=30_000)
    for _ in range(4):
        driver.advance(5_000)
        driver.heartbeat(follower, 1)
    assert not driver.is_answered(waiting)
    driver.join(follower)
    assert driver.joined(waiting).generation_id == 2


def test_a_member_parked_in_sync_is_not_silent_and_has_a_fresh_session_afterwards() -> None:
    driver = ShardDriver()
    tokens = [driver.join(version=3, session_timeout_ms=6_000) for _ in range(2)]
    driver.advance(0)
    leader, follower = (driver.joined(token).member_id for token in tokens)
    waiting = driver.sync(follower, 1)
    driver.advance_to(5_000)
    driver.heartbeat(leader, 1)
    driver.advance_to(8_000)
    driver.sync(leader, 1, {follower: b"F"})
    assert driver.synced(waiting).assignment == b"F"
    driver.advance_to(10_000)
    driver.heartbeat(leader, 1)
    driver.advance_to(13_999)
    assert driver.state() == "Stable"
    driver.advance_to(14_000)
    assert driver.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_client_is_gone_does_not_stay_parked_for_ever() -> None:
    driver = ShardDriver(GroupConfig(new_member_join_timeout_ms=20_000))
    leader, _ = driver.stable_group("a", "b", rebalance_timeout_ms=600_000, session_timeout_ms=600_000)
    newcomer = driver.join(version=3, rebalance_timeout_ms=600_000)
    driver.join(leader, rebalance_timeout_ms=600_000, session_timeout_ms=600_000)
    driver.advance_to(19_999)
    assert not driver.is_answered(newcomer)
    driver.advance_to(20_000)
    assert driver.joined(newcomer).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.joined(newcomer).member_id == ""


def test_loaded_members_have_a_whole_session_to_be_heard_of() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a", session_timeout_ms=10_000)
    driver.advance_to(9_000)
    driver.restart()
    assert driver.state() == "Stable"
    driver.advance_to(18_999)
    assert driver.heartbeat(leader, 1) is ErrorCode.NONE
    driver.advance_to(28_999)
    assert driver.state() == "Empty"


def test_a_loaded_member_gets_its_assignment_again() -> None:
    driver = ShardDriver()
    leader, follower = driver.stable_group("a", "b")
    driver.restart()
    assert driver.synced(driver.sync(leader, 1)).assignment == b"a"
    assert driver.synced(driver.sync(follower, 1)).assignment == b"b"
    assert driver.joined(driver.join(follower)).generation_id == 1


# Heartbeat


# Rejoining


def test_members_that_do_not_rejoin_within_the_rebalance_timeout_are_out() -> None:
    driver = ShardDriver()
    leader, follower = driver.stable_group("a", "b", rebalance_timeout_ms=8_000, session_timeout_ms=600_000)
    rejoined = driver.join(follower, rebalance_timeout_ms=8_000, protocols={"range": subscription("u")})
    driver.advance_to(7_999)
    assert not driver.is_answered(rejoined)
    driver.advance_to(8_000)
    joined = driver.joined(rejoined)
    assert (joined.generation_id, joined.leader) == (2, follower)
    assert driver.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_that_is_over_leaves_no_deadline_behind() -> None:
    driver = ShardDriver()
    leader, follower = driver.stable_group("a", "b", rebalance_timeout_ms=8_000, session_timeout_ms=600_000)
    for member in (leader, follower):
        driver.join(member, rebalance_timeout_ms=8_000, session_timeout_ms=600_000)
    for member in (leader, follower):
        driver.sync(member, 2)
    driver.advance_to(100_000)
    assert (driver.state(), driver.heartbeat(leader, 2)) == ("Stable", ErrorCode.NONE)


def test_what_is_due_at_one_instant_is_done_one_append_at_a_time() -> None:
    driver = ShardDriver()
    driver.stable_group("a", group="one")
    driver.stable_group("b", group="two")
    appends = [effect for effect in driver.shard.expire(now=Now(10_000, 10_000)) if isinstance(effect, Append)]
    assert len(appends) == 1
    deadline_ms = driver.shard.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= 10_000


def test_the_longest_rebalance_timeout_of_the_members_counts() -> None:
    driver = ShardDriver()
    tokens = [
        driver.join(version=3, rebalance_timeout_ms=timeout_ms, session_timeout_ms=600_000)
        for timeout_ms in (5_000, 40_000)
    ]
    driver.advance(0)
    leader, follower = (driver.joined(token).member_id for token in tokens)
    driver.sync(leader, 1)
    driver.sync(follower, 1)
    rejoined = driver.join(leader, rebalance_timeout_ms=5_000, session_timeout_ms=600_000)
    driver.advance_to(39_999)
    assert not driver.is_answered(rejoined)
    driver.advance_to(40_000)
    assert driver.joined(rejoined).generation_id == 2


def test_version_0_has_its_session_timeout_for_a_rebalance_timeout() -> None:
    driver = ShardDriver()
    token = driver.join(version=0, session_timeout_ms=7_000, rebalance_timeout_ms=-1)
    driver.advance(0)
    driver.sync(driver.joined(token).member_id, 1)
    assert driver.groups[GROUP].rebalance_timeout_ms == 7_000


# LeaveGroup


def test_a_member_that_leaves_makes_the_others_rejoin() -> None:
    driver = ShardDriver()
    leader, follower = driver.stable_group("a", "b")
    left = driver.leave(leader)
    assert [(m.member_id, m.error_code) for m in left.members] == [(leader, ErrorCode.NONE)]
    assert driver.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.joined(driver.join(follower)).leader == follower


def test_the_last_member_to_leave_leaves_an_empty_recorded_group() -> None:
    driver = ShardDriver()
    members = driver.stable_group("a", "b")
    driver.leave(*members)
    assert driver.state() == "Empty"
    driver.restart()
    assert driver.state() == "Empty"
    assert driver.groups[GROUP].protocol_type == "consumer"


# While nothing can be recorded


def test_a_group_whose_assignments_cannot_be_recorded_begins_generations_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = ShardDriver()
    client = ClassicClient(driver, "a")

    def act_until(until_ms: int) -> None:
        while driver.now_ms < until_ms:
            client.act()
            driver.advance(10)

    act_until(1_000)
    assert client.is_in
    driver.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    before = client.generation
    with caplog.at_level(logging.INFO):
        driver.join(client.member_id, protocols={"range": subscription("u")})
        act_until(19_000)
        assert 5 <= driver.failed_appends <= 10
        assert driver.groups[GROUP].generation - before <= driver.failed_appends + 1, "one was for the new subscription"
        driver.append_error = ErrorCode.NONE
        act_until(25_000)
    assert client.is_in, "a pause is at most 5 s"
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) <= 6, lines
    assert sum("could not be recorded (COORDINATOR_NOT_AVAILABLE)" in line for line in lines) == 1
    assert lines[-1].endswith("is recorded")
    assert driver.joined(driver.join(client.member_id)).generation_id == client.generation + 1, "no pause is left"


def test_members_stay_parked_during_a_pause_and_newcomers_come_with_them() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a")
    driver.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        parked = driver.join(leader, protocols={"range": subscription("u")})
        driver.advance(5_000)
        refused = driver.sync(leader, driver.joined(parked).generation_id)
        assert driver.synced(refused).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.append_error = ErrorCode.NONE
    parked = driver.join(leader)
    newcomer = driver.join(version=3)
    driver.advance(399)
    assert not driver.is_answered(parked)
    driver.advance(1)
    assert len(driver.joined(parked).members) == 2
    assert driver.joined(newcomer).generation_id == driver.joined(parked).generation_id
    assert driver.state() == "CompletingRebalance"


@pytest.mark.parametrize("count", [1_000])
def test_silent_members_cost_next_to_nothing_while_they_cannot_be_removed(count: int) -> None:
    driver = ShardDriver(GroupConfig(consumer_max_size=count), FakeTopics(t=1))
    for number in range(count):
        Client(driver, f"m{number}").heartbeat()
    rebalances = driver.counts.rebalances[GroupType.CONSUMER]
    driver.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    driver.advance(120_000)
    assert driver.failed_appends < 30
    assert len(driver.shard.describe_consumer(GROUP).members) == count
    assert driver.counts.rebalances[GroupType.CONSUMER] == rebalances, "only what is recorded counts"
    driver.append_error = ErrorCode.NONE
    driver.advance(5_000)
    assert driver.shard.groups[GROUP].is_empty


def test_a_leave_whose_record_is_refused_returns_the_error() -> None:
    driver = ShardDriver()
    members = driver.stable_group("a")
    driver.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    left = driver.leave(*members)
    assert (left.error_code, left.members) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    assert driver.state() == "Empty"


def test_a_member_id_that_was_only_given_out_can_be_handed_back() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a")
    first = driver.joined(driver.join())
    rejoin = driver.join(leader)
    assert not driver.is_answered(rejoin)
    assert driver.leave(first.member_id).members[0].error_code == ErrorCode.NONE
    assert driver.joined(rejoin).generation_id == 2


def test_whoever_leaves_while_parked_is_answered() -> None:
    driver = ShardDriver()
    leader, follower = driver.stable_group("a", "b")
    joining = driver.join(leader)
    driver.leave(leader)
    assert driver.joined(joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    driver.join(follower)
    newcomer = driver.join(version=3)
    driver.join(follower, protocols={"range": subscription("t")})
    third = driver.joined(newcomer).member_id
    syncing = driver.sync(third, driver.joined(newcomer).generation_id)
    driver.leave(third)
    assert driver.synced(syncing).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_at_the_end_whoever_waits_is_sent_elsewhere() -> None:
    driver = ShardDriver()
    leader, _ = driver.stable_group("a", "b")
    joining = driver.join(leader)
    other = [driver.join(version=3, group="other"), driver.join(version=3, group="other")]
    driver.advance(0)
    syncing = driver.sync(driver.joined(other[1]).member_id, 1, group="other")
    driver.run(driver.shard.unload(now=driver.now))
    assert driver.joined(joining).error_code == ErrorCode.NOT_COORDINATOR
    assert driver.synced(syncing).error_code == ErrorCode.NOT_COORDINATOR
    driver.advance(10_000_000)

"""JoinGroup: ids, protocols, limits, and when a join makes the group rebalance."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.groups.config import GroupConfig
from testkit.groups.shard_driver import GROUP, ShardDriver, subscription


def test_a_new_member_is_first_given_an_id_and_then_leads_generation_one() -> None:
    driver = ShardDriver()
    first = driver.joined(driver.join(client_id="app"))
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id == "app-uuid1"
    token = driver.join(first.member_id)
    driver.advance(0)
    joined = driver.joined(token)
    assert joined.error_code == ErrorCode.NONE
    assert (joined.generation_id, joined.leader, joined.member_id) == (1, "app-uuid1", "app-uuid1")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [(m.member_id, m.metadata) for m in joined.members] == [("app-uuid1", subscription("t"))]
    assert driver.state() == "CompletingRebalance"


@pytest.mark.parametrize("version", range(4))
def test_before_v4_a_new_member_joins_without_the_detour(version: int) -> None:
    driver = ShardDriver()
    token = driver.join(version=version)
    driver.advance(0)
    assert driver.joined(token).error_code == ErrorCode.NONE


def test_an_empty_group_waits_for_company_and_again_while_members_keep_coming() -> None:
    driver = ShardDriver(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = driver.join(version=3)
    driver.advance_to(2_000)
    second = driver.join(version=3)
    driver.advance_to(5_999)
    assert not driver.is_answered(first)
    driver.advance_to(6_000)
    assert driver.joined(first).generation_id == 1
    assert driver.joined(second).generation_id == 1
    assert len(driver.joined(first).members) == 2
    assert driver.joined(second).members == [], "only the leader assigns"


def test_the_initial_delay_is_not_prolonged_beyond_the_rebalance_timeout() -> None:
    driver = ShardDriver(GroupConfig(initial_rebalance_delay_ms=3_000))
    token = driver.join(version=3, rebalance_timeout_ms=7_000)
    for _ in range(10):
        driver.advance(1_000)
        if driver.is_answered(token):
            break
        driver.join(version=3, rebalance_timeout_ms=7_000)
    assert driver.now_ms == 7_000


def test_a_member_id_that_was_given_out_and_never_used_is_forgotten_after_the_session_timeout() -> None:
    driver = ShardDriver()
    first = driver.joined(driver.join(session_timeout_ms=8_000))
    driver.advance_to(8_000)
    assert driver.joined(driver.join(first.member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_member_that_was_given_an_id() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a")
    first = driver.joined(driver.join())
    rejoin = driver.join(leader)
    driver.advance(0)
    assert not driver.is_answered(rejoin)
    token = driver.join(first.member_id)
    assert driver.joined(rejoin).generation_id == driver.joined(token).generation_id == 2


def test_an_emptied_group_may_change_its_protocol_type() -> None:
    driver = ShardDriver()
    members = driver.stable_group("a")
    driver.leave(*members)
    token = driver.join(version=3, protocol_type="connect", protocols={"compatible": b"x"})
    driver.advance(0)
    assert driver.joined(token).protocol_type == "connect"


def test_the_protocol_with_most_first_votes_among_the_common_ones_is_chosen() -> None:
    driver = ShardDriver()
    tokens = [
        driver.join(version=3, protocols={"sticky": b"1", "range": b"2", "mine": b"3"}),
        driver.join(version=3, protocols={"range": b"4", "sticky": b"5"}),
        driver.join(version=3, protocols={"range": b"6", "sticky": b"7", "yours": b"8"}),
    ]
    driver.advance(0)
    leader = driver.joined(tokens[0])
    assert leader.protocol_name == "range"
    assert [member.metadata for member in leader.members] == [b"2", b"4", b"6"]


def test_a_late_joiner_makes_everybody_rejoin() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a")
    newcomer = driver.join(version=3)
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = driver.join(leader)
    assert driver.joined(rejoined).generation_id == 2
    assert driver.joined(rejoined).leader == leader
    assert driver.joined(newcomer).generation_id == 2


def test_a_rejoining_leader_makes_everybody_rejoin() -> None:
    driver = ShardDriver()
    leader, follower = driver.stable_group("a", "b")
    driver.join(leader)
    assert driver.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_unchanged_follower_that_rejoins_gets_the_generation_as_it_is() -> None:
    driver = ShardDriver()
    leader, follower = driver.stable_group("a", "b")
    again = driver.joined(driver.join(follower))
    assert (again.generation_id, again.leader, again.members) == (1, leader, [])
    assert driver.state() == "Stable"


@pytest.mark.parametrize(
    "protocols", [{"range": subscription("t", "u")}, {"range": subscription("t"), "sticky": b""}, {"sticky": b""}]
)
def test_a_follower_that_rejoins_with_other_metadata_starts_a_rebalance(protocols: dict[str, bytes]) -> None:
    driver = ShardDriver()
    offered = {"range": subscription("t"), "sticky": subscription("t")}
    _, follower = driver.stable_group("a", "b", protocols=offered)
    token = driver.join(follower, protocols=protocols)
    assert not driver.is_answered(token)
    assert driver.state() == "PreparingRebalance"


def test_a_member_whose_join_answer_was_lost_gets_it_again() -> None:
    driver = ShardDriver()
    tokens = [driver.join(version=3), driver.join(version=3)]
    driver.advance(0)
    leader, follower = (driver.joined(token) for token in tokens)
    again = driver.joined(driver.join(leader.member_id))
    assert again == leader
    assert driver.joined(driver.join(follower.member_id)) == follower


def test_a_join_sent_twice_answers_the_first_one_so_that_no_connection_waits_for_ever() -> None:
    driver = ShardDriver()
    (leader, follower) = driver.stable_group("a", "b")
    first = driver.join(leader)
    second = driver.join(leader)
    assert driver.joined(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower)
    assert driver.joined(second).generation_id == 2


def test_a_full_group_refuses_newcomers_but_not_its_members() -> None:
    driver = ShardDriver(GroupConfig(max_size=2))
    leader, follower = driver.stable_group("a", "b")
    assert driver.joined(driver.join(version=3)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.state() == "Stable"
    driver.join(leader)
    token = driver.join(follower)
    assert driver.joined(token).generation_id == 2


def test_during_a_rebalance_those_who_join_first_stay() -> None:
    driver = ShardDriver(GroupConfig(max_size=2))
    leader, follower = driver.stable_group("a", "b")
    driver.join(leader)
    newcomer = driver.join(version=3)
    assert driver.joined(driver.join(follower)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.advance(60_000)
    assert driver.joined(newcomer).generation_id == 2
    assert follower not in driver.groups[GROUP].members


def test_a_group_loaded_over_a_lowered_limit_rebalances_down_to_it() -> None:
    driver = ShardDriver()
    members = driver.stable_group("a", "b", "c")
    driver.config = GroupConfig(max_size=2)
    driver.restart()
    assert driver.state() == "PreparingRebalance"
    tokens = [driver.join(member) for member in members]
    driver.advance(60_000)
    codes = sorted(driver.joined(token).error_code for token in tokens)
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_the_first_join_makes_the_group_known_to_the_log_even_if_it_is_refused() -> None:
    driver = ShardDriver()
    driver.join(protocols={})
    assert len(driver.log) == 1
    assert driver.state() == "Empty"
    driver.restart()
    assert driver.state() == "Empty"


@pytest.mark.parametrize("version", [3, 9])
def test_a_group_that_cannot_be_recorded_does_not_come_into_being(version: int) -> None:
    driver = ShardDriver()
    driver.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = driver.joined(driver.join(version=version))
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "Dead"
    driver.append_error = ErrorCode.NONE
    driver.advance(10_000_000)
    assert driver.log == []


def test_a_thousand_members_join_one_group_and_take_their_assignments() -> None:
    driver = ShardDriver(GroupConfig(initial_rebalance_delay_ms=3_000))
    tokens = [driver.join(version=3) for _ in range(1_000)]
    driver.advance(6_000)
    ids = [driver.joined(token).member_id for token in tokens]
    assert len(driver.joined(tokens[0]).members) == 1_000
    syncs = [driver.sync(member_id, 1, dict.fromkeys(ids, b"x")) for member_id in ids]
    assert all(driver.synced(token).assignment == b"x" for token in syncs)

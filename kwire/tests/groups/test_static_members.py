"""Members with a group.instance.id: they keep their place over restarts (KIP-345, KIP-814)."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode

from testkit.groups.shard_driver import GROUP, ShardDriver, subscription


def static_group(driver: ShardDriver, *instances: str, **join: object) -> list[str]:
    """Makes a stable group of static members, the leader first, each assigned its instance id."""
    tokens = [driver.join(instance_id=instance, **join) for instance in instances]  # type: ignore[arg-type]
    driver.advance(0)
    ids = [driver.joined(token).member_id for token in tokens]
    assignments = {member_id: instance.encode() for member_id, instance in zip(ids, instances, strict=True)}
    for member_id, instance in zip(ids, instances, strict=True):
        driver.sync(member_id, 1, assignments, instance_id=instance)
    assert driver.state() == "Stable"
    return ids


def test_a_static_member_joins_without_the_detour_and_its_id_contains_its_instance() -> None:
    driver = ShardDriver()
    leader, follower = static_group(driver, "one", "two")
    assert (leader, follower) == ("one-uuid1", "two-uuid2")


def test_a_restarted_follower_gets_its_assignment_back_without_a_rebalance() -> None:
    driver = ShardDriver()
    leader, old_id = static_group(driver, "one", "two")
    back = driver.joined(driver.join(instance_id="two"))
    assert back.error_code == ErrorCode.NONE
    assert (back.generation_id, back.leader, back.skip_assignment, back.members) == (1, leader, False, [])
    assert back.member_id != old_id
    assert driver.state() == "Stable"
    assert driver.synced(driver.sync(back.member_id, 1, instance_id="two")).assignment == b"two"


def test_a_restarted_leader_of_a_newer_version_is_to_skip_the_assignment() -> None:
    driver = ShardDriver()
    static_group(driver, "one", "two")
    back = driver.joined(driver.join(instance_id="one", version=9))
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert len(back.members) == 2
    assert driver.state() == "Stable"


def test_a_restarted_leader_of_an_older_version_gets_its_former_id_as_the_leader() -> None:
    driver = ShardDriver()
    old_leader, _ = static_group(driver, "one", "two")
    back = driver.joined(driver.join(instance_id="one", version=8))
    assert (back.leader, back.skip_assignment, back.members) == (old_leader, False, [])
    again = driver.join(back.member_id, instance_id="one")
    assert driver.state() == "PreparingRebalance", "it does lead: rejoining under its new id starts a rebalance"
    assert not driver.is_answered(again)


def test_the_former_self_is_fenced() -> None:
    driver = ShardDriver()
    _, old_id = static_group(driver, "one", "two")
    driver.join(instance_id="two")
    assert driver.heartbeat(old_id, 1, instance_id="two") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.synced(driver.sync(old_id, 1, instance_id="two")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.joined(driver.join(old_id, instance_id="two")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.commit({("t", 0): 1}, member_id=old_id, generation=1, instance_id="two") == [
        ErrorCode.FENCED_INSTANCE_ID
    ]
    (left,) = driver.leave((old_id, "two")).members
    assert left.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(old_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_former_self_that_still_waits_is_fenced_at_once() -> None:
    driver = ShardDriver()
    _, follower = static_group(driver, "one", "two")
    joining = driver.join(follower, instance_id="two", protocols={"range": subscription("u")})
    driver.join(instance_id="two")
    assert driver.joined(joining).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_comes_back_while_assignments_are_awaited_starts_the_rebalance_over() -> None:
    driver = ShardDriver()
    tokens = [driver.join(instance_id=instance) for instance in ("one", "two")]
    driver.advance(0)
    leader, follower = (driver.joined(token).member_id for token in tokens)
    syncing = driver.sync(follower, 1, instance_id="two")
    back = driver.join(instance_id="two")
    assert driver.synced(syncing).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.state() == "PreparingRebalance"
    driver.join(leader, instance_id="one")
    assert driver.joined(back).generation_id == 2


def test_a_static_member_that_comes_back_with_another_first_choice_starts_a_rebalance() -> None:
    driver = ShardDriver()
    both = {"range": b"", "sticky": b""}
    static_group(driver, "one", protocols=both)
    back = driver.join(instance_id="one", protocols={"sticky": b"", "range": b""})
    assert driver.joined(back).generation_id == 2
    assert driver.joined(back).protocol_name == "sticky"


def test_a_static_member_that_comes_back_with_other_metadata_is_recorded_and_nobody_rebalances() -> None:
    driver = ShardDriver()
    static_group(driver, "one", "two")
    driver.join(instance_id="two", protocols={"range": subscription("u")})
    assert driver.state() == "Stable"
    member_id = driver.groups[GROUP].static_members["two"]
    driver.restart()
    assert driver.groups[GROUP].static_members["two"] == member_id
    assert driver.groups[GROUP].members[member_id].protocols == {"range": subscription("u")}


def test_a_return_that_cannot_be_recorded_is_undone() -> None:
    driver = ShardDriver()
    leader, old_id = static_group(driver, "one", "two")
    driver.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    back = driver.joined(driver.join(instance_id="two", protocols={"range": b"new"}, session_timeout_ms=20_000))
    assert (back.error_code, back.member_id, back.leader) == (ErrorCode.NOT_COORDINATOR, "", leader)
    assert driver.heartbeat(old_id, 1, instance_id="two") is ErrorCode.NONE
    member = driver.groups[GROUP].members[old_id]
    assert (member.protocols, member.session_timeout_ms) == ({"range": subscription("t")}, 10_000)
    driver.append_error = ErrorCode.NONE
    assert driver.joined(driver.join(old_id, instance_id="two")).generation_id == 1


def test_a_static_member_may_be_away_as_long_as_its_session_lasts() -> None:
    driver = ShardDriver()
    leader, away = static_group(driver, "one", "two", session_timeout_ms=30_000, rebalance_timeout_ms=6_000)
    rejoined = driver.join(leader, instance_id="one", session_timeout_ms=30_000, rebalance_timeout_ms=6_000)
    driver.advance_to(6_000)
    joined = driver.joined(rejoined)
    assert joined.generation_id == 2
    assert {member.group_instance_id for member in joined.members} == {"one", "two"}
    driver.sync(leader, 2, {leader: b"1", away: b"2"}, instance_id="one")
    back = driver.joined(driver.join(instance_id="two", session_timeout_ms=30_000, rebalance_timeout_ms=6_000))
    assert back.generation_id == 2
    assert driver.synced(driver.sync(back.member_id, 2, instance_id="two")).assignment == b"2"
    driver.advance_to(13_000)
    assert driver.state() == "Stable", "it has synced under its new id"


def test_a_group_of_which_nobody_rejoins_waits_for_its_static_members() -> None:
    driver = ShardDriver()
    static_group(driver, "one", session_timeout_ms=100_000, rebalance_timeout_ms=6_000)
    newcomer = driver.join(version=3, rebalance_timeout_ms=6_000)
    driver.leave(next(iter(set(driver.groups[GROUP].members) - {"one-uuid1"})))
    assert driver.is_answered(newcomer)
    driver.advance_to(50_000)
    assert driver.state() == "PreparingRebalance"
    driver.advance_to(100_000)
    assert driver.state() == "Empty"


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    driver = ShardDriver()
    leader, follower = static_group(driver, "one", "two")
    (left,) = driver.leave(("", "two")).members
    assert (left.error_code, left.member_id, left.group_instance_id) == (ErrorCode.NONE, "", "two")
    assert driver.heartbeat(follower, 1, instance_id="two") is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, 1, instance_id="one") is ErrorCode.REBALANCE_IN_PROGRESS

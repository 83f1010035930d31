"""DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.tests.groups.shard_driver import GROUP, ShardDriver, subscription


def test_a_stable_group_is_described_with_metadata_and_assignments() -> None:
    driver = ShardDriver()
    leader, _ = driver.stable_group("a", "b")
    (described,) = driver.shard.describe([GROUP], api_version=5)
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    (member, _) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (leader, "a", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"a")


def test_until_it_is_stable_a_group_has_no_protocol_to_describe() -> None:
    driver = ShardDriver()
    driver.join(version=3)
    driver.advance(0)
    (described,) = driver.shard.describe([GROUP], api_version=5)
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "CompletingRebalance",
        "consumer",
        "",
    )
    assert described.members[0].member_metadata == b""


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(version: int, error: ErrorCode) -> None:
    driver = ShardDriver()
    (described,) = driver.shard.describe([GROUP], api_version=version)
    assert (described.group_id, described.group_state, described.error_code) == (GROUP, "Dead", error)
    assert described.error_message == (None if version < 6 else f"Group {GROUP!r} not found.")


def test_groups_are_listed_by_state_and_type() -> None:
    driver = ShardDriver()
    driver.stable_group("a", group="busy")
    driver.commit({("t", 0): 1}, group="idle")

    def listed(**filters: list[str]) -> dict[str, str]:
        return {group.group_id: group.group_state for group in driver.shard.list_groups(**filters)}

    assert listed() == {"busy": "Stable", "idle": "Empty"}
    assert listed(states=["STABLE"]) == {"busy": "Stable"}
    assert listed(states=["Stable ", "empty"], types=["Classic"]) == {"busy": "Stable", "idle": "Empty"}
    assert listed(types=["consumer"]) == {}
    assert listed(states=["NoSuchState"]) == {}
    (group,) = driver.shard.list_groups(states=["Stable"])
    assert (group.protocol_type, group.group_type) == ("consumer", "classic")


def test_empty_groups_can_be_deleted_with_their_offsets() -> None:
    driver = ShardDriver()
    driver.stable_group("a", group="busy")
    driver.commit({("t", 0): 1}, group="idle")
    assert driver.delete_groups("idle", "busy", "missing") == [
        ErrorCode.NONE,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert driver.offset("t", 0, group="idle") == -1
    assert [group.group_id for group in driver.shard.list_groups()] == ["busy"]
    driver.restart()
    assert [group.group_id for group in driver.shard.list_groups()] == ["busy"]


def test_a_deleted_group_can_be_joined_again() -> None:
    driver = ShardDriver()
    driver.leave(*driver.stable_group("a"))
    driver.delete_groups(GROUP)
    driver.stable_group("b")
    assert driver.groups[GROUP].generation == 1

"""OffsetCommit, OffsetFetch, OffsetDelete, and the retention of offsets."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.offset_fetch import OffsetFetchRequestGroup
from kwire_protocol.wire import Uuid

from kwire.groups.config import MINUTE_MS, GroupConfig
from testkit.groups.shard_driver import GROUP, ShardDriver

ID_OF_OLD_T: Uuid = b"1" * 16
ID_OF_NEW_T: Uuid = b"2" * 16
RETENTION_MS = 60 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS


def forgetful() -> ShardDriver:
    return ShardDriver(GroupConfig(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS))


# Commit and fetch


def test_a_group_nobody_joined_may_commit_and_is_then_an_empty_group_without_protocol() -> None:
    driver = ShardDriver()
    assert driver.commit({("t", 0): 7, ("t", 1): 8}) == [ErrorCode.NONE, ErrorCode.NONE]
    assert (driver.offset("t", 0), driver.offset("t", 1)) == (7, 8)
    assert driver.state() == "Empty"
    assert driver.shard.list_groups()[0].protocol_type == ""


def test_all_offsets_of_a_group_can_be_fetched() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 7, ("t", 3): 8, ("u", 0): 9})
    answer = driver.shard.fetch_offsets(OffsetFetchRequestGroup(group_id=GROUP, topics=None))
    found = {(topic.name, p.partition_index): p.committed_offset for topic in answer.topics for p in topic.partitions}
    assert found == {("t", 0): 7, ("t", 3): 8, ("u", 0): 9}
    assert driver.shard.fetch_offsets(OffsetFetchRequestGroup(group_id="other", topics=None)).topics == []


def test_a_member_commits_in_its_generation() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a")
    offsets = {("t", 0): 7}
    assert driver.commit(offsets, member_id=leader, generation=1) == [ErrorCode.NONE]
    assert driver.commit(offsets, member_id=leader, generation=0) == [ErrorCode.ILLEGAL_GENERATION]
    assert driver.commit(offsets, member_id="nobody", generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.commit(offsets, member_id=leader) == [ErrorCode.ILLEGAL_GENERATION]
    assert driver.commit(offsets) == [ErrorCode.UNKNOWN_MEMBER_ID], "an administrator may not while it has members"


def test_commits_during_a_rebalance() -> None:
    driver = ShardDriver()
    tokens = [driver.join(version=3), driver.join(version=3)]
    driver.advance(0)
    leader, follower = (driver.joined(token).member_id for token in tokens)
    assert driver.commit({("t", 0): 1}, member_id=leader, generation=1) == [ErrorCode.REBALANCE_IN_PROGRESS]
    driver.sync(leader, 1)
    driver.sync(follower, 1)
    driver.join(leader)
    assert driver.commit({("t", 0): 1}, member_id=follower, generation=1) == [ErrorCode.NONE], (
        "what was read before the rebalance may still be committed"
    )


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_generation_of_a_group_that_is_not_there(version: int, error: ErrorCode) -> None:
    driver = ShardDriver()
    assert driver.commit({("t", 0): 1}, member_id="m", generation=1, version=version) == [error]


def test_an_emptied_group_may_be_reset_by_an_administrator() -> None:
    driver = ShardDriver()
    driver.leave(*driver.stable_group("a"))
    assert driver.commit({("t", 0): 0}) == [ErrorCode.NONE]


def test_commits_keep_the_session_alive() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a", session_timeout_ms=6_000)
    for _ in range(5):
        driver.advance(5_000)
        assert driver.commit({("t", 0): 1}, member_id=leader, generation=1) == [ErrorCode.NONE]


def test_metadata_has_a_limit_for_each_partition() -> None:
    driver = ShardDriver(GroupConfig(offset_metadata_max_length=4))
    assert driver.commit({("t", 0): 1}, metadata="1234") == [ErrorCode.NONE]
    assert driver.commit({("t", 0): 2}, metadata="12345") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert driver.commit({("t", 0): 2}, metadata="\U0001f600\U0001f600x") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert driver.commit({("t", 1): 2}, metadata=None) == [ErrorCode.NONE]
    assert (driver.offset("t", 0), driver.offset("t", 1)) == (1, 2)


def test_an_offset_is_visible_once_the_log_has_it_and_not_before() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1})
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.commit({("t", 0): 2, ("t", 1): 3}) == [ErrorCode.NOT_COORDINATOR] * 2
    assert (driver.offset("t", 0), driver.offset("t", 1)) == (1, -1)
    assert driver.commit({("t", 0): 2}, group="new") == [ErrorCode.NOT_COORDINATOR]
    assert driver.state("new") == "Dead"


def test_offsets_outlive_a_restart() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1, ("t", 1): 2})
    driver.commit({("t", 0): 3})
    driver.restart()
    assert (driver.offset("t", 0), driver.offset("t", 1)) == (3, 2)


def test_a_topic_id_distinguishes_a_topic_from_its_namesake() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 7}, topic_id=ID_OF_OLD_T)
    assert driver.offset("t", 0, topic_id=ID_OF_OLD_T) == 7
    assert driver.offset("t", 0, topic_id=ID_OF_NEW_T) == -1
    assert driver.offset("t", 0) == 7, "older clients send the name"


# Deleting


def test_offsets_of_topics_that_the_group_reads_cannot_be_deleted() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a")  # subscribed to t
    driver.commit({("t", 0): 1, ("u", 0): 2}, member_id=leader, generation=1)
    assert driver.delete_offsets(("t", 0), ("u", 0), ("u", 9)) == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert (driver.offset("t", 0), driver.offset("u", 0)) == (1, -1)


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\5ab"])
def test_consumers_whose_subscription_cannot_be_read_might_read_anything(metadata: bytes) -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a", protocols={"range": metadata})
    driver.commit({("t", 0): 1}, member_id=leader, generation=1)
    assert driver.delete_offsets(("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_groups_of_other_protocols_keep_their_offsets_while_they_have_members() -> None:
    driver = ShardDriver()
    members = driver.stable_group("a", protocol_type="connect")
    driver.commit({("t", 0): 1}, member_id=members[0], generation=1)
    assert driver.delete_offsets(("t", 0)) is ErrorCode.NON_EMPTY_GROUP
    driver.leave(*members)
    assert driver.delete_offsets(("t", 0)) == [ErrorCode.NONE]


def test_a_deleted_group_is_gone_after_a_restart_too() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1})
    assert driver.delete_groups(GROUP) == [ErrorCode.NONE]
    driver.restart()
    assert (driver.shard.list_groups(), driver.offset("t", 0)) == ([], -1)


def test_a_deletion_that_cannot_be_recorded_deletes_nothing() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1})
    driver.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert driver.delete_offsets(("t", 0)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.delete_groups(GROUP) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert driver.offset("t", 0) == 1


def test_the_offsets_of_a_deleted_topic_are_forgotten_and_its_namesakes_are_not() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1, ("u", 0): 1}, topic_id=ID_OF_OLD_T)
    driver.commit({("t", 0): 2}, group="by name")
    driver.commit({("t", 0): 3}, group="new", topic_id=ID_OF_NEW_T)
    driver.run(driver.shard.topics_deleted({"t": ID_OF_OLD_T}, now=driver.now))
    assert [driver.offset("t", 0, group=group) for group in (GROUP, "by name", "new")] == [-1, -1, 3]
    assert driver.offset("u", 0) == 1
    driver.restart()
    assert driver.offset("t", 0) == -1


# Forgetting


def test_the_offsets_of_an_empty_group_are_kept_from_when_it_became_empty() -> None:
    driver = forgetful()
    members = driver.stable_group("a", session_timeout_ms=MINUTE_MS)
    driver.commit({("t", 0): 1, ("u", 0): 2}, member_id=members[0], generation=1)
    driver.advance_to(1_000)
    driver.leave(*members)
    driver.advance_to(RETENTION_MS + 999)
    assert driver.offset("t", 0) == 1
    driver.advance_to(RETENTION_MS + CHECK_MS)
    assert driver.offset("t", 0) == -1
    assert driver.state() == "Dead", "a group without members and offsets is gone"
    driver.restart()
    assert driver.groups == {}


def test_the_offsets_of_a_group_nobody_joined_are_kept_from_the_commit() -> None:
    driver = forgetful()
    driver.commit({("t", 0): 1})
    driver.advance_to(CHECK_MS)
    driver.commit({("t", 1): 2})
    driver.advance_to(RETENTION_MS)
    assert (driver.offset("t", 0), driver.offset("t", 1)) == (-1, 2)
    assert driver.state() == "Empty"
    driver.advance_to(RETENTION_MS + CHECK_MS)
    assert driver.offset("t", 1) == -1


def test_a_living_group_forgets_only_topics_that_it_does_not_read_any_more() -> None:
    driver = forgetful()
    (leader,) = driver.stable_group("a", session_timeout_ms=30 * MINUTE_MS)  # subscribed to t
    driver.commit({("t", 0): 1, ("u", 0): 2}, member_id=leader, generation=1)
    for _ in range(8):
        driver.advance(CHECK_MS)
        driver.heartbeat(leader, 1)
    assert (driver.offset("t", 0), driver.offset("u", 0)) == (1, -1)
    assert driver.state() == "Stable"


def test_a_living_group_of_another_protocol_forgets_nothing() -> None:
    driver = forgetful()
    (leader,) = driver.stable_group("a", session_timeout_ms=30 * MINUTE_MS, protocol_type="connect")
    driver.commit({("t", 0): 1}, member_id=leader, generation=1)
    for _ in range(20):
        driver.advance(CHECK_MS)
        driver.heartbeat(leader, 1)
    assert driver.offset("t", 0) == 1


def test_an_older_client_may_give_its_own_retention() -> None:
    driver = forgetful()
    driver.commit({("t", 0): 1}, version=4, retention_ms=15 * MINUTE_MS)
    driver.restart()
    driver.advance_to(CHECK_MS)
    assert driver.offset("t", 0) == 1
    driver.advance_to(2 * CHECK_MS)
    assert driver.offset("t", 0) == -1


def test_a_group_that_was_joined_and_never_committed_is_gone_at_the_next_check() -> None:
    driver = forgetful()
    driver.leave(*driver.stable_group("a"))
    driver.advance_to(CHECK_MS)
    assert driver.groups == {}


def test_what_could_not_be_forgotten_is_forgotten_at_a_later_check() -> None:
    driver = forgetful()
    driver.commit({("t", 0): 1})
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    driver.advance_to(RETENTION_MS)
    assert driver.offset("t", 0) == 1
    driver.append_error = ErrorCode.NONE
    driver.advance_to(RETENTION_MS + CHECK_MS)
    assert driver.offset("t", 0) == -1


def test_a_large_cleanup_is_appended_in_batches() -> None:
    driver = forgetful()
    driver.commit({("t", partition): 1 for partition in range(2_500)})
    before = len(driver.log)
    driver.advance_to(RETENTION_MS)
    assert len(driver.log) == before + 2_500 + 1
    assert driver.groups == {}

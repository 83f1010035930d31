"""Offsets within transactions: pending until the marker, and what else happens to them meanwhile."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.offset_fetch import OffsetFetchRequestGroup
from kwire_protocol.wire import Uuid

from kwire.groups.config import MINUTE_MS, GroupConfig
from testkit.groups.shard_driver import GROUP, ShardDriver

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
ID_OF_OLD_T: Uuid = b"1" * 16
ID_OF_NEW_T: Uuid = b"2" * 16
RETENTION_MS = 60 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS
ONE, TWO = 1, 2
"""Producer ids."""


def forgetful() -> ShardDriver:
    return ShardDriver(GroupConfig(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS))


# Commit and abort


def test_an_offset_counts_when_its_transaction_is_committed_and_not_before() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 3})
    assert driver.commit_transactional({("t", 0): 7, ("t", 1): 8}) == [ErrorCode.NONE, ErrorCode.NONE]
    assert (driver.offset("t", 0), driver.offset("t", 1)) == (3, -1)
    assert (driver.stable_offset("t", 0), driver.stable_offset("t", 1)) == (UNSTABLE, UNSTABLE)
    driver.end_transaction(committed=True)
    assert (driver.stable_offset("t", 0), driver.stable_offset("t", 1)) == (7, 8)


def test_an_offset_of_an_aborted_transaction_never_counts() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 3})
    driver.commit_transactional({("t", 0): 7, ("t", 1): 8})
    driver.end_transaction(committed=False)
    assert (driver.stable_offset("t", 0), driver.stable_offset("t", 1)) == (3, -1)
    driver.end_transaction(committed=True)
    assert driver.stable_offset("t", 0) == 3, "the next transaction of the producer has nothing of the last one"


def test_the_last_commit_of_a_transaction_counts() -> None:
    driver = ShardDriver()
    driver.commit_transactional({("t", 0): 7})
    driver.commit_transactional({("t", 0): 8, ("u", 0): 9})
    driver.end_transaction(committed=True)
    assert (driver.offset("t", 0), driver.offset("u", 0)) == (8, 9)


def test_a_marker_ends_the_transaction_of_its_producer_in_every_group_and_no_other() -> None:
    driver = ShardDriver()
    driver.commit_transactional({("t", 0): 1}, producer_id=ONE)
    driver.commit_transactional({("t", 0): 2}, producer_id=ONE, group="other")
    driver.commit_transactional({("t", 1): 3}, producer_id=TWO)
    driver.end_transaction(ONE, committed=True)
    assert (driver.offset("t", 0), driver.offset("t", 0, group="other")) == (1, 2)
    assert driver.stable_offset("t", 1) is UNSTABLE
    driver.end_transaction(99, committed=True)
    assert driver.stable_offset("t", 1) is UNSTABLE


def test_an_offset_committed_later_outside_of_the_transaction_wins() -> None:
    driver = ShardDriver()
    driver.commit_transactional({("t", 0): 7, ("t", 1): 8})
    driver.commit({("t", 0): 100})
    assert (driver.offset("t", 0), driver.stable_offset("t", 0)) == (100, UNSTABLE)
    driver.end_transaction(committed=True)
    assert (driver.stable_offset("t", 0), driver.stable_offset("t", 1)) == (100, 8)


def test_an_offset_committed_again_in_the_transaction_wins_over_one_outside() -> None:
    driver = ShardDriver()
    driver.commit_transactional({("t", 0): 7})
    driver.commit({("t", 0): 100})
    driver.commit_transactional({("t", 0): 8})
    driver.end_transaction(committed=True)
    assert driver.offset("t", 0) == 8


def test_of_two_transactions_the_later_commit_wins_whichever_ends_first() -> None:
    for first, second in ((ONE, TWO), (TWO, ONE)):
        driver = ShardDriver()
        driver.commit_transactional({("t", 0): 1}, producer_id=ONE)
        driver.commit_transactional({("t", 0): 2}, producer_id=TWO)
        driver.end_transaction(first, committed=True)
        assert driver.stable_offset("t", 0) is UNSTABLE
        driver.end_transaction(second, committed=True)
        assert driver.stable_offset("t", 0) == 2


def test_a_transaction_that_commits_again_is_later_than_one_that_committed_in_between() -> None:
    driver = ShardDriver()
    driver.commit_transactional({("t", 0): 1}, producer_id=ONE)
    driver.commit_transactional({("t", 0): 2}, producer_id=TWO)
    driver.commit_transactional({("t", 0): 3}, producer_id=ONE)
    driver.end_transaction(TWO, committed=True)
    assert driver.offset("t", 0) == 2
    driver.end_transaction(ONE, committed=True)
    assert driver.offset("t", 0) == 3


def test_an_aborted_transaction_outdates_nothing() -> None:
    driver = ShardDriver()
    driver.commit_transactional({("t", 0): 1}, producer_id=ONE)
    driver.commit_transactional({("t", 0): 2}, producer_id=TWO)
    driver.end_transaction(TWO, committed=False)
    driver.end_transaction(ONE, committed=True)
    assert driver.offset("t", 0) == 1


def test_what_the_log_refuses_is_not_pending() -> None:
    driver = ShardDriver()
    driver.append_error = ErrorCode.INVALID_PRODUCER_EPOCH
    assert driver.commit_transactional({("t", 0): 7}) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.commit_transactional({("t", 0): 7}) == [ErrorCode.NOT_COORDINATOR]
    driver.append_error = ErrorCode.NONE
    assert driver.stable_offset("t", 0) == -1
    driver.end_transaction(committed=True)
    assert (driver.offset("t", 0), driver.state()) == (-1, "Dead")


def test_too_much_metadata_refuses_that_partition_alone() -> None:
    driver = ShardDriver(GroupConfig(offset_metadata_max_length=4))
    assert driver.commit_transactional({("t", 0): 1}, metadata="1234") == [ErrorCode.NONE]
    assert driver.commit_transactional({("t", 1): 1}, metadata="12345") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert (driver.stable_offset("t", 0), driver.stable_offset("t", 1)) == (UNSTABLE, -1)


# Who may commit


def test_clients_that_send_no_member_id_may_commit_even_while_the_group_has_members() -> None:
    driver = ShardDriver()
    driver.stable_group("a")
    assert driver.commit_transactional({("t", 0): 7}, version=2) == [ErrorCode.NONE]


def test_clients_that_identify_themselves_must_be_right() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a", instance_id="one")
    offsets = {("t", 0): 7}

    def commit(member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        (error,) = driver.commit_transactional(
            offsets, member_id=member_id, generation=generation, instance_id=instance_id
        )
        return error

    assert commit("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit(leader, -1) is ErrorCode.ILLEGAL_GENERATION
    assert commit("", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("nobody", 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert commit(leader, 1, "two") is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.stable_offset("t", 0) == -1
    assert commit(leader, 1, "one") is ErrorCode.NONE
    assert commit(leader, 1) is ErrorCode.NONE


def test_a_member_may_commit_in_the_midst_of_a_rebalance() -> None:
    driver = ShardDriver()
    driver.join(version=3)
    driver.advance(driver.config.initial_rebalance_delay_ms)
    (member_id,) = driver.groups[GROUP].members
    assert driver.state() == "CompletingRebalance"
    assert driver.commit({("t", 0): 7}, member_id=member_id, generation=1) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert driver.commit_transactional({("t", 0): 7}, member_id=member_id, generation=1) == [ErrorCode.NONE]


def test_a_commit_in_a_transaction_is_no_sign_of_life() -> None:
    driver = ShardDriver()
    (leader,) = driver.stable_group("a", session_timeout_ms=10_000)
    driver.advance(6_000)
    driver.commit_transactional({("t", 0): 7}, member_id=leader, generation=1)
    driver.advance(4_000)
    assert driver.state() == "Empty"


def test_a_generation_of_a_group_that_is_not_there_is_refused_with_an_error_of_the_version() -> None:
    driver = ShardDriver()
    for version, error in ((5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        assert driver.commit_transactional({("t", 0): 7}, generation=1, member_id="m", version=version) == [error]
    assert driver.state() == "Dead"


# Stable offsets


def test_stable_offsets_of_other_partitions_and_groups_are_returned() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1, ("t", 1): 2})
    driver.commit({("t", 0): 3}, group="other")
    driver.commit_transactional({("t", 0): 7})
    assert driver.stable_offset("t", 0) is UNSTABLE
    assert driver.stable_offset("t", 1) == 2
    assert driver.stable_offset("u", 0) == -1
    assert driver.stable_offset("t", 0, group="other") == 3


def test_of_all_offsets_of_a_group_those_are_unstable_that_may_change() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1, ("u", 1): 2})
    driver.commit_transactional({("t", 0): 7, ("v", 0): 8})
    answer = driver.shard.fetch_offsets(OffsetFetchRequestGroup(group_id=GROUP, topics=None), require_stable=True)
    found = {
        (topic.name, it.partition_index): (it.committed_offset, it.error_code)
        for topic in answer.topics
        for it in topic.partitions
    }
    assert found == {("t", 0): (-1, UNSTABLE), ("u", 1): (2, ErrorCode.NONE)}, "as in Kafka, without the new ones"


# Deleting and forgetting


def test_deleting_an_offset_deletes_what_is_pending_for_it() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1})
    driver.commit_transactional({("t", 0): 7, ("t", 1): 8, ("t", 2): 9})
    assert driver.delete_offsets(("t", 0), ("t", 1)) == [ErrorCode.NONE, ErrorCode.NONE]
    assert [driver.stable_offset("t", index) for index in range(3)] == [-1, -1, UNSTABLE]
    driver.restart()
    driver.end_transaction(committed=True)
    assert [driver.stable_offset("t", index) for index in range(3)] == [-1, -1, 9]


def test_deleting_a_group_deletes_what_is_pending_for_it() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1})
    driver.commit_transactional({("t", 0): 7, ("u", 0): 8})
    before = len(driver.log)
    assert driver.delete_groups(GROUP) == [ErrorCode.NONE]
    assert len(driver.log) == before + 3, "one removal for each partition, and the group's"
    assert driver.stable_offset("u", 0) == -1
    driver.end_transaction(committed=True)
    assert (driver.offset("t", 0), driver.offset("u", 0), driver.state()) == (-1, -1, "Dead")
    driver.restart()
    assert (driver.offset("t", 0), driver.offset("u", 0), driver.state()) == (-1, -1, "Dead")


def test_what_is_pending_for_a_deleted_topic_is_forgotten_and_its_namesake_is_not() -> None:
    driver = ShardDriver()
    driver.commit_transactional({("t", 0): 1, ("u", 0): 2}, topic_id=ID_OF_OLD_T)
    driver.commit_transactional({("t", 0): 3}, group="new", topic_id=ID_OF_NEW_T)
    driver.run(driver.shard.topics_deleted({"t": ID_OF_OLD_T}, now=driver.now))
    driver.end_transaction(committed=True)
    assert (driver.offset("t", 0), driver.offset("u", 0)) == (-1, 2)
    assert driver.offset("t", 0, group="new") == 3


def test_an_offset_does_not_expire_while_another_is_pending_for_it() -> None:
    driver = forgetful()
    driver.commit({("t", 0): 1, ("t", 1): 2})
    driver.commit_transactional({("t", 0): 7})
    driver.advance_to(RETENTION_MS)
    assert (driver.offset("t", 0), driver.offset("t", 1)) == (1, -1)
    driver.end_transaction(committed=False)
    driver.advance(CHECK_MS)
    assert (driver.offset("t", 0), driver.state()) == (-1, "Dead")


def test_a_group_does_not_expire_while_something_is_pending_for_it() -> None:
    driver = forgetful()
    driver.commit_transactional({("t", 0): 7})
    driver.advance_to(CHECK_MS)
    assert driver.state() == "Empty"
    driver.end_transaction(committed=True)
    driver.advance(CHECK_MS)
    assert (driver.state(), driver.offset("t", 0)) == ("Empty", 7)


def test_a_group_that_only_an_aborted_transaction_made_is_gone_at_the_next_check() -> None:
    driver = forgetful()
    driver.commit_transactional({("t", 0): 7})
    driver.end_transaction(committed=False)
    assert driver.state() == "Empty"
    driver.advance_to(CHECK_MS)
    assert driver.state() == "Dead"
    assert driver.groups == {}


# Restarts


def test_after_a_restart_what_was_pending_is_pending_and_what_was_aborted_stays_aborted() -> None:
    driver = ShardDriver()
    driver.commit_transactional({("t", 0): 1}, producer_id=ONE)
    driver.end_transaction(ONE, committed=False)
    driver.commit_transactional({("t", 1): 2}, producer_id=ONE)
    driver.end_transaction(ONE, committed=True)
    driver.commit_transactional({("t", 2): 3}, producer_id=ONE)
    driver.restart()
    assert [driver.stable_offset("t", index) for index in range(3)] == [-1, 2, UNSTABLE]
    driver.end_transaction(ONE, committed=True)
    driver.restart()
    assert [driver.stable_offset("t", index) for index in range(3)] == [-1, 2, 3]

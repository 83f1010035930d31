"""The rules of the share coordinator's machine, one by one. compat_tests has those that a client can see."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode as E

from kwire.share.coordinator.config import ShareStateConfig
from kwire.share.coordinator.records import Snapshot, Update
from kwire.share.coordinator.shard import (
    MAX_BATCHES,
    MAX_BYTES_PER_APPEND,
    MAX_COLD_STATES,
    MAX_GROUP_ID_BYTES,
    MAX_RECORDS_PER_APPEND,
    NEXT_COLD_STATES_MS,
)
from kwire.share.coordinator.state import SharePartitionKey, StateBatch
from testkit.share.coordinator.shard_driver import KEY, OTHER_ID, PARTITIONS, START_MS, TOPIC_ID, ShardDriver

INTERVAL_MS = 1_000
CONFIG = ShareStateConfig(updates_per_snapshot=3, cold_snapshot_interval_ms=INTERVAL_MS, prune_interval_ms=INTERVAL_MS)
SECOND = SharePartitionKey("g", TOPIC_ID, 1)
OF_OTHER = SharePartitionKey("h", OTHER_ID, 0)


@pytest.fixture
def driver() -> ShardDriver:
    return ShardDriver(CONFIG)


def kinds(driver: ShardDriver) -> str:
    """Returns S for a snapshot, u for an update, x for a tombstone."""
    return "".join(
        "u" if isinstance(change, Update) else "x" if change.state is None else "S" for change in driver.changes()
    )


# Records


def test_a_snapshot_follows_after_so_many_updates(driver: ShardDriver) -> None:
    driver.initialize()
    for number in range(9):
        driver.write((number, number, 2, 1))
    assert kinds(driver) == "SuuuSuuuSu"
    epochs = [
        change.state.snapshot_epoch
        for change in driver.changes()
        if isinstance(change, Snapshot) and change.state is not None
    ]
    assert epochs == [0, 1, 2]
    assert driver.batches() == [StateBatch(0, 8, 2, 1)]


def test_without_updates_each_record_is_a_snapshot() -> None:
    driver = ShardDriver(ShareStateConfig(updates_per_snapshot=0))
    driver.initialize()
    driver.write((0, 1, 0, 1))
    driver.write((1, 1, 2, 1))
    assert kinds(driver) == "SSS"
    assert driver.stored().batches == (StateBatch(0, 0, 0, 1), StateBatch(1, 1, 2, 1))


def test_a_snapshot_of_a_write_without_a_start_offset_has_the_one_before() -> None:
    driver = ShardDriver(ShareStateConfig(updates_per_snapshot=0))
    driver.initialize(start_offset=5)
    driver.write((3, 8, 0, 1), start_offset=-1)
    assert driver.stored().start_offset == 5
    assert driver.stored().batches == (StateBatch(5, 8, 0, 1),)


def test_an_update_has_only_what_was_written_and_the_leader_epoch_of_the_state(driver: ShardDriver) -> None:
    driver.initialize(start_offset=0)
    driver.read(leader_epoch=4)
    driver.write((0, 4, 0, 1))
    driver.write((7, 8, 2, 1), (8, 9, 2, 1), (0, 2, 2, 1), leader_epoch=6, start_offset=2, complete=3)
    assert driver.changes()[-1] == Update(KEY, 0, 4, 2, 3, (StateBatch(2, 2, 2, 1), StateBatch(7, 9, 2, 1)))


def test_only_a_read_with_another_leader_epoch_is_recorded(driver: ShardDriver) -> None:
    driver.initialize()
    driver.read(leader_epoch=0)
    driver.read(leader_epoch=-1)
    driver.read(leader_epoch=3)
    driver.read(leader_epoch=3)
    driver.read(leader_epoch=2)
    assert kinds(driver) == "Su"
    assert driver.stored().leader_epoch == 3


def test_a_refused_request_records_nothing(driver: ShardDriver) -> None:
    driver.initialize(state_epoch=2)
    driver.read(leader_epoch=2)
    before = list(driver.history)
    assert driver.initialize(state_epoch=1) is E.FENCED_STATE_EPOCH
    assert driver.write(state_epoch=1, leader_epoch=2) is E.FENCED_STATE_EPOCH
    assert driver.write(state_epoch=2, leader_epoch=1) is E.FENCED_LEADER_EPOCH
    assert driver.write(key=SECOND) is E.INVALID_REQUEST
    assert driver.delete(SharePartitionKey("g", TOPIC_ID, PARTITIONS)) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert driver.initialize(SharePartitionKey("g", bytes(16), 0)) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert driver.initialize(SharePartitionKey("g", TOPIC_ID, -1)) is E.INVALID_REQUEST
    assert driver.delete(SECOND) is E.NONE
    assert driver.history == before


def test_a_group_id_has_to_fit_into_a_key(driver: ShardDriver) -> None:
    assert driver.initialize(SharePartitionKey("g" * MAX_GROUP_ID_BYTES, TOPIC_ID, 0)) is E.NONE
    assert driver.initialize(SharePartitionKey("é" * MAX_GROUP_ID_BYTES, TOPIC_ID, 0)) is E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
    ],
)
def test_nothing_changes_if_the_record_cannot_be_appended(driver: ShardDriver, error: E, expected: E) -> None:
    driver.append_error = error
    assert driver.initialize() is expected
    assert driver.read().error_code == E.INVALID_REQUEST
    driver.initialize()
    driver.append_error = error
    assert driver.write((0, 4, 2, 1), start_offset=3) is expected
    driver.append_error = error
    assert driver.read(leader_epoch=9).error_code == expected
    assert driver.read(leader_epoch=8).error_code == E.NONE
    driver.append_error = error
    assert driver.delete() is expected
    assert (driver.batches(), driver.read().start_offset) == ([], 0)


def test_a_state_does_not_grow_beyond_what_a_snapshot_can_hold(driver: ShardDriver) -> None:
    driver.initialize()
    for part in range(5):
        many = [(4 * number, 4 * number, 0, 1) for number in range(part * 10_000, (part + 1) * 10_000)]
        assert driver.write(*many) is E.NONE
    full = driver.batches()
    assert len(full) == MAX_BATCHES
    records = len(driver.history)
    assert driver.write((2, 2, 0, 1)) is E.UNKNOWN_SERVER_ERROR
    assert (driver.batches(), len(driver.history)) == (full, records)
    assert driver.write((0, 0, 2, 1)) is E.NONE, "this one takes no more room"
    assert driver.write((2, 2, 0, 1), start_offset=2) is E.NONE
    assert len(driver.batches()) == MAX_BATCHES
    driver.restart()
    assert len(driver.batches()) == MAX_BATCHES


# Topics


def test_the_states_of_a_deleted_topic_are_deleted_with_it(driver: ShardDriver) -> None:
    for key in (KEY, SECOND, OF_OTHER):
        driver.initialize(key)
    driver.forget_topic(TOPIC_ID)
    assert kinds(driver) == "SSSxx"
    assert driver.read(KEY).error_code == E.INVALID_REQUEST
    assert driver.read(OF_OTHER).error_code == E.NONE


def test_a_topic_that_was_deleted_between_two_coordinators_is_found_later(driver: ShardDriver) -> None:
    driver.initialize(KEY)
    driver.initialize(OF_OTHER)
    del driver.topics[TOPIC_ID]
    driver.restart()
    assert kinds(driver) == "SS", "nothing is done at once, because this node may not know the newest topics yet"
    driver.advance(INTERVAL_MS)
    assert driver.read(KEY).error_code == E.INVALID_REQUEST
    assert driver.read(OF_OTHER).error_code == E.NONE
    assert driver.history[2] == Snapshot(KEY, None).record()


def test_large_clean_ups_are_divided(driver: ShardDriver) -> None:
    for number in range(2_500):
        driver.initialize(SharePartitionKey(f"g{number}", TOPIC_ID, 0))
    before = driver.appends
    driver.forget_topic(TOPIC_ID)
    assert driver.appends - before == -(-2_500 // MAX_RECORDS_PER_APPEND)


def test_large_snapshots_are_divided(driver: ShardDriver) -> None:
    many = [(4 * number, 4 * number, 0, 1) for number in range(2_000)]
    for number in range(30):
        key = SharePartitionKey(f"g{number}", TOPIC_ID, 0)
        driver.initialize(key)
        driver.write(*many, key=key)
    before, appends = len(driver.history), driver.appends
    driver.advance(INTERVAL_MS)
    size = sum(len(value or b"") for _, value in driver.history[before:])
    assert len(driver.history) - before == 30
    assert size / MAX_BYTES_PER_APPEND < driver.appends - appends < 30


# What happens by itself


def test_an_idle_coordinator_has_no_deadline(driver: ShardDriver) -> None:
    assert driver.shard.next_deadline_ms() is None
    driver.initialize()
    driver.write((0, 4, 2, 1))
    driver.advance(10 * INTERVAL_MS)
    assert driver.shard.next_deadline_ms() is None
    records = len(driver.history)
    driver.advance(10 * INTERVAL_MS)
    assert len(driver.history) == records


def test_a_state_that_does_not_change_is_recorded_again(driver: ShardDriver) -> None:
    driver.initialize(start_offset=3)
    driver.write((3, 5, 2, 1), complete=3)
    before = driver.stored()
    driver.advance(INTERVAL_MS)
    after = driver.stored()
    assert (after.snapshot_epoch, after.created_ms, after.written_ms) == (1, START_MS, START_MS + INTERVAL_MS)
    assert (after.start_offset, after.batches, after.delivery_complete_count) == (
        before.start_offset,
        before.batches,
        before.delivery_complete_count,
    )


def test_many_states_are_recorded_again_some_at_a_time(driver: ShardDriver) -> None:
    count = 2 * MAX_COLD_STATES + 500
    for number in range(count):
        driver.initialize(SharePartitionKey(f"g{number}", TOPIC_ID, 0))
    driver.advance(INTERVAL_MS)
    done = [len(driver.history) - count]
    for _ in range(3):
        driver.advance(NEXT_COLD_STATES_MS)
        done.append(len(driver.history) - count)
    assert done == [MAX_COLD_STATES, 2 * MAX_COLD_STATES, count, count]
    driver.advance(3 * INTERVAL_MS)
    assert driver.shard.next_deadline_ms() is None
    assert driver.log_start == count


def test_a_busy_state_does_not_keep_the_records_of_idle_ones(driver: ShardDriver) -> None:
    for number in range(20):
        driver.initialize(SharePartitionKey(f"idle-{number}", TOPIC_ID, 0))
    driver.initialize()
    lengths = []
    for number in range(400):
        driver.write((number, number, 2, 1), start_offset=number)
        driver.advance(INTERVAL_MS // 20)
        lengths.append(len(driver.log))
    assert max(lengths) < 20 + 3 * 20 + 3 * 20
    assert driver.log_start > 400
    driver.restart()
    assert driver.read().start_offset == 399


def test_records_are_deleted_when_all_states_have_newer_snapshots(driver: ShardDriver) -> None:
    driver.initialize(KEY)
    driver.initialize(SECOND)
    driver.initialize(KEY)
    driver.advance(INTERVAL_MS - 1)
    assert driver.log_start == 0
    driver.initialize(SECOND)
    driver.advance(1)
    assert driver.log_start == 2


def test_a_prune_that_failed_is_tried_again(driver: ShardDriver) -> None:
    driver.initialize()
    driver.initialize()
    driver.prune_fails = True
    driver.advance(INTERVAL_MS)
    assert driver.log_start == 0
    driver.advance(INTERVAL_MS)
    assert driver.log_start > 0


def test_when_all_is_deleted_the_last_tombstone_is_left(driver: ShardDriver) -> None:
    driver.initialize(KEY)
    driver.initialize(SECOND)
    driver.delete(SECOND)
    driver.delete(KEY)
    driver.advance(INTERVAL_MS)
    assert driver.changes() == [Snapshot(KEY, None)]
    driver.restart()
    driver.advance(3 * INTERVAL_MS)
    assert driver.shard.next_deadline_ms() is None


def test_a_restart_continues_the_count(driver: ShardDriver) -> None:
    driver.initialize()
    driver.write()
    driver.write()
    driver.restart()
    driver.write()
    driver.write()
    assert kinds(driver) == "SuuuS"


def test_a_replay_after_a_prune_counts_the_same(driver: ShardDriver) -> None:
    driver.initialize(KEY)
    driver.write()
    driver.initialize(SECOND)
    driver.write(key=SECOND)
    driver.write()
    driver.initialize(KEY)
    driver.write()
    driver.advance(INTERVAL_MS)
    assert driver.log_start > 0
    driver.write()
    assert driver.replayed()._entries == driver.shard._entries

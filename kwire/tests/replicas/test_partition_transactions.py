"""Transactions in one partition, from the first batch to the marker: what readers may see, and what outlives what."""

from __future__ import annotations

import errno
import os

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_storage.compaction.planning import cleanable_end
from kwire_storage.config import LogConfig
from kwire_storage.names import RESERVE

from kwire.replicas.roles import Absent, Follower, role_of
from kwire.replicas.validation import TopicRules
from testkit.scenes.partition_files import log_files
from testkit.scenes.transaction_scene import NOW_MS, SMALL, Scene, a_batch, offsets_in, refusal
from testkit.storage.compacting import compact

# -- what readers see


def test_readers_of_committed_data_wait_for_the_marker_and_skip_what_it_aborts() -> None:
    scene = Scene()
    scene.send(1, 0, 2)  # 0-1
    scene.send(2, 0)  # 2
    assert scene.seen() == []
    scene.end(1, commit=True)  # 3
    assert scene.seen() == [0, 1]
    scene.send(1, 2)  # 4
    scene.end(2, commit=False)  # 5
    assert (scene.partition.last_stable_offset, scene.seen()) == (4, [0, 1])
    scene.end(1, commit=True)  # 6
    assert (scene.partition.last_stable_offset, scene.seen()) == (7, [0, 1, 4])


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_over_many_segments_is_open_until_its_marker_also_after_a_restart(
    commit: bool, restart: str
) -> None:
    scene = Scene()
    others = []
    for number in range(12):
        scene.send(1, number)
        others.append(scene.send(2, number))
        scene.end(2, commit=True)
    assert len(log_files(scene.partition).segments) > 4
    if restart != "none":
        scene.restart(clean=restart == "clean")
    assert (scene.partition.last_stable_offset, scene.seen()) == (0, [])
    assert scene.partition.holds_transaction(a_batch(1, 12)[1])
    scene.end(1, commit=commit)
    if restart != "none":
        scene.restart(clean=restart == "clean")
    mine = [other - 1 for other in others] if commit else []
    assert scene.seen() == sorted(mine + others)


def test_what_is_not_flushed_is_not_stable_whether_a_transaction_is_open_above_it_or_has_just_ended() -> None:
    scene = Scene(LogConfig(flush_messages=1))
    partition = scene.partition
    scene.send_plain()  # 0
    scene.send(1, 0)  # 1
    assert (partition.high_watermark, partition.last_stable_offset) == (0, 0)
    scene.flush()
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
    scene.end(1, commit=True)  # 2
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
    scene.flush()
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)


def test_nothing_above_what_is_flushed_is_compacted_though_no_transaction_is_open_below() -> None:
    scene = Scene(LogConfig())
    log = log_files(scene.partition)
    scene.send_plain()
    log.flush()
    scene.send_plain()
    scene.send(1, 0)
    assert (log.recovery_point, cleanable_end(log, scene.partition.high_watermark)) == (1, 1)
    log.flush()
    assert (log.recovery_point, cleanable_end(log, scene.partition.high_watermark)) == (3, 2)


# -- records that go while a transaction is open


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
@pytest.mark.parametrize("commit", [True, False])
def test_records_deleted_in_the_midst_of_a_transaction_leave_the_rest_undecided(commit: bool, restart: str) -> None:
    scene = Scene()
    for number in range(10):
        scene.send(1, number)
    scene.partition.delete_records_before(5, now_ms=NOW_MS)
    if restart != "none":
        scene.restart(clean=restart == "clean")
    partition = scene.partition
    assert (partition.log_start_offset, partition.last_stable_offset, scene.seen()) == (5, 5, [])
    scene.send(1, 10)
    scene.end(1, commit=commit)
    assert scene.partition.last_stable_offset == 12
    assert scene.seen() == (list(range(5, 11)) if commit else [])


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_all_of_whose_records_are_deleted_ends_as_any_other(commit: bool) -> None:
    scene = Scene()
    for number in range(6):
        scene.send(1, number)
    scene.partition.delete_records_before(-1, now_ms=NOW_MS)
    assert (scene.partition.log_start_offset, scene.partition.last_stable_offset) == (6, 6)
    scene.end(1, commit=commit)
    scene.send(2, 0)
    scene.end(2, commit=True)
    assert (scene.partition.last_stable_offset, scene.seen()) == (9, [7])


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
def test_retention_takes_the_beginning_of_an_open_transaction_as_kafka_does(restart: str) -> None:
    scene = Scene(attrs.evolve(SMALL, retention_ms=1000))
    for number in range(10):
        scene.send(1, number)
    partition = scene.partition
    assert log_files(partition).apply_retention(NOW_MS, partition.high_watermark) > 0
    start = partition.log_start_offset
    assert start > 0
    if restart != "none":
        scene.restart(clean=restart == "clean")
    assert (scene.partition.log_start_offset, scene.partition.last_stable_offset) == (start, start)
    assert scene.partition.describe_producers(now_ms=NOW_MS)[0].txn_first_offset == 0
    sent = scene.send(1, 10)
    assert scene.seen() == []
    scene.end(1, commit=True)
    assert scene.seen() == list(range(start, sent + 1))


# -- compaction


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_after_a_compaction_readers_see_what_was_committed_and_zombies_are_still_refused(
    commit: bool, clean: bool
) -> None:
    """With transaction version 2 every transaction has an epoch of its own; one producer has nothing but a marker."""
    scene = Scene(attrs.evolve(SMALL, cleanup_policy="compact", delete_retention_ms=100))
    hanging = scene.send(9, 0)
    scene.end(9, commit=False, epoch=1, version=2)
    for epoch in range(8):
        last = scene.send(1, 0, epoch=epoch)
        if epoch == 7:
            scene.send(2, 0)  # open, it keeps all that follows from being compacted
        scene.end(1, commit=commit or epoch < 7, epoch=epoch + 1, version=2)
    log = log_files(scene.partition)
    committed = [2 * number for number in range(1, 8 + commit)]
    assert scene.seen() == committed
    for now_ms in (10_000, 20_000, 30_000):
        log.roll(now_ms)
        compact(log, now_ms=now_ms)
    assert hanging not in offsets_in(log)
    scene.restart(clean=clean)
    assert (scene.partition.last_stable_offset, scene.seen()) == (last + 1, committed[6:])
    scene.end(2, commit=True, epoch=1, version=2)
    assert scene.seen()[-1] == last + 1
    for producer_id, epoch in [(1, 7), (9, 0)]:
        code = refusal(lambda who=producer_id, epoch=epoch: scene.send(who, 1, epoch=epoch))  # type: ignore[misc]
        assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(lambda: scene.send(1, 1, epoch=8)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    scene.send(1, 0, epoch=8)


# -- markers


def test_a_marker_is_reported_to_its_listener() -> None:
    scene = Scene()
    notified: list[tuple[int, bool, int]] = []
    scene.partition.on_marker = lambda producer_id, committed: notified.append(
        (producer_id, committed, scene.partition.log_end_offset)
    )
    scene.send(1, 0)
    scene.end(1, commit=True)
    scene.end(2, commit=False)
    assert notified == [(1, True, 2), (2, False, 3)]


def test_a_marker_that_is_refused_is_not_reported_and_not_in_the_log() -> None:
    scene = Scene()
    notified: list[int] = []
    scene.partition.on_marker = lambda producer_id, committed: notified.append(producer_id)
    scene.send(1, 0, epoch=3)
    for epoch, version in [(2, 0), (2, 2), (3, 2)]:
        code = refusal(lambda epoch=epoch, version=version: scene.end(1, commit=True, epoch=epoch, version=version))  # type: ignore[misc]
        assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (notified, scene.partition.log_end_offset) == ([], 1)
    scene.end(1, commit=True, epoch=4, version=2)
    scene.end(1, commit=True, epoch=4, version=2)  # the coordinator repeats itself
    assert (notified, scene.partition.log_end_offset) == ([1, 1], 3)


def test_a_coordinator_that_was_replaced_ends_nothing() -> None:
    scene = Scene()
    scene.send(1, 0)
    scene.end(1, commit=True, coordinator_epoch=5)
    scene.send(1, 1)
    code = refusal(lambda: scene.end(1, commit=True, coordinator_epoch=4))
    assert code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    scene.end(1, commit=True, coordinator_epoch=5)


def test_after_a_marker_of_a_higher_epoch_late_batches_of_the_old_one_are_refused_and_the_new_begins_with_0() -> None:
    scene = Scene()
    scene.send(1, 0, 2)
    scene.end(1, commit=False, epoch=1, version=2)
    assert refusal(lambda: scene.send(1, 2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(lambda: scene.send(1, 0, 2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(lambda: scene.send(1, 2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert scene.send(1, 0, epoch=1) == 3


def test_a_marker_needs_the_leader_and_replicas_in_sync() -> None:
    scene = Scene()
    partition = scene.partition
    partition.rules = TopicRules(min_insync_replicas=2)
    scene.end(1, commit=True)
    partition.take_role(role_of(1, leader_id=1, leader_epoch=1, replicas=[1, 2], isr=[1]))
    assert refusal(lambda: scene.end(1, commit=True)) == ErrorCode.NOT_ENOUGH_REPLICAS
    partition.take_role(role_of(1, leader_id=2, leader_epoch=2, replicas=[1, 2], isr=[1, 2]))
    assert refusal(lambda: scene.end(1, commit=True)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log_end_offset == 1


def test_a_marker_may_use_the_room_that_is_kept_back_and_producers_may_not() -> None:
    scene = Scene(LogConfig())
    log = log_files(scene.partition)
    log.reserve.size_bytes = 1 << 20
    log.reserve.take_back()
    scene.send(1, 0)

    def before(operation: str, path: str) -> None:
        if operation == "append" and path.endswith(".log") and scene.disk.exists(RESERVE):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    scene.disk.before_operation = before
    assert refusal(lambda: scene.send(1, 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert scene.disk.exists(RESERVE)
    scene.end(1, commit=True)
    assert not scene.disk.exists(RESERVE)
    assert scene.seen() == [0]


# -- what a hanging transaction looks like


def test_every_producer_is_described_with_the_beginning_of_its_open_transaction() -> None:
    scene = Scene()
    scene.send(1, 0, epoch=2)
    scene.end(1, commit=True, epoch=3, coordinator_epoch=7, now_ms=6000)
    scene.send(2, 5, 3, epoch=4)
    scene.send_plain(3, timestamp_ms=900)
    described = {
        it.producer_id: (it.epoch, it.last_sequence, it.last_timestamp_ms, it.coordinator_epoch, it.txn_first_offset)
        for it in scene.partition.describe_producers(now_ms=NOW_MS)
    }
    assert described == {
        1: (3, -1, 6000, 7, None),
        2: (4, 7, 1000, -1, 2),
        3: (0, 0, 900, -1, None),
    }


def test_a_follower_describes_its_producers_and_a_broker_without_the_replica_does_not() -> None:
    scene = Scene()
    scene.send(1, 0)
    scene.partition.take_role(Follower(2, 1))
    [described] = scene.partition.describe_producers(now_ms=NOW_MS)
    assert (described.producer_id, described.txn_first_offset) == (1, 0)
    scene.partition.take_role(Absent(2, 2))
    assert refusal(lambda: scene.partition.describe_producers(now_ms=NOW_MS)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_producers_that_are_idle_for_too_long_are_not_described_but_for_open_transactions() -> None:
    scene = Scene(LogConfig(producer_id_expiration_ms=10_000))
    scene.send(1, 0)
    scene.send(2, 0)
    scene.end(2, commit=True)
    assert [it.producer_id for it in scene.partition.describe_producers(now_ms=1_000_000)] == [1]

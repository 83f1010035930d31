"""Followers whose power is cut, whose disk is full or fails, and whose log is out of date."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.records import Record, build_batch
from kwire_storage import names
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.medium import EVERYTHING, NOTHING_UNSYNCED, Fate

from kwire.metadata.controller.configs.config_changes import ConfigChange, Operation, alter_configs
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.image import ConfigResourceType
from kwire.replicas.roles import Follower
from kwire.runtime.futures import at_once
from testkit.mutants.changes import at_large, without
from testkit.scenes.partition_files import log_files
from testkit.worlds.replication.world import TOPIC, World

FATES = {"nothing unsynced": NOTHING_UNSYNCED, "everything": EVERYTHING}


class PowerCut(BaseException):
    """The power is cut now."""


def configure(world: World, **values: str) -> None:
    operations = [(name.replace("_", "."), Operation.SET, value) for name, value in values.items()]
    change = ConfigChange(ConfigResourceType.TOPIC, TOPIC, operations)
    node_id = min(world.brokers)
    [outcome] = at_once(world.brokers[node_id].metadata.change(alter_configs, [change], validate_only=False))
    assert outcome.code == ErrorCode.NONE, outcome.message
    for it in world.brokers:
        world.hear(it)


def lose_power(world: World, node_id: int, fate: Fate) -> None:
    left = world.disks[node_id].crash(fate)
    world.kill(node_id)
    world.disks[node_id] = left


def write_checkpoints(world: World, node_id: int) -> None:
    broker = world.brokers[node_id]
    log_files(broker.partitions.find(TOPIC, 0)).flush()
    for folder, files in broker.housekeeping.take_checkpoints():
        folder.write(files)


def replicate(world: World) -> None:
    for _ in range(3):
        world.clock.time_ms += 1000
        for node_id in world.brokers:
            world.fetch(node_id)


def with_diverged_log() -> World:
    """Node 2 leads, and node 1 has some segments, on the medium, that node 2 never had. Node 1 is just back."""
    world = World()
    configure(world, internal_segment_bytes="400")
    for number in range(6):
        world.produce(1, b"committed %d" % number)
        replicate(world)
    for number in range(8):
        world.produce(1, b"of the old leader %d" % number, acks=1)
    write_checkpoints(world, 1)
    world.kill(1)
    assert world.elect(by=2, leader=2) or world.registered.leader == 2
    for number in range(10):
        world.produce(2, b"of the new leader %d" % number)
        replicate(world)
    world.open(1)
    return world


def same_as_the_leader(world: World, node_id: int) -> None:
    leader = world.partition(world.registered.leader).log
    log = world.partition(node_id).log
    assert world.batches(node_id) == world.batches(world.registered.leader)
    assert log.leader_epochs.entries == leader.leader_epochs.entries
    assert log.recovery_point <= log.log_end_offset
    snapshots = [
        int(name.removesuffix(names.SNAPSHOT))
        for name in world.disks[node_id].listdir(f"{TOPIC}-0")
        if name.endswith(names.SNAPSHOT)
    ]
    assert all(it <= log.log_end_offset for it in snapshots)
    world.check()


def follow(world: World, node_id: int) -> None:
    """Follows until it has what the leader has."""
    leader = world.partition(world.registered.leader)
    for _ in range(40):
        world.clock.time_ms += 1000
        world.fetch(node_id)
        if world.partition(node_id).log_end_offset == leader.log_end_offset:
            break
    world.fetch(node_id)


def operations_of_a_cut() -> int:
    """Counts those on the disk of node 1, until it has cut its log and followed."""
    world, count = with_diverged_log(), [0]

    def note(_name: str, _path: str) -> None:
        count[0] += 1

    world.disks[1].before_operation = note
    follow(world, 1)
    assert world.batches(1) == world.batches(2)
    return count[0]


def cut_at(number: int, fate: Fate) -> World:
    """Cuts the power of node 1 before one of those operations. The node is back."""
    world, left = with_diverged_log(), [number]

    def operate(_name: str, _path: str) -> None:
        if not left[0]:
            raise PowerCut
        left[0] -= 1

    world.disks[1].before_operation = operate
    with pytest.raises(PowerCut):
        follow(world, 1)
    world.disks[1].before_operation = None
    lose_power(world, 1, fate)
    checkpoint = world.disks[1].read_bytes(names.RECOVERY_POINT_CHECKPOINT).split()
    world.open(1)
    assert int(checkpoint[-1]) <= world.partition(1).log_end_offset, "records below the recovery point are not checked"
    return world


def loses_nothing(fate: Fate, step: int) -> None:
    for number in range(0, operations_of_a_cut(), step):
        world = cut_at(number, fate)
        log = log_files(world.partition(1))
        assert not log.damage
        follow(world, 1)
        assert not log.damage
        same_as_the_leader(world, 1)


@pytest.mark.parametrize(("fate", "step"), [("nothing unsynced", 2), ("everything", 5)])
def test_after_a_power_cut_around_a_cut_of_its_log_a_follower_has_what_the_leader_has(fate: str, step: int) -> None:
    loses_nothing(FATES[fate], step)


def test_a_follower_that_does_not_lower_its_checkpoints_is_noticed() -> None:
    lowering = "kwire.replication.followers:FollowedPartition._lower_checkpoints"
    truncating = "kwire.replication.followers:FollowedPartition.truncate"
    with at_large(without(truncating, lowering)), pytest.raises(AssertionError, match="are not checked"):
        loses_nothing(NOTHING_UNSYNCED, 3)


def fail_appends(disk: FaultyDisk, code: int, concerns: Callable[[str], bool]) -> None:
    def operate(name: str, path: str) -> None:
        if name == "append" and concerns(path):
            raise OSError(code, "as the test wants", path)

    disk.before_operation = operate


def test_a_follower_whose_disk_is_full_leaves_the_isr_and_comes_back_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(min_insync_replicas=2)
    world.produce(1, b"before")
    world.settle()
    fail_appends(world.disks[3], errno.ENOSPC, lambda path: path.startswith(TOPIC))
    for number in range(5):
        world.produce(1, b"meanwhile %d" % number)
    for _ in range(40):
        world.clock.time_ms += 1000
        for node_id in (2, 3):
            world.fetch(node_id)
        world.brokers[1].in_sync.reconcile(world.brokers[1].partitions, world.clock.time_ms)
    assert sorted(world.registered.isr) == [1, 2]
    assert all(it.is_acknowledged for it in world.produced)
    assert world.partition(3).log_end_offset == 1
    complaints = [it for it in caplog.messages if "cannot follow" in it]
    assert len(complaints) == 1
    assert "as the test wants" in complaints[0]
    world.disks[3].before_operation = None
    world.settle()
    assert sorted(world.registered.isr) == [1, 2, 3]
    same_as_the_leader(world, 3)


def test_a_follower_whose_disk_fails_fetches_no_more() -> None:
    world = World()
    world.produce(1, b"before")
    world.settle()
    fail_appends(world.disks[3], errno.EIO, lambda path: path.startswith(TOPIC))
    follower = world.partition(3)
    fetcher = world.fetcher(3)
    assert fetcher is not None
    world.produce(1, b"meanwhile")
    world.fetch(3)
    assert follower.closed
    assert len(fetcher) == 0
    assert world.partition(1).log_end_offset == 2


def test_records_are_deleted_on_a_follower_that_has_to_cut_its_log() -> None:
    world = with_diverged_log()
    configure(world, retention_bytes="1")
    for node_id in world.brokers:
        partition = world.partition(node_id)
        log_files(partition).apply_retention(world.clock.time_ms, partition.high_watermark)
    assert world.partition(2).log_start_offset > world.partition(1).high_watermark
    world.produced.clear()
    world.settle()
    assert world.partition(1).log_end_offset == world.partition(2).log_end_offset
    ends = {it: dict(world.batches(it)) for it in (1, 2)}
    common = ends[1].keys() & ends[2].keys()
    assert {it: ends[1][it] for it in common} == {it: ends[2][it] for it in common}
    world.check()


# flush.messages=1


def flush(world: World, node_id: int) -> None:
    gate = world.partition(node_id).flush_gate
    begun = gate.begin()
    begun.run()
    gate.finish(begun)


def test_what_is_acknowledged_with_flush_messages_1_outlives_a_power_cut_of_all_nodes() -> None:
    world = World(min_insync_replicas=2)
    configure(world, flush_messages="1")
    world.produce(1, b"value")
    for _ in range(2):
        world.fetch(2)
        world.fetch(3)
    flush(world, 1)
    world.clock.time_ms += 1000
    for _ in range(2):
        world.fetch(2)
        world.fetch(3)
    assert [it.is_acknowledged for it in world.produced] == [False], "no follower has flushed it"
    for node_id in (2, 3):
        flush(world, node_id)
        fetcher = world.fetcher(node_id)
        assert fetcher is not None
        fetcher.release((world.partition(node_id).topic_id, 0))
        world.fetch(node_id)
    assert [it.is_acknowledged for it in world.produced] == [True]
    for node_id in (1, 2, 3):
        lose_power(world, node_id, NOTHING_UNSYNCED)
    for node_id in (1, 2, 3):
        world.open(node_id)
    world.settle()
    assert len(world.batches(2)) == 1
    assert world.batches(1) == world.batches(2) == world.batches(3)
    world.check()


# A log of another time


def test_a_node_whose_disk_is_of_an_old_backup_follows_from_there() -> None:
    world = World(min_insync_replicas=2)
    for number in range(3):
        world.produce(1, b"early %d" % number)
        world.settle()
    backup = world.disks[3].kill()
    for number in range(5):
        world.produce(1, b"late %d" % number)
        world.settle()
    world.kill(3)
    world.disks[3] = backup
    world.elect(by=1, leader=2)
    world.produce(2, b"latest")
    world.open(3)
    world.settle()
    same_as_the_leader(world, 3)


def test_a_node_with_a_longer_log_of_an_unknown_later_epoch_drops_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World()
    for number in range(3):
        world.produce(1, b"committed %d" % number)
        world.settle()
    elsewhere = log_files(world.partition(3))
    for epoch in (7, 7, 9, 12):
        for _ in range(3):
            offset = elsewhere.log_end_offset
            elsewhere.append_as_is(build_batch([Record(value=b"?")], base_offset=offset, leader_epoch=epoch))
    write_checkpoints(world, 3)
    world.kill(3)
    for number in range(5):
        world.produce(1, b"committed later %d" % number)
        world.settle()
    world.open(3)
    assert isinstance(world.partition(3).role, Follower)
    assert world.partition(3).log_end_offset == 15
    caplog.clear()
    world.settle()
    same_as_the_leader(world, 3)
    messages = [it for it in caplog.messages if it.startswith("t-0: ")]
    assert messages == [
        "t-0: cut from offset 15 to 8, where the log of leader 1 ends",
        "t-0: cut from offset 8 to 3: leader 1 does not have leader epoch 7",
    ]
    assert sorted(world.registered.isr) == [1, 2, 3]


def test_a_log_of_a_deleted_topic_of_the_same_name_is_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for number in range(5):
        world.produce(1, b"of the deleted topic %d" % number)
        world.settle()
    world.produced.clear()
    world.kill(3)
    metadata = world.brokers[1].metadata
    at_once(metadata.change(delete_topics, DeleteTopicsRequest(topics=[DeleteTopicState(TOPIC)]), version=6))
    wanted = CreatableTopic(TOPIC, -1, -1, assignments=[CreatableReplicaAssignment(0, [1, 2, 3])])
    assert [it.error_code for it in at_once(metadata.change(create_topics, CreateTopicsRequest([wanted]))).topics] == [
        0
    ]
    world.produce(1, b"of the new topic")
    world.open(3)
    world.settle()
    same_as_the_leader(world, 3)
    assert [header.base_offset for header, _ in world.partition(3).log.batches()] == [0]
    assert sorted(world.registered.isr) == [1, 2, 3]

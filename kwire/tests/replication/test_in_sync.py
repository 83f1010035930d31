"""The ISR: a leader's proposals, the decisions, and what the high watermark counts meanwhile."""

from __future__ import annotations

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_brokers import FenceBrokerRecord

from kwire.metadata.controller.brokers import fence
from kwire.metadata.controller.configs.config_changes import ConfigChange, Operation, alter_configs
from kwire.metadata.controller.partitions.isr_changes import IsrProposal, change_isrs
from kwire.metadata.image import ConfigResourceType
from kwire.runtime.futures import at_once
from testkit.worlds.replication.newcomers import (
    LAG_MS,
    a_newcomer_holds_back_the_high_watermark_before_its_change_is_recorded,
    leader_of,
    without,
)
from testkit.worlds.replication.world import NODES, TOPIC, World


@pytest.fixture
def world() -> World:
    made = World()
    made.settle()
    return made


def test_a_newcomer_holds_back_the_high_watermark_before_its_change_is_recorded(world: World) -> None:
    a_newcomer_holds_back_the_high_watermark_before_its_change_is_recorded(world)


def test_who_is_behind_leaves_and_who_has_caught_up_joins(world: World) -> None:
    without(world, 3)
    _, partition = leader_of(world)
    assert partition.high_watermark == partition.log_end_offset
    world.settle()
    assert set(world.registered.isr) == set(NODES)


def test_who_has_everything_stays_however_long_nothing_is_produced(world: World) -> None:
    leader, _ = leader_of(world)
    world.clock.time_ms += 10 * LAG_MS
    broker = world.brokers[leader]
    broker.in_sync.reconcile(broker.partitions, world.clock.now_ms())
    assert set(world.registered.isr) == set(NODES)


def test_a_replica_that_has_restarted_since_does_not_join_by_what_it_fetched_before(world: World) -> None:
    leader, _ = leader_of(world)
    state = world.brokers[leader].metadata.state
    known = world.registered
    topic_id = state.image.topics[TOPIC].topic_id
    epochs = {it: state.image.brokers[it].broker_epoch for it in NODES}
    gone = next(it for it in NODES if it != leader)
    topic = state.image.topics[TOPIC]
    topic.partitions[0] = attrs.evolve(known, isr=tuple(it for it in NODES if it != gone))

    def decided(
        by: int = leader, isr: dict[int, int] | None = None, leader_epoch: int = 0, partition_epoch: int = 0
    ) -> ErrorCode:
        proposal = IsrProposal(
            topic_id,
            0,
            known.leader_epoch + leader_epoch,
            known.partition_epoch + partition_epoch,
            epochs if isr is None else isr,
        )
        records, [error] = change_isrs(state, by, [proposal])
        assert bool(records) == (error is ErrorCode.NONE)
        return error

    assert decided() is ErrorCode.NONE
    assert decided(isr={**epochs, gone: epochs[gone] - 1}) is ErrorCode.INELIGIBLE_REPLICA
    assert decided(isr={**epochs, gone: -1}) is ErrorCode.INELIGIBLE_REPLICA
    assert decided(by=gone) is ErrorCode.INVALID_REQUEST
    assert decided(leader_epoch=-1) is ErrorCode.FENCED_LEADER_EPOCH
    assert decided(partition_epoch=-1) is ErrorCode.INVALID_UPDATE_VERSION
    assert decided(isr={gone: epochs[gone]}) is ErrorCode.INVALID_REQUEST
    assert decided(isr={**epochs, 9: 1}) is ErrorCode.INVALID_REQUEST
    state.image.apply(FenceBrokerRecord(gone, epochs[gone]), offset=state.image.offset + 1)
    assert decided() is ErrorCode.INELIGIBLE_REPLICA
    [error] = change_isrs(state, leader, [IsrProposal(bytes(16), 0, 0, 0, epochs)])[1]
    assert error is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_smaller_isr_does_not_commit_more_under_the_min_insync_replicas_of_before(world: World) -> None:
    leader, partition = leader_of(world)
    others = [it for it in NODES if it != leader]
    committed = partition.high_watermark
    world.cluster.deaf.add(leader)
    world.produce(leader, b"only the leader has it", acks=1)
    change = ConfigChange(ConfigResourceType.TOPIC, TOPIC, [("min.insync.replicas", Operation.SET, "2")])
    metadata = world.brokers[others[0]].metadata
    at_once(metadata.change(alter_configs, [change], validate_only=False))
    at_once(metadata.change(lambda state: fence(state, others)))
    assert (world.registered.isr, {*world.registered.eligible_leader_replicas}) == ((leader,), {*others})
    world.hear(leader)
    assert partition.high_watermark == committed, "others may lead, and have no more"


def test_a_producer_that_requests_all_acks_waits_no_longer_than_its_timeout(world: World) -> None:
    leader, partition = leader_of(world)
    produced = world.produce(leader, b"slow")
    assert produced is not None
    future = partition.when_committed(produced.offset, -1)
    assert future is not None
    future.wait_at_most(1500)
    assert future.timeout_s == 1.5
    future.give_up()
    assert future.value is not None
    assert future.value.code is ErrorCode.REQUEST_TIMED_OUT
    world.settle()
    assert produced.is_acknowledged


def test_followers_are_byte_for_byte_what_the_leader_is(world: World) -> None:
    leader, _ = leader_of(world)
    for number in range(20):
        world.produce(leader, b"value %d" % number)
    world.settle()
    logs = [world.batches(it) for it in NODES]
    assert len(logs[0]) == 20
    assert logs[0] == logs[1] == logs[2]
    assert all(world.partition(it).high_watermark == 20 for it in NODES)


def test_followers_follow_the_log_start(world: World) -> None:
    leader, partition = leader_of(world)
    for number in range(6):
        world.produce(leader, b"value %d" % number)
    world.settle()
    partition.delete_records_before(4, now_ms=world.clock.now_ms())
    world.settle()
    assert [world.partition(it).log_start_offset for it in NODES] == [4, 4, 4]
    follower = next(it for it in NODES if it != leader)
    world.kill(follower)
    partition.delete_records_before(-1, now_ms=world.clock.now_ms())
    world.open(follower)
    world.settle()
    assert world.partition(follower).log_start_offset == 6

"""A new leader does not return an end that is lower than one that its predecessor returned (KIP-207)."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from kwire.handlers import list_offsets
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from testkit.worlds.replication.world import TOPIC, World

LATEST, EARLIEST, MAX_TIMESTAMP, FAR_FUTURE = -1, -2, -3, 1 << 60


@pytest.fixture
def world() -> World:
    """A world whose new leader has a record that the old one acknowledged, and lacks that high watermark."""
    world = World()
    world.settle()
    leader = world.registered.leader
    followers = [it for it in world.brokers if it != leader]
    world.produce(leader, b"acknowledged")
    for node_id in (*followers, *followers):
        world.fetch(node_id)
    assert [it.is_acknowledged for it in world.produced] == [True]
    assert world.partition(followers[0]).high_watermark == 0
    assert world.elect(followers[0], followers[0])
    return world


def listed_offset(world: World, timestamp: int, version: int = 11, replica_id: int = -1) -> tuple[int, int]:
    """Returns the error and the offset."""
    request = ListOffsetsRequest(replica_id, 0, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, timestamp)])])
    broker = world.brokers[world.registered.leader]
    answer = bound(list_offsets.handle, broker)(request, Context("client", "127.0.0.1", 9092, api_version=version))
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset


@pytest.mark.parametrize("timestamp", [LATEST, MAX_TIMESTAMP, FAR_FUTURE, 0])
def test_a_client_gets_an_error_until_the_leader_has_learned_what_is_committed(world: World, timestamp: int) -> None:
    assert listed_offset(world, timestamp) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert listed_offset(world, LATEST, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    world.settle()
    assert listed_offset(world, timestamp) == (0, {LATEST: 1, FAR_FUTURE: -1}.get(timestamp, 0))


def test_followers_and_the_beginning_need_not_wait(world: World) -> None:
    assert listed_offset(world, EARLIEST) == (0, 0)
    leader = world.registered.leader
    follower = next(it for it in world.brokers if it != leader)
    assert listed_offset(world, LATEST, replica_id=follower) == (0, 1)

"""The rate at which throttled replicas are copied (KIP-73), in bytes and on the clock of the test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.metadata.controller.configs.config_changes import ConfigChange, Operation, alter_configs
from kwire.metadata.image import ConfigResourceType
from kwire.replicas.roles import Leader
from kwire.runtime.futures import at_once
from testkit.worlds.replication.world import TOPIC, World

RATE = 1000
STEP_MS = 100
LEADER, FOLLOWER = "leader", "follower"


def configure(world: World, node_id: int, kind: int, resource: str, name: str, value: str | None) -> None:
    operation = (name, Operation.DELETE if value is None else Operation.SET, value)
    change = ConfigChange(kind, resource, [operation])
    [outcome] = at_once(world.brokers[node_id].metadata.change(alter_configs, [change], validate_only=False))
    assert outcome.code == ErrorCode.NONE, outcome.message


def throttle(world: World, side: str, replicas: str | None, rate: int | None = RATE) -> None:
    """Throttles the leader, which is node 1, or the follower, node 3."""
    node_id = 1 if side == LEADER else 3
    limit = None if rate is None else str(rate)
    configure(world, node_id, ConfigResourceType.BROKER, str(node_id), f"{side}.replication.throttled.rate", limit)
    configure(world, node_id, ConfigResourceType.TOPIC, TOPIC, f"{side}.replication.throttled.replicas", replicas)


def replica_that_lags(batches: int = 100) -> World:
    """Node 3 is back, and lacks so many batches of some 100 bytes."""
    world = World()
    world.kill(3)
    for number in range(batches):
        world.produce(1, b"value %4d of about fifty bytes .................." % number)
        world.fetch(2)
    world.settle()
    world.open(3)
    return world


def size(world: World, node_id: int) -> int:
    return sum(len(data) for _, data in world.batches(node_id))


def follow(world: World, for_ms: int, until: Callable[[], bool] = lambda: False) -> int:
    """Fetches on nodes 2 and 3. Returns after how many milliseconds."""
    began_ms = world.clock.time_ms
    while world.clock.time_ms - began_ms < for_ms and not until():
        world.clock.time_ms += STEP_MS
        world.fetch(2)
        world.fetch(3)
    return world.clock.time_ms - began_ms


def has_all(world: World) -> bool:
    return size(world, 3) == size(world, 1)


@pytest.mark.parametrize(("side", "replicas"), [(LEADER, "0:1"), (LEADER, "*"), (FOLLOWER, "0:3,1:2"), (FOLLOWER, "*")])
def test_a_copy_takes_as_long_as_the_rate_requires(side: str, replicas: str) -> None:
    world = replica_that_lags()
    throttle(world, side, replicas)
    total = size(world, 1)
    assert total > 10 * RATE
    took_ms = follow(world, 100_000, lambda: has_all(world))
    assert has_all(world)
    assert took_ms == pytest.approx(1000 * total / RATE, rel=0.2)
    world.check()


@pytest.mark.parametrize(("side", "replicas"), [(LEADER, "0:2,0:3,1:1"), (FOLLOWER, "0:1,0:2,1:3"), (LEADER, "")])
def test_replicas_that_are_not_named_are_copied_as_fast_as_possible(side: str, replicas: str) -> None:
    world = replica_that_lags()
    throttle(world, side, replicas)
    assert follow(world, 100_000, lambda: has_all(world)) < 1000 * size(world, 1) / RATE / 2


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_a_copy_ends_in_the_isr_and_is_throttled_no_more(side: str) -> None:
    world = replica_that_lags()
    throttle(world, side, "*")
    follow(world, 100_000, lambda: 3 in world.registered.isr)
    assert set(world.registered.isr) == {1, 2, 3}
    began = size(world, 3)
    for number in range(40):
        produced = world.produce(1, b"value %4d" % number + bytes(400))
        assert produced is not None
        follow(world, 3 * STEP_MS, partial(getattr, produced, "is_acknowledged"))
        assert produced.is_acknowledged
    assert size(world, 3) - began > 12 * RATE, "in at most 12 seconds"
    world.check()


def test_what_replicas_in_sync_get_counts_for_those_that_are_not() -> None:
    world = replica_that_lags()
    throttle(world, LEADER, "*")
    began_ms = world.clock.time_ms
    while world.clock.time_ms - began_ms < 4000:
        for _ in range(2):
            world.produce(1, b"value of about fifty bytes ........................")
        follow(world, STEP_MS)
        world.fetch(2)
    assert world.partition(2).log_end_offset >= world.partition(1).log_end_offset - 4
    assert size(world, 3) < 2 * RATE, "node 2 alone takes twice the rate"


def test_a_limit_that_is_taken_away_ends_the_wait() -> None:
    world = replica_that_lags()
    throttle(world, FOLLOWER, "*", rate=1)
    follow(world, 5000)
    assert not has_all(world)
    throttle(world, FOLLOWER, None, rate=None)
    assert follow(world, 100_000, lambda: has_all(world)) < 5000


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_a_copy_continues_at_any_limit(side: str) -> None:
    world = replica_that_lags(20)
    throttle(world, side, "*", rate=0)
    follow(world, 12 * 11_000, lambda: has_all(world))
    assert has_all(world)


def test_a_follower_that_leads_no_more_is_no_leader_that_is_throttled() -> None:
    world = World()
    assert isinstance(world.partition(1).role, Leader)
    throttle(world, LEADER, "0:1")
    assert world.partition(1).is_leader_throttled
    assert world.elect(by=2, leader=2)
    assert not world.partition(1).is_leader_throttled
    assert not world.partition(2).is_leader_throttled

"""A follower whose session rests."""

from __future__ import annotations

from testkit.worlds.replication.world import NODES, World


def leader_of(world: World) -> int:
    (leader,) = world.leaders
    return leader


def look(world: World) -> None:
    broker = world.brokers[leader_of(world)]
    broker.in_sync.reconcile(broker.partitions, world.clock.now_ms())


def followers_of(world: World) -> list[int]:
    return [it for it in NODES if it != leader_of(world)]


def a_follower_that_fetches_no_more_is_behind_from_its_last_fetch_on(world: World) -> None:
    first, second = followers_of(world)
    for _ in range(100):
        world.clock.time_ms += 500
        world.fetch(first)
    world.produce(leader_of(world), b"after a long time", acks=1)
    look(world)
    assert set(world.registered.isr) == {leader_of(world), first}
    world.fetch(second)

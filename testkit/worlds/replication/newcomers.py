"""A replica that joins the ISR."""

from __future__ import annotations

from kwire.replicas.partition import Partition
from testkit.worlds.replication.world import NODES, SETTINGS, World

LAG_MS = 30_000


def leader_of(world: World) -> tuple[int, Partition]:
    return world.registered.leader, world.partition(world.registered.leader)


def without(world: World, node_id: int) -> None:
    """The node falls behind, and out of the ISR."""
    leader, _ = leader_of(world)
    for _ in range(4):
        world.produce(leader, b"missed", acks=1)
        world.clock.time_ms += LAG_MS // 2
        for other in NODES:
            if other not in (leader, node_id):
                for _ in range(3):
                    world.fetch(other)
        broker = world.brokers[leader]
        broker.in_sync.reconcile(broker.partitions, world.clock.now_ms())
    assert node_id not in world.registered.isr


def a_newcomer_holds_back_the_high_watermark_before_its_change_is_recorded(world: World) -> None:
    without(world, 3)
    leader, partition = leader_of(world)
    world.slow[leader].is_slow = True
    for _ in range(10):
        world.clock.time_ms += SETTINGS.backoff_ms
        world.fetch(3)
    assert 3 not in world.registered.isr
    world.produce(leader, b"more")
    for _ in range(3):
        world.fetch(2 if leader != 2 else 1)
    assert [it.is_acknowledged for it in world.produced] == [False], "node 3 may be in the ISR by now"
    world.slow[leader].decide()
    assert 3 in world.registered.isr
    assert [it.is_acknowledged for it in world.produced] == [False]
    for _ in range(3):
        world.fetch(3)
    assert [it.is_acknowledged for it in world.produced] == [True]
    assert partition.high_watermark == partition.log_end_offset

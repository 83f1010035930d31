"""A broker that closes is still a node of its cluster for a moment, and its logs are closed already."""

from __future__ import annotations

from testkit.cluster.scripted_cluster import create
from testkit.worlds.replication.world import World


def test_a_broker_that_closes_does_not_follow_what_others_decide_meanwhile() -> None:
    world = World()
    world.cluster.deaf.add(1)
    create(world.brokers[2], "later", 1, 3)
    closing = world.brokers[1]
    closing.close()
    assert "later" in closing.metadata.image.topics, "it has to know that to record its own stop"
    assert not [it for it in world.disks[1].listdir("") if it.startswith("later")]
    assert world.brokers[2].metadata.image.brokers[1].fenced

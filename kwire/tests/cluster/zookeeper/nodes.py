"""Nodes of a cluster on ZooKeeper, for tests; and a process that is one until it is killed.

python -m kwire.tests.cluster.zookeeper.nodes CONNECT NODE_ID
"""

from __future__ import annotations

import sys

from kwire.clock import SystemClock
from kwire.cluster.zookeeper.node import ZooKeeperNode
from kwire.config.listeners import Listener
from kwire.config.server import load_config
from kwire.config.zookeeper import ZooKeeperConfig

SESSION_TIMEOUT_MS = 2000


def zookeeper_config(connect: str, **settings: object) -> ZooKeeperConfig:
    """`settings` by their names, with underscores for dots."""
    named = {
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        # A machine with other things to do may take a while.
        "zookeeper.connection.timeout.ms": 20_000,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    config = load_config(settings=[f"{name}={value}" for name, value in named.items()]).zookeeper
    assert config is not None
    return config


def join(
    config: ZooKeeperConfig, node_id: int, host: str = "127.0.0.1", *, cluster_id: str | None = None
) -> ZooKeeperNode:
    endpoints = [Listener("PLAINTEXT", host, 9092 + node_id), Listener("OUT", host, 19092 + node_id, "SSL")]
    return ZooKeeperNode.join(config, node_id, endpoints, clock=SystemClock(), rack="r", cluster_id=cluster_id)


if __name__ == "__main__":
    joined = join(zookeeper_config(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write("joined\n")
    sys.stdout.flush()
    sys.stdin.read()

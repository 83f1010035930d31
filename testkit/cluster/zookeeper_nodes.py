"""Nodes of a cluster on ZooKeeper, for tests; and a process that is one until it is killed.

python -m testkit.cluster.zookeeper_nodes CONNECT NODE_ID SESSION_TIMEOUT_MS
"""

from __future__ import annotations

import sys

from kwire.cluster.zookeeper.node import ZooKeeperNode
from kwire.config.listeners import Listener
from kwire.config.server import load_config
from kwire.config.zookeeper import ZooKeeperConfig
from kwire.runtime.clock import SystemClock

SESSION_TIMEOUT_MS = 20_000
"""The timeout of a node for an answer, or for a TLS handshake. On a busy machine, in a server that has just started,
either may take seconds.
"""
SHORT_SESSION_TIMEOUT_MS = 8_000
"""The session timeout of a node that is killed. With less, a busy machine sometimes ends it before the node has joined.
"""


def zookeeper_config(connect: str, **settings: object) -> ZooKeeperConfig:
    """`settings` by their names, with underscores for dots."""
    named = {
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
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
    joined = join(zookeeper_config(sys.argv[1], zookeeper_session_timeout_ms=sys.argv[3]), int(sys.argv[2]))
    sys.stdout.write("joined\n")
    sys.stdout.flush()
    sys.stdin.read()

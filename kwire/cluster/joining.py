"""Joins the configured cluster: one in a local folder, or one in ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.wire import uuid_to_text

from kwire.config.definition import ConfigError

if TYPE_CHECKING:
    from kwire.cluster.membership import Membership
    from kwire.config.server import ServerConfig
    from kwire.runtime.clock import Clock
    from kwire.runtime.loop import Loop


def join(config: ServerConfig, clock: Clock, loop: Loop) -> Membership | None:
    """Joins the cluster; returns None if the configuration has none. Its listeners have the ports that others connect
    to.

    Raises NodeIdTakenError, StorageError (among them ZooKeeperError), CorruptLogError, ConfigError.
    """
    if config.kwire_cluster_dir is not None and config.zookeeper is not None:
        raise ConfigError("kwire.cluster.dir and zookeeper.connect are both set: a node has one cluster")
    if config.kwire_cluster_dir is not None:
        from kwire.cluster.local.node import LocalNode

        return LocalNode.join(
            config.kwire_cluster_dir,
            config.node_id,
            clock.now_ms,
            loop,
            new_cluster_id=config.cluster_id or uuid_to_text(clock.uuid()),
        )
    if config.zookeeper is not None:
        from kwire.cluster.zookeeper.node import ZooKeeperNode

        return ZooKeeperNode.join(
            config.zookeeper,
            config.node_id,
            config.advertised_listeners or config.listeners,
            clock=clock,
            rack=config.broker_rack,
            cluster_id=config.cluster_id,
            loop=loop,
        )
    return None

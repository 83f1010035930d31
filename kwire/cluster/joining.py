"""Joins the cluster that the configuration names, in the form that it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.wire import uuid_to_text

if TYPE_CHECKING:
    from kwire.beside import Beside
    from kwire.clock import Clock
    from kwire.cluster.membership import Membership
    from kwire.config.server import ServerConfig


def join(config: ServerConfig, clock: Clock, beside: Beside) -> Membership | None:
    """None if the configuration names no cluster. Raises NodeIdTakenError, StorageError, CorruptLogError."""
    if config.kwire_cluster_dir is None:
        return None
    from kwire.cluster.local.node import LocalNode

    return LocalNode.join(
        config.kwire_cluster_dir,
        config.node_id,
        clock.now_ms,
        beside,
        new_cluster_id=config.cluster_id or uuid_to_text(clock.uuid()),
    )

"""The current leader in a response when another broker leads the partition (KIP-951): shared by Produce and Fetch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.context import Context

E = TypeVar("E")


def node_endpoints(nodes: Nodes, context: Context, endpoint: Callable[[int, str, int, str | None], E]) -> list[E]:
    """Returns the addresses of all brokers. `endpoint(node_id, host, port, rack)` makes the message's own type."""
    return [endpoint(node.node_id, node.host, node.port, node.rack) for node in nodes.endpoints(context)]

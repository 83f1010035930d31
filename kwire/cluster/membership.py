"""The interface between a node and the others of its cluster: an ordered log, and the liveness of each node.

Safety depends only on the log. A record enters it only at the end that its writer has read up to, so every decision is
made on the state that it changes, on any node. Information about which nodes are alive, and which of them is the
controller, may be late or wrong: two nodes may act at once. That costs time, not safety.

Each implementation is a package next to this module. All methods and callbacks belong to the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from kwire.metadata.log import MetadataLog

NO_CONTROLLER: Final = -1


class Membership(Protocol):
    """This node's membership in the cluster, after it has joined and until it leaves.

    A process that is killed has left, too: the others detect that.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which the first node to join has chosen."""
        ...

    @property
    def log(self) -> MetadataLog: ...

    @property
    def controller_id(self) -> int:
        """The last known controller, which reacts to the start and end of nodes; NO_CONTROLLER if there is none."""
        ...

    def is_alive(self, node_id: int) -> bool:
        """True if that node is alive, by the last known state."""
        ...

    def watch(self, node_ids: Collection[int]) -> None:
        """Makes `run` call `on_change` when one of these nodes ends, even if it restarts at once.

        Replaces the nodes of an earlier call.
        """

    async def run(self, on_change: Callable[[], None]) -> None:
        """Follows the log, as a task of the server, and calls `on_change` when another node is the controller, or when
        a watched node has ended. It may also call it when nothing has changed.

        Runs until cancelled. Raises MembershipEnded when this node no longer belongs to the cluster.
        """

    def leave(self) -> None:
        """Leaves the cluster: for the other nodes, this one has ended. No other method may be called afterwards."""


class NodeIdTakenError(Exception):
    """Another process is this node of the cluster."""


class MembershipEnded(Exception):
    """This node is no longer part of the cluster, and others may act in its place. The text has the reason."""

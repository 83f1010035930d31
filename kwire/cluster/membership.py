"""What a node shares with the other nodes of its cluster: an ordered log, and knowledge of who is alive.

Safety rests on the log alone. A record enters it only at the end that its writer has read up to, so every decision is
made on the state that it changes, whichever node makes it. Knowledge of who is alive, and of which node reacts to that,
may be late or wrong: two nodes may react at once. That costs time, not safety.

Each form is a package beside this module. All methods and callbacks belong to the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from kwire.metadata.log import MetadataLog

NO_CONTROLLER: Final = -1


class Membership(Protocol):
    """This node's part in the cluster, from when it has joined until it leaves.

    A process that is killed has left, too: the others learn of it by themselves.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str:
        """The same for all nodes; the first one to join has chosen it."""
        ...

    @property
    def log(self) -> MetadataLog: ...

    @property
    def controller_id(self) -> int:
        """The node that reacts to life and death, as far as this node knows; NO_CONTROLLER if there is none."""
        ...

    def is_alive(self, node_id: int) -> bool:
        """Whether that node is alive, as far as this node knows."""
        ...

    def watch(self, node_ids: Collection[int]) -> None:
        """`on_change` of `run` is called when one of these nodes ends. Replaces the nodes of an earlier call."""

    async def run(self, on_change: Callable[[], None]) -> None:
        """A task of the server: follows the log, and calls `on_change` when the answers above have changed.

        Runs until cancelled. Raises MembershipEnded when this node no longer belongs to the cluster.
        """

    def leave(self) -> None:
        """The node has ended as far as others are concerned. Nothing else may be called any more."""


class NodeIdTakenError(Exception):
    """Another process is this node of the cluster."""


class MembershipEnded(Exception):
    """This node is no longer part of the cluster, and others may act in its place. The text says why."""

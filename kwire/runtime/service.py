"""The interface of the parts of a broker: each follows the events of the node, and has its own tasks."""

from __future__ import annotations

from collections.abc import Collection

from kwire_protocol.wire import Uuid


class Service:
    """A part of a broker. `Broker.services` lists all of them, in the order in which they are called.

    A method that a service does not define does nothing. All but `run` may be called in the middle of other work, and
    return at once.
    """

    def start(self) -> None:
        """Called once, before the first request, when the logs are open and the partitions have their roles."""

    def role_changed(self, topic: str, index: int) -> None:
        """Called when the role of this node for the partition, or the leader epoch, has changed."""

    def topic_deleted(self, topic: str, topic_id: Uuid) -> None:
        """Called when the topic and its partitions have been deleted."""

    def partitions_failed(self, partitions: Collection[tuple[str, int]]) -> None:
        """Called when the logs of these partitions, by topic and index, are out of service until the next start."""

    async def run(self) -> None:
        """Runs the service's tasks until it is cancelled."""

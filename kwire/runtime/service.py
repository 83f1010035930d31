"""The parts of a broker, as the broker sees them: each follows what happens to the node, and has tasks of its own."""

from __future__ import annotations

from collections.abc import Collection

from kwire_protocol.wire import Uuid


class Service:
    """A part of a broker. `Broker.services` has all of them, and calls them in that order.

    What a service does not define does nothing. All but `run` may be called in the middle of other work, and return at
    once.
    """

    def start(self) -> None:
        """The logs are open, and the partitions have their roles. Called once, before the first request."""

    def role_changed(self, topic: str, index: int) -> None:
        """The role of this node for the partition, or the leader epoch, has changed."""

    def topic_deleted(self, topic: str, topic_id: Uuid) -> None:
        """The topic and its partitions are gone."""

    def partitions_failed(self, partitions: Collection[tuple[str, int]]) -> None:
        """The logs of these partitions, given by topic and index, are out of service until the next start."""

    async def run(self) -> None:
        """Runs the service's tasks until it is cancelled."""

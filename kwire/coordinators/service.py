"""The reactions to events of the node that the coordinators of groups, transactions and share states share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic

from kwire_protocol.wire import Uuid

from kwire.coordinators.loading import S
from kwire.coordinators.runtime import CoordinatorRuntime
from kwire.runtime.service import Service


class CoordinatorService(Service, Generic[S]):
    """The service of a coordinator, whose shards `runtime` drives."""

    runtime: CoordinatorRuntime[S]

    def start(self) -> None:
        self.runtime.start()

    def role_changed(self, topic: str, index: int) -> None:
        if topic == self.runtime.topic.name:
            self.runtime.follow_leader(index)

    def topic_deleted(self, topic: str, topic_id: Uuid) -> None:
        if topic == self.runtime.topic.name:
            self.runtime.forget_topic()
        else:
            self.other_topic_deleted(topic, topic_id)

    def other_topic_deleted(self, topic: str, topic_id: Uuid) -> None:
        """Called when a topic other than the coordinator's own was deleted."""

    def partitions_failed(self, partitions: Collection[tuple[str, int]]) -> None:
        self.runtime.forget_partitions(index for topic, index in partitions if topic == self.runtime.topic.name)

    async def run(self) -> None:
        await self.runtime.run()

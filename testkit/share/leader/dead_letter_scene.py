"""A share group with a dead-letter topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs
import pytest
import trio
import trio.testing
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.records import Record, build_batch, iter_records, read_header
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.image import ConfigResourceType
from kwire.replicas.roles import Follower
from kwire.runtime import workers
from kwire.share.coordinator.state import ShareState
from kwire.share.leader.dead_letters import ENABLED
from testkit.basics.held_clock import Threads
from testkit.scenes.server_in_trio import ServerInTrio, with_server
from testkit.share.leader.members import ShareGroup, finished

DLQ = "dlq.g"


SHARE_STATE = "share.coordinator.state.topic.num.partitions=1"


AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable=true"


Story = Callable[["DeadLetterScene"], Awaitable[None]]


@attrs.define(eq=False)
class DeadLetterScene:
    group: ShareGroup

    async def configure(self, kind: ConfigResourceType, name: str, **values: str) -> None:
        configs = [AlterableConfig(key.replace("_", "."), 0, value) for key, value in values.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)])
        (answer,) = (await self.group.producer.call(request, 1)).responses
        assert answer.error_code == 0, answer.error_message

    async def name_topic(self, name: str = DLQ, *, copies: bool = True) -> None:
        await self.configure(
            ConfigResourceType.GROUP,
            "g",
            errors_deadletterqueue_topic_name=name,
            errors_deadletterqueue_copy_record_enable=str(copies).lower(),
        )

    async def create(self, name: str = DLQ, **configs: str) -> None:
        settings = {ENABLED: "true", **{key.replace("_", "."): value for key, value in configs.items()}}
        topic = CreatableTopic(
            name, 1, 1, configs=[CreatableTopicConfig(key, value) for key, value in settings.items()]
        )
        (result,) = (
            await finished(self.group.broker.metadata.change(create_topics, CreateTopicsRequest([topic])))
        ).topics
        assert result.error_code == 0, result.error_message

    def lead(self, leads: bool) -> None:
        """True if the broker leads the dead-letter topic. If False, its metadata still has it as the leader."""
        partition = self.group.broker.partitions.find(DLQ, 0)
        leader = attrs.evolve(self.group.server.partition.role, leader_epoch=partition.role.leader_epoch + 1)
        partition.take_role(leader if leads else Follower(leader_id=2, leader_epoch=leader.leader_epoch))

    async def append(self, *records: Record, topic: str = "t") -> None:
        partition = self.group.broker.partitions.find(topic, 0)
        batch = memoryview(bytearray(build_batch(records)))
        partition.append(batch, read_header(batch), acks=1, now_ms=0)

    def letters(self, name: str = DLQ, index: int = 0) -> list[Record]:
        if name not in self.group.broker.metadata.image.topics:
            return []
        log = self.group.broker.partitions.find(name, index).log
        return [record for _, piece in log.batches() for record in iter_records(piece.read())]

    async def settled(self) -> ShareState:
        """Returns the stored state when nothing is being copied or written."""
        await trio.testing.wait_all_tasks_blocked()
        return await self.group.stored()


def story_of(
    story: Story, *, settings: Sequence[str] = (), disk: MemoryDisk | None = None, is_restarted: bool = False
) -> None:
    async def scenario(server: ServerInTrio) -> None:
        group = ShareGroup(server, await server.connect()) if is_restarted else await ShareGroup.on(server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.hold_the_clock)
            await story(DeadLetterScene(group))
            nursery.cancel_scope.cancel()

    disks = None if disk is None else {"/data": disk}
    threads = Threads(workers.run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "run", threads.run)
        with_server(scenario, settings=[SHARE_STATE, *settings], disks=disks)

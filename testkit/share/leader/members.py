"""Members of share group `g`, each with a connection of its own to a server in trio, and topic `t` that they share.

The group's coordinator is not needed: a test initializes the state as the coordinator would.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import pytest
import trio
from kwire_protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import NULL_UUID
from kwire_storage.disk.files import Disk

from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.image import ConfigResourceType
from kwire.node.broker import Broker
from kwire.runtime import workers
from kwire.runtime.futures import Future, begun
from kwire.share.coordinator.state import ShareState
from testkit.basics.held_clock import Threads
from testkit.raw.share_requests import Acked, Acquired, ShareRequests, acquired
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, with_server

T = TypeVar("T")


async def finished(coroutine: Coroutine[Future[Any], None, T]) -> T:
    """The result of what awaits futures, in a task."""
    done = begun(coroutine)
    if not done.is_set:
        was_set = trio.Event()
        done.when_set(was_set.set)
        await was_set.wait()
    return done.value.unwrap()


async def initialize(broker: Broker, *, start_offset: int = 0, topic: str = "t", state_epoch: int = 0) -> None:
    """Initializes the state, as the group's coordinator does when a member subscribes."""
    await finished(broker.share_state.runtime.topic.ensure())
    image = broker.metadata.image.topics[topic]
    partitions = [(index, state_epoch, start_offset) for index in range(len(image.partitions))]
    errors = await finished(broker.persister.initialize("g", {image.topic_id: partitions}))
    assert not any(errors.values())


async def stored(broker: Broker, partition: int = 0, *, topic: str = "t") -> ShareState:
    image = broker.metadata.image.topics[topic]
    epoch = image.partitions[partition].leader_epoch
    return await finished(broker.persister.read("g", image.topic_id, partition, epoch))


async def create_topic(broker: Broker, name: str, partitions: int) -> None:
    await finished(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic(name, partitions, 1)])))


async def set_group_config(client: TrioClient, **values: str) -> None:
    configs = [AlterableConfig(name.replace("_", "."), value) for name, value in values.items()]
    (answer,) = (
        await client.call(AlterConfigsRequest([AlterConfigsResource(ConfigResourceType.GROUP, "g", configs)]), 2)
    ).responses
    assert answer.error_code == 0, answer.error_message


@attrs.define(eq=False, kw_only=True)
class Member(ShareRequests):
    client: TrioClient

    async def send_fetch(self, partitions: Sequence[int] = (), **options: Any) -> None:
        await self.client.send((self.fetch_request(partitions, **options), self.version))
        self.epoch += 1

    async def answer(self) -> Any:
        return (await self.client.read(78, self.version))[1]

    async def fetch(self, partitions: Sequence[int] = (), **options: Any) -> Any:
        """The response; the session is at its next epoch then."""
        await self.send_fetch(partitions, **options)
        return await self.answer()

    async def get(self, **options: Any) -> Acquired:
        """Returns the acquired records of partition 0."""
        answer = await self.fetch(**options)
        assert answer.error_code == 0, answer.error_code
        return acquired(answer)

    async def acknowledge(self, *batches: Acked, is_renewal: bool = False) -> Any:
        answer = await self.client.call(self.acknowledge_request(*batches, is_renewal=is_renewal), self.version)
        self.epoch += 1
        return answer

    async def ack(self, *batches: Acked, is_renewal: bool = False) -> int:
        """The error of the partition."""
        answer = await self.acknowledge(*batches, is_renewal=is_renewal)
        assert answer.error_code == 0, answer.error_code
        code: int = answer.responses[0].partitions[0].error_code
        return code


@attrs.define(eq=False)
class ShareGroup:
    server: ServerInTrio
    producer: TrioClient

    @classmethod
    async def on(cls, server: ServerInTrio, *, start_offset: int = 0) -> ShareGroup:
        await initialize(server.broker, start_offset=start_offset)
        return cls(server, await server.connect())

    @property
    def broker(self) -> Broker:
        return self.server.broker

    async def member(self, name: str = "a", *, topic: str = "t") -> Member:
        return Member(
            client=await self.server.connect(), name=name, topic_id=self.broker.metadata.image.topics[topic].topic_id
        )

    async def produce(self, *values: bytes, topic: str = "t", index: int = 0, age_ms: int = 0) -> int:
        """Sends a batch of that age; returns its base offset."""
        timestamp = self.broker.clock.now_ms() - age_ms
        batch = build_batch([Record(timestamp=timestamp, value=value) for value in values])
        return await self.send(batch, topic=topic, index=index)

    async def send(self, batch: bytes, *, topic: str = "t", index: int = 0) -> int:
        request = ProduceRequest(
            None, 1, 1000, [TopicProduceData(topic, NULL_UUID, [PartitionProduceData(index, batch)])]
        )
        (answer,) = (await self.producer.call(request, 9)).responses[0].partition_responses
        assert answer.error_code == 0
        base: int = answer.base_offset
        return base

    async def stored(self) -> ShareState:
        return await stored(self.broker)


def with_group(
    story: Callable[[ShareGroup], Awaitable[None]], *, start_offset: int = 0, settings: Sequence[str] = ()
) -> None:
    """Runs `story` with a group that begins at this offset, on a server with an empty topic `t`."""

    async def scenario(server: ServerInTrio) -> None:
        await story(await ShareGroup.on(server, start_offset=start_offset))

    serve(scenario, settings=settings)


def serve(
    scenario: Callable[[ServerInTrio], Awaitable[None]],
    *,
    settings: Sequence[str] = (),
    disks: Mapping[str, Disk] | None = None,
) -> None:
    """Serves like `with_server`; the work of its threads takes no time, or locks would end meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        threads = Threads(workers.run)
        patch.setattr(workers, "run", threads.run)

        async def with_held_clock(server: ServerInTrio) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(threads.hold_the_clock)
                await scenario(server)
                nursery.cancel_scope.cancel()

        with_server(
            with_held_clock, settings=["share.coordinator.state.topic.num.partitions=1", *settings], disks=disks
        )

"""Members of share group `g`, each with a connection of its own to a server in trio, and topic `t` that they share.

The group's coordinator is not needed: a test initializes the state as the coordinator would.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import attrs
import trio
from kwire_protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kwire_protocol.messages.share_fetch import (
    AcknowledgementBatch as FetchedBatch,
)
from kwire_protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kwire_protocol.records import read_header
from kwire_protocol.wire import Uuid

from kwire.broker import Broker
from kwire.metadata.image import ConfigResourceType
from kwire.share_state.state import ShareState
from kwire.tests.server_in_trio import ServerInTrio, TrioClient
from kwire.tests.simple_requests import produce
from kwire.waits import Slot, begun

T = TypeVar("T")

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
VERSION = 2
Acks = Sequence[tuple[int, int, int | Sequence[int]]]
Acquired = list[tuple[int, int, int]]


async def finished(coroutine: Coroutine[Slot[Any], None, T]) -> T:
    """The result of what awaits slots, in a task."""
    done = begun(coroutine)
    if not done.is_set:
        was_set = trio.Event()
        done.when_set(was_set.set)
        await was_set.wait()
    return done.value.unwrap()


async def initialize(broker: Broker, *, start_offset: int = 0, topic: str = "t", state_epoch: int = 0) -> None:
    """What the group's coordinator does when a member subscribes."""
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
    await finished(broker.metadata.create_topics(CreateTopicsRequest([CreatableTopic(name, partitions, 1)])))


async def set_group_config(client: TrioClient, **values: str) -> None:
    configs = [AlterableConfig(name.replace("_", "."), value) for name, value in values.items()]
    (answer,) = (
        await client.call(AlterConfigsRequest([AlterConfigsResource(ConfigResourceType.GROUP, "g", configs)]), 2)
    ).responses
    assert answer.error_code == 0, answer.error_message


@attrs.define(eq=False)
class Member:
    client: TrioClient
    name: str
    topic_id: Uuid
    epoch: int = 0
    version: int = VERSION

    def fetch_request(
        self,
        partitions: Sequence[int] = (),
        *,
        acks: Acks = (),
        forget: Sequence[int] = (),
        topic_id: Uuid | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        is_renewal: bool = False,
    ) -> ShareFetchRequest:
        topic_id = topic_id or self.topic_id
        asked = [FetchPartition(index) for index in (partitions or ((0,) if self.epoch == 0 or acks else ()))]
        if acks:
            asked[0].acknowledgement_batches = [FetchedBatch(first, last, types(kind)) for first, last, kind in acks]
        return ShareFetchRequest(
            "g",
            self.name,
            self.epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            max_records,
            batch_size,
            mode,
            is_renewal,
            [FetchTopic(topic_id, asked)] if asked else [],
            [ForgottenTopic(topic_id, list(forget))] if forget else [],
        )

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
        """What it acquires of partition 0."""
        answer = await self.fetch(**options)
        assert answer.error_code == 0, answer.error_code
        return acquired(answer)

    async def acknowledge(self, *batches: tuple[int, int, int | Sequence[int]], is_renewal: bool = False) -> Any:
        topics = [
            AcknowledgeTopic(
                self.topic_id,
                [
                    AcknowledgePartition(
                        0, [AcknowledgementBatch(first, last, types(kind)) for first, last, kind in batches]
                    )
                ],
            )
        ]
        request = ShareAcknowledgeRequest("g", self.name, self.epoch, is_renewal, topics if batches else [])
        answer = await self.client.call(request, self.version)
        self.epoch += 1
        return answer

    async def ack(self, *batches: tuple[int, int, int | Sequence[int]], is_renewal: bool = False) -> int:
        """The error of the partition."""
        answer = await self.acknowledge(*batches, is_renewal=is_renewal)
        assert answer.error_code == 0, answer.error_code
        code: int = answer.responses[0].partitions[0].error_code
        return code


def types(kind: int | Sequence[int]) -> list[int]:
    return [kind] if isinstance(kind, int) else list(kind)


def partition_of(answer: Any, index: int = 0) -> Any:
    """What the response says of a partition; None if nothing."""
    found = [data for topic in answer.responses for data in topic.partitions if data.partition_index == index]
    assert len(found) <= 1
    return found[0] if found else None


def acquired(answer: Any, index: int = 0) -> Acquired:
    data = partition_of(answer, index)
    if data is None:
        return []
    assert data.error_code == 0, data.error_code
    return [(it.first_offset, it.last_offset, it.delivery_count) for it in data.acquired_records]


def batches_in(answer: Any, index: int = 0) -> list[tuple[int, int]]:
    """Base and last offset of each batch that came."""
    records = bytes(partition_of(answer, index).records)
    found = []
    position = 0
    while position < len(records):
        header = read_header(records, position)
        found.append((header.base_offset, header.last_offset))
        position += header.size_in_bytes
    return found


@attrs.define(eq=False)
class ShareGroup:
    server: ServerInTrio
    producer: TrioClient

    @classmethod
    async def on(cls, server: ServerInTrio, *, start_offset: int = 0) -> ShareGroup:
        await initialize(server.server.broker, start_offset=start_offset)
        return cls(server, await server.connect())

    @property
    def broker(self) -> Broker:
        return self.server.server.broker

    async def member(self, name: str = "a", *, topic: str = "t") -> Member:
        return Member(await self.server.connect(), name, self.broker.metadata.image.topics[topic].topic_id)

    async def produce(self, *values: bytes, topic: str = "t", index: int = 0) -> int:
        """One batch; its base offset."""
        answer = await self.producer.call(produce(*values, topic=topic, index=index), 9)
        data = answer.responses[0].partition_responses[0]
        assert data.error_code == 0
        base: int = data.base_offset
        return base

    async def stored(self) -> ShareState:
        return await stored(self.broker)

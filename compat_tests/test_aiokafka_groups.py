"""Groups with aiokafka, as every client must find them, and cases of this client alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import ClassVar

import pytest
from aiokafka import TopicPartition, errors

from testkit.clients import aio
from testkit.clients.aio import consuming, in_a_loop, settle
from testkit.clients.groups.aiokafka_client import Aiokafka
from testkit.clients.groups.client import Client
from testkit.clients.groups.scenes import (
    ClassicScenes,
    MemberScenes,
    OffsetScenes,
    PatternScenes,
    ResetScenes,
    StaticScenes,
)
from testkit.servers.brokers import Broker

_loop = aio.LoopInThread()
loop_runs = aio.module_fixture_of(_loop)


class TestMembers(MemberScenes, PatternScenes, ResetScenes, ClassicScenes, StaticScenes):
    client: ClassVar[Client] = Aiokafka(_loop)


class TestOffsets(OffsetScenes):
    client: ClassVar[Client] = Aiokafka(_loop)


@in_a_loop
async def test_a_member_whose_place_was_taken_may_not_commit(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    config = {"group_id": group, "group_instance_id": "the-one"}
    async with consuming(broker.bootstrap, topic, **config) as first:
        await settle([first], 2, most=2)
        async with consuming(broker.bootstrap, topic, **config) as second:
            await settle([second], 2, most=2)
            with pytest.raises(errors.KafkaError):
                await first.commit({TopicPartition(topic, 0): 1})


@in_a_loop
async def test_many_members_join_at_once(broker: Broker, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(partitions=10)
    async with AsyncExitStack() as stack:
        contexts = [consuming(broker.bootstrap, topic, group_id=group) for _ in range(10)]
        members = list(await asyncio.gather(*(stack.enter_async_context(context) for context in contexts)))
        assert sorted(await settle(members, 10, most=1)) == [[number] for number in range(10)]

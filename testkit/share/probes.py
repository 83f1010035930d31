"""Checks of a share group's configurations, by members of a new group each time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
import trio.testing
from kwire_protocol.letter_headers import PREFIX
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.records import Record, iter_records

from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.image import ConfigResourceType
from kwire.share.leader.dead_letters import ENABLED
from testkit.raw.share_requests import REJECT, RELEASE, RENEW
from testkit.scenes.transaction_scene import a_batch
from testkit.share.leader.members import Member, ShareGroup, finished, initialize

if TYPE_CHECKING:
    from testkit.scenes.dynamic_scene import Scene


@asynccontextmanager
async def _new_member(scene: Scene, *, start_offset: int | None = None) -> AsyncIterator[Member]:
    """A member of a new group that reads from `start_offset`, by default the log's end. It leaves at the end."""
    broker = scene.broker
    topic_id = broker.metadata.image.topics["t"].topic_id
    await finished(broker.share_state.runtime.topic.ensure())
    await finished(broker.persister.delete("g", {topic_id: [0]}))
    await initialize(broker, start_offset=scene.partition.log_end_offset if start_offset is None else start_offset)
    member = await ShareGroup(scene.server, scene.client).member()
    yield member
    await member.client.hang_up()
    await trio.testing.wait_all_tasks_blocked()
    assert len(broker.sharing) == 0


async def how_long_a_record_is_locked_s(scene: Scene) -> float:
    async with _new_member(scene) as member:
        await scene.append(b"a")
        assert len(await member.get()) == 1
        before = trio.current_time()
        assert len(await member.get(max_wait_ms=120_000)) == 1
        return trio.current_time() - before


async def how_often_a_record_is_delivered(scene: Scene) -> int:
    async with _new_member(scene) as member:
        await scene.append(b"a")
        count = 0
        while acquired := await member.get():
            count += 1
            assert await member.ack((acquired[0][0], acquired[0][0], RELEASE)) == 0
        return count


async def how_many_records_are_in_flight(scene: Scene) -> int:
    async with _new_member(scene) as member:
        for _ in range(3):
            await scene.append(*[b"a"] * 100)
        return sum(last - first + 1 for first, last, _ in await member.get(max_records=1000))


async def sees_what_is_not_committed(scene: Scene) -> bool:
    async with _new_member(scene) as member:
        partition = scene.partition
        batch, header = a_batch(7_000 + partition.log_end_offset, 0)
        partition.append(batch, header, acks=1, now_ms=scene.now_ms)
        return bool(await member.get())


async def gets_what_was_there_before(scene: Scene) -> bool:
    await scene.append(b"a")
    async with _new_member(scene, start_offset=-1) as member:
        return bool(await member.get())


async def how_long_a_record_that_came_back_is_kept_s(scene: Scene) -> float:
    """After its first and after its second delivery, together."""
    async with _new_member(scene) as member:
        await scene.append(b"a")
        before = trio.current_time()
        for _ in range(2):
            ((offset, _, _),) = await member.get(max_wait_ms=120_000)
            assert await member.ack((offset, offset, RELEASE)) == 0
        assert len(await member.get(max_wait_ms=120_000)) == 1
        return trio.current_time() - before


async def _letter_in(scene: Scene, topic: str) -> Record | None:
    """The record that a topic gets when a record of `t` is rejected. The topic need not exist."""
    before = len(_records_of(scene, topic))
    async with _new_member(scene) as member:
        await scene.append(b"rejected")
        ((offset, _, _),) = await member.get()
        assert await member.ack((offset, offset, REJECT)) == 0
        await trio.testing.wait_all_tasks_blocked()
    letters = [it for it in _records_of(scene, topic)[before:] if dict(it.headers).keys() >= {f"{PREFIX}offset"}]
    return letters[0] if letters else None


def _records_of(scene: Scene, topic: str) -> list[Record]:
    if topic not in scene.broker.metadata.image.topics:
        return []
    log = scene.broker.partitions.find(topic, 0).log
    return [record for header, piece in log.batches() if not header.is_control for record in iter_records(piece.read())]


async def _create_for_letters(scene: Scene, topic: str) -> None:
    if topic not in scene.broker.metadata.image.topics:
        configs = [CreatableTopicConfig(ENABLED, "true")]
        await finished(
            scene.broker.metadata.change(
                create_topics, CreateTopicsRequest([CreatableTopic(topic, 1, 1, configs=configs)])
            )
        )


async def _name_for_letters(scene: Scene, topic: str) -> None:
    await scene.set(ConfigResourceType.GROUP, "g", "errors.deadletterqueue.topic.name", topic)


async def which_topic_gets_a_letter(scene: Scene) -> list[str]:
    found = []
    for topic in ("dlq.a", "dlq.b"):
        await _create_for_letters(scene, topic)
        if await _letter_in(scene, topic) is not None:
            found.append(topic)
    return found


async def value_of_a_letter(scene: Scene) -> bytes | None:
    await _create_for_letters(scene, "dlq.a")
    await _name_for_letters(scene, "dlq.a")
    letter = await _letter_in(scene, "dlq.a")
    assert letter is not None
    return letter.value


async def a_letter_without_a_topic_is_written(scene: Scene) -> bool:
    await _name_for_letters(scene, "dlq.new")
    return await _letter_in(scene, "dlq.new") is not None


async def a_topic_of_another_name_gets_letters(scene: Scene) -> bool:
    await _create_for_letters(scene, "letters.a")
    await _name_for_letters(scene, "letters.a")
    return await _letter_in(scene, "letters.a") is not None


async def the_topic_itself_gets_letters(scene: Scene) -> bool:
    await scene.set(ConfigResourceType.BROKER, "", "errors.deadletterqueue.topic.name.prefix", "")
    await _name_for_letters(scene, "t")
    return await _letter_in(scene, "t") is not None


async def error_of_a_renewal(scene: Scene) -> int:
    async with _new_member(scene) as member:
        await scene.append(b"a")
        ((offset, _, _),) = await member.get()
        return await member.ack((offset, offset, RENEW), is_renewal=True)

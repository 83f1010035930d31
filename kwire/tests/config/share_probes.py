"""What is seen of a share group's configurations: by members of a group that begins anew each time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
import trio.testing

from kwire.tests.sharing.members import Member, ShareGroup, finished, initialize
from kwire.tests.sharing.share_requests import RELEASE, RENEW
from kwire.tests.transaction_scene import a_batch

if TYPE_CHECKING:
    from kwire.tests.config.test_dynamic_configs import Scene


@asynccontextmanager
async def _new_member(scene: Scene, *, start_offset: int | None = None) -> AsyncIterator[Member]:
    """Of a group that begins at the end of the log, unless it is said otherwise. It goes at the end, with its group."""
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


async def error_of_a_renewal(scene: Scene) -> int:
    async with _new_member(scene) as member:
        await scene.append(b"a")
        ((offset, _, _),) = await member.get()
        return await member.ack((offset, offset, RENEW), is_renewal=True)

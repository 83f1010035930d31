"""The begin and end of share partitions: restarts, leader epochs, deleted topics, failed disks, fenced writes."""

from __future__ import annotations

import trio.testing
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.share.coordinator.state import ShareState, StateBatch
from kwire.share.leader.states import ACKNOWLEDGED, AVAILABLE
from testkit.raw.share_requests import ACCEPT, RELEASE, partition_of
from testkit.scenes.server_in_trio import ServerInTrio
from testkit.share.leader.members import ShareGroup, finished, initialize, serve, with_group


def test_a_restarted_leader_keeps_what_was_acknowledged_and_delivers_the_rest_again() -> None:
    disks = {"/data": MemoryDisk()}

    async def before(server: ServerInTrio) -> None:
        group = await ShareGroup.on(server)
        for value in (b"a", b"b", b"c"):
            await group.produce(value)
        member = await group.member()
        assert await member.get(batch_size=1) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
        assert await member.ack((1, 1, ACCEPT), (2, 2, RELEASE)) == E.NONE

    async def after(server: ServerInTrio) -> None:
        group = ShareGroup(server, await server.connect())
        state = await group.stored()
        assert StateBatch(1, 1, ACKNOWLEDGED, 1) in state.batches
        member = await group.member()
        # A lost connection has released the first record.
        assert await member.get() == [(0, 0, 2), (2, 2, 2)]

    serve(before, disks=disks)
    serve(after, disks=disks)


async def begin_epoch(group: ShareGroup) -> int:
    """Elects the broker again. Returns its leader epoch then."""
    image = group.broker.metadata.image.topics["t"]
    change = PartitionChangeRecord(0, image.topic_id, isr=[group.broker.config.node_id], leader=1)
    await finished(group.broker.metadata.change(lambda state: ([change], None)))
    return group.broker.metadata.image.topics["t"].partitions[0].leader_epoch


def test_another_leader_epoch_begins_with_what_is_persisted() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a", b"b")
        member = await group.member()
        assert await member.get() == [(0, 1, 1)]
        assert await member.ack((0, 0, ACCEPT)) == E.NONE
        before = group.broker.metadata.image.topics["t"].partitions[0].leader_epoch
        assert await begin_epoch(group) > before
        assert len(group.broker.sharing) == 0
        assert await member.ack((1, 1, ACCEPT)) == E.UNKNOWN_TOPIC_OR_PARTITION
        # The delivery before was not persisted.
        assert await member.get() == [(1, 1, 1)]
        assert len(group.server.partition.waiters) == 1

    with_group(story)


def test_a_fetch_that_waits_learns_that_the_topic_is_deleted() -> None:
    async def story(group: ShareGroup) -> None:
        member = await group.member()
        await member.send_fetch(max_wait_ms=60_000)
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        await finished(group.broker.metadata.change(delete_topics, DeleteTopicsRequest(topic_names=["t"]), version=5))
        answer = await member.answer()
        assert trio.current_time() - before < 30
        data = partition_of(answer)
        assert data.error_code == E.NOT_LEADER_OR_FOLLOWER
        assert len(group.broker.sharing) == 0
        assert partition_of(await member.fetch()).error_code == E.UNKNOWN_TOPIC_ID

    with_group(story)


def test_a_partition_whose_log_fails_is_a_storage_error() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a")
        member = await group.member()
        assert await member.get() == [(0, 0, 1)]
        group.server.partition.take_offline()
        assert len(group.broker.sharing) == 0
        assert partition_of(await member.fetch()).error_code == E.KAFKA_STORAGE_ERROR
        assert await member.ack((0, 0, ACCEPT)) == E.KAFKA_STORAGE_ERROR

    with_group(story)


def test_a_new_state_epoch_fences_the_share_partition_at_its_next_write() -> None:
    async def story(group: ShareGroup) -> None:
        await group.produce(b"a", b"b", b"c")
        member = await group.member()
        assert await member.get() == [(0, 2, 1)]
        await initialize(group.broker, start_offset=1, state_epoch=1)
        assert await member.ack((0, 0, ACCEPT)) == E.NOT_LEADER_OR_FOLLOWER
        assert len(group.broker.sharing) == 0
        assert await member.get() == [(1, 2, 1)]
        assert await member.ack((1, 2, RELEASE)) == E.NONE
        assert await group.stored() == ShareState(1, 1, (StateBatch(1, 2, AVAILABLE, 1),))

    with_group(story)

"""The driver: shards by hash, parked requests, deadlines in real tasks, and the log behind it all."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from crc32c import crc32c
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kwire_protocol.records import Record, build_batch, read_header
from kwire_protocol.wire import NULL_UUID

from kwire.coordinators.internal_topic import InternalTopic
from kwire.coordinators.runtime import java_hash
from kwire.groups.group import MemberContext
from kwire.groups.streams_topics import Answer
from kwire.replicas.acknowledging import Acknowledgement
from kwire.runtime.futures import at_once
from testkit.scenes.broker_in_trio import START_MS, InTrio, with_broker

FIVE_SECONDS = 5.0


def join(member_id: str = "", group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group, 10_000, 60_000, member_id, None, "consumer", [JoinGroupRequestProtocol("range", b"")]
    )


def commit(offset: int, group: str = "g", topic: str = "t") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])


async def committed(kwire: InTrio, group: str = "g", topic: str = "t") -> int:
    response = await kwire.call(OffsetFetchRequest(group, [OffsetFetchRequestTopic(topic, [0])]), 7)
    offset = response.topics[0].partitions[0].committed_offset
    assert isinstance(offset, int)
    return offset


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("readers", 1_080_410_128),
        ("my-group", 1_906_497_762),
        ("polygenelubricants", 0),
        ("\U0001f600", 1_772_899),
        ("x" * 1_000, 1_715_418_112),
    ],
)
def test_hashes_are_javas(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_two_members_join_sync_and_read_on() -> None:
    async def scenario(kwire: InTrio) -> None:
        joined: list[Any] = []

        async def member(name: str) -> None:
            first = await kwire.call(join(), 9, client_id=name)
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert first.member_id.startswith(f"{name}-00000000-0000-0000-0000-")
            joined.append(await kwire.call(join(first.member_id), 9))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(member, "one")
            nursery.start_soon(member, "two")
        assert [answer.generation_id for answer in joined] == [1, 1]
        leader, follower = sorted(joined, key=lambda answer: answer.member_id != answer.leader)
        assert kwire.waited == 2
        assigned: dict[str, bytes] = {}

        async def sync(member_id: str, *assignments: SyncGroupRequestAssignment) -> None:
            request = SyncGroupRequest("g", 1, member_id, None, "consumer", "range", list(assignments))
            assigned[member_id] = (await kwire.call(request, 5)).assignment

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync, follower.member_id)
            await trio.sleep(1)
            assert assigned == {}, "the follower waits for the leader"
            await sync(leader.member_id, SyncGroupRequestAssignment(follower.member_id, b"everything"))
        assert assigned == {leader.member_id: b"", follower.member_id: b"everything"}

    with_broker(scenario, settings=["group.initial.rebalance.delay.ms=3000"])


def test_the_service_sleeps_until_a_deadline_and_a_new_one_wakes_it() -> None:
    async def scenario(kwire: InTrio) -> None:
        began = trio.current_time()
        answer = await kwire.call(join(), 3)
        assert answer.generation_id == 1
        assert trio.current_time() - began == pytest.approx(FIVE_SECONDS)
        silent_since = trio.current_time()
        heartbeat = HeartbeatRequest("g", 1, answer.member_id)
        await trio.sleep(9.9)
        assert (await kwire.call(heartbeat, 4)).error_code == ErrorCode.NONE
        await trio.sleep(9.9)
        assert (await kwire.call(heartbeat, 4)).error_code == ErrorCode.NONE
        await trio.sleep(10.1)
        assert (await kwire.call(heartbeat, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert trio.current_time() - silent_since < 30

    with_broker(scenario, settings=["group.initial.rebalance.delay.ms=5000"])


def test_without_an_initial_delay_a_first_member_is_answered_at_once() -> None:
    async def scenario(kwire: InTrio) -> None:
        began = trio.current_time()
        assert (await kwire.call(join(), 3)).generation_id == 1
        assert trio.current_time() == began
        assert kwire.waited == 0

    with_broker(scenario)


def test_groups_and_offsets_outlive_a_restart() -> None:
    ids: list[str] = []

    async def before(kwire: InTrio) -> None:
        kwire.create_topic("t")
        for group in ("a", "b", "c", "d"):
            await kwire.call(commit(len(group) + 6, group), 9)
        answer = await kwire.call(join(), 3)
        ids.append(answer.member_id)
        mine = SyncGroupRequestAssignment(answer.member_id, b"mine")
        await kwire.call(SyncGroupRequest("g", 1, answer.member_id, None, None, None, [mine]), 3)

    async def after(kwire: InTrio) -> None:
        for group in ("a", "b", "c", "d"):
            assert await committed(kwire, group) == 7
        again = await kwire.call(SyncGroupRequest("g", 1, ids[0]), 3)
        assert again.assignment == b"mine"

    with_broker(after, disk=with_broker(before))


def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        kwire.create_topic("u")
        await kwire.call(commit(7), 9)
        await kwire.call(commit(8, topic="u"), 9)
        await kwire.call(DeleteTopicsRequest([DeleteTopicState("t")], [], 1_000), 6)
        assert (await committed(kwire), await committed(kwire, topic="u")) == (-1, 8)
        kwire.create_topic("t")
        assert await committed(kwire) == -1

    with_broker(scenario)


def test_deleting_the_offsets_topic_sends_waiting_members_away_and_starts_over() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        await kwire.call(commit(7, "other"), 9)

        async def waits() -> None:
            answer = await kwire.call(join(), 3)
            assert answer.error_code == ErrorCode.NOT_COORDINATOR

        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits)
            await trio.sleep(1)
            kwire.broker.groups.topic_deleted("__consumer_offsets", NULL_UUID)
        assert (await kwire.call(join(), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED

    with_broker(scenario, settings=["group.initial.rebalance.delay.ms=5000"])


def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    async def before(kwire: InTrio) -> None:
        kwire.create_topic("t")
        await kwire.call(commit(7), 9)
        topic = kwire.broker.groups.runtime.topic
        for index in range(topic.partition_count):
            topic.append(index, [(b"\0", b"\0"), (b"\0\2\0\1g", b"\0\x7f"), (b"\0\x63", b"")])

    async def after(kwire: InTrio) -> None:
        assert await committed(kwire) == 7

    with_broker(after, disk=with_broker(before))


def test_a_batch_whose_records_cannot_be_separated_leaves_its_groups_without_a_coordinator() -> None:
    async def before(kwire: InTrio) -> None:
        kwire.create_topic("t")
        await kwire.call(commit(7, "g"), 9)
        batch = bytearray(build_batch([Record(0, START_MS, b"key", b"value")]))
        batch[61] = 0x7E  # the record's length
        batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
        topic, index = at_once(kwire.broker.groups.partition_of("g"))
        kwire.broker.partitions.find(topic, index).append_own(memoryview(batch), read_header(batch), now_ms=START_MS)

    async def after(kwire: InTrio) -> None:
        answer = await kwire.call(OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]), 7)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR

    with_broker(after, disk=with_broker(before))


def test_the_coordinator_is_found_and_makes_the_topic() -> None:
    async def scenario(kwire: InTrio) -> None:
        assert "__consumer_offsets" not in kwire.broker.metadata.image.topics
        found = await kwire.call(FindCoordinatorRequest(key="g"), 0)
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, kwire.broker.config.node_id)
        assert len(kwire.broker.metadata.image.topics["__consumer_offsets"].partitions) == 3

    with_broker(scenario, coordinates=False)


def test_a_heartbeat_waits_for_records_that_are_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be they its own, or those of an earlier one that it rests on."""
    context = MemberContext("client", "/127.0.0.1", 1)
    joining = ConsumerGroupHeartbeatRequest(
        "g", "m", rebalance_timeout_ms=1_000, subscribed_topic_names=[], topic_partitions=[]
    )
    staying = ConsumerGroupHeartbeatRequest("g", "m", 2)
    application = StreamsGroupHeartbeatRequest("app", "m", rebalance_timeout_ms=1_000, topology=Topology(0, []))

    async def scenario(kwire: InTrio) -> None:
        groups = kwire.broker.groups
        with monkeypatch.context() as patched:
            patched.setattr(InternalTopic, "when_committed", lambda *_: Acknowledgement())
            for request in (joining, staying):
                answer = groups.consumer_heartbeat(request, context)
                assert not isinstance(answer, ConsumerGroupHeartbeatResponse)
                answer.close()
            joined = groups.streams_heartbeat(application, context)
            assert not isinstance(joined, Answer)
            joined.close()
        assert isinstance(groups.consumer_heartbeat(staying, context), ConsumerGroupHeartbeatResponse)

    with_broker(scenario)

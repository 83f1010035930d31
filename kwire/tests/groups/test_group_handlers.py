"""The group APIs as clients see them, in every version that is served."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.tests.groups.broker_in_trio import START_MS, InTrio, with_broker
from kwire.tests.groups.shard_driver import subscription

NO_SUCH_TOPIC: Uuid = b"n" * 16


def join(version: int, member_id: str = "", *, instance_id: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000 if version else -1,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription("t"))],
    )


def commit(
    version: int, offsets: dict[tuple[str, int], int], *, group: str = "g", ids: dict[str, Uuid] | None = None
) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, partition), offset in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name if version < 10 else ""))
        topic.topic_id = NULL_UUID if ids is None or version < 10 else ids[name]
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=3 if version >= 6 else -1,
                committed_metadata="note",
            )
        )
    return OffsetCommitRequest(group_id=group, topics=list(topics.values()))


async def stable_member(kwire: InTrio, version: int = 3) -> str:
    """A group `g` of one dynamic member with a topic `t`; returns the member's id."""
    kwire.create_topic("t")
    member_id = (await kwire.call(join(version), version)).member_id
    await kwire.call(SyncGroupRequest("g", 1, member_id, None, None, None, []), 3)
    assert isinstance(member_id, str)
    return member_id


@pytest.mark.parametrize("version", range(10))
def test_join(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        answer = await kwire.call(join(version), version)
        if version >= 4:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            answer = await kwire.call(join(version, answer.member_id), version)
        assert (answer.error_code, answer.generation_id, answer.protocol_name) == (ErrorCode.NONE, 1, "range")
        assert answer.protocol_type == ("consumer" if version >= 7 else None)
        assert [(m.member_id, m.metadata) for m in answer.members] == [(answer.member_id, subscription("t"))]
        refused = await kwire.call(join(version, "nobody"), version)
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    with_broker(scenario)


@pytest.mark.parametrize("version", range(5, 10))
def test_join_as_a_static_member_and_be_fenced(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        first = await kwire.call(join(version, instance_id="one"), version)
        again = await kwire.call(join(version, instance_id="one"), version)
        assert again.error_code == ErrorCode.NONE
        fenced = await kwire.call(join(version, first.member_id, instance_id="one"), version)
        assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID

    with_broker(scenario)


@pytest.mark.parametrize("version", range(6))
def test_sync(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        member_id = (await kwire.call(join(3), 3)).member_id
        named = version >= 5
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            protocol_type="consumer" if named else None,
            protocol_name="range" if named else None,
            assignments=[SyncGroupRequestAssignment(member_id, b"all")],
        )
        answer = await kwire.call(request, version)
        assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"all")
        assert answer.protocol_name == ("range" if named else None)
        request.generation_id = 9
        assert (await kwire.call(request, version)).error_code == ErrorCode.ILLEGAL_GENERATION

    with_broker(scenario)


def test_sync_must_name_its_protocol_since_v5() -> None:
    async def scenario(kwire: InTrio) -> None:
        member_id = (await kwire.call(join(3), 3)).member_id
        answer = await kwire.call(SyncGroupRequest("g", 1, member_id, None, "consumer", None), 5)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    with_broker(scenario)


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        member_id = await stable_member(kwire)
        assert (await kwire.call(HeartbeatRequest("g", 1, member_id), version)).error_code == ErrorCode.NONE
        stale = await kwire.call(HeartbeatRequest("g", 0, member_id), version)
        assert stale.error_code == ErrorCode.ILLEGAL_GENERATION

    with_broker(scenario)


@pytest.mark.parametrize("version", range(6))
def test_leave(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        member_id = await stable_member(kwire)

        def leave(who: str) -> LeaveGroupRequest:
            if version < 3:
                return LeaveGroupRequest("g", who)
            return LeaveGroupRequest("g", members=[MemberIdentity(who, None, "tired" if version >= 5 else None)])

        for who, error in (("nobody", ErrorCode.UNKNOWN_MEMBER_ID), (member_id, ErrorCode.NONE)):
            answer = await kwire.call(leave(who), version)
            if version < 3:
                assert (answer.error_code, answer.members) == (error, [])
            else:
                assert answer.error_code == ErrorCode.NONE
                assert [(m.member_id, m.error_code) for m in answer.members] == [(who, error)]

    with_broker(scenario)


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_checks_that_topics_and_partitions_exist(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        ids = {"t": kwire.create_topic("t"), "missing": NO_SUCH_TOPIC}
        request = commit(version, {("missing", 0): 1, ("t", 0): 2, ("t", 5): 3, ("t", 1): 4}, ids=ids)
        answer = await kwire.call(request, version)
        found = {
            (topic.topic_id if version >= 10 else topic.name, partition.partition_index): partition.error_code
            for topic in answer.topics
            for partition in topic.partitions
        }
        t, missing = (ids["t"], NO_SUCH_TOPIC) if version >= 10 else ("t", "missing")
        assert found == {
            (missing, 0): ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (t, 0): ErrorCode.NONE,
            (t, 1): ErrorCode.NONE,
            (t, 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert len(answer.topics) == 2
        nothing = await kwire.call(commit(version, {("missing", 0): 1}, ids=ids), version)
        assert len(nothing.topics) == 1

    with_broker(scenario)


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_for_one_group(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        await kwire.call(commit(9, {("t", 0): 7}), 9)
        request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0, 1]), OffsetFetchRequestTopic("u", [0])])
        answer = await kwire.call(request, version)
        assert answer.error_code == ErrorCode.NONE
        found = [
            (topic.name, p.partition_index, p.committed_offset, p.metadata, p.error_code)
            for topic in answer.topics
            for p in topic.partitions
        ]
        assert found == [("t", 0, 7, "note", 0), ("t", 1, -1, "", 0), ("u", 0, -1, "", 0)]
        assert answer.topics[0].partitions[0].committed_leader_epoch == (3 if version >= 5 else -1)
        if version >= 2:
            everything = await kwire.call(OffsetFetchRequest("g", None), version)
            assert [(t.name, len(t.partitions)) for t in everything.topics] == [("t", 1)]
            assert (await kwire.call(OffsetFetchRequest("never seen", None), version)).topics == []

    with_broker(scenario)


@pytest.mark.parametrize("version", range(8, 11))
def test_fetch_for_several_groups(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        topic_id = kwire.create_topic("t")
        await kwire.call(commit(9, {("t", 0): 7}, group="one"), 9)
        await kwire.call(commit(9, {("t", 1): 8}, group="two"), 9)

        def t(*partitions: int) -> OffsetFetchRequestTopics:
            by_id = version >= 10
            return OffsetFetchRequestTopics("" if by_id else "t", topic_id if by_id else NULL_UUID, list(partitions))

        asked = [OffsetFetchRequestGroup(group, topics=[t(0, 1)]) for group in ("one", "two", "never seen")]
        answer = await kwire.call(OffsetFetchRequest(groups=asked), version)
        assert [[p.committed_offset for p in group.topics[0].partitions] for group in answer.groups] == [
            [7, -1],
            [-1, 8],
            [-1, -1],
        ]
        assert all(group.error_code == ErrorCode.NONE for group in answer.groups)
        everything = await kwire.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("one", topics=None)]), version)
        (topic,) = everything.groups[0].topics
        assert topic.topic_id == topic_id if version >= 10 else topic.name == "t"
        assert [p.committed_offset for p in topic.partitions] == [7]

    with_broker(scenario)


def test_fetch_by_an_unknown_topic_id() -> None:
    async def scenario(kwire: InTrio) -> None:
        asked = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("", NO_SUCH_TOPIC, [0, 1])])
        (group,) = (await kwire.call(OffsetFetchRequest(groups=[asked]), 10)).groups
        assert group.error_code == ErrorCode.NONE
        assert [(p.committed_offset, p.error_code) for p in group.topics[0].partitions] == [
            (-1, ErrorCode.UNKNOWN_TOPIC_ID),
            (-1, ErrorCode.UNKNOWN_TOPIC_ID),
        ]

    with_broker(scenario)


@pytest.mark.parametrize("version", range(7))
def test_describe(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        member_id = await stable_member(kwire)
        request = DescribeGroupsRequest(["g", "missing"], include_authorized_operations=version >= 3)
        group, missing = (await kwire.call(request, version)).groups
        assert (group.group_state, group.protocol_data, group.error_code) == ("Stable", "range", ErrorCode.NONE)
        assert [(m.member_id, m.client_id, m.client_host) for m in group.members] == [(member_id, "app", "/127.0.0.1")]
        if version >= 3:
            assert group.authorized_operations == 0b1101_0100_1000
        assert missing.group_state == "Dead"
        assert missing.error_code == (ErrorCode.NONE if version < 6 else ErrorCode.GROUP_ID_NOT_FOUND)

    with_broker(scenario)


@pytest.mark.parametrize("version", range(6))
def test_list(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        assert (await kwire.call(ListGroupsRequest(), version)).groups == []
        await stable_member(kwire)
        await kwire.call(commit(9, {("t", 0): 7}, group="idle"), 9)
        listed = {group.group_id: group for group in (await kwire.call(ListGroupsRequest(), version)).groups}
        assert {name: group.protocol_type for name, group in listed.items()} == {"g": "consumer", "idle": ""}
        assert listed["g"].group_state == ("Stable" if version >= 4 else "")
        assert listed["g"].group_type == ("classic" if version >= 5 else "")
        if version >= 4:
            stable = await kwire.call(ListGroupsRequest(["Stable"]), version)
            assert [group.group_id for group in stable.groups] == ["g"]
        if version >= 5:
            assert (await kwire.call(ListGroupsRequest([], ["share"]), version)).groups == []

    with_broker(scenario)


@pytest.mark.parametrize("version", range(4))
def test_delete_groups(version: int) -> None:
    async def scenario(kwire: InTrio) -> None:
        await stable_member(kwire)
        await kwire.call(commit(9, {("t", 0): 7}, group="idle"), 9)
        answer = await kwire.call(DeleteGroupsRequest(["g", "idle", "missing", "idle"]), version)
        assert [(result.group_id, result.error_code) for result in answer.results] == [
            ("g", ErrorCode.NON_EMPTY_GROUP),
            ("idle", ErrorCode.NONE),
            ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
        ]

    with_broker(scenario)


def test_offset_delete() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        await kwire.call(commit(9, {("t", 0): 7, ("t", 1): 8}, group="idle"), 9)
        partitions = [OffsetDeleteRequestPartition(index) for index in (0, 9)]
        topics = [OffsetDeleteRequestTopic("t", partitions), OffsetDeleteRequestTopic("u", partitions[:1])]
        answer = await kwire.call(OffsetDeleteRequest("idle", topics), 0)
        assert answer.error_code == ErrorCode.NONE
        found = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
        assert found == {
            ("t", 0): ErrorCode.NONE,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        missing = await kwire.call(OffsetDeleteRequest("missing", [OffsetDeleteRequestTopic("t", partitions)]), 0)
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        everything = await kwire.call(OffsetFetchRequest("idle", None), 7)
        assert [p.committed_offset for p in everything.topics[0].partitions] == [8]

    with_broker(scenario)


def test_an_older_client_may_set_the_retention_of_its_offsets() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        request = commit(4, {("t", 0): 7})
        request.retention_time_ms = 1_000
        await kwire.call(request, 4)
        shard = next(shard for _, shard in kwire.broker.groups.runtime.in_service() if shard.groups)
        ((_, _, offset),) = shard._offsets.store.of_group("g")
        assert offset.expire_timestamp_ms == START_MS + 1_000

    with_broker(scenario)

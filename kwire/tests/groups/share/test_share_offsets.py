"""The offsets of share groups: described, altered and deleted, by way of the share coordinator."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kwire_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kwire_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.wire import NULL_UUID

from kwire.groups.share.group import ShareGroup
from kwire.tests.groups.broker_in_trio import InTrio, with_broker
from kwire.tests.groups.shard_driver import GROUP, ShardDriver
from kwire.tests.groups.share.clients import Client, Keeper
from kwire.tests.groups.topics import FakeTopics

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Offsets = dict[str, dict[int, int]]
"""Topic -> partition -> offset."""


async def alter(kwire: InTrio, offsets: Offsets) -> dict[tuple[str, int], ErrorCode] | ErrorCode:
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            name, [AlterShareGroupOffsetsRequestPartition(*each) for each in of_topic.items()]
        )
        for name, of_topic in offsets.items()
    ]
    answer = await kwire.call(AlterShareGroupOffsetsRequest("g", topics), 0)
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return {
        (topic.topic_name, it.partition_index): ErrorCode(it.error_code)
        for topic in answer.responses
        for it in topic.partitions
    }


async def describe(kwire: InTrio, topics: dict[str, list[int]] | None = None) -> dict[tuple[str, int], tuple[int, int]]:
    """The start offset and the lag of each partition."""
    asked = None
    if topics is not None:
        asked = [DescribeShareGroupOffsetsRequestTopic(*each) for each in topics.items()]
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup("g", asked)])
    (group,) = (await kwire.call(request, 1)).groups
    assert group.error_code == ErrorCode.NONE
    return {
        (topic.topic_name, it.partition_index): (it.start_offset, it.lag)
        for topic in group.topics
        for it in topic.partitions
    }


async def delete(kwire: InTrio, *topics: str) -> dict[str, ErrorCode] | ErrorCode:
    request = DeleteShareGroupOffsetsRequest("g", [DeleteShareGroupOffsetsRequestTopic(it) for it in topics])
    answer = await kwire.call(request, 0)
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return {it.topic_name: ErrorCode(it.error_code) for it in answer.responses}


async def heartbeat(kwire: InTrio, epoch: int, topics: list[str] | None = None) -> Any:
    return await kwire.call(ShareGroupHeartbeatRequest("g", "m", epoch, None, topics), 1)


def test_offsets_are_altered_of_a_group_that_is_made_by_that() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        assert await alter(kwire, {"t": {0: 7, 2: 1, -1: 1}, "no": {0: 1}}) == {
            ("t", 0): ErrorCode.NONE,
            ("t", 2): UNKNOWN,
            ("t", -1): UNKNOWN,
            ("no", 0): UNKNOWN,
        }
        assert await describe(kwire) == {("t", 0): (7, -7)}
        assert await describe(kwire, {"t": [1, 0], "no": [3]}) == {
            ("no", 3): (-1, -1),
            ("t", 1): (-1, -1),
            ("t", 0): (7, -7),
        }
        joined = await heartbeat(kwire, 0, ["t"])
        await trio.sleep(5)
        answer = await heartbeat(kwire, joined.member_epoch)
        assert [it.partitions for it in answer.assignment.topic_partitions] == [[0, 1]]
        assert await alter(kwire, {"t": {0: 8}}) is ErrorCode.NON_EMPTY_GROUP
        assert await describe(kwire) == {("t", 0): (7, -7), ("t", 1): (-1, -1)}, "its leader chooses the other one"
        await heartbeat(kwire, -1)
        assert await alter(kwire, {"t": {0: 8}}) == {("t", 0): ErrorCode.NONE}
        assert (await describe(kwire))["t", 0] == (8, -8)

    with_broker(scenario)


def test_offsets_are_deleted_by_topic() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        kwire.create_topic("u", 1)
        assert await delete(kwire, "t") is ErrorCode.GROUP_ID_NOT_FOUND
        await alter(kwire, {"t": {0: 1, 1: 2}, "u": {0: 3}})
        assert await delete(kwire, "t", "no") == {"no": UNKNOWN, "t": ErrorCode.NONE}
        assert await describe(kwire) == {("u", 0): (3, -3)}
        assert (await describe(kwire, {"t": [0]})) == {("t", 0): (-1, -1)}
        assert await delete(kwire, "t", "u") == {"t": UNKNOWN, "u": ErrorCode.NONE}
        await heartbeat(kwire, 0, ["t"])
        assert await delete(kwire, "t") is ErrorCode.NON_EMPTY_GROUP

    with_broker(scenario)


def test_a_group_that_nobody_knows_has_no_offsets() -> None:
    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        assert await describe(kwire) == {}
        assert await describe(kwire, {"t": [0]}) == {("t", 0): (-1, -1)}
        assert await alter(kwire, {"no": {0: 1}}) == {("no", 0): UNKNOWN}
        assert await delete(kwire, "t") is ErrorCode.GROUP_ID_NOT_FOUND, "a refusal makes no group"

    with_broker(scenario)


# The machine, with a share coordinator that fails


@pytest.fixture
def driver() -> ShardDriver:
    return ShardDriver(topics=FakeTopics(t=2))


def group(driver: ShardDriver) -> ShareGroup:
    found = driver.shard.groups[GROUP]
    assert isinstance(found, ShareGroup)
    return found


def begin_deletion(driver: ShardDriver, *topics: str) -> Any:
    token = driver.token()
    request = DeleteShareGroupOffsetsRequest(GROUP, [DeleteShareGroupOffsetsRequestTopic(it) for it in topics])
    driver.run(driver.shard.begin_share_offset_deletion(request, token, now=driver.now))
    return driver.replies[token]


def test_a_deletion_that_failed_is_done_again(driver: ShardDriver) -> None:
    client, keeper = Client(driver, "a"), Keeper(driver)
    client.heartbeat()
    keeper.answer()
    client.leave()
    topic = driver.topics.find("t")
    assert topic is not None
    for _ in range(2):
        assert begin_deletion(driver, "t").to_delete == {topic.topic_id: [0, 1]}
        assert group(driver).states.initialized == {}
        driver.restart()
    token = driver.token()
    driver.run(driver.shard.share_states_deleted(GROUP, [topic.topic_id], token, now=driver.now))
    assert driver.replies[token] is None
    assert group(driver).states.deleting == {}
    begun = begin_deletion(driver, "t")
    assert (begun.to_delete, begun.refused[0].error_message) == ({}, "There is no offset information to delete.")
    assert begun.refused[0].topic_id == NULL_UUID


def test_an_alteration_that_failed_leaves_the_partition_as_it_was(driver: ShardDriver) -> None:
    client, keeper = Client(driver, "a"), Keeper(driver)
    client.heartbeat()
    keeper.answer()
    client.leave()
    before = group(driver).states
    token = driver.token()
    partitions = [AlterShareGroupOffsetsRequestPartition(0, 5)]
    request = AlterShareGroupOffsetsRequest(GROUP, [AlterShareGroupOffsetsRequestTopic("t", partitions)])
    driver.run(driver.shard.begin_share_alteration(request, token, now=driver.now))
    asked = driver.replies[token].asked
    assert asked.state_epoch == group(driver).epoch == 3
    ((topic_id, offsets),) = asked.start_offsets.items()
    assert offsets == {0: 5}
    assert group(driver).states != before
    failure = {(topic_id, 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    driver.run(driver.shard.share_states_initialized(GROUP, failure, now=driver.now))
    assert group(driver).states == before

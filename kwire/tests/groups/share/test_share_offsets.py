"""Offsets of share groups that are altered and deleted while the share coordinator fails."""

from __future__ import annotations

from typing import Any

import pytest
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
from kwire_protocol.wire import NULL_UUID

from kwire.groups.share.group import ShareGroup
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.share.clients import Client, Keeper
from testkit.groups.topics import FakeTopics


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
    states = driver.replies[token].states
    assert states.state_epoch == group(driver).epoch == 3
    ((topic_id, offsets),) = states.start_offsets.items()
    assert offsets == {0: 5}
    assert group(driver).states != before
    failure = {(topic_id, 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    driver.run(driver.shard.share_states_initialized(GROUP, failure, now=driver.now))
    assert group(driver).states == before

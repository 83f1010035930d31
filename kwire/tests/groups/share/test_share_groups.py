"""Share groups by example: the machine alone, and a broker with its share coordinator."""

from __future__ import annotations

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal import share_group as records
from kwire_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from kwire.coordinators.internal_topic import LoggedRecord
from kwire.groups.config import GroupConfig
from kwire.groups.records import read_head
from kwire.groups.share.group import ShareGroup
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.share.clients import Client, Keeper, heartbeat
from testkit.groups.topics import FakeTopics
from testkit.scenes.broker_in_trio import InTrio, with_broker

FIVE_SECONDS = 5.0


@pytest.fixture
def driver() -> ShardDriver:
    driver = ShardDriver(GroupConfig(), FakeTopics(t=3, u=1))
    driver.wall_ahead_ms = 1_700_000_000_000
    return driver


def share_group(driver: ShardDriver) -> ShareGroup:
    group = driver.shard.groups[GROUP]
    assert isinstance(group, ShareGroup)
    return group


# The machine


def test_partitions_are_assigned_once_their_states_are_initialized(driver: ShardDriver) -> None:
    client, keeper = Client(driver, "a"), Keeper(driver)
    assert client.heartbeat() is ErrorCode.NONE
    assert (client.epoch, client.assigned) == (2, set()), "the group began in epoch 1, and a member has joined"
    (initialization,) = driver.to_initialize
    topic = driver.topics.find("t")
    assert topic is not None
    assert initialization.state_epoch == 2
    assert initialization.start_offsets == {topic.topic_id: {0: -1, 1: -1, 2: -1}}
    client.heartbeat()
    assert len(driver.to_initialize) == 1, "what is under way is not requested again"
    keeper.answer()
    driver.advance(5_000)
    client.heartbeat()
    assert client.epoch == 3
    assert client.assigned == {(topic.topic_id, partition) for partition in range(3)}


def test_a_group_begins_in_epoch_one_over_a_restart_too(driver: ShardDriver) -> None:
    token = driver.token()
    partitions = [AlterShareGroupOffsetsRequestPartition(0, 5)]
    request = AlterShareGroupOffsetsRequest(GROUP, [AlterShareGroupOffsetsRequestTopic("t", partitions)])
    driver.run(driver.shard.begin_share_alteration(request, token, now=driver.now))
    for _ in range(2):
        assert (share_group(driver).epoch, share_group(driver).assignment_epoch) == (1, 1)
        driver.restart()
    client = Client(driver, "a")
    client.heartbeat()
    for _ in range(2):
        assert (share_group(driver).epoch, share_group(driver).assignment_epoch, client.epoch) == (2, 2, 2)
        driver.restart()


def test_a_failure_of_the_share_coordinator_is_tried_again(driver: ShardDriver) -> None:
    client, keeper = Client(driver, "a"), Keeper(driver)
    client.heartbeat()
    keeper.answer(ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE)
    driver.advance(5_000)
    client.heartbeat()
    assert {partition for _, partition in client.assigned} == {0, 2}, "what has a state is assigned at once"
    keeper.answer()
    driver.advance(5_000)
    client.heartbeat()
    assert len(client.assigned) == 3


def test_what_fails_again_and_again_is_logged_once(driver: ShardDriver, caplog: pytest.LogCaptureFixture) -> None:
    client, keeper = Client(driver, "a"), Keeper(driver)

    def lines_after(error: ErrorCode) -> list[str]:
        client.heartbeat()
        keeper.answer(error)
        driver.advance(5_000)
        lines = [it.getMessage() for it in caplog.records if "not initialized" in it.getMessage()]
        caplog.clear()
        return lines

    why = f"group {GROUP!a}: states are not initialized: COORDINATOR_NOT_AVAILABLE"
    assert [lines_after(ErrorCode.COORDINATOR_NOT_AVAILABLE) for _ in range(3)] == [[why], [], []]
    assert lines_after(ErrorCode.NONE) == []


def test_an_initialization_that_is_never_answered_is_requested_again(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    client.heartbeat()
    driver.to_initialize.clear()
    driver.restart()
    driver.advance(driver.config.share_initialize_retry_interval_ms - 1)
    client.heartbeat()
    assert driver.to_initialize == []
    driver.advance(1)
    client.heartbeat()
    assert len(driver.to_initialize) == 1


def test_an_append_that_fails_requests_no_initialization(driver: ShardDriver) -> None:
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert Client(driver, "a").heartbeat() is ErrorCode.NOT_COORDINATOR
    assert driver.to_initialize == []
    assert driver.shard.groups == {}


def test_a_topic_that_grows_is_assigned_in_full(driver: ShardDriver) -> None:
    client, keeper = Client(driver, "a", frozenset({"u"})), Keeper(driver)
    for partitions in (1, 4):
        driver.topics.create("u", partitions)
        for _ in range(2):
            client.heartbeat()
            keeper.answer_all()
            driver.advance(5_000)
        client.heartbeat()
        assert len(client.assigned) == partitions


def test_a_member_in_its_previous_epoch_is_known_and_one_before_is_fenced(driver: ShardDriver) -> None:
    client, keeper = Client(driver, "a"), Keeper(driver)
    for _ in range(2):
        client.heartbeat()
        keeper.answer_all()
        driver.advance(5_000)
    client.heartbeat()
    Client(driver, "b").heartbeat()
    driver.advance(5_000)
    client.heartbeat()
    assert client.epoch == 4
    for epoch, error in ((3, ErrorCode.NONE), (2, ErrorCode.FENCED_MEMBER_EPOCH), (5, ErrorCode.FENCED_MEMBER_EPOCH)):
        assert heartbeat(driver, ShareGroupHeartbeatRequest(GROUP, "a", epoch)).error_code == error


def test_a_silent_member_goes_and_an_empty_group_stays(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    client.heartbeat()
    driver.advance(driver.share_settings.session_timeout_ms)
    assert share_group(driver).is_empty
    driver.advance(driver.config.offsets_retention_ms + driver.config.offsets_retention_check_interval_ms)
    assert share_group(driver).listed().group_state == "Empty"
    assert client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_states_were_not_deleted_is_deleted_the_next_time(driver: ShardDriver) -> None:
    client, keeper = Client(driver, "a"), Keeper(driver)
    client.heartbeat()
    keeper.answer()
    assert keeper.delete_group() is ErrorCode.NON_EMPTY_GROUP
    client.leave()
    assert keeper.delete_group(fails=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    states = share_group(driver).states
    assert list(states.deleting.values()) == ["t"]
    assert states.initialized == {}
    driver.restart()
    assert keeper.delete_group() is ErrorCode.NONE
    assert keeper.states == {}
    assert driver.shard.groups == driver.replayed().groups == {}


def test_whoever_comes_back_before_the_deletion_gets_new_states(driver: ShardDriver) -> None:
    client, keeper = Client(driver, "a"), Keeper(driver)
    client.heartbeat()
    keeper.answer()
    client.leave()
    keeper.delete_group(fails=True)
    client.heartbeat()
    assert share_group(driver).states.deleting == {}
    keeper.answer()
    driver.advance(5_000)
    client.heartbeat()
    assert len(client.assigned) == 3


def test_its_records_are_of_kafkas_types(driver: ShardDriver) -> None:
    client, keeper = Client(driver, "a"), Keeper(driver)
    client.heartbeat()
    keeper.answer()
    driver.advance(5_000)
    client.heartbeat()
    logged = [it for it in driver.log if isinstance(it, LoggedRecord)]
    types = {read_head(it.key)[0] for it in logged}
    assert types == {10, 11, 12, 13, 14, 15}
    last = [it.value for it in logged if read_head(it.key)[0] == 15][-1]
    assert last is not None
    _, reader = read_head(last)
    value = records.ShareGroupStatePartitionMetadataValue.read(reader, 0)
    assert [(it.topic_name, it.partitions) for it in value.initialized_topics] == [("t", [0, 1, 2])]
    assert (value.initializing_topics, value.deleting_topics) == ([], [])


# A broker


async def send_heartbeat(
    kwire: InTrio, member_id: str, epoch: int, topics: list[str] | None = None
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest("g", member_id, epoch, None, topics)
    response: ShareGroupHeartbeatResponse = await kwire.call(request, 1)
    return response


async def settled(kwire: InTrio, *topics: str) -> ShareGroupHeartbeatResponse:
    """Joins a member, and returns the response with its partitions."""
    joined = await send_heartbeat(kwire, "m", 0, list(topics))
    assert joined.error_code == ErrorCode.NONE, joined.error_message
    for _ in range(10):
        await trio.sleep(FIVE_SECONDS)
        answer = await send_heartbeat(kwire, "m", joined.member_epoch)
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer
    raise AssertionError("nothing is assigned")


async def described(kwire: InTrio) -> DescribedGroup:
    (group,) = (await kwire.call(ShareGroupDescribeRequest(["g"]), 1)).groups
    assert isinstance(group, DescribedGroup)
    return group


def test_a_group_is_there_again_after_a_restart() -> None:
    async def first(kwire: InTrio) -> None:
        kwire.create_topic("t")
        await settled(kwire, "t")

    async def second(kwire: InTrio) -> None:
        group = await described(kwire)
        assert (group.group_state, group.group_epoch, len(group.members)) == ("Stable", 3, 1)
        answer = await send_heartbeat(kwire, "m", 3, ["t"])
        assert answer.assignment is not None
        assert [it.partitions for it in answer.assignment.topic_partitions] == [[0, 1]]
        await trio.sleep(60)
        assert (await described(kwire)).group_state == "Empty", "its session began at the start"

    with_broker(second, disk=with_broker(first))


def test_a_topic_that_is_made_again_is_another_topic() -> None:
    async def scenario(kwire: InTrio) -> None:
        first = kwire.create_topic("t")
        answer = await settled(kwire, "t")
        await kwire.call(DeleteTopicsRequest([DeleteTopicState("t")]), 6)
        again = kwire.create_topic("t", 1)
        assert again != first
        assigned = []
        for _ in range(4):
            await trio.sleep(FIVE_SECONDS)
            answer = await send_heartbeat(kwire, "m", answer.member_epoch, ["t"])
            assert answer.assignment is not None
            assigned = [(it.topic_id, it.partitions) for it in answer.assignment.topic_partitions]
        assert assigned == [(again, [0])]

    with_broker(scenario)


def test_without_the_feature_there_are_no_share_groups() -> None:
    async def scenario(kwire: InTrio) -> None:
        off = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("share.version", 0, upgrade_type=2)])
        assert (await kwire.call(off, 1)).error_code == ErrorCode.NONE
        assert (await send_heartbeat(kwire, "m", 0, ["t"])).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await described(kwire)).error_code == ErrorCode.UNSUPPORTED_VERSION

    with_broker(scenario)

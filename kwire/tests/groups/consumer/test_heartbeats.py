"""Heartbeats of consumer groups whose members come, go, fall silent and come back."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.groups.config import ConsumerGroupSettings
from kwire.groups.consumer.group import ConsumerGroup
from testkit.groups.consumer.clients import REBALANCE_TIMEOUT_MS, STATIC_LEAVING, Client, settle
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.topics import FakeTopics

SESSION_MS = 45_000


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics(t=4)


@pytest.fixture
def driver(topics: FakeTopics) -> ShardDriver:
    return ShardDriver(topics=topics)


def group_of(driver: ShardDriver) -> ConsumerGroup:
    group = driver.shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group


def partitions(client: Client) -> list[int]:
    return sorted(partition for _, partition in client.owned)


def test_a_heartbeat_without_news_writes_nothing(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    settle([client])
    written = len(driver.log)
    for _ in range(3):
        assert client.heartbeat() is ErrorCode.NONE
    assert len(driver.log) == written


def test_a_member_whose_answer_was_lost_continues_from_its_previous_epoch(driver: ShardDriver) -> None:
    first, second = Client(driver, "a"), Client(driver, "b")
    settle([first, second])
    second.leave()
    first.heartbeat(is_lost=True)
    assert first.heartbeat() is ErrorCode.NONE
    first.give_up()
    assert partitions(first) == [0, 1, 2, 3]


def test_a_silent_member_loses_its_partitions_to_others(driver: ShardDriver) -> None:
    first, second = Client(driver, "a"), Client(driver, "b")
    settle([first, second])
    for _ in range(10):
        driver.advance(SESSION_MS // 10)
        settle([first], rounds=1)
    assert partitions(first) == [0, 1, 2, 3]
    assert second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_in_time_is_removed(driver: ShardDriver) -> None:
    first, second = Client(driver, "a"), Client(driver, "b")
    settle([first])
    second.heartbeat()
    first.heartbeat()
    for _ in range(3):
        driver.advance(REBALANCE_TIMEOUT_MS // 3)
        error = first.heartbeat()
        second.heartbeat()
    assert error is ErrorCode.UNKNOWN_MEMBER_ID
    settle([second])
    assert partitions(second) == [0, 1, 2, 3]


def test_a_static_member_that_restarts_has_what_it_had(driver: ShardDriver) -> None:
    static, other = Client(driver, "a", instance_id="one"), Client(driver, "b")
    settle([static, other])
    had, epoch = set(static.owned), group_of(driver).epoch
    assert static.leave(STATIC_LEAVING) is ErrorCode.NONE
    settle([other])
    back = Client(driver, "a2", instance_id="one")
    settle([back, other])
    assert back.owned == had
    assert group_of(driver).epoch == epoch, "nobody else has to move"
    assert "a" not in group_of(driver).members


def test_a_static_member_that_does_not_come_back_is_removed(driver: ShardDriver) -> None:
    static, other = Client(driver, "a", instance_id="one"), Client(driver, "b")
    settle([static, other])
    static.leave(STATIC_LEAVING)
    for _ in range(10):
        driver.advance(SESSION_MS // 10)
        settle([other], rounds=1)
    assert partitions(other) == [0, 1, 2, 3]


def test_a_new_topic_is_assigned_to_who_subscribes_to_it(driver: ShardDriver, topics: FakeTopics) -> None:
    client = Client(driver, "a", frozenset({"t", "later"}))
    settle([client])
    topics.create("later", 2)
    settle([client], rounds=2)
    assert len(client.owned) == 6
    topics.create("t", 5)
    topics.delete("later")
    settle([client], rounds=2)
    assert partitions(client) == [0, 1, 2, 3, 4]


def test_an_expression_takes_in_topics_that_come_and_go(driver: ShardDriver, topics: FakeTopics) -> None:
    client = Client(driver, "a", frozenset(), regex="t.*")
    client.heartbeat()
    client.give_up()
    assert partitions(client) == [0, 1, 2, 3], "with its first answer"
    topics.create("t2", 2)
    topics.create("other", 2)
    driver.advance(1_000)
    settle([client], rounds=2)
    assert len(client.owned) == 6
    client.subscribe({"other"})
    settle([client], rounds=2)
    assert partitions(client) == [0, 1]
    assert group_of(driver).regexes == {}


def test_a_topic_that_the_client_may_not_see_does_not_match(driver: ShardDriver, topics: FakeTopics) -> None:
    topics.create("t-secret", 1)
    client = Client(driver, "a", frozenset(), regex="t.*", sees_topic=lambda name: name != "t-secret")
    settle([client])
    assert partitions(client) == [0, 1, 2, 3]


def test_most_members_choose_the_assignor(driver: ShardDriver) -> None:
    settle([Client(driver, "a", assignor="range"), Client(driver, "b", assignor="range"), Client(driver, "c")])
    assert driver.shard.describe_consumer(GROUP).assignor_name == "range"


def test_a_join_that_cannot_be_recorded_leaves_no_trace(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert client.heartbeat() is ErrorCode.NOT_COORDINATOR
    assert GROUP not in driver.shard.groups
    driver.append_error = ErrorCode.NONE
    settle([client])
    assert partitions(client) == [0, 1, 2, 3]


def test_a_member_that_joins_again_has_its_partitions_at_once(driver: ShardDriver) -> None:
    client, other = Client(driver, "a"), Client(driver, "b")
    settle([client, other])
    had = set(client.owned)
    client.be_out()
    assert client.heartbeat() is ErrorCode.NONE
    client.give_up()
    assert client.owned == had


def test_an_assignment_stands_for_its_interval(driver: ShardDriver) -> None:
    driver.settings = ConsumerGroupSettings(SESSION_MS, 5_000, assignment_interval_ms=1_000)
    driver.wall_ahead_ms = 1_000_000
    first, second = Client(driver, "a"), Client(driver, "b")
    settle([first, second])
    assert partitions(second) == []
    driver.advance(1_000)
    settle([first, second])
    assert len(partitions(second)) == 2


def test_the_group_goes_with_its_offsets(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    settle([client])
    assert driver.delete_groups(GROUP) == [ErrorCode.NON_EMPTY_GROUP]
    client.leave()
    assert driver.delete_groups(GROUP) == [ErrorCode.NONE]
    assert GROUP not in driver.shard.groups
    assert GROUP not in driver.replayed().groups


def test_a_group_without_members_is_forgotten_with_its_last_offset(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    settle([client])
    driver.commit({("t", 0): 5}, member_id="a", generation=client.epoch)
    assert driver.offset("t", 0) == 5
    client.leave()
    driver.advance(driver.config.offsets_retention_ms + driver.config.offsets_retention_check_interval_ms)
    assert GROUP not in driver.shard.groups

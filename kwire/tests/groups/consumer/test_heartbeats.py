"""Heartbeats of consumer groups: joining, sharing, giving up, leaving, coming back; and what is refused."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

from kwire.groups.config import ConsumerGroupSettings, GroupConfig
from kwire.groups.consumer.group import ConsumerGroup
from kwire.tests.groups.consumer.clients import (
    JOINING,
    REBALANCE_TIMEOUT_MS,
    STATIC_LEAVING,
    Client,
    heartbeat,
    settle,
)
from kwire.tests.groups.shard_driver import GROUP, ShardDriver
from kwire.tests.groups.topics import FakeTopics

SESSION_MS = 45_000


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics(t=4)


@pytest.fixture
def driver(topics: FakeTopics) -> ShardDriver:
    return ShardDriver(GroupConfig(consumer_max_size=3), topics)


def group_of(driver: ShardDriver) -> ConsumerGroup:
    group = driver.shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group


def partitions(client: Client) -> list[int]:
    return sorted(partition for _, partition in client.owned)


def described_partitions(driver: ShardDriver, member_id: str) -> list[int]:
    """The assignment of a member, as ConsumerGroupDescribe has it."""
    (member,) = [it for it in driver.shard.describe_consumer(GROUP).members if it.member_id == member_id]
    return [partition for topic in member.assignment.topic_partitions for partition in topic.partitions]


def test_the_first_member_has_everything_with_its_first_answer(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    assert client.heartbeat() is ErrorCode.NONE
    client.give_up()
    assert partitions(client) == [0, 1, 2, 3]
    assert group_of(driver).listed().group_state == "Stable"


def test_a_second_member_has_its_share_once_the_first_gave_it_up(driver: ShardDriver) -> None:
    first, second = Client(driver, "a"), Client(driver, "b")
    settle([first])
    second.heartbeat()
    second.give_up()
    assert partitions(second) == [], "the first one still has them"
    first.heartbeat()
    assert first.assigned is not None
    assert first.assigned < first.owned, "it is asked to give some up"
    second.heartbeat()
    second.give_up()
    assert partitions(second) == [], "asking is not giving up"
    first.give_up()
    first.heartbeat()
    second.heartbeat()
    second.give_up()
    assert len(partitions(second)) == 2
    assert not first.owned & second.owned


def test_what_a_member_has_still_to_give_up_is_described_as_its_own(driver: ShardDriver) -> None:
    first, second = Client(driver, "a"), Client(driver, "b")
    settle([first])
    second.heartbeat()
    first.heartbeat()
    assert described_partitions(driver, "a") == [0, 1, 2, 3], "it is asked to give some up, and has not done so"
    assert described_partitions(driver, "b") == []
    settle([first, second])
    assert described_partitions(driver, "a") == partitions(first)
    assert described_partitions(driver, "b") == partitions(second)


def test_a_heartbeat_without_news_writes_nothing(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    settle([client])
    written = len(driver.log)
    for _ in range(3):
        assert client.heartbeat() is ErrorCode.NONE
    assert len(driver.log) == written


def test_a_member_whose_answer_was_lost_goes_on_from_its_previous_epoch(driver: ShardDriver) -> None:
    first, second = Client(driver, "a"), Client(driver, "b")
    settle([first, second])
    second.leave()
    first.heartbeat(is_lost=True)
    assert first.heartbeat() is ErrorCode.NONE
    first.give_up()
    assert partitions(first) == [0, 1, 2, 3]


def test_a_member_of_an_earlier_epoch_is_fenced(driver: ShardDriver) -> None:
    first, second = Client(driver, "a"), Client(driver, "b")
    settle([first, second])
    for epoch in (first.epoch + 1, first.epoch - 2):
        response = heartbeat(driver, ConsumerGroupHeartbeatRequest(GROUP, "a", epoch))
        assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert response.error_message is not None


def test_who_is_unknown_is_told_so(driver: ShardDriver) -> None:
    request = ConsumerGroupHeartbeatRequest(GROUP, "nobody", 3)
    assert heartbeat(driver, request).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    settle([Client(driver, "a")])
    assert heartbeat(driver, request).error_code == ErrorCode.UNKNOWN_MEMBER_ID


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


def test_an_instance_id_in_use_is_not_given_to_another_member(driver: ShardDriver) -> None:
    settle([Client(driver, "a", instance_id="one")])
    assert Client(driver, "a2", instance_id="one").heartbeat() is ErrorCode.UNRELEASED_INSTANCE_ID
    request = ConsumerGroupHeartbeatRequest(GROUP, "a2", 2, instance_id="one")
    assert heartbeat(driver, request).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_removed(driver: ShardDriver) -> None:
    static, other = Client(driver, "a", instance_id="one"), Client(driver, "b")
    settle([static, other])
    static.leave(STATIC_LEAVING)
    for _ in range(10):
        driver.advance(SESSION_MS // 10)
        settle([other], rounds=1)
    assert partitions(other) == [0, 1, 2, 3]


def test_a_full_group_takes_no_more_members(driver: ShardDriver) -> None:
    clients = [Client(driver, name) for name in "abc"]
    settle(clients)
    assert Client(driver, "d").heartbeat() is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert clients[0].heartbeat() is ErrorCode.NONE


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


def test_an_expression_that_is_none_is_refused_and_changes_nothing(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    settle([client])
    client.subscribe({"t"}, "(t")
    assert client.heartbeat() is ErrorCode.INVALID_REGULAR_EXPRESSION
    client.subscribe({"t"})
    assert client.heartbeat() is ErrorCode.NONE
    assert Client(driver, "b", regex="a{1000}{1000}").heartbeat() is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list(group_of(driver).members) == ["a"]


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


def test_offsets_are_read_and_deleted_as_the_group_allows(driver: ShardDriver) -> None:
    client = Client(driver, "a")
    settle([client])
    assert driver.delete_offsets(("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert driver.delete_offsets(("other", 0)) == [ErrorCode.NONE]


def test_a_join_of_a_group_of_members_of_epoch_zero_has_an_epoch(driver: ShardDriver) -> None:
    client = Client(driver, "a", frozenset())
    assert client.heartbeat() is ErrorCode.NONE
    assert client.epoch > JOINING

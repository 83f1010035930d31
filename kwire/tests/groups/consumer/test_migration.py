"""Groups that change between the classic and the consumer protocol, empty or with members."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode

from kwire.groups.classic.group import ClassicGroup
from kwire.groups.config import ConsumerGroupSettings, GroupConfig, MigrationPolicy
from kwire.groups.consumer.group import ConsumerGroup
from testkit.groups.consumer.clients import ClassicClient, Client, settle
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.topics import FakeTopics


def driver_with(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> ShardDriver:
    return ShardDriver(GroupConfig(consumer_migration_policy=policy), FakeTopics(t=4))


@pytest.fixture
def driver() -> ShardDriver:
    return driver_with()


def settle_all(*clients: Client | ClassicClient) -> None:
    for _ in range(8):
        for client in clients:
            if isinstance(client, Client):
                settle([client], rounds=1)
            else:
                client.act()


def assert_shared(driver: ShardDriver, *clients: Client | ClassicClient) -> None:
    """Every partition of the topic is used by exactly one of them, and each has some."""
    topic = driver.topics.find("t")
    assert topic is not None
    owned = [place for client in clients for place in client.owned]
    assert sorted(owned) == [(topic.topic_id, partition) for partition in range(4)]
    assert all(client.owned for client in clients)


def kind_of(driver: ShardDriver) -> type:
    assert type(driver.replayed().groups[GROUP]) is type(driver.shard.groups[GROUP])
    return type(driver.shard.groups[GROUP])


def test_a_running_classic_group_takes_in_a_member_of_the_consumer_protocol(driver: ShardDriver) -> None:
    old, new = [ClassicClient(driver, "x"), ClassicClient(driver, "y")], Client(driver, "a")
    settle_all(*old)
    assert kind_of(driver) is ClassicGroup
    assert_shared(driver, *old)
    settle_all(*old, new)
    assert kind_of(driver) is ConsumerGroup
    assert_shared(driver, *old, new)


def test_a_group_is_replaced_one_by_one_and_back(driver: ShardDriver) -> None:
    old = [ClassicClient(driver, "x"), ClassicClient(driver, "y")]
    new = [Client(driver, "a"), Client(driver, "b")]
    settle_all(*old)
    settle_all(*old, new[0])
    old[0].leave()
    settle_all(old[1], *new)
    assert_shared(driver, old[1], *new)
    old[1].leave()
    settle_all(*new)
    assert_shared(driver, *new)
    settle_all(*new, *old)
    new[0].leave()
    new[1].leave()
    assert kind_of(driver) is ClassicGroup, "the last member of the consumer protocol left"
    settle_all(*old)
    assert_shared(driver, *old)


def test_a_classic_member_stays_where_it_is_while_the_next_assignment_is_delayed(driver: ShardDriver) -> None:
    driver.wall_ahead_ms = 1_700_000_000_000
    old, new, late = ClassicClient(driver, "x"), Client(driver, "a"), Client(driver, "b")
    settle_all(old)
    settle_all(old, new)
    driver.settings = ConsumerGroupSettings(assignment_interval_ms=1_000)
    late.heartbeat()
    generation, had, written = old.generation, set(old.owned), len(driver.log)
    for _ in range(5):
        old.act()
    assert (old.generation, old.owned, old.is_in, len(driver.log)) == (generation, had, True, written)
    driver.advance(1_000)
    settle_all(old, new, late)
    assert old.generation > generation
    assert_shared(driver, old, new, late)


def test_offsets_stay_whatever_the_group_becomes(driver: ShardDriver) -> None:
    old, new = ClassicClient(driver, "x"), Client(driver, "a")
    settle_all(old)
    driver.commit({("t", 0): 7}, member_id=old.member_id, generation=old.generation)
    settle_all(old, new)
    assert driver.offset("t", 0) == 7
    error = driver.commit({("t", 1): 8}, member_id=old.member_id, generation=old.generation)
    assert error == [ErrorCode.NONE]
    new.leave()
    settle_all(old)
    assert (driver.offset("t", 0), driver.offset("t", 1)) == (7, 8)


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_without_the_policy_a_classic_group_stays_classic(policy: MigrationPolicy) -> None:
    driver = driver_with(policy)
    old, new = ClassicClient(driver, "x"), Client(driver, "a")
    settle_all(old)
    assert new.heartbeat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert kind_of(driver) is ClassicGroup
    assert_shared(driver, old)


def test_without_the_policy_the_group_stays_a_consumer_group() -> None:
    driver = driver_with(MigrationPolicy.UPGRADE)
    old, new = ClassicClient(driver, "x"), Client(driver, "a")
    settle_all(old)
    settle_all(old, new)
    new.leave()
    settle_all(old)
    assert kind_of(driver) is ConsumerGroup
    assert_shared(driver, old)


def test_an_upgrade_that_cannot_be_recorded_leaves_the_classic_group(driver: ShardDriver) -> None:
    old, new = ClassicClient(driver, "x"), Client(driver, "a")
    settle_all(old)
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert new.heartbeat() is ErrorCode.NOT_COORDINATOR
    driver.append_error = ErrorCode.NONE
    assert kind_of(driver) is ClassicGroup
    assert driver.heartbeat(old.member_id, old.generation) is ErrorCode.NONE


def test_a_parked_join_gets_a_retriable_error_when_the_group_changes(driver: ShardDriver) -> None:
    old, late = ClassicClient(driver, "x"), ClassicClient(driver, "y")
    settle_all(old)
    late.act()
    late.act()
    token = driver.join(late.member_id)
    assert not driver.is_answered(token), "the first one has to rejoin"
    Client(driver, "a").heartbeat()
    assert driver.joined(token).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_empty_group_becomes_what_its_next_member_is(driver: ShardDriver) -> None:
    old, new = ClassicClient(driver, "x"), Client(driver, "a")
    settle_all(old)
    driver.commit({("t", 0): 7}, member_id=old.member_id, generation=old.generation)
    old.leave()
    settle_all(new)
    assert kind_of(driver) is ConsumerGroup
    new.leave()
    settle_all(old)
    assert kind_of(driver) is ClassicGroup
    assert driver.offset("t", 0) == 7


def test_a_static_member_comes_back_with_the_other_protocol(driver: ShardDriver) -> None:
    static, other = Client(driver, "a", instance_id="one"), Client(driver, "b")
    settle_all(static, other)
    had = set(static.owned)
    token = driver.join(instance_id="one")
    response = driver.joined(token)
    assert response.error_code == ErrorCode.NONE
    assert static.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    group = driver.shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    has = group.current[response.member_id]
    assert {(topic, partition) for topic, of_topic in has.assigned.items() for partition in of_topic} == had

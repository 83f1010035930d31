"""Groups with kafka-python: who gets which partitions, who may commit, and where reading goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition, errors
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from testkit.basics.values import numbered
from testkit.basics.waiting import Deadline
from testkit.clients.kafka_python import consuming, fill, poll_for_ever, reading, take, take_until, values_of
from testkit.clients.kafka_python_groups import JOIN_WITHIN_MS, settle
from testkit.clients.members import member_process
from testkit.raw import topics
from testkit.servers.brokers import Broker

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
QUICK = {"session_timeout_ms": 1_000}


def fill_each(bootstrap: str, topic: str, partitions: int) -> None:
    """A record in each partition: who gets the partition gets the record, and so a poll does not last longer."""
    for partition in range(partitions):
        fill(bootstrap, topic, [b"there"], partition=partition)


def take_one(consumer: Any) -> Any:
    records: list[Any] = []
    take_until(consumer, lambda: bool(records), records, "a record")
    return records[0]


@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_members_that_join_and_leave_share_the_partitions(
    broker: Broker, new_topic: Callable[..., str], group: str, strategy: str
) -> None:
    topic = new_topic(partitions=6)
    fill_each(broker.bootstrap, topic, 6)
    config = {"group_id": group, "partition_assignment_strategy": [ASSIGNORS[strategy]]}
    with ExitStack() as stack:
        members = [stack.enter_context(consuming(broker.bootstrap, topic, **config))]
        settle(members, 6, most=6)
        members.append(stack.enter_context(consuming(broker.bootstrap, topic, **config)))
        two = settle(members, 6, most=3)
        if strategy == "range":
            assert sorted(two) == [[0, 1, 2], [3, 4, 5]]
        elif strategy == "roundrobin":
            assert sorted(two) == [[0, 2, 4], [1, 3, 5]]
        members.append(stack.enter_context(consuming(broker.bootstrap, topic, **config)))
        settle(members, 6, most=2)
        members.pop(0).close()
        settle(members, 6, most=3)


def test_the_partitions_of_a_crashed_member_go_to_the_others(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=4)
    with (
        member_process("kafka-python", broker.bootstrap, group, topic, **QUICK) as other,
        consuming(broker.bootstrap, topic, group_id=group, **QUICK) as survivor,
    ):
        deadline = Deadline()
        while not (other.owns(2) and len(survivor.assignment()) == 2) and deadline.not_over("two members"):
            survivor.poll(timeout_ms=JOIN_WITHIN_MS)
        other.kill()
        settle([survivor], 4, most=4)


def test_each_record_goes_to_one_member_and_to_every_group(
    broker: Broker, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic = new_topic(partitions=4)
    for partition in range(4):
        fill(broker.bootstrap, topic, numbered(25), partition=partition)
    everything = [(partition, offset) for partition in range(4) for offset in range(25)]
    for group in (unique("one"), unique("other")):
        with (
            consuming(broker.bootstrap, topic, group_id=group, max_poll_records=5) as first,
            consuming(broker.bootstrap, topic, group_id=group, max_poll_records=5) as second,
        ):
            settle([first, second], 4, most=2)
            for consumer in (first, second):  # what came while they settled comes again
                consumer.seek_to_beginning()
            got = [(record.partition, record.offset) for one in (first, second) for record in take(one, 50)]
            assert sorted(got) == everything


def test_a_member_is_told_what_it_lost_and_got(broker: Broker, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(partitions=2)
    told: list[tuple[str, list[int]]] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            told.append(("revoked", sorted(partition.partition for partition in revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            told.append(("assigned", sorted(partition.partition for partition in assigned)))

    with consuming(broker.bootstrap, group_id=group) as first:
        first.subscribe([topic], listener=Listener())
        settle([first], 2, most=2)
        assert told[-1] == ("assigned", [0, 1])
        with consuming(broker.bootstrap, topic, group_id=group) as second:
            (mine, _) = settle([first, second], 2, most=1)
            assert ("revoked", [0, 1]) in told
            assert told[-1] == ("assigned", mine)


def test_a_group_takes_the_strategy_that_all_members_know(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=4)
    both = {"partition_assignment_strategy": [RangePartitionAssignor, RoundRobinPartitionAssignor]}
    one = {"partition_assignment_strategy": [RoundRobinPartitionAssignor]}
    with (
        consuming(broker.bootstrap, topic, group_id=group, **both) as first,
        consuming(broker.bootstrap, topic, group_id=group, **one) as second,
    ):
        assert sorted(settle([first, second], 4, most=2)) == [[0, 2], [1, 3]]


def test_a_member_without_a_common_strategy_is_refused(broker: Broker, topic: str, group: str) -> None:
    this = {"partition_assignment_strategy": [RangePartitionAssignor]}
    that = {"partition_assignment_strategy": [RoundRobinPartitionAssignor]}
    with (
        consuming(broker.bootstrap, topic, group_id=group, **this) as first,
        consuming(broker.bootstrap, group_id=group, **that) as second,
    ):
        settle([first], 1, most=1)
        second.subscribe([topic])
        with pytest.raises(errors.InconsistentGroupProtocolError):
            poll_for_ever(second)


def test_a_session_timeout_below_the_broker_s_limit_is_refused(broker: Broker, topic: str, group: str) -> None:
    config = {"session_timeout_ms": 400, "heartbeat_interval_ms": 100}
    with (
        consuming(broker.bootstrap, topic, group_id=group, **config) as consumer,
        pytest.raises(errors.InvalidSessionTimeoutError),
    ):
        poll_for_ever(consumer)


def test_a_member_that_stopped_polling_loses_its_partitions_and_may_not_commit(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    fill(broker.bootstrap, topic, numbered(3), partition=0)
    lazy = {**QUICK, "max_poll_interval_ms": 1_200}
    with (
        consuming(broker.bootstrap, topic, group_id=group, **lazy) as sleeper,
        consuming(broker.bootstrap, group_id=group, **QUICK) as other,
    ):
        settle([sleeper], 2, most=2)
        other.subscribe([topic])
        settle([other], 2, most=2)
        with pytest.raises(errors.CommitFailedError):
            sleeper.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})


@pytest.mark.parametrize("how", ["sync", "async", "at close"])
def test_a_group_goes_on_where_it_committed(broker: Broker, topic: str, group: str, how: str) -> None:
    fill(broker.bootstrap, topic, numbered(10))
    partition = TopicPartition(topic, 0)
    told: list[Any] = []
    config = {"group_id": group, "max_poll_records": 4, "enable_auto_commit": how == "at close"}
    with consuming(broker.bootstrap, topic, **config) as consumer:
        assert values_of(take(consumer, 4)) == numbered(10)[:4]
        if how == "sync":
            consumer.commit()
        elif how == "async":
            consumer.commit_async(callback=lambda offsets, answer: told.append((offsets, answer)))
            take_until(consumer, lambda: bool(told), [], "the answer to the commit", poll_ms=100)
            assert not isinstance(told[0][1], Exception), told
    with consuming(broker.bootstrap, topic, group_id=group) as consumer:
        assert consumer.committed(partition) == 4
        assert take_one(consumer).offset == 4


def test_a_commit_keeps_its_metadata(broker: Broker, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with reading(broker.bootstrap, topic, group_id=group) as consumer:
        consumer.commit({partition: OffsetAndMetadata(7, "ж: what I was doing", -1)})
        assert consumer.committed(partition) == 7
        kept = consumer.committed(partition, metadata=True)
        assert (kept.offset, kept.metadata) == (7, "ж: what I was doing")


def test_metadata_beyond_the_limit_is_refused(broker: Broker, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with reading(broker.bootstrap, topic, group_id=group) as consumer:
        with pytest.raises(errors.OffsetMetadataTooLargeError):
            consumer.commit({partition: OffsetAndMetadata(7, "x" * 4_097, -1)})
        consumer.commit({partition: OffsetAndMetadata(6, "x" * 4_096, -1)})
        assert consumer.committed(partition) == 6


def test_a_group_that_never_committed_has_no_offset(broker: Broker, topic: str, group: str) -> None:
    with reading(broker.bootstrap, topic, group_id=group) as consumer:
        assert consumer.committed(TopicPartition(topic, 0)) is None


def test_the_last_commit_holds(broker: Broker, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with reading(broker.bootstrap, topic, group_id=group) as consumer:
        for offset in (5, 9, 2):
            consumer.commit({partition: OffsetAndMetadata(offset, "", -1)})
        assert consumer.committed(partition) == 2
    with reading(broker.bootstrap, topic, group_id=group) as consumer:
        assert consumer.committed(partition) == 2


def test_a_pattern_takes_in_a_topic_that_is_made_later(
    broker: Broker, unique: Callable[[str], str], group: str
) -> None:
    family = unique("family")
    topics.create(broker.bootstrap, f"{family}-first")
    fill(broker.bootstrap, f"{family}-first", [b"from the first"])
    with consuming(broker.bootstrap, group_id=group, metadata_max_age_ms=300) as consumer:
        consumer.subscribe(pattern=f"^{family}-.*")
        assert take_one(consumer).value == b"from the first"
        topics.create(broker.bootstrap, f"{family}-second")
        fill(broker.bootstrap, f"{family}-second", [b"from the second"])
        records: list[Any] = []  # nothing was committed, so what was in the first may come again
        take_until(consumer, lambda: b"from the second" in values_of(records), records, "the second topic")
        assert consumer.subscription() == {f"{family}-first", f"{family}-second"}


def test_partitions_that_a_topic_gains_are_assigned(broker: Broker, topic: str, group: str) -> None:
    with consuming(broker.bootstrap, topic, group_id=group, metadata_max_age_ms=300) as consumer:
        settle([consumer], 1, most=1)
        topics.grow(broker.bootstrap, topic, 3)
        settle([consumer], 3, most=3)
        fill(broker.bootstrap, topic, [b"in the new one"], partition=2)
        assert take_one(consumer).value == b"in the new one"

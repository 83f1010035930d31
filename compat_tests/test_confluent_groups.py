"""Groups with confluent-kafka: joins, leaves, crashes and static members; commits and where reading goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, TopicPartition

from testkit.basics.values import numbered
from testkit.basics.waiting import Deadline, eventually
from testkit.clients.confluent import (
    CALL_TIMEOUT_S,
    consuming,
    error_of,
    error_of_reading,
    fill,
    group_of,
    offsets_of,
    reading,
    take,
    values_of,
)
from testkit.clients.confluent_groups import Moves, settle
from testkit.clients.members import member_process
from testkit.raw import groups, topics
from testkit.servers.brokers import Broker

STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]
ASSIGNORS = ["uniform", "range"]
ASSIGNING = [
    *(pytest.param({"partition.assignment.strategy": name}, id=f"classic-{name}") for name in STRATEGIES),
    *(
        pytest.param({"group.protocol": groups.CONSUMER, "group.remote.assignor": name}, id=f"consumer-{name}")
        for name in ASSIGNORS
    ),
]
"""Who computes assignments, and how: the members, or the coordinator."""
QUICK_MS = 1_000
"""A session."""


@pytest.mark.parametrize("assigning", ASSIGNING)
def test_members_that_join_and_leave_share_the_partitions(
    broker: Broker, new_topic: Callable[..., str], group: str, assigning: dict[str, str]
) -> None:
    topic = new_topic(partitions=6)
    config = {"group.id": group, **assigning}
    with ExitStack() as stack:
        members = [stack.enter_context(consuming(broker.bootstrap, topic, **config))]
        settle(members, 6, most=6)
        members.append(stack.enter_context(consuming(broker.bootstrap, topic, **config)))
        two = settle(members, 6, most=3)
        if "range" in assigning.values():
            assert sorted(two) == [[0, 1, 2], [3, 4, 5]]
        elif "roundrobin" in assigning.values():
            assert sorted(two) == [[0, 2, 4], [1, 3, 5]]
        members.append(stack.enter_context(consuming(broker.bootstrap, topic, **config)))
        settle(members, 6, most=2)
        members.pop(0).close()
        settle(members, 6, most=3)


@pytest.mark.parametrize(
    "assigning", [it for it in ASSIGNING if it.id in ("classic-cooperative-sticky", "consumer-uniform")]
)
def test_cooperative_members_keep_what_does_not_move(
    broker: Broker, new_topic: Callable[..., str], group: str, assigning: dict[str, str]
) -> None:
    topic = new_topic(partitions=4)
    config = {"group.id": group, **assigning}
    first_moves, second_moves = Moves(), Moves()
    with consuming(broker.bootstrap, **config) as first, consuming(broker.bootstrap, **config) as second:
        first_moves.subscribe(first, topic)
        settle([first], 4, most=4)
        second_moves.subscribe(second, topic)
        mine, other = settle([first, second], 4, most=2)
        assert [moved for moved in first_moves.taken if moved] == [other]  # and nothing else was taken
        assert [moved for moved in second_moves.given if moved] == [other]
        second.close()
        settle([first], 4, most=4)
        assert [moved for moved in first_moves.given if moved] == [[0, 1, 2, 3], other]
        assert sorted(mine + other) == [0, 1, 2, 3]


@pytest.mark.parametrize("assigning", ASSIGNING)
def test_the_partitions_of_a_crashed_member_go_to_the_others(
    broker: Broker, new_topic: Callable[..., str], group: str, assigning: dict[str, str]
) -> None:
    topic = new_topic(partitions=4)
    protocol = assigning.get("group.protocol", groups.CLASSIC)
    config = {**groups.session(broker.bootstrap, group, protocol, QUICK_MS), **assigning}
    with (
        member_process("confluent", broker.bootstrap, group, topic, **config) as other,
        consuming(broker.bootstrap, topic, **config) as survivor,
    ):
        deadline = Deadline()
        while not (other.owns(2) and len(group_of(survivor)) == 2) and deadline.not_over("two members"):
            survivor.poll(0.05)
        other.kill()
        settle([survivor], 4, most=4)


def test_a_static_member_that_comes_back_in_time_disturbs_nobody(
    broker: Broker, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic = new_topic(partitions=4)
    config = groups.session(broker.bootstrap, group, protocol, 20_000)
    if protocol == groups.CLASSIC:
        config["partition.assignment.strategy"] = "range"
    moves = Moves()
    with consuming(broker.bootstrap, **config, **{"group.instance.id": "one"}) as one:
        moves.subscribe(one, topic)
        with consuming(broker.bootstrap, topic, **config, **{"group.instance.id": "two"}) as two:
            mine, others = settle([one, two], 4, most=2)
        moves_before = (list(moves.given), list(moves.taken))
        for _ in range(2):  # twice gone and twice back
            with consuming(broker.bootstrap, topic, **config, **{"group.instance.id": "two"}) as two:
                assert settle([one, two], 4, most=2) == [mine, others]
        assert (moves.given, moves.taken) == moves_before


def test_a_static_member_that_does_not_come_back_loses_its_partitions_when_its_session_ends(
    broker: Broker, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic = new_topic(partitions=4)
    config = groups.session(broker.bootstrap, group, protocol, QUICK_MS)
    with consuming(broker.bootstrap, topic, **config, **{"group.instance.id": "one"}) as one:
        with consuming(broker.bootstrap, topic, **config, **{"group.instance.id": "two"}) as two:
            settle([one, two], 4, most=2)
        settle([one], 4, most=4)


def test_a_second_member_with_the_same_instance_fences_the_first(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    config = {"group.id": group, "group.instance.id": "the-one"}
    with (
        consuming(broker.bootstrap, topic, **config) as first,
        consuming(broker.bootstrap, **config) as second,
    ):
        settle([first], 2, most=2)
        second.subscribe([topic])
        settle([second], 2, most=2)
        error = error_of_reading(first)
        assert error.code() == KafkaError._FATAL
        assert "fenced" in error.str().lower()


def test_an_instance_that_is_in_use_is_not_released_to_another_member(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(partitions=2)
    config = {"group.id": group, "group.protocol": groups.CONSUMER, "group.instance.id": "the-one"}
    with consuming(broker.bootstrap, topic, **config) as first:
        settle([first], 2, most=2)
        with consuming(broker.bootstrap, topic, **config) as second:
            error = error_of_reading(second)
            assert error.code() == KafkaError._FATAL
            assert "instance ID is still used by another member" in error.str()
        settle([first], 2, most=2)  # it has kept everything


def test_an_assignor_that_the_broker_does_not_have_is_refused(broker: Broker, topic: str, group: str) -> None:
    config = {"group.id": group, "group.protocol": groups.CONSUMER, "group.remote.assignor": "no-such-assignor"}
    with consuming(broker.bootstrap, topic, **config) as consumer:
        error = error_of_reading(consumer)
        assert error.code() == KafkaError._FATAL
        assert "assignor or its version range is not supported" in error.str()


def test_a_member_without_a_common_strategy_is_refused(broker: Broker, topic: str, group: str) -> None:
    with (
        consuming(broker.bootstrap, topic, **{"group.id": group, "partition.assignment.strategy": "range"}) as first,
        consuming(broker.bootstrap, **{"group.id": group, "partition.assignment.strategy": "roundrobin"}) as second,
    ):
        settle([first], 1, most=1)
        second.subscribe([topic])
        assert error_of_reading(second).code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_stopped_polling_loses_its_partitions_and_may_not_commit(
    broker: Broker, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic = new_topic(partitions=2)
    config = groups.session(broker.bootstrap, group, protocol, QUICK_MS)
    with (
        consuming(broker.bootstrap, topic, **config, **{"max.poll.interval.ms": 1_000}) as sleeper,
        consuming(broker.bootstrap, **config) as other,
    ):
        settle([sleeper], 2, most=2)
        other.subscribe([topic])
        settle([other], 2, most=2)
        code = error_of(lambda: sleeper.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False))
        assert code in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)


@pytest.mark.parametrize("how", ["sync", "async", "message", "stored", "at close"])
def test_a_group_goes_on_where_it_committed(broker: Broker, topic: str, group: str, protocol: str, how: str) -> None:
    fill(broker.bootstrap, topic, numbered(10))
    told: list[tuple[KafkaError | None, list[TopicPartition]]] = []
    config: dict[str, Any] = {
        "group.id": group,
        "group.protocol": protocol,
        "on_commit": lambda error, partitions: told.append((error, partitions)),
        "enable.auto.commit": how in ("stored", "at close"),
        "enable.auto.offset.store": how != "stored",
        "auto.commit.interval.ms": 100 if how == "stored" else 60_000,
    }
    with consuming(broker.bootstrap, topic, **config) as consumer:
        records: list[Any] = []
        while len(records) < 4:
            if (message := consumer.poll(CALL_TIMEOUT_S)) is not None:
                records.append(message)
        match how:
            case "sync":
                consumer.commit(asynchronous=False)
            case "async":
                consumer.commit(asynchronous=True)
            case "message":
                consumer.commit(message=records[-1], asynchronous=False)
            case "stored":
                consumer.store_offsets(records[-1])
        if how in ("async", "stored"):
            deadline = Deadline()
            while not told and deadline.not_over("the answer to the commit"):
                consumer.pause(consumer.assignment())
                consumer.poll(0.05)
            assert told[0][0] is None
    with consuming(broker.bootstrap, topic, **{"group.id": group, "group.protocol": protocol}) as consumer:
        assert offsets_of(take(consumer, 6)) == [4, 5, 6, 7, 8, 9]


def test_a_commit_keeps_its_metadata(broker: Broker, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(partitions=3)
    with consuming(broker.bootstrap, **{"group.id": group}) as consumer:
        wanted = [TopicPartition(topic, 0, 5, "ж: what I was doing"), TopicPartition(topic, 2, 9, "")]
        consumer.commit(offsets=wanted, asynchronous=False)
        asked = [TopicPartition(topic, number) for number in range(3)]
        found = consumer.committed(asked, timeout=CALL_TIMEOUT_S)
    assert [(it.partition, it.offset, it.metadata or "") for it in found] == [
        (0, 5, "ж: what I was doing"),
        (1, OFFSET_INVALID, ""),
        (2, 9, ""),
    ]


def test_metadata_beyond_the_limit_is_refused(broker: Broker, topic: str, group: str) -> None:
    with consuming(broker.bootstrap, **{"group.id": group}) as consumer:

        def commit(offset: int, metadata_bytes: int) -> None:
            # This client sends a byte of zero after the text.
            wanted = TopicPartition(topic, 0, offset, "x" * (metadata_bytes - 1))
            consumer.commit(offsets=[wanted], asynchronous=False)

        commit(5, 4_096)
        assert error_of(lambda: commit(6, 4_097)) == KafkaError.OFFSET_METADATA_TOO_LARGE
        assert consumer.committed([TopicPartition(topic, 0)], timeout=CALL_TIMEOUT_S)[0].offset == 5


def test_a_group_that_never_committed_starts_as_auto_offset_reset_says(
    broker: Broker, topic: str, unique: Callable[[str], str], protocol: str
) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    at_the_start = {"group.id": unique("early"), "group.protocol": protocol}
    at_the_end = {"group.id": unique("late"), "group.protocol": protocol, "auto.offset.reset": "latest"}
    with (
        consuming(broker.bootstrap, topic, **at_the_start) as early,
        consuming(broker.bootstrap, topic, **at_the_end) as late,
    ):
        settle([late], 1, most=1)
        assert offsets_of(take(early, 3)) == [0, 1, 2]
        deadline = Deadline()
        while late.position([TopicPartition(topic, 0)])[0].offset < 0 and deadline.not_over("a position"):
            fill(broker.bootstrap, topic, [b"news"])
            late.poll(0.1)
        first = late.position([TopicPartition(topic, 0)])[0].offset - 1
        assert first >= 3


def test_each_group_has_offsets_of_its_own(
    broker: Broker, topic: str, unique: Callable[[str], str], protocol: str
) -> None:
    fill(broker.bootstrap, topic, numbered(6))
    ids = [unique("group") for _ in range(3)]
    for number, group in enumerate(ids):
        with consuming(broker.bootstrap, **{"group.id": group}) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
    for number, group in enumerate(ids):
        with consuming(broker.bootstrap, topic, **{"group.id": group, "group.protocol": protocol}) as consumer:
            assert values_of(take(consumer, 6 - number)) == numbered(6)[number:]


def test_partitions_that_a_topic_gains_are_assigned(broker: Broker, topic: str, group: str, protocol: str) -> None:
    config = {"group.id": group, "group.protocol": protocol, "topic.metadata.refresh.interval.ms": 200}
    with consuming(broker.bootstrap, topic, **config) as consumer:
        settle([consumer], 1, most=1)
        topics.grow(broker.bootstrap, topic, 3)
        settle([consumer], 3, most=3)
        fill(broker.bootstrap, topic, [b"in the new one"], partition=2)
        assert values_of(take(consumer, 1)) == [b"in the new one"]


def test_topics_that_match_a_pattern_come_and_go(
    broker: Broker, unique: Callable[[str], str], group: str, protocol: str
) -> None:
    prefix = unique("matched")
    for name in ("a", "b"):
        topics.create(broker.bootstrap, f"{prefix}-{name}", partitions=2)

    def reads(*names: str) -> None:
        deadline = Deadline()
        wanted = sorted((f"{prefix}-{name}", number) for name in names for number in range(2))
        while sorted((it.topic, it.partition) for it in consumer.assignment()) != wanted:
            assert deadline.not_over(f"{names}; it has {consumer.assignment()}")
            consumer.poll(0.05)

    config = {"group.id": group, "group.protocol": protocol}
    with consuming(broker.bootstrap, f"^{prefix}-[ac]$", **config) as consumer:
        reads("a")
        topics.create(broker.bootstrap, f"{prefix}-c", partitions=2)
        reads("a", "c")
        topics.delete(broker.bootstrap, f"{prefix}-a")
        reads("c")
        consumer.subscribe([f"^{prefix}-b", f"{prefix}-c"])
        reads("b", "c")


def test_an_assigned_consumer_commits_without_being_a_member(
    broker: Broker, topic: str, group: str, protocol: str
) -> None:
    fill(broker.bootstrap, topic, numbered(4))
    with reading(broker.bootstrap, topic, **{"group.id": group, "group.protocol": protocol}) as consumer:
        take(consumer, 4)
        consumer.commit(asynchronous=False)
    with consuming(broker.bootstrap, **{"group.id": group}) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)], timeout=CALL_TIMEOUT_S)[0].offset == 4


def test_a_commit_from_outside_is_refused_while_the_group_has_members(
    broker: Broker, topic: str, group: str, protocol: str
) -> None:
    with (
        consuming(broker.bootstrap, topic, **{"group.id": group, "group.protocol": protocol}) as member,
        consuming(broker.bootstrap, **{"group.id": group}) as outsider,
    ):
        settle([member], 1, most=1)
        code = error_of(lambda: outsider.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False))
        assert code == KafkaError.UNKNOWN_MEMBER_ID


def test_the_offsets_of_a_deleted_topic_are_forgotten(
    broker: Broker, new_topic: Callable[..., str], group: str
) -> None:
    doomed, kept = new_topic(), new_topic()
    partitions = [TopicPartition(doomed, 0, 3), TopicPartition(kept, 0, 4)]

    def committed(consumer: Consumer) -> list[int]:
        asked = [TopicPartition(doomed, 0), TopicPartition(kept, 0)]
        return [found.offset for found in consumer.committed(asked, timeout=CALL_TIMEOUT_S)]

    with consuming(broker.bootstrap, **{"group.id": group}) as consumer:
        consumer.commit(offsets=partitions, asynchronous=False)
        assert committed(consumer) == [3, 4]
        topics.delete(broker.bootstrap, doomed)
        topics.create(broker.bootstrap, doomed)
        eventually(lambda: committed(consumer) == [OFFSET_INVALID, 4], "only the other topic's offset")

"""Share groups (KIP-932) with confluent-kafka's ShareConsumer (librdkafka)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import IllegalStateException, KafkaError, KafkaException, Message, TopicPartition

from testkit.basics.values import numbered
from testkit.basics.waiting import eventually
from testkit.clients.confluent import fill, producing, read_all, send_all, values_of
from testkit.clients.share_consumers import (
    ACCEPT,
    IMPLICIT,
    REJECT,
    RELEASE,
    SHORTEST_LOCK_MS,
    acknowledge,
    commit,
    deliveries,
    ended,
    get,
    make,
    nothing_comes,
    polled,
    sharing,
)
from testkit.clients.transactions.queries import end_offset
from testkit.raw import topics
from testkit.servers import brokers
from testkit.servers.brokers import Broker, RestartableBroker

SINCE_4_4 = pytest.mark.skipif(not brokers.IS_4_4, reason="Apache Kafka 4.3.1 has no dead-letter topics (KIP-1191)")


@pytest.fixture
def group(broker: Broker, group: str) -> str:
    """A share group that begins at the earliest offset."""
    return make(broker.bootstrap, group)


# Acknowledging


@pytest.mark.parametrize("how", ["by the next poll", "by a commit"])
def test_in_implicit_mode_what_was_polled_is_accepted(broker: Broker, group: str, topic: str, how: str) -> None:
    fill(broker.bootstrap, topic, numbered(10))
    with sharing(broker.bootstrap, group, topic, mode=IMPLICIT) as consumer:
        assert deliveries(get(consumer, 10, None)) == [(offset, 1) for offset in range(10)]
        if how == "by the next poll":
            nothing_comes(consumer, 0.05)
            eventually(lambda: ended(broker.bootstrap, group, topic) == 10, "all are done with")
        else:
            assert commit(consumer) == {0: None}
            assert ended(broker.bootstrap, group, topic) == 10


def test_in_implicit_mode_closing_gives_back_the_last_poll(broker: Broker, group: str, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    with sharing(broker.bootstrap, group, topic, mode=IMPLICIT) as consumer:
        get(consumer, 3, None)
    with sharing(broker.bootstrap, group, topic) as consumer:
        assert deliveries(get(consumer, 3)) == [(0, 2), (1, 2), (2, 2)]


def test_in_explicit_mode_each_record_is_accepted_released_or_rejected(broker: Broker, group: str, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(6))
    with sharing(broker.bootstrap, group, topic) as consumer:
        records = get(consumer, 6, None)
        for record, kind in zip(records, (ACCEPT, RELEASE, REJECT, ACCEPT, RELEASE, ACCEPT), strict=True):
            consumer.acknowledge(record, kind)
        assert commit(consumer) == {0: None}
        again = get(consumer, 2)
        assert deliveries(again) == [(1, 2), (4, 2)]
        assert values_of(again) == [numbered(6)[1], numbered(6)[4]]
        assert commit(consumer) == {0: None}
        nothing_comes(consumer)
    assert ended(broker.bootstrap, group, topic) == 6


def test_in_explicit_mode_nothing_is_accepted_by_itself(broker: Broker, group: str, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(3))
    with sharing(broker.bootstrap, group, topic) as consumer:
        records = get(consumer, 3, None)
        with pytest.raises(IllegalStateException):  # not all are acknowledged
            consumer.poll(0.1)
        assert commit(consumer) == {}
        consumer.acknowledge_offset(topic, 0, 1)
        with pytest.raises(IllegalStateException):
            consumer.acknowledge_offset(topic, 0, 3)
        assert commit(consumer) == {0: None}
        with pytest.raises(IllegalStateException):  # it has been committed
            consumer.acknowledge(records[1])
    with sharing(broker.bootstrap, group, topic) as consumer:  # the other two were released when the first one closed
        assert deliveries(get(consumer, 2)) == [(0, 2), (2, 2)]


def test_a_callback_gets_what_was_acknowledged(broker: Broker, group: str, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(5))
    calls: list[tuple[dict[TopicPartition, set[int]], KafkaException | None]] = []
    with sharing(broker.bootstrap, group, topic) as consumer:
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: calls.append((offsets, error)))
        get(consumer, 5)
        consumer.commit_async()
        eventually(lambda: polled(consumer, 0.05) == [] and calls, "the acknowledgement's outcome")
    assert [error for _, error in calls] == [None]
    assert [(it.topic, it.partition, offsets) for it, offsets in calls[0][0].items()] == [(topic, 0, set(range(5)))]


# Several consumers


def test_consumers_of_a_group_share_one_partition(broker: Broker, group: str, topic: str) -> None:
    for _ in range(60):  # a batch each: what is acquired together is delivered together
        fill(broker.bootstrap, topic, numbered(5))
    seen: Counter[int] = Counter()
    of_consumer: list[int] = []
    with ExitStack() as closed:
        consumers = [
            closed.enter_context(sharing(broker.bootstrap, group, topic, **{"max.poll.records": 20})) for _ in range(4)
        ]
        of_consumer += [0] * len(consumers)

        def everything() -> bool:
            for number, consumer in enumerate(consumers):
                records = polled(consumer, 0.05)
                acknowledge(consumer, records)
                seen.update(record.offset() or 0 for record in records)
                of_consumer[number] += len(records)
            return seen.total() >= 300

        eventually(everything, "all records", pause_s=0)
    assert seen == Counter(range(300))
    assert all(of_consumer), of_consumer
    assert ended(broker.bootstrap, group, topic) == 300


def test_a_consumer_gets_the_partitions_of_all_its_topics(
    broker: Broker, group: str, new_topic: Callable[..., str]
) -> None:
    one, other, later = new_topic(), new_topic(partitions=3), new_topic()
    with sharing(broker.bootstrap, group, one, other) as consumer:
        for name, partition in ((one, 0), (other, 0), (other, 1), (other, 2), (later, 0)):
            fill(broker.bootstrap, name, [f"{name} {partition}".encode()], partition=partition)
        got = values_of(get(consumer, 4))
        assert sorted(map(str, got)) == sorted(
            str(f"{name} {partition}".encode()) for name, partition in ((one, 0), (other, 0), (other, 1), (other, 2))
        )
        consumer.subscribe([later])
        assert values_of(get(consumer, 1)) == [f"{later} 0".encode()]
        fill(broker.bootstrap, one, [b"not subscribed any more"])
        nothing_comes(consumer)


def test_each_group_gets_all_records(broker: Broker, group: str, topic: str, unique: Callable[[str], str]) -> None:
    another = make(broker.bootstrap, unique("another"))
    fill(broker.bootstrap, topic, numbered(5))
    for name in (group, another):
        with sharing(broker.bootstrap, name, topic) as consumer:
            assert values_of(get(consumer, 5)) == numbered(5)


def test_without_a_configuration_a_group_begins_at_the_end(
    broker: Broker, topic: str, unique: Callable[[str], str]
) -> None:
    fill(broker.bootstrap, topic, numbered(5))
    with sharing(broker.bootstrap, unique("latest"), topic) as consumer:
        nothing_comes(consumer, 1.0)  # it has joined, and its partition has begun
        fill(broker.bootstrap, topic, [b"new"])
        assert deliveries(get(consumer, 1)) == [(5, 1)]


# Redelivery


def test_a_consumer_that_closes_gives_back_what_it_holds(broker: Broker, group: str, topic: str) -> None:
    fill(broker.bootstrap, topic, numbered(4))
    with sharing(broker.bootstrap, group, topic) as other:
        with sharing(broker.bootstrap, group, topic) as consumer:
            records = get(consumer, 4, None)
            consumer.acknowledge(records[0])
            nothing_comes(other)
        assert deliveries(get(other, 3)) == [(1, 2), (2, 2), (3, 2)]


def test_after_a_lock_has_ended_another_consumer_gets_the_records(
    broker: Broker, topic: str, unique: Callable[[str], str]
) -> None:
    group = make(broker.bootstrap, unique("locked"), share_record_lock_duration_ms=SHORTEST_LOCK_MS)
    fill(broker.bootstrap, topic, numbered(3))
    with sharing(broker.bootstrap, group, topic) as slow, sharing(broker.bootstrap, group, topic) as other:
        late = get(slow, 3, None)
        assert deliveries(get(other, 3)) == [(0, 2), (1, 2), (2, 2)]
        acknowledge(slow, late)
        assert commit(slow) == {0: KafkaError.INVALID_RECORD_STATE}
        assert commit(other) == {0: None}
    assert ended(broker.bootstrap, group, topic) == 3


def test_a_record_is_delivered_as_often_as_the_limit_allows(
    broker: Broker, topic: str, unique: Callable[[str], str]
) -> None:
    group = make(broker.bootstrap, unique("limited"), share_delivery_count_limit=3)
    fill(broker.bootstrap, topic, numbered(2))
    counts: dict[int, list[int]] = {0: [], 1: []}
    with sharing(broker.bootstrap, group, topic) as consumer:

        def done() -> bool:
            records = polled(consumer)
            for offset, count in deliveries(records):
                counts[offset].append(count)
            acknowledge(consumer, records, RELEASE)
            return sum(map(len, counts.values())) == 6

        eventually(done, "three deliveries of each record", pause_s=0)
        commit(consumer)
        nothing_comes(consumer)
        fill(broker.bootstrap, topic, [b"next"])
        assert deliveries(get(consumer, 1)) == [(2, 1)]
    assert counts == {0: [1, 2, 3], 1: [1, 2, 3]}
    assert ended(broker.bootstrap, group, topic) == 3


# Transactions


def test_with_read_committed_only_committed_records_come(
    broker: Broker, topic: str, transactional_id: str, unique: Callable[[str], str]
) -> None:
    group = make(broker.bootstrap, unique("committed"), share_isolation_level="read_committed")
    with producing(broker.bootstrap, **{"transactional.id": transactional_id}) as producer:
        producer.init_transactions()
        for ends, values in ((producer.abort_transaction, [b"no"] * 3), (producer.commit_transaction, [b"yes"] * 3)):
            producer.begin_transaction()
            send_all(producer, topic, values)
            ends()
        producer.begin_transaction()
        send_all(producer, topic, [b"later"])
        fill(broker.bootstrap, topic, [b"behind it"])
        with sharing(broker.bootstrap, group, topic) as consumer:
            assert values_of(get(consumer, 3)) == [b"yes"] * 3
            nothing_comes(consumer)
            producer.commit_transaction()
            assert values_of(get(consumer, 2)) == [b"later", b"behind it"]
            assert commit(consumer) == {0: None}


def test_with_read_uncommitted_aborted_records_come_too_and_markers_do_not(
    broker: Broker, group: str, topic: str, transactional_id: str
) -> None:
    with producing(broker.bootstrap, **{"transactional.id": transactional_id}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        send_all(producer, topic, [b"aborted"])
        producer.abort_transaction()
    eventually(lambda: end_offset(broker.bootstrap, (topic, 0), committed=False) == 2, "the transaction's marker")
    fill(broker.bootstrap, topic, [b"plain"])
    with sharing(broker.bootstrap, group, topic) as consumer:
        assert deliveries(get(consumer, 2)) == [(0, 1), (2, 1)]
        assert commit(consumer) == {0: None}
        eventually(lambda: ended(broker.bootstrap, group, topic) == 3, "the marker is done with, too")


# Dead letters


def header(record: Message, name: str) -> str:
    (value,) = [value for key, value in record.headers() or [] if key == f"__dlq.errors.{name}"]
    assert isinstance(value, bytes)
    return value.decode()


@SINCE_4_4
def test_what_is_rejected_or_delivered_too_often_goes_to_the_dead_letter_topic(
    broker: Broker, topic: str, unique: Callable[[str], str]
) -> None:
    dead = "dlq." + unique("topic")
    topics.create(broker.bootstrap, dead, config={"errors.deadletterqueue.group.enable": "true"})
    group = make(
        broker.bootstrap,
        unique("group"),
        share_delivery_count_limit=2,
        errors_deadletterqueue_topic_name=dead,
        errors_deadletterqueue_copy_record_enable="true",
    )
    fill(broker.bootstrap, topic, numbered(4))
    with sharing(broker.bootstrap, group, topic) as consumer:
        for record in get(consumer, 4, None):
            consumer.acknowledge(record, {1: REJECT, 2: RELEASE}.get(record.offset() or 0, ACCEPT))
        assert commit(consumer) == {0: None}
        assert deliveries(get(consumer, 1, RELEASE)) == [(2, 2)]
        assert commit(consumer) == {0: None}
        nothing_comes(consumer, 0.1)
    letters = read_all(broker.bootstrap, dead, 2)
    assert [it.value() for it in letters] == [numbered(4)[1], numbered(4)[2]]
    for letter, offset, count, why in zip(letters, "12", "12", ("rejected", "delivery count"), strict=True):
        assert [header(letter, it) for it in ("topic", "partition", "offset")] == [topic, "0", offset]
        assert (header(letter, "group"), header(letter, "delivery.count")) == (group, count)
        assert why in header(letter, "message")
    eventually(lambda: ended(broker.bootstrap, group, topic) == 4, "all are done with")


# Restarts


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_restart_forgets_no_acknowledgement(
    restartable_broker: RestartableBroker, unique: Callable[[str], str], is_killed: bool
) -> None:
    broker = restartable_broker
    topic = unique("topic")
    topics.create(broker.bootstrap, topic, replicas=brokers.NODES)  # led by the one that is restarted
    group = make(broker.bootstrap, unique("group"))
    fill(broker.bootstrap, topic, numbered(6))
    with sharing(broker.bootstrap, group, topic) as consumer:
        records = get(consumer, 6, None)
        for record, kind in zip(records, (ACCEPT, RELEASE, REJECT, ACCEPT), strict=False):
            consumer.acknowledge(record, kind)
        assert commit(consumer) == {0: None}
        (broker.kill_and_restart if is_killed else broker.restart)()
        acknowledge(consumer, records[4:])  # held of a broker that is gone
        again: dict[int, int] = {}

        def redelivered() -> bool:
            messages = polled(consumer)
            acknowledge(consumer, messages)
            again.update(deliveries(messages))
            return len(again) == 3

        eventually(redelivered, "what was not acknowledged", pause_s=0)
        # The count of a delivery that has not ended is not persisted.
        assert again[1] == 2
        assert set(again) == {1, 4, 5}


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_the_callback_hears_after_a_restart_that_another_leader_delivered_the_records(
    restartable_broker: RestartableBroker, unique: Callable[[str], str], is_killed: bool
) -> None:
    broker = restartable_broker
    topic = unique("topic")
    topics.create(broker.bootstrap, topic, replicas=brokers.NODES)  # led by the one that is restarted
    group = make(broker.bootstrap, unique("group"))
    fill(broker.bootstrap, topic, numbered(1))
    errors: list[KafkaException | None] = []
    with sharing(broker.bootstrap, group, topic) as consumer:
        consumer.set_acknowledgement_commit_callback(lambda _, error: errors.append(error))
        records = get(consumer, 1, None)
        (broker.kill_and_restart if is_killed else broker.restart)()
        acknowledge(consumer, records)
        consumer.commit_async()

        def was_called() -> bool:
            acknowledge(consumer, polled(consumer))
            return bool(errors)

        eventually(was_called, "the callback is called", pause_s=0)
    assert errors[0] is not None
    # Both brokers answer either. The session is gone, too, and the client may find that first. Or it finds its
    # connection closed, and does not send the acknowledgement.
    gone = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.INVALID_SHARE_SESSION_EPOCH, KafkaError._TRANSPORT)
    assert errors[0].args[0].code() in gone

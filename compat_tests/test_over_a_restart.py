"""Clients that live through a stop, or a kill, of the broker: nothing acknowledged is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Message, Producer, TopicPartition

from testkit.basics.waiting import Deadline, eventually
from testkit.clients import aio, confluent, kafka_python
from testkit.clients.confluent import Acknowledgements, consuming, group_of, offsets_of, producing, read_all, values_of
from testkit.clients.confluent_groups import Moves, settle
from testkit.raw import groups, topics
from testkit.servers.brokers import RestartableBroker

WAYS = ["stop", "kill"]


def bring_back(broker: RestartableBroker, how: str) -> None:
    if how == "stop":
        broker.restart()
    else:
        broker.kill_and_restart()


@pytest.fixture
def topic(restartable_broker: RestartableBroker, unique: Callable[[str], str]) -> str:
    name = unique("topic")
    topics.create(restartable_broker.bootstrap, name)
    return name


@contextmanager
def load(producer: Producer, topic: str) -> Iterator[Acknowledgements]:
    """Produces numbered records, as many as the producer's queue takes, from a thread; ends with a flush."""
    acknowledgements = Acknowledgements()
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.is_set():
            if number - acknowledgements.count < 5_000:
                producer.produce(topic, b"%09d" % number + b"." * 191, on_delivery=acknowledgements)
                number += 1
                producer.poll(0)
            else:
                producer.poll(0.01)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield acknowledgements
    finally:
        stop.set()
        thread.join()
        assert producer.flush(60) == 0


@pytest.mark.parametrize("how", WAYS)
def test_an_idempotent_producer_under_load_loses_nothing_and_repeats_nothing(
    restartable_broker: RestartableBroker, topic: str, how: str
) -> None:
    broker = restartable_broker
    config = {"enable.idempotence": True, "batch.num.messages": 200, "linger.ms": 1}
    with producing(broker.bootstrap, **config) as producer, load(producer, topic) as acknowledgements:
        for _ in range(2 if how == "kill" else 1):
            already = len(acknowledgements.taken)
            eventually(lambda: len(acknowledgements.taken) > already + 3_000, "load")  # noqa: B023 - used at once
            bring_back(broker, how)
        already = len(acknowledgements.taken)
        eventually(lambda: len(acknowledgements.taken) > already + 1_000, "load after the last start")
    assert acknowledgements.errors == []
    count = len(acknowledgements.taken)
    records = read_all(broker.bootstrap, topic, count)
    assert [int((record.value() or b"")[:9]) for record in records] == list(range(count))
    assert {message.offset(): message.value() for message in acknowledgements.taken} == {
        record.offset(): record.value() for record in records
    }


def test_what_was_acknowledged_without_idempotence_is_there_after_a_kill(
    restartable_broker: RestartableBroker, topic: str
) -> None:
    broker = restartable_broker
    with producing(broker.bootstrap, acks="all") as producer, load(producer, topic) as acknowledgements:
        eventually(lambda: len(acknowledgements.taken) > 3_000, "load")
        broker.kill_and_restart()
    acknowledged = {message.value() for message in acknowledgements.taken}
    with consuming(broker.bootstrap) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=confluent.CALL_TIMEOUT_S)
    records = values_of(read_all(broker.bootstrap, topic, end))
    assert acknowledged <= set(records)


@pytest.mark.parametrize("how", WAYS)
def test_members_keep_their_partitions_without_a_rebalance(
    restartable_broker: RestartableBroker, unique: Callable[[str], str], protocol: str, how: str
) -> None:
    broker, topic = restartable_broker, unique("topic")
    topics.create(broker.bootstrap, topic, partitions=4)
    config = groups.session(broker.bootstrap, unique("group"), protocol, 45_000)
    if protocol == groups.CLASSIC:
        config["partition.assignment.strategy"] = "range"
    moves = [Moves(), Moves()]
    with consuming(broker.bootstrap, **config) as first, consuming(broker.bootstrap, **config) as second:
        moves[0].subscribe(first, topic)
        moves[1].subscribe(second, topic)
        before = settle([first, second], 4, most=2)
        given_before = [list(it.given) for it in moves]
        bring_back(broker, how)
        for partition in range(4):
            confluent.fill(broker.bootstrap, topic, [b"after"], partition=partition)
        records: list[Message] = []
        deadline = Deadline()
        while len(records) < 4 and deadline.not_over("a record from each partition"):
            for consumer in (first, second):
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    records.append(message)
        groups.wait_until_served(broker.bootstrap)  # librdkafka does not repeat a synchronous commit
        for consumer in (first, second):
            consumer.commit(asynchronous=False)
        assert [group_of(first), group_of(second)] == before
        assert [it.given for it in moves] == given_before


def test_confluent_clients_continue_after_a_kill(
    restartable_broker: RestartableBroker, topic: str, group: str, protocol: str
) -> None:
    broker = restartable_broker
    with (
        producing(broker.bootstrap, **{"enable.idempotence": True}) as producer,
        consuming(broker.bootstrap, topic, **{"group.id": group, "group.protocol": protocol}) as consumer,
    ):
        confluent.send_all(producer, topic, [b"before %d" % number for number in range(10)])
        confluent.take(consumer, 10)
        consumer.commit(asynchronous=False)
        broker.kill_and_restart()
        confluent.send_all(producer, topic, [b"after %d" % number for number in range(10)])
        records: list[Message] = []
        deadline = Deadline()
        while len(records) < 10 and deadline.not_over("the records after"):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                records.append(message)
    assert offsets_of(records) == list(range(10, 20))


def test_kafka_python_clients_continue_after_a_kill(
    restartable_broker: RestartableBroker, topic: str, group: str
) -> None:
    broker = restartable_broker
    with (
        kafka_python.producing(broker.bootstrap, acks="all", enable_idempotence=True) as producer,
        kafka_python.consuming(broker.bootstrap, topic, group_id=group) as consumer,
    ):
        kafka_python.send_all(producer, topic, [b"before %d" % number for number in range(10)])
        kafka_python.take(consumer, 10)
        consumer.commit()
        broker.kill_and_restart()
        sent = kafka_python.send_all(producer, topic, [b"after %d" % number for number in range(10)])
        assert [metadata.offset for metadata in sent] == list(range(10, 20))
        assert [record.offset for record in kafka_python.take(consumer, 10)] == list(range(10, 20))


def test_aiokafka_clients_continue_after_a_kill(restartable_broker: RestartableBroker, topic: str, group: str) -> None:
    broker = restartable_broker

    async def produce_and_consume() -> None:
        async with (
            aio.producing(broker.bootstrap, enable_idempotence=True) as producer,
            aio.consuming(broker.bootstrap, topic, group_id=group) as consumer,
        ):
            await aio.send_all(producer, topic, [b"before %d" % number for number in range(10)])
            await aio.take(consumer, 10)
            await consumer.commit()
            await asyncio.to_thread(broker.kill_and_restart)
            sent = await aio.send_all(producer, topic, [b"after %d" % number for number in range(10)])
            assert [metadata.offset for metadata in sent] == list(range(10, 20))
            assert [record.offset for record in await aio.take(consumer, 10)] == list(range(10, 20))

    asyncio.run(produce_and_consume())

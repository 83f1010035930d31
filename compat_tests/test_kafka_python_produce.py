"""Producing with kafka-python: records come back as they were sent, and wrong ones get Kafka's errors."""

from __future__ import annotations

from collections.abc import Callable

from testkit.clients.kafka_python import SEND_TIMEOUT_S, producing, read_all, send_all, values_of
from testkit.servers.brokers import Broker


def test_records_go_to_the_partition_that_the_sender_chose(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    with producing(broker.bootstrap) as producer:
        for partition in range(3):
            send_all(producer, topic, [b"for %d" % partition], partition=partition)
    for partition in range(3):
        records = read_all(broker.bootstrap, topic, 1, partitions=[partition])
        assert values_of(records) == [b"for %d" % partition]


def test_one_key_stays_in_one_partition(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=4)
    with producing(broker.bootstrap, linger_ms=5) as producer:
        for number in range(80):
            producer.send(topic, key=b"key %d" % (number % 8), value=b"%06d" % number)
        producer.flush(timeout=SEND_TIMEOUT_S)
    records = read_all(broker.bootstrap, topic, 80, partitions=range(4))
    homes = {(record.key, record.partition) for record in records}
    assert len(homes) == 8
    for key, _ in homes:
        own = [record.value for record in records if record.key == key]
        assert own == sorted(own)

"""Log dirs that clients have filled through a broker, for the tests of `kwire log`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer

from kwire.cli import main
from kwire.testing import Broker
from testkit.cli.json_page import check_keys

SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "log.segment.bytes": str(1 << 20),
    "group.initial.rebalance.delay.ms": "0",
}
ORDERS = 5000


def fill(bootstrap: str, *, topic: str = "orders", count: int = ORDERS) -> None:
    """Text, binary and empty values, tombstones and headers, by an idempotent producer."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 100, "linger.ms": 5}
    )
    for number in range(count):
        value = [f"order {number}".encode() + b"." * 900, b"\x00\xff\x1b[31m", b"", None][number % 4]
        producer.produce(topic, value, key=f"key {number}", headers=[("from", b"kitchen"), ("raw", b"\x80")])
        if number % 500 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0


def consume(bootstrap: str, count: int, *, topic: str = "orders", group: str = "kitchen") -> list[int]:
    """Commits what it has read; the offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    offsets: list[int] = []
    while len(offsets) < count:
        message = consumer.poll(30)
        assert message is not None, f"{len(offsets)} of {count} records"
        assert message.error() is None
        offsets.append(message.offset())
    consumer.commit(asynchronous=False)
    consumer.close()
    return offsets


def make_data(path: Path) -> None:
    """A log dir of kwire's, stopped cleanly: orders, a group that has committed, metadata."""
    with Broker(data_dir=path, settings=SETTINGS) as broker:
        fill(broker.address)
        consume(broker.address, 100)


def kwire(*arguments: str | Path, input: str | None = None) -> Result:  # noqa: A002 - as in CliRunner.invoke
    result = CliRunner().invoke(main, list(map(str, arguments)), input=input)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    """The JSON of a dump or a check."""
    found = [json.loads(line) for line in kwire("log", *arguments, "--json").stdout.splitlines()]
    check_keys(f"log {arguments[0]}", found)
    return found

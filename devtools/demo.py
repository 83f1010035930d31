"""`make demo`: runs kafka-python, confluent-kafka and Spark against a broker, and prints their results.

    python -m devtools.demo [--bootstrap HOST:PORT]

`--bootstrap` uses a running broker instead, kwire or Apache Kafka.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from uuid import uuid4

import attrs
from rich.console import Console
from rich.table import Table

from devtools.spark_session import spark_session

RECORDS = 1000
PARTITIONS = 3
WAIT_S = 30.0


class DemoError(Exception):
    """A step had an unexpected result; the text names the step."""


@attrs.define
class Account:
    """One row for each step, printed as a table at the end."""

    rows: list[tuple[str, str, str]] = attrs.field(factory=list)

    def step(self, who: str, what: Callable[[], str]) -> None:
        began = time.perf_counter()
        did = what()
        self.rows.append((who, did, f"{time.perf_counter() - began:.2f} s"))

    def table(self) -> Table:
        table = Table("client", "what it did", "took")
        table.columns[2].justify = "right"
        for row in self.rows:
            table.add_row(*row)
        return table


@contextmanager
def kwire_serve(folder: Path) -> Iterator[str]:
    """Runs `kwire serve` on a free port, yields its address, and stops it cleanly."""
    command = [sys.executable, "-m", "kwire", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(folder)]
    command += ["--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()  # it prints one line when it is ready, or none if it cannot start
        try:
            address = re.search(r"listening on (\S+:\d+)", line)
            if address is None:
                raise DemoError(f"kwire serve printed {line!r} instead of its address")
            yield address[1]
        finally:
            process.terminate()
            process.wait(WAIT_S)


def kafka_python(bootstrap: str, topic: str, account: Account) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic

    def create() -> str:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
        admin.close()
        return f"created topic {topic} with {PARTITIONS} partitions"

    def produce() -> str:
        producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
        for number in range(RECORDS):
            producer.send(topic, key=b"%d" % number, value=b"from kafka-python", headers=[("n", b"%d" % number)])
        producer.flush(WAIT_S)
        producer.close()
        return f"produced {RECORDS} records with keys and headers"

    def consume() -> str:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
        consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
        seen = 0
        deadline = time.monotonic() + WAIT_S
        while seen < RECORDS and time.monotonic() < deadline:
            seen += sum(map(len, consumer.poll(timeout_ms=500).values()))
        consumer.close()
        return _counted("consumed", seen, RECORDS)

    account.step("kafka-python", create)
    account.step("kafka-python", produce)
    account.step("kafka-python", consume)


def confluent_kafka(bootstrap: str, topic: str, account: Account) -> None:
    from confluent_kafka import Consumer, Producer

    def produce() -> str:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
        for number in range(RECORDS):
            producer.produce(topic, key=b"%d" % number, value=b"from confluent-kafka")
        if left := producer.flush(WAIT_S):
            raise DemoError(f"confluent-kafka could not deliver {left} records")
        return f"produced {RECORDS} records, idempotent, zstd"

    def consume() -> str:
        settings = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-readers", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.subscribe([topic])
        seen = 0
        deadline = time.monotonic() + WAIT_S
        while seen < 2 * RECORDS and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=0.5):
                if error := message.error():
                    raise DemoError(f"confluent-kafka: {error}")
                seen += 1
        if seen == 2 * RECORDS:
            consumer.commit(asynchronous=False)
        consumer.close()
        return _counted("consumed as a group, committed", seen, 2 * RECORDS)

    account.step("confluent-kafka", produce)
    account.step("confluent-kafka", consume)


def spark(bootstrap: str, topic: str, account: Account, folder: Path) -> None:
    began = time.perf_counter()
    with spark_session(folder) as session:
        account.rows.append(("Spark", "started its Java", f"{time.perf_counter() - began:.2f} s"))
        source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

        def read() -> str:
            return _counted("read", session.read.format("kafka").options(**source).load().count(), 2 * RECORDS)

        def write() -> str:
            rows = session.range(RECORDS).selectExpr("cast(id as string) as key", "'from Spark' as value")
            rows.write.format("kafka").options(**{"kafka.bootstrap.servers": bootstrap, "topic": topic}).save()
            return f"wrote {RECORDS} records"

        def stream() -> str:
            query = (
                session.readStream.format("kafka")
                .options(**source)
                .load()
                .writeStream.format("memory")
                .queryName("seen")
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            by_value = "select cast(value as string) as value, count(*) as records from seen group by 1"
            seen = {row["value"]: row["records"] for row in session.sql(by_value).collect()}
            if set(seen.values()) != {RECORDS} or len(seen) != 3:
                raise DemoError(f"Spark streamed {seen}")
            return _counted("streamed all of it", sum(seen.values()), 3 * RECORDS)

        account.step("Spark", read)
        account.step("Spark", write)
        account.step("Spark", stream)


def _counted(verb: str, seen: int, expected: int) -> str:
    if seen != expected:
        raise DemoError(f"{verb} {seen} records instead of {expected}")
    return f"{verb}: {seen} records"


def main() -> None:
    parser = argparse.ArgumentParser(prog="devtools.demo")
    parser.add_argument("--bootstrap", help="HOST:PORT of a running broker")
    given: str | None = parser.parse_args().bootstrap
    account = Account()
    topic = f"demo-{uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="kwire-demo-") as name:
        folder = Path(name)
        began = time.perf_counter()
        with nullcontext(given) if given else kwire_serve(folder / "data") as bootstrap:
            if not given:
                account.rows.append(("kwire", f"serves {bootstrap}", f"{time.perf_counter() - began:.2f} s"))
            kafka_python(bootstrap, topic, account)
            confluent_kafka(bootstrap, topic, account)
            (folder / "spark").mkdir()
            spark(bootstrap, topic, account, folder / "spark")
            stopping = time.perf_counter()
        if not given:
            account.rows.append(("kwire", "stopped", f"{time.perf_counter() - stopping:.2f} s"))
    Console().print(account.table())


if __name__ == "__main__":
    try:
        main()
    except DemoError as error:
        sys.exit(f"demo: {error}")

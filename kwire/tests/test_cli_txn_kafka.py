"""`kwire txn` against Apache Kafka, where a transaction can be made to hang: verification is off, as before KIP-890."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from devtools.apache_kafka import ApacheKafka, run_tool
from kwire.tests.log_folders import kwire
from kwire.tests.raw_client import RawClient

SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
}
HOUR_MS = 3_600_000
TOPIC = "orders"
PRODUCER_ID, EPOCH = 777_000, 4


@attrs.frozen
class Scene:
    """In partition 0 hangs a transaction; in partition 1 an old one is open that its coordinator knows."""

    bootstrap: str
    hanging_from: int
    ongoing_from: int
    producer: Any

    def txn(self, *arguments: str, code: int = 0) -> str:
        ran = kwire("txn", *arguments, "--bootstrap-server", self.bootstrap)
        assert ran.exit_code == code, ran.stderr
        return ran.stdout if code == 0 or ran.stdout else ran.stderr

    def abort(self, partition: int, start_offset: int, *more: str, code: int = 0) -> str:
        where = ("--topic", TOPIC, "--partition", str(partition), "--start-offset", str(start_offset))
        return self.txn("abort", *where, "--yes", *more, code=code)


def produce(bootstrap: str, transactional_id: str, timestamp_ms: int) -> int:
    """Transactional records of a producer that never told a coordinator; gives their offset."""
    records = [Record(timestamp=timestamp_ms, key=b"late", value=b"write")]
    batch = build_batch(records, producer_id=PRODUCER_ID, producer_epoch=EPOCH, base_sequence=0, transactional=True)
    data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch)])
    with RawClient(bootstrap) as client:
        (answer,) = (
            client.call(ProduceRequest(transactional_id, -1, 10_000, [data]), 11).responses[0].partition_responses
        )
    assert answer.error_code == ErrorCode.NONE
    offset: int = answer.base_offset
    return offset


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with ApacheKafka(settings=SETTINGS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, 3, 1)]).values():
            made.result(30)
        old_ms = int(time.time() * 1000) - HOUR_MS
        plain = Producer({"bootstrap.servers": kafka.bootstrap})
        plain.produce(TOPIC, b"before", partition=0)
        plain.flush()
        ongoing = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "payments"})
        ongoing.init_transactions(30)
        ongoing.begin_transaction()
        ongoing.produce(TOPIC, b"open", partition=1, timestamp=old_ms)
        ongoing.flush()
        yield Scene(kafka.bootstrap, produce(kafka.bootstrap, "late", old_ms), 0, ongoing)


def hanging(scene: Scene, *arguments: str) -> list[tuple[int, int, int]]:
    """Partition, producer and start offset of each."""
    ran = kwire("txn", "list", "--hanging", "--json", *arguments, "--bootstrap-server", scene.bootstrap)
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.exit_code == (1 if found else 0), ran.stderr
    assert ran.stderr == ""
    return [(row["partition"], row["producer_id"], row["start_offset"]) for row in found]


def kafka_s_own(scene: Scene) -> list[list[str]]:
    told = run_tool(
        *("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", scene.bootstrap),
        *("find-hanging", "--topic", TOPIC),
    )
    return [line.split()[:3] for line in told.stdout.splitlines()[1:]]


def test_ids_are_listed_and_described(scene: Scene) -> None:
    (listed,) = map(json.loads, scene.txn("list", "--json").splitlines())
    assert (listed["transactional_id"], listed["coordinator_id"], listed["state"]) == ("payments", 1, "Ongoing")
    described = json.loads(scene.txn("describe", "payments", "--json"))
    assert described["producer_id"] == listed["producer_id"]
    assert described["partitions"] == [{"topic": TOPIC, "partition": 1}]
    assert described["start_ms"] > 0
    assert "no coordinator knows transactional id 'late'" in scene.txn("describe", "late", code=1)


def test_what_hangs_is_found_as_kafka_s_own_tool_finds_it_and_aborted(scene: Scene) -> None:
    assert hanging(scene) == [(0, PRODUCER_ID, scene.hanging_from)]
    assert kafka_s_own(scene) == [[TOPIC, "0", str(PRODUCER_ID)]]
    assert hanging(scene, "--topic", TOPIC, "--partition", "1") == []
    assert hanging(scene, "--max-transaction-timeout", "120") == []
    refused = scene.abort(1, scene.ongoing_from, code=1)
    assert "'payments' is Ongoing" in refused
    assert "none is open there" in scene.abort(2, 0, code=1)
    assert f"aborted the transaction of producer {PRODUCER_ID}" in scene.abort(0, scene.hanging_from)
    assert hanging(scene) == []
    assert kafka_s_own(scene) == []
    scene.producer.commit_transaction(30)

"""Ten thousand partitions with three segments each on a limit of 1,024 descriptors: the whole life of a broker.

    python -m testkit.servers.many_partitions      the full size, with figures (`make soak`)

The topics are made by a client's AdminClient; records go in and come out by raw requests of many partitions, so that it
is the broker that is tested and not the patience of a client. `segment.ms` and the records' timestamps make the rolls.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch, iter_records

from testkit.raw.client import RawClient
from testkit.servers.broker_process import BrokerProcess

TOPIC = "many"
SEGMENTS = 3
SEGMENT_MS = 1000
PARTITIONS_IN_REQUEST = 500
SAMPLE_EVERY_S = 0.02
STOP_TIMEOUT_S = 300.0


@attrs.define
class Figures:
    """The figures of one run: seconds, bytes, counts. Lists have one entry for each start."""

    partitions: int
    start_s: list[float] = attrs.field(factory=list)
    stop_s: list[float] = attrs.field(factory=list)
    produce_s: list[float] = attrs.field(factory=list)
    fetch_s: list[float] = attrs.field(factory=list)
    resident_bytes: list[int] = attrs.field(factory=list)
    most_descriptors: int = 0

    def lines(self) -> Iterator[str]:
        for name, value in attrs.asdict(self).items():
            if isinstance(value, list):
                value = ", ".join(f"{it / 2**20:.0f} MiB" if name.endswith("bytes") else f"{it:.1f}" for it in value)
            yield f"{name:18} {value}"


@attrs.define(eq=False)
class ManyPartitions:
    folder: Path
    partitions: int
    descriptors: int
    figures: Figures = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.figures = Figures(self.partitions)

    def run(self) -> Figures:
        with self.started() as broker:
            self.create_topic(broker)
            for number in range(SEGMENTS):
                self.produce(broker, number)
            self.fetch_all(broker, SEGMENTS)
            self.consume_one(broker, SEGMENTS)
            self.stop(broker)
        files = [path.name for path in (broker.data_dir / f"{TOPIC}-{self.partitions - 1}").glob("*.log")]
        assert len(files) == SEGMENTS, files
        assert (broker.data_dir / ".kafka_cleanshutdown").exists()
        with self.started() as broker:
            self.fetch_all(broker, SEGMENTS)
            self.produce(broker, SEGMENTS)
            broker.kill()
        with self.started() as broker:
            self.fetch_all(broker, SEGMENTS + 1)
            self.produce(broker, SEGMENTS + 1)
            self.consume_one(broker, SEGMENTS + 2)
            self.stop(broker)
        return self.figures

    @contextmanager
    def started(self) -> Iterator[BrokerProcess]:
        begin = time.monotonic()
        with BrokerProcess(self.folder, descriptors=self.descriptors) as broker:
            self.figures.start_s.append(time.monotonic() - begin)
            ended = threading.Event()
            watching = threading.Thread(target=self._watch, args=(broker, ended))
            watching.start()
            try:
                yield broker
            finally:
                ended.set()
                watching.join()
            assert broker.bugs() == []
            assert "Too many open files" not in broker.log()

    def _watch(self, broker: BrokerProcess, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_EVERY_S):
            try:
                found = broker.open_descriptors()
            except FileNotFoundError:
                return
            self.figures.most_descriptors = max(self.figures.most_descriptors, found)

    def stop(self, broker: BrokerProcess) -> None:
        self.figures.resident_bytes.append(broker.resident_bytes())
        begin = time.monotonic()
        assert broker.stop(STOP_TIMEOUT_S) == 0
        self.figures.stop_s.append(time.monotonic() - begin)

    def create_topic(self, broker: BrokerProcess) -> None:
        config = {"segment.ms": str(SEGMENT_MS), "segment.jitter.ms": "0", "retention.ms": "-1"}
        admin = AdminClient({"bootstrap.servers": broker.address})
        # In two requests, since one may be answered with 10,000 at the most.
        created = admin.create_topics([NewTopic(TOPIC, self.partitions // 2, 1, config=config)], request_timeout=60)
        created[TOPIC].result()
        added = admin.create_partitions([NewPartitions(TOPIC, self.partitions)], request_timeout=60)
        added[TOPIC].result()

    def requests(self) -> Iterator[range]:
        for first in range(0, self.partitions, PARTITIONS_IN_REQUEST):
            yield range(first, min(first + PARTITIONS_IN_REQUEST, self.partitions))

    def produce(self, broker: BrokerProcess, number: int) -> None:
        """Sends a record to each partition, late enough for a segment of its own."""
        begin = time.monotonic()
        timestamp_ms = 10**12 + number * 2 * SEGMENT_MS
        with RawClient(broker.address, timeout_s=120) as client:
            for indexes in self.requests():
                data = [
                    PartitionProduceData(index, build_batch([Record(0, timestamp_ms, None, value_of(index, number))]))
                    for index in indexes
                ]
                answer = client.call(ProduceRequest(None, 1, 30_000, [TopicProduceData(TOPIC, partition_data=data)]), 9)
                for partition in answer.responses[0].partition_responses:
                    assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, number), partition
        self.figures.produce_s.append(time.monotonic() - begin)

    def fetch_all(self, broker: BrokerProcess, count: int) -> None:
        """Every record of every partition, each from another segment."""
        begin = time.monotonic()
        with RawClient(broker.address, timeout_s=120) as client:
            for indexes in self.requests():
                for offset in range(count):
                    wanted = [FetchPartition(index, -1, offset, partition_max_bytes=1000) for index in indexes]
                    request = FetchRequest(max_bytes=1 << 26, topics=[FetchTopic(TOPIC, partitions=wanted)])
                    for partition in client.call(request, 12).responses[0].partitions:
                        assert partition.error_code == ErrorCode.NONE, partition
                        assert partition.high_watermark == count
                        (record,) = iter_records(partition.records)
                        assert record.value == value_of(partition.partition_index, offset)
        self.figures.fetch_s.append(time.monotonic() - begin)

    def consume_one(self, broker: BrokerProcess, count: int) -> None:
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, self.partitions // 2, 0)])
        found = consumer.consume(count, timeout=20)
        consumer.close()
        assert [message.value() for message in found] == [value_of(self.partitions // 2, it) for it in range(count)]


def value_of(index: int, number: int) -> bytes:
    return f"record {number} of {index}".encode()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="kwire-") as scratch:
        for line in ManyPartitions(Path(scratch), partitions=10_000, descriptors=1024).run().lines():
            sys.stdout.write(line + "\n")

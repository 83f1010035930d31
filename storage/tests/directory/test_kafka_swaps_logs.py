"""A partition's folder changes hands: Apache Kafka's read by us, then ours served by Apache Kafka, then back."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kwire_protocol.records import Record, build_batch
from kwire_storage.checkpoints import decode_offsets, encode_offsets
from kwire_storage.directory.log_dir import LogDir
from kwire_storage.disk.files import RealDisk
from kwire_storage.log.log import Log, LogConfig

from devtools.apache_kafka import ApacheKafka
from testkit.storage.logs import append_bytes

pytestmark = pytest.mark.more  # Apache Kafka runs in Java.

CONFIG = LogConfig(segment_bytes=300_000)
FIRST_MS = 1_700_000_000_000


def open_folder(path: Path) -> tuple[LogDir, Log]:
    folder = LogDir.open(RealDisk(path), cluster_id="unused", node_id=1, directory_id=bytes(16))
    return folder, folder.open_log("t", 0, CONFIG, now_ms=0)


def produce(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 100})
    for number in range(count):
        producer.produce("t", b"%d" % number + bytes(100), key=b"k")
    assert producer.flush(60) == 0


def consume(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        assert message.offset() == len(values)
        values.append(message.value() or b"")
    assert consumer.get_watermark_offsets(TopicPartition("t", 0)) == (0, count)
    found = consumer.offsets_for_times([TopicPartition("t", 0, FIRST_MS + 5000)])[0].offset
    consumer.close()
    assert found == values.index(b"at 5000")
    return values


def write_ours(log: Log) -> list[bytes]:
    values: list[bytes] = []
    random_ = random.Random(1)
    for number in range(600):
        new = [
            b"at %d" % (number * 10),
            *(random_.randbytes(random_.randrange(500)) for _ in range(random_.randrange(6))),
        ]
        content = [Record(index, FIRST_MS + number * 10, b"k", value) for index, value in enumerate(new)]
        batch = build_batch(
            content, compression=number % 5, producer_id=77, producer_epoch=0, base_sequence=len(values)
        )
        append_bytes(log, batch)
        values += new
    return values


def test_a_log_changes_hands_and_nobody_notices(tmp_path: Path) -> None:
    with ApacheKafka(settings={"log.segment.bytes": 1 << 20}) as kafka:
        produce(kafka.bootstrap, 15_000)
        kafka.stop()

        # Kafka's folder is ours: cleanly closed at first, then as after a crash, with the same indexes made again.
        theirs = tmp_path / "theirs"
        shutil.copytree(kafka.data_dir, theirs)
        folder, log = open_folder(theirs)
        assert (folder.clean_shutdown, folder.high_watermarks["t", 0]) == (True, 15_000)
        assert (log.log_end_offset, len(log.segments), log.recovery) == (15_000, 2, None)
        assert sum(header.records_count for header, _ in log.batches()) == 15_000
        (producer,) = log.producers.entries.values()
        indexes = [segment.index.to_bytes() for segment in log.segments]
        folder.abandon()
        folder, log = open_folder(theirs)
        assert log.recovery is not None
        assert (log.log_end_offset, log.recovery.cut_bytes) == (15_000, 0)
        for segment in log.segments.sealed():
            segment.rebuild()
        assert [segment.index.to_bytes() for segment in log.segments] == indexes
        assert log.producers.entries[producer.producer_id].last_sequence == producer.last_sequence == 14_999
        folder.abandon()

        # Our log in its place is Kafka's.
        partition = kafka.data_dir / "t-0"
        metadata = (partition / "partition.metadata").read_bytes()
        shutil.rmtree(partition)
        ours = Log.open(RealDisk(kafka.data_dir), "t-0", CONFIG, now_ms=0, clean_shutdown=True)
        (partition / "partition.metadata").write_bytes(metadata)
        values = write_ours(ours)
        assert len(ours.segments) > 1
        ours.close()
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            path = kafka.data_dir / name
            path.write_bytes(encode_offsets({**decode_offsets(path.read_bytes()), ("t", 0): len(values)}))
        kafka.start()
        assert consume(kafka.bootstrap, len(values)) == values
        kafka.stop()

        # And it is ours again.
        folder, log = open_folder(kafka.data_dir)
        assert (folder.clean_shutdown, log.log_end_offset) == (True, len(values))
        assert log.producers.entries[77].last_sequence == len(values) - 1
        folder.abandon()

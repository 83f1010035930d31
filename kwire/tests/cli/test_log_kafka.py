"""Apache Kafka beside `kwire log`: its files are sound, its tool sees the same, and it serves repaired logs."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devtools.apache_kafka import ApacheKafka, run_tool
from testkit.cli.log_dirs import ORDERS, consume, fill, kwire, rows

pytestmark = pytest.mark.more  # Apache Kafka runs in Java.

LOG = "00000000000000000000.log"
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20)}
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01", **SMALL_SEGMENTS}
KAFKA = {
    "log.cleaner.backoff.ms": "200",
    "log.index.size.max.bytes": "65536",  # as large is the index of each segment that is written to, and all of it read
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "2",
}


def write_transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments"})
    producer.init_transactions()
    for number in range(30):
        producer.begin_transaction()
        for topic in ("payments", "compacted"):
            for index in range(10):
                producer.produce(topic, b"v" * 2000, key=f"{index}")
        producer.flush()
        if number % 3:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def compact(kafka: ApacheKafka) -> None:
    """Produces until the cleaner has left a hole."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    deadline = time.monotonic() + 60
    while True:
        producer.produce("compacted", b"again", key="again")
        producer.flush()
        batches = [
            row for row in rows("dump", kafka.data_dir / "compacted-0", "--only", "log") if row["type"] == "batch"
        ]
        if any(row["records_count"] <= row["last_offset"] - row["base_offset"] for row in batches) or (
            batches[0]["base_offset"] > 0
        ):
            return
        assert time.monotonic() < deadline, "the cleaner has not run"
        time.sleep(0.3)  # it is a thread of another process, and there is nothing to wait for


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """A broker, stopped cleanly, with plain, transactional and compacted topics and a group."""
    with ApacheKafka(settings=KAFKA) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics = [
            NewTopic("orders", 1, 1, config=SMALL_SEGMENTS),
            NewTopic("payments", 1, 1, config=SMALL_SEGMENTS),
            NewTopic("compacted", 1, 1, config=COMPACTED),
        ]
        for created in admin.create_topics(topics).values():
            created.result()
        fill(kafka.bootstrap)
        write_transactions(kafka.bootstrap)
        consume(kafka.bootstrap, 100)
        compact(kafka)
        kafka.stop()
        yield kafka


def dump_log_segments(files: list[Path], *options: str) -> str:
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files)), *options)
    return done.stdout + done.stderr


def logs_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*-*/*.log"))


def test_what_kafka_has_written_is_sound(kafka: ApacheKafka) -> None:
    result = kwire("log", "check", kafka.data_dir)
    assert result.exit_code == 0, result.stdout
    found = rows("dump", kafka.data_dir)
    kinds = {row["type"] for row in found}
    assert kinds >= {"batch", "index_entry", "time_index_entry", "aborted_transaction", "producer", "leader_epoch"}
    assert "problem" not in kinds


def test_what_a_killed_kafka_leaves_has_notes_only(kafka: ApacheKafka, tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    shutil.copytree(kafka.data_dir, clean)
    try:
        kafka.start()
        fill(kafka.bootstrap, count=500)
        running = kwire("log", "check", kafka.data_dir, "--no-notes")
        locked = kwire("log", "repair", kafka.data_dir, "--yes")
        kafka.kill()
        killed = kwire("log", "check", kafka.data_dir, "--no-notes")
    finally:
        shutil.rmtree(kafka.data_dir)
        shutil.move(clean, kafka.data_dir)
    assert (running.exit_code, killed.exit_code) == (0, 0), running.stdout + killed.stdout
    assert locked.exit_code == 1
    assert "a broker uses" in locked.stderr


@pytest.mark.parametrize("whose", ["kafka", "kwire"])
def test_kafkas_tool_sees_the_same_batches_and_records(whose: str, kafka: ApacheKafka, made_data: Path) -> None:
    folder = kafka.data_dir if whose == "kafka" else made_data
    files = logs_of(folder)
    theirs = dump_log_segments(files, "--deep-iteration")
    ours = [row for file in files for row in rows("dump", file, "--records", "--decoder", "none")]
    batch = re.compile(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) "
        r"producerId: (-?\d+) producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) isTransactional: (\w+) "
        r"isControl: (\w+) deleteHorizonMs: (\S+) position: (\d+) (\w+): (-?\d+) size: (\d+) magic: 2 "
        r"compresscodec: (\w+) crc: (\d+) isvalid: (\w+)",
        re.MULTILINE,
    )
    names = (
        "base_offset last_offset records_count base_sequence last_sequence producer_id producer_epoch leader_epoch "
        "is_transactional is_control delete_horizon_ms position timestamp_type max_timestamp_ms size_bytes codec crc"
    )
    fields = names.split()
    batches = [
        (
            *(str(row[field]).lower() if isinstance(row[field], bool) else str(row[field]) for field in fields),
            str(row["problem"] is None).lower(),
        )
        for row in ours
        if row["type"] == "batch"
    ]
    expected = [
        (
            *found[:10],
            found[10].removeprefix("OptionalLong[").removesuffix("]").replace("OptionalLong.empty", "None"),
            *found[11:],
        )
        for found in batch.findall(theirs)
    ]
    assert batches == expected
    assert len(batches) > 50
    record = re.compile(
        r"^\| offset: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+)", re.MULTILINE
    )
    sizes = [
        (row["offset"], row["timestamp_ms"], row.get("key_size_bytes", -1), row.get("value_size_bytes", -1))
        for row in ours
        if row["type"] == "record" and "decoded_value" not in row
    ]
    markers = {row["offset"] for row in ours if row["type"] == "record" and "decoded_value" in row}
    data = [tuple(map(int, found)) for found in record.findall(theirs)]
    assert len(data) == len(sizes) + sum(row["type"] == "record" and "decoded_value" in row for row in ours)
    assert set(sizes) <= set(data)
    assert markers <= {found[0] for found in data}


def spoil(folder: Path) -> tuple[dict[str, int], int]:
    """Ruins a batch, two indexes, a snapshot, the epochs and the tail. Returns the batch, and the old record count."""
    log = folder / LOG
    batch: dict[str, int] = [row for row in rows("dump", log) if row["type"] == "batch"][3]
    content = bytearray(log.read_bytes())
    content[batch["position"] + 90] ^= 1
    log.write_bytes(content)
    index = bytearray(log.with_suffix(".index").read_bytes())
    index[7] ^= 1
    log.with_suffix(".index").write_bytes(index)
    log.with_suffix(".timeindex").unlink()
    snapshot = sorted(folder.glob("*.snapshot"))[-1]
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n7 7\n")
    with sorted(folder.glob("*.log"))[-1].open("ab") as file:
        file.write(bytes(99))
    return batch, ORDERS


def test_kafka_serves_what_was_repaired_and_its_tool_is_content(kafka: ApacheKafka) -> None:
    folder = kafka.data_dir / "orders-0"
    pristine = kafka.data_dir.parent / "pristine"
    shutil.copytree(folder, pristine)
    try:
        batch, count = spoil(folder)
        assert kwire("log", "repair", kafka.data_dir, "--yes", "--drop-corrupt-ranges").exit_code == 0
        assert kwire("log", "check", kafka.data_dir, "--no-notes").exit_code == 0
        files = [path for suffix in (".index", ".timeindex") for path in sorted(folder.glob(f"*{suffix}"))]
        output = dump_log_segments(files, "--index-sanity-check")
        assert output.count("passed sanity check.") + output.count(" is empty.") == len(files)
        output = dump_log_segments([*files, *sorted(folder.glob("*.snapshot"))])
        for word in ("mismatch", "Mismatch", "Exception", "out of order", "not found", "don't exist", "Found"):
            assert word not in output
        assert "isvalid: false" not in dump_log_segments(sorted(folder.glob("*.log")), "--deep-iteration")
        assert any(path.name.startswith("kwire-repair-") for path in folder.iterdir()), "Kafka starts beside the copies"
        kafka.start()
        offsets = consume(kafka.bootstrap, count - batch["records_count"], group="after the repair")
        fill(kafka.bootstrap, count=10)
        kafka.stop()
        assert sorted({*range(count)} - {*offsets}) == list(range(batch["base_offset"], batch["last_offset"] + 1))
        assert kwire("log", "check", kafka.data_dir, "--no-notes").exit_code == 0
    finally:
        shutil.rmtree(folder)
        shutil.move(pristine, folder)

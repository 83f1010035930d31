"""The files after a full disk, a failed disk, and `kwire log repair`: Kafka's tool accepts every one of them.

Kills are in test_sigkill.py, those of a compaction in test_compaction.py, those of a move in test_log_dirs.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from kwire_storage import names
from kwire_storage.disk.files import RealDisk

from kwire.node.running import BrokerEnded
from kwire.testing import Broker
from testkit.basics.small_tmpfs import SmallTmpfs
from testkit.basics.waiting import Deadline, eventually
from testkit.clients.confluent import FLUSH_TIMEOUT_S, Acknowledgements, consuming, quiet
from testkit.java.dumps import assert_kafka_is_content
from testkit.java.java_host import JavaHost
from testkit.raw import topics
from testkit.raw.client import RawClient
from testkit.raw.simple_requests import find_coordinator
from testkit.scenes.folder_scene import failing
from testkit.servers import full_tmpfs_scene as full
from testkit.servers.broker_process import BrokerProcess
from testkit.servers.brokers import KIND
from testkit.storage.failing_disk import FailingDisk
from testkit.storage.inspected import repair_folder, write_folder, wrong
from testkit.storage.plantings import ALL

# A disk that is small or fails under it alone, a command of ours: Apache Kafka has no part in this but as the judge.
pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(KIND != "kwire", reason="is about kwire alone, whatever KWIRE_COMPAT says"),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FILL_UP = 400
"""So many records of each producer are more than a small disk has left."""
SOME = 150
"""As many are flushed several times while they are written."""


@attrs.define(eq=False)
class Senders:
    """An idempotent producer of each codec, and what was acknowledged to them, by partition."""

    bootstrap: str
    acknowledged: dict[int, list[bytes]]
    at_once: int
    _producers: list[Producer] = attrs.field(init=False)
    _acknowledgements: Acknowledgements = attrs.field(factory=Acknowledgements)

    def __attrs_post_init__(self) -> None:
        common = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "batch.num.messages": 50}
        self._producers = [Producer({**common, "compression.type": codec}, logger=quiet) for codec in CODECS]

    def send(self, *partitions: int) -> None:
        """`at_once` records of each producer, of 3 KB each, to each partition; `all_taken` or `give_up` follows."""
        for producer in self._producers:
            for _ in range(self.at_once):
                for partition in partitions:
                    value = random.randbytes(1_000) + bytes(2_000)
                    producer.produce("t", value, partition=partition, on_delivery=self._acknowledgements)

    def all_taken(self) -> None:
        for producer in self._producers:
            assert producer.flush(FLUSH_TIMEOUT_S) == 0
        assert self._acknowledgements.errors == []
        self._note()

    def give_up(self) -> None:
        """They try no more to send what was not taken yet."""
        for producer in self._producers:
            producer.purge(blocking=False)  # which waits: confluent-kafka 2.16.1 takes the flag the other way round
            producer.flush(FLUSH_TIMEOUT_S)
        self._note()

    def _note(self) -> None:
        for message in self._acknowledgements.taken:
            self.acknowledged.setdefault(message.partition() or 0, []).append(message.value() or b"")
        self._acknowledgements = Acknowledgements()


def assert_all_is_there(bootstrap: str, acknowledged: dict[int, list[bytes]]) -> None:
    """Checks that each acknowledged record is there once. Unacknowledged ones may be there."""
    for partition, values in acknowledged.items():
        found: list[bytes] = []
        deadline = Deadline()
        with consuming(bootstrap, **{"check.crcs": True}) as consumer:
            at = TopicPartition("t", partition, OFFSET_BEGINNING)
            consumer.list_topics("t", timeout=FLUSH_TIMEOUT_S)
            end = consumer.get_watermark_offsets(at, timeout=FLUSH_TIMEOUT_S)[1]
            consumer.assign([at])
            while len(found) < end and deadline.not_over(f"{end} records of t-{partition}; got {len(found)}"):
                for message in consumer.consume(500, timeout=0.1):
                    assert message.error() is None, message.error()
                    found.append(message.value() or b"")
        ours = [value for value in found if len(value) == 3_000]
        assert len(set(ours)) == len(ours)
        assert set(ours) >= set(values)


# -- a disk that is full


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[SmallTmpfs]:
    with full.mounted(tmp_path) as made:
        yield made


def _kill(broker: BrokerProcess) -> None:
    broker.kill()


def _stop(broker: BrokerProcess) -> None:
    assert broker.stop() == 0


def _stop_in_vain(broker: BrokerProcess) -> None:
    assert broker.stop() == 1
    assert "could not stop cleanly" in broker.log()


WITHOUT_CHECKPOINTS = [
    "log.flush.offset.checkpoint.interval.ms=600000",
    "replica.high.watermark.checkpoint.interval.ms=600000",
]
"""One that met the full disk would let the reserve go, and the test then fill its room before the stop can use it."""


@pytest.mark.parametrize("end", [_stop, _stop_in_vain, _kill], ids=["stopped", "without a reserve", "killed"])
def test_a_full_disk_leaves_no_part_of_a_batch(
    tmp_path: Path, tmpfs: SmallTmpfs, java: JavaHost, end: Callable[[BrokerProcess], None]
) -> None:
    settings = [*WITHOUT_CHECKPOINTS, *(["kwire.log.reserve.bytes=0"] if end is _stop_in_vain else [])]
    acknowledged: dict[int, list[bytes]] = {}
    with full.serve(tmp_path, tmpfs, *settings) as broker, RawClient(broker.address) as client:
        assert full.create(client, "t") == full.create(client, "other") == 0
        assert client.call(find_coordinator(), 0).error_code == full.commit(client, 1) == 0
        senders = Senders(broker.address, acknowledged, FILL_UP)
        senders.send(0)
        senders.all_taken()
        tmpfs.fill(2 * full.MIB)
        senders.send(0)
        eventually(lambda: "is full" in broker.log(), "the disk is full")
        full.fill_up(client, tmpfs)
        end(broker)
        senders.give_up()
    data = broker.data_dir
    assert (data / names.CLEAN_SHUTDOWN).exists() == (end is _stop)
    assert assert_kafka_is_content(java, data, after_a_crash=end is not _stop) > 10
    # What a start, with its recovery, does without any room.
    with full.serve(tmp_path, tmpfs, *settings) as broker, RawClient(broker.address) as client:
        assert full.append(client, full.OVER_A_PAGE) != 0
        end(broker)
    assert assert_kafka_is_content(java, data, after_a_crash=end is not _stop) > 10
    tmpfs.free()
    with full.serve(tmp_path, tmpfs, *settings) as broker, RawClient(broker.address) as client:
        assert full.append(client, full.OVER_A_PAGE) == 0
        assert_all_is_there(broker.address, acknowledged)
        assert broker.stop() == 0
    assert assert_kafka_is_content(java, data) > 10


# -- a disk that fails


@pytest.mark.parametrize(
    ("folder", "operation", "path"),
    [
        ("other", "append", "t-1/"),
        ("other", "sync", "t-1/"),
        ("other", "sync_dir", "t-1"),
        ("other", "sync", names.RECOVERY_POINT_CHECKPOINT),
        ("first", "sync", "t-0/"),
        ("first", "sync_dir", "t-0"),
    ],
)
def test_a_disk_that_fails_leaves_files_that_are_right(
    tmp_path: Path,
    java: JavaHost,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    folder: str,
    operation: str,
    path: str,
) -> None:
    folders = {name: tmp_path / name for name in ("first", "other")}
    disks = {str(root): FailingDisk(root) for root in folders.values()}
    monkeypatch.setattr(Broker, "_open_disk", lambda self: disks)
    settings = {
        "log.dirs": ",".join(disks),
        "num.partitions": "2",
        "log.segment.bytes": str(1 << 20),
        "log.flush.interval.messages": "100",
        "log.flush.offset.checkpoint.interval.ms": "100",
    }
    acknowledged: dict[int, list[bytes]] = {}
    broker = Broker(settings=settings).start()
    topics.create(broker.address, "t", partitions=2)
    assert [(root / f"t-{index}").exists() for index, root in enumerate(folders.values())] == [True, True]
    senders = Senders(broker.address, acknowledged, SOME)
    senders.send(0, 1)
    senders.all_taken()
    disks[str(folders[folder])].before_operation = failing(operation, path)
    senders.send(0, 1)
    eventually(lambda: "is out of service" in caplog.text, "the folder is out of service")
    if folder == "first":  # which has the metadata, too
        assert broker._thread is not None
        broker._thread.join(FLUSH_TIMEOUT_S)
        with pytest.raises(BrokerEnded, match="is out of service"):
            broker.stop()
        senders.give_up()
    else:
        senders.give_up()
        senders.send(0)
        senders.all_taken()
        broker.stop()
    assert (folders["first"] / names.CLEAN_SHUTDOWN).exists() == (folder != "first")
    assert not (folders[folder] / names.CLEAN_SHUTDOWN).exists()
    assert assert_kafka_is_content(java, *folders.values(), after_a_crash=True) > 10

    disks[str(folders[folder])].before_operation = None
    with Broker(settings=settings) as broker:
        assert_all_is_there(broker.address, acknowledged)
        senders = Senders(broker.address, acknowledged, SOME)
        senders.send(0, 1)
        senders.all_taken()
        assert_all_is_there(broker.address, acknowledged)
    assert assert_kafka_is_content(java, *folders.values()) > 10


# -- kwire log repair


def test_what_was_repaired_is_right(tmp_path: Path, java: JavaHost) -> None:
    pristine = tmp_path / "pristine"
    write_folder(RealDisk(pristine))
    repaired = []
    for number, planting in enumerate(ALL):
        if planting.left:
            continue  # the repair reports that, too
        folder = tmp_path / str(number)  # whose name would be taken for a complaint
        shutil.copytree(pristine, folder)
        planting.plant(RealDisk(folder))
        left, _ = repair_folder(RealDisk(folder), drop=planting.drop)
        assert wrong(left) == set(), planting.name
        repaired.append(folder)
    assert assert_kafka_is_content(java, pristine, *repaired, with_gaps={"orders"}) > 1_000

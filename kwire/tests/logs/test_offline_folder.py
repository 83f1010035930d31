"""A log dir whose disk fails: errors for clients, what is never written afterwards, and the broker's end."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_storage import names
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.node.broker import Broker
from kwire.node.running import BrokerEnded
from kwire.replicas.partition import Partition
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import ParkedFetch
from kwire.testing import Broker as BrokerInThread
from testkit.raw.client import RawClient
from testkit.scenes.folder_scene import append, create, failing, refusal
from testkit.scenes.partition_files import log_files


def new_topic(broker: Broker, name: str, **configs: str) -> Partition:
    return create(broker, name, **configs)[0]


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def broker(disk: MemoryDisk) -> Iterator[Broker]:
    opened = Broker.open(load_config(), disk, SystemClock())
    yield opened
    disk.before_operation = None
    opened.close()


@pytest.mark.parametrize("operation", ["append", "sync", "create"])
def test_a_disk_that_fails_takes_its_folder_and_all_partitions_out_of_service(
    broker: Broker, disk: MemoryDisk, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = new_topic(broker, "one", flush_messages="1"), new_topic(broker, "other")
    append(other)
    disk.before_operation = failing(operation, "one-0")
    assert refusal(lambda: append(one)) == ErrorCode.KAFKA_STORAGE_ERROR
    # The disk is well again; nobody calls it.
    disk.before_operation = None
    for partition in (one, other):
        assert refusal(lambda it=partition: append(it)) == ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[misc]
        assert refusal(partition.leader) == ErrorCode.KAFKA_STORAGE_ERROR
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "./data is out of service" in record.message
    assert "Input/output error" in record.message
    assert "its 2 partitions answer KAFKA_STORAGE_ERROR" in record.message
    assert "restart the broker" in record.message


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EEXIST, errno.EBADF])
def test_files_that_are_not_as_kwire_left_them_cost_one_partition_and_are_logged_with_a_traceback(
    broker: Broker, disk: MemoryDisk, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = new_topic(broker, "one"), new_topic(broker, "other")
    disk.before_operation = failing("append", "one-0", code)
    assert refusal(lambda: append(one)) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.before_operation = None
    assert refusal(lambda: append(one)) == ErrorCode.KAFKA_STORAGE_ERROR
    append(other)
    assert broker.fatal is None
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "one-0 is out of service" in record.message
    assert "a bug in kwire" in record.message
    assert record.exc_info is not None
    broker.close()
    again = Broker.open(load_config(), disk, SystemClock())
    append(again.partitions.find("one", 0))
    again.log_dirs.abandon()


def test_a_metadata_log_that_is_not_as_kwire_left_it_ends_the_broker(broker: Broker, disk: MemoryDisk) -> None:
    disk.before_operation = failing("append", names.CLUSTER_METADATA, errno.ENOENT)
    with suppress(KafkaError, OSError):
        new_topic(broker, "one")
    disk.before_operation = None
    assert broker.fatal is not None
    assert "the metadata log in ./data is out of service" in broker.fatal


def test_a_checkpoint_whose_file_is_gone_is_logged_with_a_traceback_and_written_the_next_time(
    broker: Broker, disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    partition = new_topic(broker, "t", flush_messages="1")
    append(partition)
    log_files(partition).roll(0)
    log_files(partition).flush()
    disk.before_operation = failing("rename", names.RECOVERY_POINT_CHECKPOINT, errno.ENOENT)
    trio.run(broker.housekeeping.write_checkpoints)
    disk.before_operation = None
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "checkpoints in ./data failed although the disk is well" in record.message
    assert record.exc_info is not None
    append(partition)
    trio.run(broker.housekeeping.write_checkpoints)
    assert b"\nt 0 2\n" in disk.read_bytes(names.RECOVERY_POINT_CHECKPOINT)


def test_a_folder_that_is_gone_as_a_whole_is_out_of_service_as_a_failed_disk_is(
    broker: Broker, disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    partition = new_topic(broker, "t")
    disk.remove(names.META_PROPERTIES)
    disk.before_operation = failing("append", "t-0", errno.ENOENT)
    assert refusal(lambda: append(partition)) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.before_operation = None
    assert "the log dir ./data is out of service" in caplog.text


def test_a_disk_that_is_full_is_not_a_disk_that_failed(broker: Broker, disk: MemoryDisk) -> None:
    partition = new_topic(broker, "t")
    append(partition)
    disk.before_operation = failing("append", "t-0", errno.ENOSPC)
    assert refusal(lambda: append(partition)) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.before_operation = None
    append(partition)
    assert partition.log_end_offset == 2
    assert broker.fatal is None


def test_a_sync_that_fails_for_want_of_room_is_final(broker: Broker, disk: MemoryDisk) -> None:
    # Which pages were dropped is unknown: the next sync would succeed.
    partition = new_topic(broker, "t", flush_messages="1")
    disk.before_operation = failing("sync", "t-0", errno.ENOSPC)
    assert refusal(lambda: append(partition)) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.before_operation = None
    assert refusal(lambda: append(partition)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.fatal is not None


def test_a_fetch_that_waits_is_woken(broker: Broker) -> None:
    partition = new_topic(broker, "t")
    parked = ParkedFetch()
    partition.waiters[parked] = None
    broker.take_offline(broker.log_dirs.metadata, OSError(errno.EIO, "broken"))
    assert parked.is_set
    assert refusal(partition.leader) == ErrorCode.KAFKA_STORAGE_ERROR


def test_nothing_is_written_to_a_failed_folder_and_no_mark_of_a_clean_stop_least_of_all(disk: MemoryDisk) -> None:
    broker = Broker.open(load_config(), disk, SystemClock())
    partition = new_topic(broker, "t", retention_ms="1", segment_bytes="1048576")
    append(partition)
    log_files(partition).flush()
    log_files(partition).roll(0)
    broker.take_offline(broker.log_dirs.metadata, OSError(errno.EIO, "broken"))
    operations: list[tuple[str, str]] = []
    disk.before_operation = lambda name, path: operations.append((name, path))
    assert trio.run(broker.housekeeping.apply_retention) == 0
    assert broker.housekeeping.take_checkpoints() == []
    broker.close()
    assert operations == []
    assert not disk.exists(names.CLEAN_SHUTDOWN)


def test_a_failed_checkpoint_takes_the_folder_out_of_service(disk: MemoryDisk) -> None:
    broker = Broker.open(load_config(), disk, SystemClock())
    partition = new_topic(broker, "t")
    append(partition)
    log_files(partition).flush()
    log_files(partition).roll(0)
    disk.before_operation = failing("sync", names.RECOVERY_POINT_CHECKPOINT)
    trio.run(broker.housekeeping.write_checkpoints)
    assert broker.fatal is not None
    broker.close()


def test_a_metadata_log_that_cannot_be_written_ends_the_broker(broker: Broker, disk: MemoryDisk) -> None:
    ended: list[str] = []
    broker.on_fatal = lambda: ended.append("now")
    disk.before_operation = failing("sync", "__cluster_metadata-0")
    with pytest.raises(KafkaError) as refused:
        new_topic(broker, "t")
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.fatal is not None
    assert "has the metadata log" in broker.fatal
    assert ended == ["now"]


def test_a_restart_brings_the_folder_back(disk: MemoryDisk) -> None:
    broker = Broker.open(load_config(), disk, SystemClock())
    partition = new_topic(broker, "t", flush_messages="1")
    append(partition)
    disk.before_operation = failing("sync", "t-0")
    assert refusal(lambda: append(partition)) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.before_operation = None
    broker.close()
    again = Broker.open(load_config(), disk, SystemClock())
    found = again.partitions.find("t", 0)
    assert found.log_end_offset >= 1
    append(found)
    again.close()


def test_an_embedded_broker_ends_and_its_user_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _end_by_the_disk_of_the_metadata(monkeypatch)


def test_the_reason_why_a_broker_ended_is_not_hidden_by_a_stop_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Broker, "close", refuse)
    _end_by_the_disk_of_the_metadata(monkeypatch)
    assert "could not stop cleanly: [Errno 5] Input/output error; the next start will check the logs" in caplog.messages


def _end_by_the_disk_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    monkeypatch.setattr(BrokerInThread, "_open_disk", lambda self: disk)
    broker = BrokerInThread().start()
    disk.before_operation = failing("sync", "__cluster_metadata-0")
    with RawClient(broker.address) as client, suppress(OSError, EOFError):  # it may be gone before it has answered
        client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), 7)
    assert broker._thread is not None
    broker._thread.join(30)
    assert not broker._thread.is_alive()
    with pytest.raises(BrokerEnded, match="has the metadata log, is out of service"):
        broker.stop()

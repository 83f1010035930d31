"""Snapshots: the image as records, the file, when one is written, and that a start finds all of it after any crash."""

from __future__ import annotations

import errno
from pathlib import Path

import attrs
import pytest
from kwire_protocol.internal.metadata_brokers import RegisterBrokerRecord, RegisterControllerRecord
from kwire_protocol.internal.metadata_configs import ClientQuotaRecord, EntityData
from kwire_protocol.internal.metadata_log import BeginTransactionRecord, NoOpRecord
from kwire_protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest
from kwire_storage import names
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError

from devtools.apache_kafka import dump_log
from kwire.metadata.controller.configs.config_changes import ConfigChange, Operation, alter_configs
from kwire.metadata.controller.partitions.leader_epochs import epochs_behind
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.metadata.image import ConfigResourceType, MetadataImage
from kwire.metadata.producer_ids import ProducerIds
from kwire.metadata.records import MetadataRecord, decode_record, encode_record
from kwire.metadata.service import MetadataService
from kwire.metadata.snapshots import LONG_BYTES, SnapshotSchedule, image_records, read_snapshot_file, snapshot_batches
from testkit.basics.futures import at_once
from testkit.metadata.distant_log import answered, settle
from testkit.metadata.harness import distant_service, open_service, record, service

FOLDER = "__cluster_metadata-0"
EACH_CHANGE = {"metadata.log.max.record.bytes.between.snapshots": "1"}
NEVER = {
    "metadata.log.max.record.bytes.between.snapshots": str(1 << 40),
    "metadata.log.max.snapshot.interval.ms": "0",
}


def comparable(image: MetadataImage) -> MetadataImage:
    """Returns the image without its place in the log, and its number of changes."""
    return attrs.evolve(image, epoch=0, offset=0)


def busy(opened: MetadataService) -> None:
    short = [CreatableTopicConfig("retention.ms", "5")]
    topics = [CreatableTopic("a", 3, 1), CreatableTopic("b.c", 2, 1, configs=short), CreatableTopic("gone", 1, 1)]
    at_once(opened.change(create_topics, CreateTopicsRequest(topics)))
    at_once(opened.change(delete_topics, DeleteTopicsRequest(topic_names=["gone"]), version=5))
    changes = [ConfigChange(ConfigResourceType.BROKER, "1", [("log.retention.ms", Operation.SET, "5")])]
    at_once(opened.change(alter_configs, changes, validate_only=False))
    at_once(ProducerIds(opened).draw())
    at_once(opened.change(epochs_behind, {(opened.image.topics["a"].topic_id, 1): 6}))


ALICE = EntityData("user", "alice")
ACCESS: list[MetadataRecord] = [
    AccessControlEntryRecord(b"a" * 16, 2, "orders", 3, "User:alice", "*", 3, 3),
    AccessControlEntryRecord(b"b" * 16, 2, "orders", 3, "User:bob", "*", 3, 3),
    UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
    UserScramCredentialRecord("bob", 2, b"salt", b"stored", b"server", 4096),
    DelegationTokenRecord("User:alice", "User:alice", [], 1, 3, 2, "t"),
    DelegationTokenRecord("User:alice", "User:alice", [], 1, 3, 2, "u"),
    ClientQuotaRecord([ALICE, EntityData("client-id", None)], "producer_byte_rate", 5.5),
    ClientQuotaRecord([EntityData("client-id", None), ALICE], "consumer_byte_rate", 7.0),
    ClientQuotaRecord([ALICE], "request_percentage", 1.0),
]
LESS_ACCESS: list[MetadataRecord] = [
    RemoveAccessControlEntryRecord(b"b" * 16),
    RemoveUserScramCredentialRecord("bob", 2),
    UserScramCredentialRecord("alice", 1, b"other", b"stored", b"server", 8192),
    RemoveDelegationTokenRecord("u"),
    ClientQuotaRecord([ALICE, EntityData("client-id", None)], "producer_byte_rate", remove=True),
    ClientQuotaRecord([ALICE], "request_percentage", remove=True),
]


def opened_with_snapshots(disk: MemoryDisk, ids_from: int = 0) -> MetadataService:
    opened, _ = open_service(disk, EACH_CHANGE, ids_from=ids_from)
    opened.writes_snapshots = True
    return opened


def snapshots_on(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.listdir(FOLDER) if names.parse_metadata_snapshot(name)]


def segments_on(disk: MemoryDisk) -> list[str]:
    return [name for name in sorted(disk.listdir(FOLDER)) if name.endswith(".log")]


# -- the image as records


def test_records_of_an_image_make_the_same_image() -> None:
    opened = service(brokers=3)
    busy(opened)
    for it in (*ACCESS, *LESS_ACCESS):
        record(opened, it)
    again = MetadataImage()
    for it in image_records(opened.image):
        again.apply(decode_record(encode_record(it)), offset=0)
    assert comparable(again) == comparable(opened.image)
    assert [it.name for it in again.topics.values()] == ["a", "b.c"]


def test_an_image_that_left_something_out_is_not_recorded() -> None:
    def can_be_recorded(last: MetadataRecord) -> bool:
        opened = service()
        record(opened, last)
        return opened.image.can_be_recorded

    assert can_be_recorded(NoOpRecord())
    assert not can_be_recorded(BeginTransactionRecord())
    assert not can_be_recorded(RegisterControllerRecord(1))


# -- the file


def test_what_is_written_is_read_back_and_a_damaged_or_unfinished_file_is_refused() -> None:
    values = [b"%d" % number for number in range(1234)]
    content = b"".join(snapshot_batches(values, epoch=1, now_ms=7))
    assert read_snapshot_file(content) == values
    last = list(snapshot_batches(values, epoch=1, now_ms=7))[-1]
    for damaged in (
        b"",
        content[:-1],
        content[: -len(last)],
        content[len(last) :],
        content[:300] + bytes([content[300] ^ 1]) + content[301:],
    ):
        with pytest.raises(CorruptLogError):
            read_snapshot_file(damaged)


def test_the_file_is_called_as_kafka_calls_it() -> None:
    name = "00000000000000000123-0000000001.checkpoint"
    assert names.metadata_snapshot(123, 1) == name
    assert names.parse_metadata_snapshot(name) == (123, 1)
    for other in ("123-1.checkpoint", "00000000000000000123.snapshot", name + ".1.tmp", "-.checkpoint", f"x{name[1:]}"):
        assert names.parse_metadata_snapshot(other) is None


def test_kafkas_dump_tool_reads_a_snapshot(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    opened, folder = open_service(disk, EACH_CHANGE)  # type: ignore[arg-type]
    opened.writes_snapshots = True
    busy(opened)
    folder.close()
    [name] = [it for it in disk.listdir(FOLDER) if names.parse_metadata_snapshot(it)]
    dumped = dump_log(tmp_path / FOLDER / name, "--cluster-metadata-decoder")
    for expected in (
        "SnapshotHeader",
        "SnapshotFooter",
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":30}}',
        '{"type":"REGISTER_BROKER_RECORD","version":4,"data":{"brokerId":1,',
        '{"type":"TOPIC_RECORD","version":0,"data":{"name":"a",',
        '{"type":"PARTITION_RECORD","version":2,"data":{"partitionId":2,',
        '{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":2,"resourceName":"b.c","name":"retention.ms",',
        '{"type":"PRODUCER_IDS_RECORD","version":0,"data":{"brokerId":-1,"brokerEpoch":-1,"nextProducerId":1000}}',
    ):
        assert expected in dumped, dumped
    for complaint in ("Could not decode", "Skipping metadata record", "isvalid: false", '"gone"'):
        assert complaint not in dumped


# -- when


def test_a_snapshot_is_due_after_so_many_bytes_or_so_long_and_something_changed() -> None:
    schedule = SnapshotSchedule(max_bytes=100, max_interval_ms=1000, last_ms=5000)
    assert not schedule.is_due(now_ms=9000), "nothing changed"
    schedule.applied(99)
    assert not schedule.is_due(now_ms=5999)
    assert schedule.is_due(now_ms=6000)
    schedule.applied(1)
    assert schedule.is_due(now_ms=5001)
    schedule.restart(now_ms=5001)
    assert not schedule.is_due(now_ms=9000)
    never = SnapshotSchedule(max_bytes=100, max_interval_ms=0, last_ms=0)
    never.applied(1)
    assert not never.is_due(now_ms=1 << 50)


def test_a_start_replaces_a_long_log_even_if_no_snapshot_is_due() -> None:
    def is_long(max_bytes: int, size_in_bytes: int) -> bool:
        schedule = SnapshotSchedule(max_bytes, max_interval_ms=0, last_ms=0)
        schedule.applied(size_in_bytes)
        return schedule.is_long

    assert is_long(20 * LONG_BYTES, LONG_BYTES)
    assert not is_long(20 * LONG_BYTES, LONG_BYTES - 1)
    assert is_long(100, 100)


def test_none_is_written_before_the_partitions_follow() -> None:
    disk = MemoryDisk()
    opened, _ = open_service(disk, EACH_CHANGE)
    busy(opened)
    assert snapshots_on(disk) == []


# -- a start


def test_a_start_takes_the_snapshot_and_what_follows_and_the_log_before_it_is_gone() -> None:
    disk = FaultyDisk()
    opened = opened_with_snapshots(disk)
    busy(opened)
    [name] = snapshots_on(disk)
    assert names.parse_metadata_snapshot(name) == (opened.log.end_offset, 1)
    assert segments_on(disk) == [names.offset_name(opened.log.end_offset, ".log")]
    opened.writes_snapshots = False
    at_once(opened.change(create_topics, CreateTopicsRequest([CreatableTopic("after", 1, 1)])))
    again, _ = open_service(disk.crash(), EACH_CHANGE, ids_from=1000)
    assert comparable(again.image) == comparable(opened.image)
    assert again.image.offset == opened.image.offset
    assert again.config.properties == opened.config.properties
    assert again.configs.topic_defaults()["retention.ms"] == 5
    assert at_once(ProducerIds(again).draw()) == 1000


def test_a_power_cut_at_any_moment_loses_nothing_that_was_answered() -> None:
    number, is_over = 0, False
    while not is_over:
        disk = FaultyDisk()
        opened = opened_with_snapshots(disk)
        images = [comparable(opened.image)]
        left = number

        def stop(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Stop

        disk.before_operation = stop
        try:
            for step in range(3):
                at_once(opened.change(create_topics, CreateTopicsRequest([CreatableTopic(f"t{step}", 2, 1)])))
                images.append(comparable(opened.image))
            is_over = True
        except Stop:
            pass
        disk.before_operation = None
        answered_to = images[-1]
        for after in (disk.crash(), disk.kill()):
            again, _ = open_service(after, EACH_CHANGE, ids_from=1000)
            found = set(again.image.topics)
            assert found >= set(answered_to.topics), number
            assert len(found) <= len(answered_to.topics) + 1, number
            again.writes_snapshots = True
            at_once(again.change(create_topics, CreateTopicsRequest([CreatableTopic("more", 1, 1)])))
            [_] = snapshots_on(after)
            last, _ = open_service(after.crash(), EACH_CHANGE, ids_from=2000)
            assert comparable(last.image) == comparable(again.image), number
        number += 1
    assert number > 20


class Stop(BaseException):
    pass


def test_a_snapshot_that_cannot_be_written_leaves_the_log_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    opened = opened_with_snapshots(disk)

    def full(operation: str, path: str) -> None:
        if ".checkpoint" in path:
            raise OSError(errno.ENOSPC, "no space left on device", path)

    disk.before_operation = full
    busy(opened)
    assert snapshots_on(disk) == []
    assert "no snapshot of the metadata can be written" in caplog.text
    disk.before_operation = None
    at_once(opened.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)])))
    assert len(snapshots_on(disk)) == 1


def test_a_damaged_snapshot_is_not_used_and_without_the_log_before_it_there_is_no_start() -> None:
    disk = FaultyDisk()
    opened = opened_with_snapshots(disk)
    opened.writes_snapshots = False
    busy(opened)
    disk.write_bytes(f"{FOLDER}/{names.metadata_snapshot(opened.log.end_offset, 1)}", b"not one")
    again, _ = open_service(disk.kill(), NEVER, ids_from=1000)
    assert comparable(again.image) == comparable(opened.image)

    opened.writes_snapshots = True
    at_once(opened.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)])))
    [name] = snapshots_on(disk)
    after = disk.kill()
    after.remove(f"{FOLDER}/{name}")
    with pytest.raises(CorruptLogError, match="no snapshot reaches as far"):
        open_service(after, NEVER, ids_from=1000)


def test_what_is_requested_while_a_snapshot_is_written_comes_after_it() -> None:
    opened, log = distant_service(EACH_CHANGE)
    opened.writes_snapshots = True
    record(opened, RegisterBrokerRecord(broker_id=2, rack=None, fenced=False, log_dirs=[bytes(16)]))
    answered(opened.change(create_topics, CreateTopicsRequest([CreatableTopic("a", 1, 1)])))
    answered(opened.change(create_topics, CreateTopicsRequest([CreatableTopic("b", 1, 1)])))
    settle()
    assert log.snapshot is not None
    again, _ = distant_service(EACH_CHANGE, log=log)
    assert comparable(again.image) == comparable(opened.image)


def test_ten_thousand_topics_that_came_and_went_leave_a_small_log() -> None:
    disk = MemoryDisk()
    opened, folder = open_service(disk, {"metadata.log.max.record.bytes.between.snapshots": str(64 << 10)})
    opened.writes_snapshots = True
    for first in range(0, 10_000, 100):
        topics = [f"t{number}" for number in range(first, first + 100)]
        at_once(opened.change(create_topics, CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in topics])))
        at_once(opened.change(delete_topics, DeleteTopicsRequest(topic_names=topics), version=5))
    deleted = folder.take_deleted(1 << 50)
    assert deleted is not None
    folder.remove(deleted)
    assert sum(disk.size(f"{FOLDER}/{name}") for name in disk.listdir(FOLDER)) < 200_000

"""The metadata log as bytes: KRaft's layout, durability, replay, and Kafka's own tool as the judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwire_protocol.internal.metadata_topics import TopicRecord
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_storage.config import LogConfig
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.disk.files import RealDisk
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.log.log import Log

from devtools.apache_kafka import dump_log
from kwire.metadata.controller.partitions.leader_epochs import next_epochs
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.metadata.log import AppendConflict, FileMetadataLog
from kwire.metadata.producer_ids import ProducerIds
from kwire.metadata.records import encode_record
from kwire.runtime.futures import at_once
from testkit.metadata.harness import NOW_MS, open_service

LOG_FILE = "__cluster_metadata-0/00000000000000000000.log"
VALUES = [encode_record(TopicRecord(name, bytes(16))) for name in "abc"]


def open_log(disk: MemoryDisk) -> FileMetadataLog:
    log = Log.open(disk, "__cluster_metadata-0", LogConfig(), now_ms=NOW_MS, clean_shutdown=False)
    return FileMetadataLog(log, 1, lambda: NOW_MS)


def test_first_append_names_the_leader_and_notifies_watchers() -> None:
    log = open_log(MemoryDisk())
    ends: list[int] = []
    log.watch(lambda: ends.append(log.end_offset))
    at_once(log.append(VALUES, expected_end_offset=0))
    headers = [header for header, _ in log.log.batches(0)]
    assert [(it.base_offset, it.records_count, it.is_control) for it in headers] == [(0, 1, True), (1, 3, False)]
    assert [it.partition_leader_epoch for it in headers] == [1, 1]
    assert ends == [4]
    assert at_once(log.read(0)).records == [(1, VALUES[0]), (2, VALUES[1]), (3, VALUES[2])]
    assert at_once(log.read(3)).records == [(3, VALUES[2])]
    assert at_once(log.read(4)).records == []


def test_append_at_a_place_that_is_taken_is_refused() -> None:
    log = open_log(MemoryDisk())
    at_once(log.append(VALUES, expected_end_offset=0))
    with pytest.raises(AppendConflict):
        at_once(log.append(VALUES, expected_end_offset=1))
    at_once(log.append(VALUES[:1], expected_end_offset=4))
    assert log.end_offset == 5


def test_what_was_appended_survives_a_power_cut() -> None:
    disk = FaultyDisk()
    at_once(open_log(disk).append(VALUES, expected_end_offset=0))
    assert [value for _, value in at_once(open_log(disk.crash()).read(0)).records] == VALUES


def test_a_batch_is_there_whole_or_not_at_all() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    at_once(log.append(VALUES[:1], expected_end_offset=0))
    before = disk.size(LOG_FILE)
    disk_with_more = disk.kill()
    more = open_log(disk_with_more)
    at_once(more.append(VALUES[1:], expected_end_offset=2))
    whole = disk_with_more.read_bytes(LOG_FILE)
    for cut in range(before, len(whole) + 1, 7):
        torn = disk.kill()
        torn.write_bytes(LOG_FILE, whole[:cut])
        assert [value for _, value in at_once(open_log(torn).read(0)).records] == VALUES[
            : 3 if cut == len(whole) else 1
        ]


def test_kafkas_dump_tool_reads_what_we_wrote(tmp_path: Path) -> None:
    service, folder = open_service(RealDisk(str(tmp_path)))  # type: ignore[arg-type]
    at_once(
        service.change(
            create_topics,
            CreateTopicsRequest([CreatableTopic("t", 2, 1, [], [CreatableTopicConfig("segment.bytes", "2097152")])]),
        )
    )
    at_once(ProducerIds(service).draw())
    at_once(service.change(next_epochs))
    folder.close()
    dumped = dump_log(tmp_path / LOG_FILE, "--cluster-metadata-decoder")
    for expected in (
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}',
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":30}}',
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"transaction.version","featureLevel":2}}',
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"eligible.leader.replicas.version","featureLevel":1}}',
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"group.version","featureLevel":1}}',
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"share.version","featureLevel":1}}',
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"streams.version","featureLevel":1}}',
        '"data":{"resourceType":4,"resourceName":"","name":"min.insync.replicas","value":"1"}}',
        '{"type":"REGISTER_BROKER_RECORD","version":4,"data":{"brokerId":1,',
        '"endPoints":[{"name":"PLAINTEXT","host":"127.0.0.1","port":9092,"securityProtocol":0}]',
        '{"type":"TOPIC_RECORD","version":0,"data":{"name":"t",',
        '{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":2,"resourceName":"t","name":"segment.bytes",',
        '{"type":"PARTITION_RECORD","version":2,"data":{"partitionId":1,',
        '{"type":"PARTITION_CHANGE_RECORD","version":2,"data":{"partitionId":1,',
        '{"type":"PRODUCER_IDS_RECORD","version":0,"data":{"brokerId":1,"brokerEpoch":8,"nextProducerId":1000}}',
    ):
        assert expected in dumped, dumped
    assert "Could not decode" not in dumped
    assert "Skipping metadata record" not in dumped
    assert "isvalid: false" not in dumped

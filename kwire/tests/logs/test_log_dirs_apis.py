"""DescribeLogDirs and AlterReplicaLogDirs: what is answered, and what clients notice of a move."""

from __future__ import annotations

import logging
import threading

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire_protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch, iter_records
from kwire_storage.disk.files import DiskSpace
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.node.broker import Broker
from kwire.testing import Broker as BrokerInThread
from testkit.raw.client import RawClient
from testkit.scenes.folder_scene import (
    EIO,
    SMALL_PIECE_BYTES,
    Disks,
    begin_move,
    carry_out,
    create,
    described,
    filled,
    folder_path,
    move,
    new_disks,
    open_broker,
    rows,
)

TIMEOUT_S = 30
POLL_INTERVAL_S = 0.02
PRODUCE_INTERVAL_S = 0.001
"""The copier is to win within seconds on a slow machine too."""


def test_refusals(broker: Broker) -> None:
    filled(broker)
    long = "x" * 249
    create(broker, long)
    assert move(broker, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(broker, "/b", "unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(broker, "/b", "t", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(broker, "/a", long) == ErrorCode.INVALID_TOPIC_EXCEPTION
    broker.take_offline(broker.log_dirs.dirs[1], EIO)
    assert move(broker, "/b") == ErrorCode.KAFKA_STORAGE_ERROR
    assert move(broker, "/a", long) == ErrorCode.KAFKA_STORAGE_ERROR


def test_describe_returns_sizes_lag_and_room(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = filled(broker)
    create(broker, "other")
    monkeypatch.setattr(MemoryDisk, "space", lambda self: DiskSpace(1000, 400))
    under_way = begin_move(broker, "/b", pieces=2)
    under_way.next_piece(SMALL_PIECE_BYTES)  # which notes how far the copy is
    one, other = described(broker).results
    assert (one.error_code, one.log_dir, one.total_bytes, one.usable_bytes, one.is_cordoned) == (
        0,
        "/a",
        1000,
        400,
        False,
    )
    assert [topic.name for topic in one.topics] == ["t"]  # and nothing of the metadata log
    [row] = one.topics[0].partitions
    assert (row.partition_size, row.offset_lag) == (partition.log.size_in_bytes, 0)
    [copy] = [row for topic in other.topics if topic.name == "t" for row in topic.partitions]
    assert copy.is_future_key
    assert 0 < copy.partition_size < row.partition_size
    assert copy.offset_lag == 20 - under_way.copy.log_end_offset > 0
    some = described(broker, [DescribableLogDirTopic("other", [0, 1])])
    assert [[topic.name for topic in result.topics] for result in some.results] == [[], ["other"]]


def test_describe_returns_an_error_for_a_folder_that_is_out_of_service(broker: Broker) -> None:
    filled(broker)
    broker.take_offline(broker.log_dirs.dirs[1], EIO)
    assert [(it.log_dir, it.error_code) for it in described(broker).results] == [
        ("/a", 0),
        ("/b", ErrorCode.KAFKA_STORAGE_ERROR),
    ]


def test_producers_and_consumers_continue_during_moves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Back and forth, with a producer and a consumer at work: every record once, in order."""
    caplog.set_level(logging.INFO)
    disks = new_disks()
    monkeypatch.setattr(BrokerInThread, "_open_disk", lambda self: disks)
    monkeypatch.setattr("kwire.logs.moves.PIECE_BYTES", 20_000)
    stop, all_sent = threading.Event(), threading.Event()
    sent: list[int] = []
    read: list[int] = []
    failures: list[object] = []

    def produce(address: str) -> None:
        with RawClient(address) as client:
            while not stop.wait(PRODUCE_INTERVAL_S):
                value = b"%d" % len(sent)
                data = PartitionProduceData(0, memoryview(bytearray(build_batch([Record(value=value)]))))
                request = ProduceRequest(None, -1, 1000, [TopicProduceData("t", partition_data=[data])])
                answer = client.call(request, 9).responses[0].partition_responses[0]
                if answer.error_code or answer.base_offset != len(sent):
                    failures.append(answer)
                    return
                sent.append(len(sent))

    def consume(address: str) -> None:
        with RawClient(address) as client:
            while not (all_sent.is_set() and len(read) >= len(sent)):
                wanted = FetchTopic(
                    "t", partitions=[FetchPartition(0, fetch_offset=len(read), partition_max_bytes=9999)]
                )
                request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[wanted])
                answer = client.call(request, 11).responses[0].partitions[0]
                if answer.error_code:
                    failures.append(answer)
                    return
                records = iter_records(answer.records) if answer.records else ()
                read.extend(int(bytes(it.value or b"")) for it in records if it.offset >= len(read))

    with BrokerInThread(settings={"log.dirs": "/a,/b"}) as broker, RawClient(broker.address) as admin:
        admin.call(MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=True), 9)
        producing, consuming = (threading.Thread(target=it, args=(broker.address,)) for it in (produce, consume))
        producing.start()
        consuming.start()
        for path in ("/b", "/a", "/b"):
            dirs = [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic("t", [0])])]
            assert admin.call(AlterReplicaLogDirsRequest(dirs), 2).results[0].partitions[0].error_code == 0
            while not any(
                row.is_future_key is False
                for result in admin.call(DescribeLogDirsRequest(None), 4).results
                if result.log_dir == path
                for topic in result.topics
                for row in topic.partitions
            ):
                assert not failures
                stop.wait(POLL_INTERVAL_S)
        stop.set()
        producing.join(TIMEOUT_S)
        all_sent.set()
        consuming.join(TIMEOUT_S)
    assert failures == []
    assert read == sent
    assert len(sent) > 10
    assert caplog.text.count("moved t-0 from") == 3


def test_a_request_for_the_folder_that_it_is_in_ends_a_move(broker: Broker, disks: Disks) -> None:
    partition = filled(broker)
    move(broker, "/b")
    assert rows(broker) == {"/a": [("t", 0, False)], "/b": [("t", 0, True)]}
    assert move(broker, "/a") == ErrorCode.NONE
    assert rows(broker) == {"/a": [("t", 0, False)], "/b": []}
    assert folder_path(broker, partition) == "/a"


def test_a_move_to_another_folder_takes_the_place_of_the_one_before() -> None:
    disks = new_disks("/a", "/b", "/c")
    broker = open_broker(disks)
    partition = filled(broker)
    assert [move(broker, "/b"), move(broker, "/b"), move(broker, "/c")] == [0, 0, 0]
    assert rows(broker) == {"/a": [("t", 0, False)], "/b": [], "/c": [("t", 0, True)]}
    carry_out(broker)
    assert folder_path(broker, partition) == "/c"
    broker.close()

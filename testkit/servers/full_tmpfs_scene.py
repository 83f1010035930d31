"""`kwire serve` on a file system that gets full: what the tests of that share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from testkit.basics.small_tmpfs import NoTmpfs, SmallTmpfs
from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient
from testkit.raw.simple_requests import produce
from testkit.servers.broker_process import BrokerProcess

MIB = 1 << 20
DISK = 32 * MIB
RESERVE = 4 * MIB
SETTINGS = [
    f"kwire.log.reserve.bytes={RESERVE}",
    "offsets.topic.num.partitions=4",
    "log.segment.bytes=1048576",
    "log.flush.offset.checkpoint.interval.ms=1000",
    "log.segment.delete.delay.ms=100",  # how often files of deleted topics are removed, too: 30 s otherwise
]
PATIENCE_S = 60.0
SETTLES_S = 0.5
"""The time within which the broker removes what it needs no longer, such as producer snapshots: that leaves room."""
OVER_A_PAGE = 10_000
"""A file that has a page has all of it, so that a smaller record may fit on a disk that is full."""
QUIET = {"log_level": 2}  # librdkafka logs lost connections, which a test has where it stops the broker


@contextmanager
def mounted(tmp_path: Path) -> Iterator[SmallTmpfs]:
    """A tmpfs of DISK bytes; skips the test, with the reason, where none is to be had."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    try:
        made = SmallTmpfs(folder, DISK)
    except NoTmpfs as refused:
        pytest.skip(f"MISSING TEST: no small tmpfs can be mounted here ({refused}), so a full disk was not seen")
    with made:
        yield made


def serve(tmp_path: Path, tmpfs: SmallTmpfs, *settings: str) -> BrokerProcess:
    return BrokerProcess(tmp_path, [*SETTINGS, *settings], data_dir=tmpfs.path / "data")


def create(client: RawClient, name: str) -> int:
    code: int = client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)]), 7).topics[0].error_code
    return code


def append(client: RawClient, size: int = 100, *, topic: str = "t") -> int:
    """The error code."""
    answer = client.call(produce(bytes(size), topic=topic), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def commit(client: RawClient, offset: int) -> int:
    topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset)])
    code: int = client.call(OffsetCommitRequest("g", topics=[topic]), 7).topics[0].partitions[0].error_code
    return code


def fill_up(client: RawClient, tmpfs: SmallTmpfs, *, topic: str = "t") -> int:
    """Fills the disk to the last byte; returns the number of records that were acknowledged meanwhile."""
    tmpfs.fill(2 * MIB)
    count = 0
    for size in (100_000, 1_000, 1):
        while not append(client, size, topic=topic):
            count += 1
    settled_s = time.monotonic() + SETTLES_S

    def is_settled() -> bool:
        nonlocal settled_s
        # As much as the reserve is free while the broker has given it up, and takes it back.
        if 0 < tmpfs.usable_bytes < RESERVE // 2:
            tmpfs.fill()
            settled_s = time.monotonic() + SETTLES_S
        return time.monotonic() >= settled_s

    tmpfs.fill()
    eventually(is_settled, "the disk stays full")
    return count


def read_all(address: str, topic: str) -> list[bytes]:
    """Every value of partition 0, by a consumer of librdkafka's."""
    settings = {"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True, **QUIET}
    settings["enable.auto.commit"] = False  # it would wait for a coordinator that has no room for its topic
    consumer = confluent_kafka.Consumer(settings)
    values: list[bytes] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing more after {len(values)} records"
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return values
            values.append(message.value() or b"")
    finally:
        consumer.close()

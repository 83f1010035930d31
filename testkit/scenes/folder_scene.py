"""Brokers over several disks in memory, without sockets: what the tests of log dirs share."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from functools import partial

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kwire_protocol.records import Record, build_batch, iter_records, read_header
from kwire_storage.directory.moving import LogMove
from kwire_storage.disk.faulty_disk import FaultyDisk

from kwire.config.server import load_config
from kwire.handlers import alter_replica_log_dirs, describe_log_dirs
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.node.broker import Broker
from kwire.replicas.flusher import Flusher
from kwire.replicas.partition import Partition
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import Future, at_once
from testkit.basics.futures import acknowledgement, value_of
from testkit.scenes.partition_files import log_files

Disks = dict[str, FaultyDisk]
SMALL_PIECE_BYTES = 300
EIO = OSError(errno.EIO, os.strerror(errno.EIO))


def new_disks(*paths: str) -> Disks:
    return {path: FaultyDisk() for path in paths or ("/a", "/b")}


def open_broker(disks: Mapping[str, FaultyDisk], *settings: str) -> Broker:
    return Broker.open(load_config(data_dirs=list(disks), settings=settings), dict(disks), SystemClock())


def killed(disks: Disks) -> Disks:
    return {path: disk.kill() for path, disk in disks.items()}


def failing(operation: str, where: str, code: int = errno.EIO) -> Callable[[str, str], None]:
    """Returns a function for `MemoryDisk.before_operation`: these operations fail below `where`."""

    def fail(name: str, path: str) -> None:
        if name == operation and path.startswith(where):
            raise OSError(code, os.strerror(code), path)

    return fail


class Stop(BaseException):
    """The process is killed here."""


class Countdown:
    """Stops everything at the n-th operation on any of the disks."""

    def __init__(self, disks: Disks, left: int) -> None:
        self.left = left
        for disk in disks.values():
            disk.before_operation = self

    def __call__(self, name: str, path: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stop


def create(broker: Broker, name: str, partitions: int = 1, /, **configs: str) -> list[Partition]:
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], settings)], 1000)
    assert [it.error_code for it in at_once(broker.metadata.change(create_topics, request)).topics] == [0]
    return replicas(broker, name)


def replicas(broker: Broker, name: str) -> list[Partition]:
    """The partitions of a topic, all of which are in service."""
    return [broker.partitions.find(name, index) for index in range(len(broker.partitions.by_name[name]))]


def append(partition: Partition, value: bytes = b"x") -> int:
    """Appends, and runs the flush that the topic requires; returns the record's offset."""
    batch = memoryview(bytearray(build_batch([Record(timestamp=0, value=value)])))
    result = partition.append(batch, read_header(batch), acks=1, now_ms=0)
    flushed = acknowledgement(partition, result.last_offset)
    if not flushed.is_set:
        trio.run(_flush, partition, flushed)
    error = value_of(flushed)
    if error is not None:
        raise error
    return result.base_offset


async def _flush(partition: Partition, flushed: Future[KafkaError | None]) -> None:
    assert isinstance(partition.flush_driver, Flusher)
    async with trio.open_nursery() as nursery:
        flushed.when_set(nursery.cancel_scope.cancel)
        nursery.start_soon(partition.flush_driver.run)


def values(partition: Partition) -> list[bytes | None]:
    return [
        None if record.value is None else bytes(record.value)
        for _, piece in partition.log.batches()
        for record in iter_records(piece.read())
    ]


def refusal(do: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        do()
    return refused.value.code


def has_ended(broker: Broker) -> bool:
    return broker.fatal is not None


def folder_path(broker: Broker, partition: Partition) -> str | None:
    folder = broker.partitions.folder_of(partition)
    return None if folder is None else folder.path


def move(broker: Broker, path: str, topic: str = "t", index: int = 0) -> ErrorCode:
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [index])])])
    context = Context("client", "127.0.0.1", 9092, api_version=2)
    return ErrorCode(bound(alter_replica_log_dirs.handle, broker)(request, context).results[0].partitions[0].error_code)


def begin_move(broker: Broker, path: str, topic: str = "t", *, pieces: int = 1000) -> LogMove:
    """Begins a move and copies so many pieces, or all that there are; nothing is swapped yet."""
    assert move(broker, path, topic) == ErrorCode.NONE
    [under_way] = broker.moves.moves
    for _ in range(pieces):
        piece = under_way.next_piece(SMALL_PIECE_BYTES)
        if piece is None:
            break
        under_way.append(piece, now_ms=0)
    return under_way


def carry_out(broker: Broker, *, meanwhile: int = 0) -> None:
    """Carries out a move as the service does, in this thread; `meanwhile` records are appended between the pieces."""
    for under_way in broker.moves.moves:
        partition = broker.partitions.find(*under_way.key)
        while (piece := under_way.next_piece(SMALL_PIECE_BYTES)) is not None:
            under_way.append(piece, now_ms=0)
            if meanwhile:
                meanwhile -= 1
                append(partition, b"meanwhile %d" % meanwhile)
        under_way.prepare()
        swap(broker, under_way, meanwhile=partial(_append_and_flush, partition))


def swap(broker: Broker, under_way: LogMove, *, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Swaps as the service does; `meanwhile` is called while the metadata log commits the decision."""
    at_once(broker.moves._assign(under_way, under_way.target_folder))
    meanwhile()
    broker.moves._swap(under_way)


def _append_and_flush(partition: Partition) -> None:
    append(partition, b"after the copy")
    log_files(partition).flush()


def described(broker: Broker, topics: list[DescribableLogDirTopic] | None = None) -> DescribeLogDirsResponse:
    context = Context("client", "127.0.0.1", 9092, api_version=5)
    return bound(describe_log_dirs.handle, broker)(DescribeLogDirsRequest(topics), context)


def rows(broker: Broker) -> dict[str, list[tuple[str, int, bool]]]:
    return {
        result.log_dir: [
            (topic.name, partition.partition_index, partition.is_future_key)
            for topic in result.topics
            for partition in topic.partitions
        ]
        for result in described(broker).results
    }


def filled(broker: Broker, count: int = 20, **configs: str) -> Partition:
    partition = create(broker, "t", **configs)[0]
    for number in range(count):
        append(partition, b"value %d" % number)
    return partition

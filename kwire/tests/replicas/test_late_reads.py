"""Fetches from logs that cannot answer at once."""

from __future__ import annotations

import errno
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.disk.memory_disk import MemoryDisk
from kwire_storage.errors import CorruptLogError

from kwire.config.server import load_config
from kwire.handlers import fetch
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.node.broker import Broker
from kwire.replicas.partition import Partition
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import Future
from testkit.cluster.scripted_cluster import create
from testkit.scenes.late_log import LateLog

Handling = Coroutine[Future[Any], None, FetchResponse]


@pytest.fixture
def broker() -> Iterator[Broker]:
    opened = Broker.open(load_config(), MemoryDisk(), SystemClock())
    create(opened, "t", 2)
    yield opened
    opened.close()


def append(broker: Broker, index: int) -> Partition:
    partition = broker.partitions.find("t", index)
    batch = memoryview(bytearray(build_batch([Record(value=b"v" * 100)])))
    partition.append(batch, read_header(batch), acks=1, now_ms=broker.clock.now_ms())
    return partition


def begun(broker: Broker, *, min_bytes: int = 1, max_wait_ms: int = 0, max_bytes: int = 4 << 20) -> Handling:
    wanted = FetchTopic("t", partitions=[FetchPartition(index, partition_max_bytes=1 << 20) for index in (0, 1)])
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[wanted])
    handling = bound(fetch.handle, broker)(request, Context("client", "127.0.0.1", 9092, api_version=12))
    assert isinstance(handling, Coroutine)
    return handling


def answered(handling: Handling) -> list[PartitionData]:
    """Resumes the fetch, which does not wait any more."""
    with pytest.raises(StopIteration) as done:
        handling.send(None)
    response: FetchResponse = done.value.value
    return response.responses[0].partitions


def size(answer: PartitionData) -> int:
    return getattr(answer.records, "size", 0)


def test_a_fetch_waits_for_each_log_that_is_late_and_has_what_the_others_have(broker: Broker) -> None:
    late = LateLog.of(append(broker, 0))
    append(broker, 1)
    handling = begun(broker)
    assert handling.send(None) is late.waiting[0][0]
    late.answer()
    first, second = answered(handling)
    assert size(first) == size(second) > 100


def test_a_read_that_is_late_counts_with_all_that_it_may_return(broker: Broker) -> None:
    late = LateLog.of(append(broker, 0))
    append(broker, 1)
    handling = begun(broker, max_bytes=120)
    handling.send(None)
    late.answer()
    first, second = answered(handling)
    assert size(first) > 120, "the first batch of a response comes whole"
    assert (second.error_code, size(second), second.high_watermark) == (E.NONE, 0, 1)


@pytest.mark.parametrize(
    ("error", "code"),
    [(OSError(errno.EIO, "gone"), E.KAFKA_STORAGE_ERROR), (CorruptLogError("torn"), E.CORRUPT_MESSAGE)],
)
def test_an_error_of_a_late_read_is_of_its_partition_alone(broker: Broker, error: Exception, code: E) -> None:
    partition = append(broker, 0)
    late = LateLog.of(partition)
    append(broker, 1)
    handling = begun(broker, min_bytes=1 << 20, max_wait_ms=1000)
    handling.send(None)
    late.answer(error)
    first, second = answered(handling)
    assert (first.error_code, first.high_watermark, size(first)) == (code, -1, 0)
    assert (second.error_code, size(second) > 100) == (E.NONE, True)
    assert (partition.log.failed is not None) == isinstance(error, OSError)


def test_a_fetch_that_gets_too_little_from_a_late_log_waits_for_more_and_reads_again(broker: Broker) -> None:
    late = LateLog.of(append(broker, 0))
    handling = begun(broker, min_bytes=300, max_wait_ms=1000)
    handling.send(None)
    late.answer()
    assert handling.send(None).timeout_s <= 1
    append(broker, 0)
    assert handling.send(None) is late.waiting[0][0]
    late.answer()
    assert size(answered(handling)[0]) > 300


def test_a_fetch_whose_connection_is_closed_meanwhile_leaves_the_read_alone(broker: Broker) -> None:
    late = LateLog.of(append(broker, 0))
    handling = begun(broker)
    handling.send(None)
    handling.close()
    late.answer()

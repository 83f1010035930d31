"""A fetch that waits: its use of the clock, and when it reads again."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.handlers import fetch
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.node.broker import Broker
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import Future
from testkit.cluster.scripted_cluster import create

MAX_WAIT_MS = 1000


class MovedClock(SystemClock):
    moved_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.moved_ms


@pytest.fixture
def broker() -> Iterator[Broker]:
    opened = Broker.open(load_config(), MemoryDisk(), MovedClock())
    create(opened, "t", 1)
    yield opened
    opened.close()


def waiting(broker: Broker, min_bytes: int) -> Coroutine[Future[Any], None, FetchResponse]:
    wanted = FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])
    request = FetchRequest(max_wait_ms=MAX_WAIT_MS, min_bytes=min_bytes, topics=[wanted])
    handled = bound(fetch.handle, broker)(request, Context("client", "127.0.0.1", 9092, api_version=12))
    assert isinstance(handled, Coroutine)
    return handled


def append(broker: Broker) -> None:
    batch = memoryview(bytearray(build_batch([Record(value=b"v")])))
    broker.partitions.find("t", 0).append(batch, read_header(batch), acks=1, now_ms=broker.clock.now_ms())


def test_a_clock_that_is_set_back_does_not_make_a_fetch_wait_longer(broker: Broker) -> None:
    handling = waiting(broker, min_bytes=1 << 20)
    first = handling.send(None)
    assert first.timeout_s <= MAX_WAIT_MS / 1000
    assert isinstance(broker.clock, MovedClock)
    broker.clock.moved_ms = -3_600_000
    append(broker)
    assert first.is_set
    assert handling.send(None).timeout_s <= MAX_WAIT_MS / 1000
    handling.close()


def test_a_fetch_whose_time_is_up_reads_nothing_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    handling = waiting(broker, min_bytes=1)
    handling.send(None).give_up()
    monkeypatch.setattr(fetch, "read_partitions", None)
    with pytest.raises(StopIteration) as answered:
        handling.send(None)
    assert not answered.value.value.responses[0].partitions[0].records


def test_a_fetch_that_has_less_than_it_wants_gets_that_when_its_time_is_up(broker: Broker) -> None:
    handling = waiting(broker, min_bytes=1 << 20)
    handling.send(None)
    append(broker)
    handling.send(None).give_up()
    with pytest.raises(StopIteration) as answered:
        handling.send(None)
    assert answered.value.value.responses[0].partitions[0].records.size > 0

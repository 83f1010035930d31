"""The flush.messages and flush.ms of a partition: flushes, which are run by hand, and answers held back for them."""

from __future__ import annotations

import errno
import os

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage.config import LogConfig
from kwire_storage.disk.faulty_disk import FaultyDisk
from kwire_storage.errors import StorageError
from kwire_storage.log.log import AppendResult, Log

from kwire.replicas.flush_gate import FlushGate
from kwire.replicas.partition import Partition
from kwire.replicas.roles import role_of
from kwire.replicas.validation import TopicRules
from kwire.runtime.futures import Future
from testkit.basics.futures import acknowledgement, value_of
from testkit.scenes.partition_files import at_hand, log_files

EACH = LogConfig(flush_messages=1)
FIVE = LogConfig(flush_messages=5)
EACH_SECOND = LogConfig(flush_ms=1000)


@attrs.define(eq=False)
class Driver:
    """Records the calls that it receives."""

    soon: int = 0
    delays_ms: list[int] = attrs.field(factory=list)

    def flush_soon(self, gate: FlushGate) -> None:
        self.soon += 1

    def flush_within(self, gate: FlushGate, delay_ms: int) -> None:
        self.delays_ms.append(delay_ms)


class Scene:
    """A partition that leads alone, and its driver."""

    def __init__(self, config: LogConfig) -> None:
        self.disk = FaultyDisk()
        self.driver = Driver()
        log = Log.open(self.disk, "t-0", config, now_ms=0, clean_shutdown=True)
        self.partition = Partition("t", bytes(16), 0, log, TopicRules(), self.driver)
        self.partition.take_role(role_of(1, leader_id=1, leader_epoch=0, replicas=[1], isr=[1]))
        self.gate = self.partition.flush_gate
        self._sequence = 0

    def append(self, count: int = 1, *, size: int = 10) -> AppendResult:
        batch = memoryview(bytearray(build_batch([Record(i, 0, None, bytes(size)) for i in range(count)])))
        return self.partition.append(batch, read_header(batch), acks=1, now_ms=0)

    def appended(self, count: int = 1) -> Future[KafkaError | None]:
        return acknowledgement(self.partition, self.append(count).last_offset)

    def flush(self) -> None:
        flush = self.gate.begin()
        flush.run()
        self.gate.finish(flush)

    def durable_end(self) -> int:
        """Returns where the log ends after a power cut."""
        return Log.open(self.disk.crash(), "t-0", EACH, now_ms=0, clean_shutdown=False).log_end_offset


def value_or_held(future: Future[KafkaError | None]) -> object:
    """Returns the future's value; "held" while it has none."""
    return value_of(future) if future.is_set else "held"


def test_without_a_policy_nothing_is_held_and_no_flush_is_requested() -> None:
    scene = Scene(LogConfig())
    futures = [scene.appended() for _ in range(3)]
    assert [value_or_held(future) for future in futures] == [None] * 3
    assert scene.partition.high_watermark == 3
    assert (scene.driver.soon, scene.driver.delays_ms) == (0, [])


def test_an_append_is_neither_acknowledged_nor_readable_before_it_is_durable() -> None:
    scene = Scene(EACH)
    future = scene.appended(2)
    assert value_or_held(future) == "held"
    assert (scene.partition.high_watermark, scene.partition.log_end_offset) == (0, 2)
    bound = scene.partition.high_watermark
    assert at_hand(scene.partition.read(0, max_bytes=1000, max_offset=bound, min_one_batch=True)).size == 0
    assert scene.driver.soon == 1
    scene.flush()
    assert value_or_held(future) is None
    assert scene.partition.high_watermark == 2
    assert scene.durable_end() == 2


def test_what_is_appended_during_a_flush_shares_the_next_one() -> None:
    scene = Scene(EACH)
    first = scene.appended()
    flush = scene.gate.begin()
    others = [scene.appended() for _ in range(5)]
    flush.run()
    requested = scene.driver.soon
    scene.gate.finish(flush)
    assert value_or_held(first) is None
    assert [value_or_held(future) for future in others] == ["held"] * 5
    assert scene.partition.high_watermark == 1
    assert scene.driver.soon == requested + 1
    scene.flush()
    assert [value_or_held(future) for future in others] == [None] * 5
    assert scene.partition.high_watermark == 6


def test_only_the_append_that_reaches_flush_messages_waits() -> None:
    scene = Scene(FIVE)
    early = scene.appended(4)
    assert value_or_held(early) is None
    assert (scene.partition.high_watermark, scene.driver.soon) == (4, 0)
    late = scene.appended(1)
    assert value_or_held(late) == "held"
    assert (scene.partition.high_watermark, scene.driver.soon) == (4, 1)
    scene.flush()
    assert value_or_held(late) is None
    assert scene.partition.high_watermark == 5


def test_fewer_than_flush_messages_behind_a_flush_are_let_go_with_it() -> None:
    scene = Scene(FIVE)
    reached = scene.appended(5)
    flush = scene.gate.begin()
    behind = scene.appended(4)
    assert value_or_held(behind) == "held"
    flush.run()
    requested = scene.driver.soon
    scene.gate.finish(flush)
    assert (value_or_held(reached), value_or_held(behind)) == (None, None)
    assert scene.partition.high_watermark == 9
    assert scene.driver.soon == requested


def test_the_first_unflushed_record_starts_the_clock_of_flush_ms_once() -> None:
    scene = Scene(EACH_SECOND)
    futures = [scene.appended() for _ in range(3)]
    assert [value_or_held(future) for future in futures] == [None] * 3
    assert scene.partition.high_watermark == 3
    assert scene.driver.delays_ms == [1000]
    scene.flush()
    assert scene.durable_end() == 3
    scene.append()
    assert scene.driver.delays_ms == [1000, 1000]


def test_a_record_that_comes_during_a_flush_has_a_clock_of_its_own() -> None:
    scene = Scene(EACH_SECOND)
    scene.append()
    flush = scene.gate.begin()
    scene.append()
    assert scene.driver.delays_ms == [1000, 1000]
    flush.run()
    scene.gate.finish(flush)
    scene.append()
    assert scene.driver.delays_ms == [1000, 1000]


def test_flush_messages_and_flush_ms_hold_together() -> None:
    scene = Scene(LogConfig(flush_messages=3, flush_ms=1000))
    assert value_or_held(scene.appended()) is None
    assert (scene.driver.soon, scene.driver.delays_ms) == (0, [1000])
    assert value_or_held(scene.appended()) is None
    assert value_or_held(scene.appended()) == "held"
    assert (scene.driver.soon, scene.driver.delays_ms) == (1, [1000])


def test_a_full_segment_is_flushed_and_nobody_waits_for_it() -> None:
    scene = Scene(LogConfig(segment_bytes=300))
    futures = [scene.appended() for _ in range(5)]
    assert len(log_files(scene.partition).segments) == 2
    assert [value_or_held(future) for future in futures] == [None] * 5
    assert scene.driver.soon == 1
    scene.flush()
    assert scene.partition.log.recovery_point == 5


def test_a_flush_that_failed_is_reported_and_what_it_held_stays_held_until_one_succeeds() -> None:
    scene = Scene(EACH)
    first = scene.appended()
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
    scene.gate.fail(error)
    assert value_or_held(first) is error
    assert scene.partition.high_watermark == 0
    second = scene.appended()
    assert value_or_held(second) == "held"
    assert scene.partition.high_watermark == 0
    scene.flush()
    assert value_or_held(second) is None
    assert scene.partition.high_watermark == 2


def test_a_log_whose_sync_failed_is_not_flushed_again() -> None:
    scene = Scene(EACH)
    scene.append()
    scene.partition.log.fail(OSError(errno.EIO, os.strerror(errno.EIO), "t-0/log"))
    with pytest.raises(StorageError, match="Input/output error"):
        scene.gate.begin()


def test_who_waits_for_a_partition_that_is_deleted_gets_an_error() -> None:
    scene = Scene(EACH)
    future = scene.appended()
    scene.partition.close()
    error = value_or_held(future)
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_waits_for_a_partition_whose_folder_goes_offline_gets_an_error() -> None:
    scene = Scene(EACH)
    future = scene.appended()
    scene.partition.take_offline()
    error = value_or_held(future)
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    late = value_or_held(acknowledgement(scene.partition, 0))
    assert isinstance(late, KafkaError)
    assert late.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_policy_that_is_set_later_holds_from_the_next_append_on() -> None:
    scene = Scene(LogConfig())
    assert value_or_held(scene.appended()) is None
    scene.partition.configure(TopicRules(), EACH)
    future = scene.appended()
    assert value_or_held(future) == "held"
    assert scene.partition.high_watermark == 1
    scene.flush()
    assert scene.durable_end() == 2


def test_a_policy_that_is_taken_back_lets_go_with_the_flush_that_is_requested() -> None:
    scene = Scene(EACH)
    future = scene.appended()
    scene.partition.configure(TopicRules(), LogConfig())
    flush = scene.gate.begin()
    behind = scene.appended()
    flush.run()
    scene.gate.finish(flush)
    assert (value_or_held(future), value_or_held(behind)) == (None, None)
    assert scene.partition.high_watermark == 2

"""Responses and actions of a coordinator while its partition takes no records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.coordinators.deadlines import Deadline, Deadlines
from kwire.coordinators.effects import Effect, KeyedRecord, Now, Step
from kwire.coordinators.runtime import CoordinatorRuntime
from testkit.metadata.harness import FakeClock

RECORD: KeyedRecord = (b"key", b"value")
TOMBSTONE: KeyedRecord = (b"key", None)


@attrs.define(eq=False)
class FakeTopic:
    """One partition, led in epoch 1. `error` is what it refuses records with; `takes_tombstones` in any case."""

    name: str = "__topic"
    exists: bool = True
    partition_count: int = 1
    error: ErrorCode = ErrorCode.NONE
    takes_tombstones: bool = False
    tries: int = 0

    def leader_epoch(self, _index: int) -> int:
        return 1

    def is_offline(self, _index: int) -> bool:
        return False

    def watch_markers(self, _index: int, _on_marker: object) -> None: ...

    def replay(self, _index: int, _start_offset: int) -> Iterator[Any]:
        return iter(())

    def append(self, _index: int, records: Sequence[KeyedRecord], **_more: object) -> int:
        self.tries += 1
        is_taken = self.takes_tombstones and all(value is None for _, value in records)
        if self.error and not is_taken:
            raise KafkaError(self.error, "it is full")
        return 0


class FakeShard:
    """A shard with one record to append every second, and those that requests append."""

    def __init__(self, _index: int) -> None:
        self._timers = Deadlines()
        self._timer = Deadline(self._due)
        self.appended = 0
        self.next_deadline_ms = self._timers.next_deadline_ms
        self.appends_succeed = self._timers.appends_succeed

    def _due(self, step: Step) -> None:
        def appended(later: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.appended += 1
                self._timers.schedule(self._timer, later.now.monotonic_ms + 1_000)
            else:
                self._timers.retry(self._timer, later.now.monotonic_ms)

        step.append([RECORD], appended)

    def request(self, record: KeyedRecord, *, now: Now) -> list[Effect]:
        step = Step(now)
        step.append([record], lambda _step, _error: None)
        return step.effects

    def loaded(self, *, now: Now) -> list[Effect]:
        self._timers.schedule(self._timer, now.monotonic_ms + 1_000)
        return []

    def expire(self, *, now: Now) -> list[Effect]:
        step = Step(now)
        self._timers.expire(step)
        return step.effects

    def unload(self, *, now: Now) -> list[Effect]:
        raise AssertionError(f"unloaded at {now}")

    def apply(self, key: bytes, value: bytes | None, producer_id: int, *, offset: int) -> None:
        raise AssertionError(f"{key!r} {value!r} {producer_id} {offset}")

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        raise AssertionError(f"{producer_id} {committed}")


@attrs.define(eq=False)
class Scene:
    topic: FakeTopic
    clock: FakeClock
    runtime: CoordinatorRuntime[FakeShard]

    @property
    def shard(self) -> FakeShard:
        shard = self.runtime.shard_at(0)
        assert shard is not None
        return shard

    def request(self, record: KeyedRecord = RECORD) -> None:
        self.runtime.perform(0, self.shard.request(record, now=self.runtime.now()))

    def advance(self, by_ms: int) -> None:
        for _ in range(by_ms // 10):
            self.clock.time_ms += 10
            self.runtime.settle()


@pytest.fixture
def scene() -> Scene:
    topic, clock = FakeTopic(), FakeClock()
    topic_like: Any = topic
    runtime = CoordinatorRuntime(topic_like, clock, "things", FakeShard)
    runtime.start()
    return Scene(topic, clock, runtime)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_log_shows_when_appends_begin_to_fail_and_when_they_succeed_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    scene.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(100):
        scene.request()
    scene.advance(20_000)
    scene.topic.error = ErrorCode.NONE
    scene.request()
    assert messages(caplog) == [
        "cannot append to __topic-0: NOT_ENOUGH_REPLICAS: it is full; "
        "what has to be recorded there is tried again, with growing pauses",
        "can append to __topic-0 again, after 20.0 s",
    ]


def test_a_request_that_is_recorded_ends_the_pause(scene: Scene) -> None:
    scene.topic.error = ErrorCode.KAFKA_STORAGE_ERROR
    scene.advance(20_000)
    assert scene.topic.tries < 12
    scene.topic.error = ErrorCode.NONE
    scene.advance(100)
    assert scene.shard.appended == 0, "it tries again later"
    scene.request()
    scene.advance(10)
    assert scene.shard.appended == 1


def test_a_full_disk_that_takes_a_tombstone_is_full_as_before(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    scene.topic.error, scene.topic.takes_tombstones = ErrorCode.KAFKA_STORAGE_ERROR, True
    for _ in range(3):
        scene.request()
        scene.request(TOMBSTONE)
    assert len(messages(caplog)) == 1


def test_a_record_that_is_too_large_is_no_failure_of_the_partition(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    scene.topic.error = ErrorCode.MESSAGE_TOO_LARGE
    scene.request()
    scene.topic.error = ErrorCode.NONE
    scene.request()
    assert messages(caplog) == ["cannot append to __topic-0: MESSAGE_TOO_LARGE: it is full"]

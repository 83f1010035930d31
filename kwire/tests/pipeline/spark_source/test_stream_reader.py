"""A stream's reader, called in the order of Spark 4.0: limits hold from the first batch on, always."""

from __future__ import annotations

import pickle
from collections.abc import Collection
from typing import Any

import attrs
import pytest

from kwire.client.cluster import TopicPartition
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.options import parse_source_options
from kwire.pipeline.spark_source.reading import RangePartition
from kwire.pipeline.spark_source.stream_reader import StreamReader
from testkit.fakes.brokers import FakeClock

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@attrs.define(eq=False)
class FakeTopics:
    """Topics as the brokers would report them."""

    ends: dict[TopicPartition, int]
    firsts: dict[TopicPartition, int] = attrs.field(factory=dict)
    topic_ids: dict[str, Any] = attrs.field(factory=lambda: {"t": b"first"})
    is_closed: bool = False

    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.ends)

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self.earliest(partitions)

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.firsts.get(at, 0) for at in partitions if at in self.ends}

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.ends[at] for at in partitions}

    def close(self) -> None:
        self.is_closed = True


def reader(topics: FakeTopics, clock: FakeClock | None = None, **given: object) -> StreamReader:
    options = {"kafka.bootstrap.servers": "node:1", "subscribe": "t", **{k: str(v) for k, v in given.items()}}
    return StreamReader(parse_source_options(options, streaming=True), topics, clock)  # type: ignore[arg-type]


def tasks(stream: StreamReader, start: object, end: object) -> list[tuple[int, int, int]]:
    found = stream.partitions(start, end)  # type: ignore[arg-type]
    assert all(isinstance(it, RangePartition) for it in found)
    return [(it.value.at.partition, it.value.start, it.value.stop) for it in found]


def test_from_the_beginning_each_batch_keeps_to_the_limit() -> None:
    topics = FakeTopics({A: 25})
    stream = reader(topics, maxOffsetsPerTrigger=10)
    first = stream.latestOffset()
    start = stream.initialOffset()
    assert (start, first) == ({"t": {"0": 0}}, {"t": {"0": 10}})
    assert tasks(stream, start, first) == [(0, 0, 10)]
    second = stream.latestOffset()
    assert stream.latestOffset() == second == {"t": {"0": 20}}  # two calls, one batch
    stream.commit(first)
    assert tasks(stream, first, second) == [(0, 10, 20)]
    third = stream.latestOffset()
    assert tasks(stream, second, third) == [(0, 20, 25)]
    assert stream.latestOffset() == third


def test_after_a_restart_limits_are_counted_from_the_last_batch() -> None:
    stream = reader(FakeTopics({A: 100}), maxOffsetsPerTrigger=10)
    at_40 = {"t": {"0": 40}}
    assert tasks(stream, at_40, at_40) == []
    assert stream.latestOffset() == {"t": {"0": 50}}


def test_after_a_restart_in_the_midst_of_a_batch_that_batch_is_read_again() -> None:
    stream = reader(FakeTopics({A: 100}), maxOffsetsPerTrigger=10)
    at_30, at_40 = {"t": {"0": 30}}, {"t": {"0": 40}}
    assert tasks(stream, at_40, at_40) == []
    assert tasks(stream, at_30, at_40) == [(0, 30, 40)]
    assert stream.latestOffset() == {"t": {"0": 50}}


def test_the_first_offsets_are_read_once() -> None:
    topics = FakeTopics({A: 5})
    stream = reader(topics)
    stream.latestOffset()
    topics.firsts[A] = 3
    assert stream.initialOffset() == {"t": {"0": 0}}


def test_a_new_partition_is_read_from_its_beginning() -> None:
    topics = FakeTopics({A: 5})
    stream = reader(topics, maxOffsetsPerTrigger=100)
    first = stream.latestOffset()
    tasks(stream, stream.initialOffset(), first)
    topics.ends[B] = 4
    second = stream.latestOffset()
    assert second == {"t": {"0": 5, "1": 4}}
    assert tasks(stream, first, second) == [(1, 0, 4)]


def test_a_batch_is_held_back_until_it_is_worth_it() -> None:
    topics, clock = FakeTopics({A: 1}), FakeClock()
    stream = reader(topics, clock, minOffsetsPerTrigger=10, maxTriggerDelay="60s")
    first = stream.latestOffset()
    assert first == {"t": {"0": 1}}
    tasks(stream, stream.initialOffset(), first)
    topics.ends[A] = 9
    clock.now_s = 59
    assert stream.latestOffset() == first
    clock.now_s = 60
    assert stream.latestOffset() == {"t": {"0": 9}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda topics: topics.ends.pop(B), "t-1: deleted; some data may have been missed"),
        (lambda topics: topics.ends.update({A: 2}), "t-0: its end has moved back from 5 to 2"),
        (lambda topics: topics.topic_ids.update(t=b"second"), "t: deleted, and created again"),
    ],
)
def test_what_is_gone_ends_the_query_unless_that_is_allowed(change: Any, message: str) -> None:
    for allowed in (False, True):
        topics = FakeTopics({A: 5, B: 5})
        stream = reader(topics, failOnDataLoss=str(not allowed))
        first = stream.latestOffset()
        tasks(stream, stream.initialOffset(), first)
        topics.ends[A] = 8
        change(topics)
        second = stream.latestOffset()
        if allowed:
            assert tasks(stream, first, second) in ([], [(0, 5, 8)])
        else:
            with pytest.raises(PipelineError, match=message):
                tasks(stream, first, second)


def test_a_task_has_the_options_and_nothing_else() -> None:
    topics = FakeTopics({A: 5})
    stream = reader(topics)
    copy = pickle.loads(pickle.dumps(stream))
    assert copy.options == stream.options
    stream.stop()
    assert topics.is_closed


def test_offsets_of_another_source_are_refused() -> None:
    with pytest.raises(PipelineError, match="the checkpoint's offsets are not those of this source"):
        reader(FakeTopics({A: 5})).partitions({"logOffset": 3}, {"logOffset": 4})

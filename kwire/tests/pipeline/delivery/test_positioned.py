"""Records and the position behind them are written together, whatever is killed. A kwire broker, no Spark."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.fetching import PartitionReader
from kwire.client.offsets import LATEST, IsolationLevel, list_offsets
from kwire.client.producing import ProducerFenced
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.delivery.positioned import PositionedWriter
from kwire.testing import Broker

KEY = b"orders-0"
_names = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with Broker(settings=settings) as running, Cluster(running.address) as found:
        yield found


@pytest.fixture
def state_topic(cluster: Cluster) -> CompactedTopic:
    found = CompactedTopic(cluster, f"positions-{next(_names)}")
    found.make()
    return found


@pytest.fixture
def at(cluster: Cluster) -> TopicPartition:
    name = f"copy-{next(_names)}"
    create_topics(cluster, [NewTopic(name, 1)])
    return TopicPartition(name, 0)


def writer_of(
    cluster: Cluster, state_topic: CompactedTopic, *, name: str = "w", exactly_once: bool = True
) -> PositionedWriter:
    return PositionedWriter(
        cluster,
        f"{state_topic.at.topic}/{name}",
        state_topic,
        KEY,
        now_ms=lambda: int(time.time() * 1000),
        exactly_once=exactly_once,
    )


def values(cluster: Cluster, at: TopicPartition) -> list[bytes | None]:
    end = list_offsets(cluster, at.topic, LATEST, partitions=[0])[0]
    with PartitionReader(cluster, at, 0, end, isolation_level=IsolationLevel.READ_COMMITTED) as reader:
        return [it.value for it in reader.records()]


def record(value: bytes) -> Record:
    return Record(0, 1, b"k", value)


def test_records_and_position_are_there_together(
    cluster: Cluster, state_topic: CompactedTopic, at: TopicPartition
) -> None:
    writer = writer_of(cluster, state_topic)
    assert writer.position() is None
    with writer.transaction():
        writer.write({at: [record(b"a"), record(b"b")]})
        writer.keep(b"2")
    assert (values(cluster, at), writer.position()) == ([b"a", b"b"], b"2")


def test_a_writer_that_dies_before_its_end_leaves_neither(
    cluster: Cluster, state_topic: CompactedTopic, at: TopicPartition
) -> None:
    dead = writer_of(cluster, state_topic)
    with dead.transaction():
        dead.write({at: [record(b"a")]})
        dead.keep(b"1")
    hanging = writer_of(cluster, state_topic)
    transaction = hanging.transaction()
    transaction.__enter__()  # and never left: the process was killed
    hanging.write({at: [record(b"lost")]})
    hanging.keep(b"2")

    following = writer_of(cluster, state_topic)
    assert following.position() == b"1"
    with following.transaction():
        following.write({at: [record(b"b")]})
        following.keep(b"2")
    assert (values(cluster, at), following.position()) == ([b"a", b"b"], b"2")


def test_a_writer_whose_name_was_taken_cannot_commit(
    cluster: Cluster, state_topic: CompactedTopic, at: TopicPartition
) -> None:
    before = writer_of(cluster, state_topic)
    after: list[PositionedWriter] = []

    def write_and_be_overtaken() -> None:
        with before.transaction():
            before.write({at: [record(b"a")]})
            before.keep(b"1")
            after.append(writer_of(cluster, state_topic))

    with pytest.raises(ProducerFenced):
        write_and_be_overtaken()
    assert (values(cluster, at), after[0].position()) == ([], None)


def test_without_transactions_what_follows_the_position_may_be_there(
    cluster: Cluster, state_topic: CompactedTopic, at: TopicPartition
) -> None:
    writer = writer_of(cluster, state_topic, exactly_once=False)

    def write_and_fail() -> None:
        with writer.transaction():
            writer.write({at: [record(b"a")]})
            writer.keep(b"1")
            writer.write({at: [record(b"b")]})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert (values(cluster, at), writer.position()) == ([b"a", b"b"], b"1")


def test_a_position_is_found_behind_those_of_many_others(cluster: Cluster, state_topic: CompactedTopic) -> None:
    mine = writer_of(cluster, state_topic, exactly_once=False)
    mine.keep(b"mine", {b"other-%d" % number: b"theirs" for number in range(3)})
    mine.write({state_topic.at: [Record(0, 1, b"other-%d" % (number % 7), b"theirs") for number in range(2_000)]})
    assert mine.position() == b"mine"
    assert state_topic.all() == {KEY: b"mine", **{b"other-%d" % number: b"theirs" for number in range(7)}}


def test_a_deleted_value_is_none(cluster: Cluster, state_topic: CompactedTopic) -> None:
    writer = writer_of(cluster, state_topic)
    with writer.transaction():
        writer.keep(b"1", {b"gone": b"x"})
    with writer.transaction():
        writer.keep(b"2", {b"gone": None})
    assert (state_topic.newest(b"gone"), state_topic.all()) == (None, {KEY: b"2"})


def test_what_was_committed_since_is_returned_without_waiting_for_open_transactions(
    cluster: Cluster, state_topic: CompactedTopic
) -> None:
    writer, other = writer_of(cluster, state_topic), writer_of(cluster, state_topic, name="other")
    with writer.transaction():
        writer.keep(b"1", {b"gone": b"x"})
    found, since = state_topic.committed_since(0)
    assert found == {KEY: b"1", b"gone": b"x"}
    with writer.transaction():
        writer.keep(b"2", {b"gone": None})
    with other.transaction():
        other.write({state_topic.at: [Record(0, 1, b"open", b"x")]})
        found, since = state_topic.committed_since(since)
        assert found == {KEY: b"2", b"gone": None}
        assert state_topic.committed_since(since) == ({}, since)
    assert state_topic.committed_since(since)[0] == {b"open": b"x"}


def test_a_topic_that_is_not_there_keeps_nothing(cluster: Cluster) -> None:
    assert CompactedTopic(cluster, "never-made").all() == {}

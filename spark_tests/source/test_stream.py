"""A stream by the format kwire: each row once, limits kept over restarts, and an error for every loss.

What a row looks like is test_batch.py's concern. Here the questions are which rows come, when, and after what.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.raw import topics
from testkit.spark.both import Both
from testkit.spark.records import Record, add_partitions, delete_records, numbered, produce
from testkit.spark.stream_changes import deleting_after_the_first_batch, last_end
from testkit.spark.tables import Tables, by_partition, collecting, into_files, numbers, running, until, until_it_ends
from testkit.spark.transactions import abort, commit

LATEST, EARLIEST = -1, -2


def test_both_formats_make_the_same_batches(both: Both, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    produce(both.bootstrap, topic, [Record(b"%d" % n, partition=min(n % 10, 2)) for n in range(200)])
    ends = []
    for tables in (both.kafka, both.kwire):
        stream = tables.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=60)
        with collecting(stream) as collected:
            assert collected.numbers() == list(range(200))
            progress = [it for it in collected.query.recentProgress if it.numInputRows]
            ends.append([(it.numInputRows, json.loads(it.sources[0].endOffset)) for it in progress])
    assert ends[0] == ends[1]
    assert len(ends[0]) > 3


def test_it_reads_what_comes_new_partitions_and_only_what_is_committed(
    kwire: Tables, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    produce(kwire.bootstrap, topic, numbered(10))
    starts = by_partition(topic, {0: 5, 1: LATEST, 2: EARLIEST})
    stream = kwire.stream(subscribe=topic, startingOffsets=starts, **{"kafka.isolation.level": "read_committed"})
    with collecting(stream) as collected:
        assert collected.numbers() == [5, 6, 7, 8, 9]
        commit(kwire, topic, numbered(6, first=10, partitions=3))
        abort(kwire, topic, numbered(6, first=100, partitions=3))
        assert collected.numbers() == list(range(5, 16))
        add_partitions(kwire.bootstrap, topic, 4)
        produce(kwire.bootstrap, topic, [Record(b"16", partition=3)])
        until(collected.query, lambda: collected.numbers() == list(range(5, 17)), "the new partition is read")
        assert collected.batch_sizes()[0] == 5


def test_limits_hold_after_a_restart_and_each_row_comes_once(kwire: Tables, topic: str, tmp_path: Path) -> None:
    """Spark runs a Python source for one batch under availableNow, so each start is a restart here."""
    stream = kwire.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    produce(kwire.bootstrap, topic, numbered(100))
    assert [len(numbers(into_files(stream, tmp_path))) for _ in range(3)] == [40, 80, 100]
    produce(kwire.bootstrap, topic, numbered(10, first=100))
    assert numbers(into_files(stream, tmp_path)) == list(range(110))


def test_a_batch_that_failed_is_read_again_as_it_was(kwire: Tables, topic: str, tmp_path: Path) -> None:
    produce(kwire.bootstrap, topic, numbered(50))
    seen: list[list[int]] = []

    def fail_at_first(rows: object, number: int) -> None:
        seen.append(numbers(rows))  # type: ignore[arg-type]
        if len(seen) == 2:
            raise RuntimeError("in the midst of the second batch")

    stream = kwire.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    writer = stream.writeStream.foreachBatch(fail_at_first).option("checkpointLocation", str(tmp_path))
    with running(writer) as query, pytest.raises(Exception, match="in the midst"):
        until_it_ends(query)
    produce(kwire.bootstrap, topic, numbered(50, first=50))
    with running(writer) as query:
        query.processAllAvailable()
    assert seen[1] == seen[2] == list(range(20, 40))
    assert [n for rows in [seen[0], *seen[2:]] for n in rows] == list(range(100))
    assert {len(rows) for rows in seen} == {20}


def test_a_query_resumes_from_the_connectors_checkpoint(both: Both, topic: str, tmp_path: Path) -> None:
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    produce(both.bootstrap, topic, numbered(10))
    into_files(both.kwire.stream(**options), tmp_path)
    produce(both.bootstrap, topic, numbered(10, first=10))
    assert numbers(into_files(both.kafka.stream(**options), tmp_path)) == list(range(20))
    produce(both.bootstrap, topic, numbered(10, first=20))
    assert numbers(into_files(both.kwire.stream(**options), tmp_path)) == list(range(30))


def test_records_deleted_before_they_were_read_are_a_loss(kwire: Tables, topic: str, tmp_path: Path) -> None:
    produce(kwire.bootstrap, topic, numbered(10))
    into_files(kwire.stream(subscribe=topic, startingOffsets="earliest"), tmp_path)
    produce(kwire.bootstrap, topic, numbered(10, first=10))
    delete_records(kwire.bootstrap, topic, {0: 15})
    with pytest.raises(Exception, match=f"offsets 10 to 19 of {topic}-0 cannot be read"):
        into_files(kwire.stream(subscribe=topic, startingOffsets="earliest"), tmp_path)
    passing = kwire.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=False)
    assert numbers(into_files(passing, tmp_path)) == [*range(10), *range(15, 20)]


def test_a_topic_that_is_deleted_and_made_again_is_a_loss(kwire: Tables, topic: str) -> None:
    produce(kwire.bootstrap, topic, numbered(10))
    with collecting(kwire.stream(subscribe=topic, startingOffsets="earliest")) as collected:
        assert collected.numbers() == list(range(10))
        topics.delete(kwire.bootstrap, topic)
        topics.create(kwire.bootstrap, topic)
        produce(kwire.bootstrap, topic, numbered(5))
        with pytest.raises(Exception, match=r"some data may have been missed|UNKNOWN_TOPIC_OR_PARTITION"):
            until_it_ends(collected.query)


def test_a_topic_of_a_pattern_may_go_and_come_again(kwire: Tables, new_topic: Callable[..., str]) -> None:
    goes, stays = new_topic(name="kwire-returns-1"), new_topic(name="kwire-returns-2")
    produce(kwire.bootstrap, goes, numbered(10))
    produce(kwire.bootstrap, stays, numbered(10, first=10))
    stream = kwire.stream(subscribePattern="^kwire-returns-.*", startingOffsets="earliest", failOnDataLoss=False)
    seen: list[int] = []
    with running(deleting_after_the_first_batch(kwire, stream, goes, seen)) as query:
        until(query, lambda: last_end(query).keys() == {stays}, "the query knows that the topic is gone")
        new_topic(name=goes)
        produce(kwire.bootstrap, goes, numbered(5, first=20))
        until(query, lambda: sorted(seen) == list(range(25)), "the new topic is read")

"""A topic that changes under a stream: it grows, loses records, is deleted, and comes again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.raw.topics import admin
from testkit.spark.records import add_partitions, delete_records, numbered, produce
from testkit.spark.stream_changes import deleting_after_the_first_batch, last_end
from testkit.spark.tables import DATA_LOSS, Tables, collecting, into_files, numbers, running, until, until_it_ends

pytestmark = pytest.mark.more


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_new_partitions_are_read_from_their_beginning(tables: Tables, topic: str, start: str) -> None:
    with collecting(tables.stream(subscribe=topic, startingOffsets=start)) as collected:
        collected.drain()
        produce(tables.bootstrap, topic, numbered(10))
        assert collected.numbers() == list(range(10))
        add_partitions(tables.bootstrap, topic, 4)
        produce(tables.bootstrap, topic, numbered(40, first=10, partitions=4))
        until(collected.query, lambda: collected.numbers() == list(range(50)), "the new partitions are read")


def test_records_deleted_before_they_were_read_fail_the_query(tables: Tables, topic: str, tmp_path: Path) -> None:
    stream = tables.stream(subscribe=topic, startingOffsets="earliest")
    produce(tables.bootstrap, topic, numbered(10))
    into_files(stream, tmp_path)
    produce(tables.bootstrap, topic, numbered(10, first=10))
    delete_records(tables.bootstrap, topic, {0: 15})
    with pytest.raises(Exception, match=DATA_LOSS):
        into_files(stream, tmp_path)


def test_records_deleted_before_they_were_read_are_passed_over_when_loss_is_allowed(
    tables: Tables, topic: str, tmp_path: Path
) -> None:
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=False)
    produce(tables.bootstrap, topic, numbered(10))
    into_files(stream, tmp_path)
    produce(tables.bootstrap, topic, numbered(10, first=10))
    delete_records(tables.bootstrap, topic, {0: 15})
    assert numbers(into_files(stream, tmp_path)) == [*range(10), *range(15, 20)]


def test_deleting_what_was_read_is_no_loss(tables: Tables, topic: str) -> None:
    with collecting(tables.stream(subscribe=topic, startingOffsets="earliest")) as collected:
        produce(tables.bootstrap, topic, numbered(10))
        assert collected.numbers() == list(range(10))
        delete_records(tables.bootstrap, topic, {0: 10})
        produce(tables.bootstrap, topic, numbered(10, first=10))
        assert collected.numbers() == list(range(20))


def test_deleting_a_subscribed_topic_fails_the_query(tables: Tables, topic: str) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=False)
    writer = deleting_after_the_first_batch(tables, stream, topic, [])
    with running(writer) as query, pytest.raises(Exception, match="UnknownTopicOrPartition"):
        until_it_ends(query)
    assert topic not in admin(tables.bootstrap).list_topics(timeout=20).topics  # the lookup did not create it


def test_deleting_a_topic_of_a_pattern_is_a_loss(tables: Tables, new_topic: Callable[..., str]) -> None:
    goes, stays = new_topic(name="goes-away-1"), new_topic(name="goes-away-2")
    produce(tables.bootstrap, goes, numbered(10))
    produce(tables.bootstrap, stays, numbered(10, first=10))
    stream = tables.stream(subscribePattern="goes-away-.*", startingOffsets="earliest")
    seen: list[int] = []
    writer = deleting_after_the_first_batch(tables, stream, goes, seen)
    with running(writer) as query, pytest.raises(Exception, match=DATA_LOSS):
        until_it_ends(query)
    assert sorted(seen) == list(range(20))


def test_a_topic_that_comes_again_is_read_from_its_beginning_when_loss_is_allowed(
    tables: Tables, new_topic: Callable[..., str]
) -> None:
    goes, stays = new_topic(name="comes-again-1"), new_topic(name="comes-again-2")
    produce(tables.bootstrap, goes, numbered(10))
    produce(tables.bootstrap, stays, numbered(10, first=10))
    stream = tables.stream(subscribePattern="comes-again-.*", startingOffsets="earliest", failOnDataLoss=False)
    seen: list[int] = []
    with running(deleting_after_the_first_batch(tables, stream, goes, seen)) as query:
        until(query, lambda: last_end(query).keys() == {stays}, "the query knows that the topic is gone")
        new_topic(name=goes)
        produce(tables.bootstrap, goes, numbered(5, first=20))
        until(query, lambda: sorted(seen) == list(range(25)), "the new topic is read")

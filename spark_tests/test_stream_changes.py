"""A topic that changes under a stream: it grows, loses records, is deleted, and comes again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests import topics

from .records import add_partitions, delete_records, numbered, produce
from .tables import DATA_LOSS, Collected, Tables, collecting, into_files, numbers, until, until_it_ends


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
    with collecting(tables.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=False)) as collected:
        assert collected.numbers() == list(range(10))
        topics.delete(tables.bootstrap, topic)
        with pytest.raises(Exception, match="UnknownTopicOrPartition"):
            until_it_ends(collected.query)


def test_deleting_a_topic_of_a_pattern_is_a_loss(tables: Tables, new_topic: Callable[..., str]) -> None:
    goes, stays = new_topic(name="some-go-1"), new_topic(name="some-go-2")
    produce(tables.bootstrap, goes, numbered(10))
    produce(tables.bootstrap, stays, numbered(10, first=10))
    with collecting(tables.stream(subscribePattern="some-go-.*", startingOffsets="earliest")) as collected:
        assert collected.numbers() == list(range(20))
        topics.delete(tables.bootstrap, goes)
        with pytest.raises(Exception, match=DATA_LOSS):
            until_it_ends(collected.query)


def test_a_topic_that_comes_again_is_read_from_its_beginning_when_loss_is_allowed(
    tables: Tables, new_topic: Callable[..., str]
) -> None:
    goes, stays = new_topic(name="comes-again-1"), new_topic(name="comes-again-2")
    produce(tables.bootstrap, goes, numbered(10))
    produce(tables.bootstrap, stays, numbered(10, first=10))
    stream = tables.stream(subscribePattern="comes-again-.*", startingOffsets="earliest", failOnDataLoss=False)
    with collecting(stream) as collected:
        assert collected.numbers() == list(range(20))
        topics.delete(tables.bootstrap, goes)
        until(collected.query, lambda: goes not in last_end(collected), "the query knows that the topic is gone")
        new_topic(name=goes)
        produce(tables.bootstrap, goes, numbered(5, first=20))
        until(collected.query, lambda: collected.numbers() == list(range(25)), "the new topic is read")


def last_end(collected: Collected) -> dict[str, dict[str, int]]:
    """The offsets by partition by topic at which the last micro-batch ended."""
    progress = collected.query.lastProgress
    assert progress is not None
    end: dict[str, dict[str, int]] = json.loads(progress.sources[0].endOffset)
    return end

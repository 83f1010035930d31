"""A stream resumes at its position after its own restart and the broker's: each record once, none lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.raw import topics
from testkit.servers import brokers
from testkit.spark.records import consume, numbered, produce
from testkit.spark.tables import Tables, by_partition, collecting, into_files, numbers, running, until

pytestmark = pytest.mark.more


def test_a_resumed_query_reads_on_where_it_ended(tables: Tables, new_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = new_topic(partitions=3)
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    for first in (0, 50, 100):
        produce(tables.bootstrap, topic, numbered(50, first=first, partitions=3))
        assert numbers(into_files(stream, tmp_path)) == list(range(first + 50))


def test_a_resumed_query_starts_from_its_checkpoint_and_not_from_its_options(
    tables: Tables, topic: str, tmp_path: Path
) -> None:
    produce(tables.bootstrap, topic, numbered(10))
    into_files(tables.stream(subscribe=topic, startingOffsets="earliest"), tmp_path)
    produce(tables.bootstrap, topic, numbered(10, first=10))
    for start in ("latest", "earliest", by_partition(topic, {0: 2})):
        assert numbers(into_files(tables.stream(subscribe=topic, startingOffsets=start), tmp_path)) == list(range(20))


def test_a_query_stopped_in_the_middle_resumes_there(tables: Tables, topic: str, tmp_path: Path) -> None:
    produce(tables.bootstrap, topic, numbered(200))
    stream = tables.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    checkpoint = tmp_path / "checkpoint"
    writer = stream.selectExpr("value").writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    with running(writer.option("path", str(tmp_path / "files"))) as query:
        until(query, lambda: query.lastProgress is not None, "a micro-batch is done")
    assert numbers(into_files(stream, tmp_path)) == list(range(200))


@pytest.mark.parametrize("way", ["restart", "kill_and_restart"])
def test_a_running_query_survives_the_broker(
    restartable: Tables,
    restartable_broker: brokers.RestartableBroker,
    unique: Callable[[str], str],
    way: str,
) -> None:
    topic = unique("topic")
    topics.create(restartable.bootstrap, topic, partitions=2)
    produce(restartable.bootstrap, topic, numbered(100, partitions=2))
    with collecting(restartable.stream(subscribe=topic, startingOffsets="earliest")) as collected:
        assert collected.numbers() == list(range(100))
        getattr(restartable_broker, way)()
        produce(restartable.bootstrap, topic, numbered(100, first=100, partitions=2))
        assert collected.numbers() == list(range(200))


def test_a_broker_that_goes_away_under_a_busy_query_costs_nothing(
    restartable: Tables, restartable_broker: brokers.RestartableBroker, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    topics.create(restartable.bootstrap, topic, partitions=2)
    produce(restartable.bootstrap, topic, numbered(3000, partitions=2))
    stream = restartable.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=500)
    with collecting(stream) as collected:
        until(collected.query, lambda: bool(collected.batch_sizes()), "the first micro-batch is done")
        restartable_broker.kill_and_restart()
        assert collected.numbers() == list(range(3000))


def test_a_pipeline_from_topic_to_topic_survives_the_broker(
    restartable: Tables, restartable_broker: brokers.RestartableBroker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = unique("source"), unique("target")
    for topic in (source, target):
        topics.create(restartable.bootstrap, topic)
    stream = restartable.stream(subscribe=source, startingOffsets="earliest").selectExpr("key", "value")
    with running(restartable.write_stream(stream, tmp_path, topic=target)) as query:
        for first in (0, 100, 200):
            produce(restartable.bootstrap, source, numbered(100, first=first))
            query.processAllAvailable()
            restartable_broker.restart()
    # The sink promises each record at least once; nothing failed here, so once.
    found = [int(record.value or b"") for record in consume(restartable.bootstrap, target, expected=300)]
    assert sorted(found) == list(range(300))


def test_a_resumed_query_reads_on_after_the_broker_was_killed(
    restartable: Tables,
    restartable_broker: brokers.RestartableBroker,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique("topic")
    topics.create(restartable.bootstrap, topic, partitions=2)
    stream = restartable.stream(subscribe=topic, startingOffsets="earliest")
    for first in (0, 50):
        produce(restartable.bootstrap, topic, numbered(50, first=first, partitions=2))
        assert numbers(into_files(stream, tmp_path)) == list(range(first + 50))
        restartable_broker.kill_and_restart()
    assert numbers(into_files(stream, tmp_path)) == list(range(100))

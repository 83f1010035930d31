"""The sink by the format kwire: columns become records, and each batch of a stream once, wherever its driver dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from testkit.raw import topics
from testkit.spark import dying_source
from testkit.spark.both import Both
from testkit.spark.dying_source import ORDER
from testkit.spark.records import consume, numbered, produce
from testkit.spark.tables import Tables, numbers, running, until_it_ends

pytestmark = pytest.mark.more

COMMITTED = {"kafka.isolation.level": "read_committed"}
ROWS = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, other double"


def parts(tables: Tables, topic: str) -> list[tuple[Any, ...]]:
    """All of the records but when they were written, in the order of their partitions."""
    return [(it.partition, it.key, it.value, it.headers) for it in consume(tables.bootstrap, topic)]


def test_each_column_is_written_by_both_formats_alike(both: Both, new_topic: Callable[..., str]) -> None:
    headers = [("a", b"1"), ("b", None), ("a", b""), ("ä", b"\xff")]
    given = [
        (b"k", b"v", headers, 0, 1.5),
        (None, b"v", None, 0, None),
        (b"k", None, [], 1, None),
        (b"", b"", None, 1, None),
        (b"k" * 70, b"v" * 300_000, None, 2, None),
    ]
    rows = both.kwire.spark.createDataFrame(given, ROWS).coalesce(1)
    found = []
    for tables in (both.kafka, both.kwire):
        topic = new_topic(partitions=3)
        tables.write(rows, topic=topic)
        found.append(parts(tables, topic))
    assert found[0] == found[1]
    assert len(found[0]) == len(given)


def test_keys_go_to_the_same_partitions_by_both_formats(both: Both, new_topic: Callable[..., str]) -> None:
    rows = both.kwire.spark.range(500, numPartitions=2).selectExpr(
        "repeat(CAST(id AS STRING), 1 + id % 4) AS key", "CAST(id AS STRING) AS value"
    )
    found = []
    for tables in (both.kafka, both.kwire):
        topic = new_topic(partitions=7)
        tables.write(rows, topic=topic)
        found.append({(it.key, it.partition) for it in consume(tables.bootstrap, topic)})
    assert found[0] == found[1]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_written_in_each_codec_is_read_again(kwire: Tables, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic(partitions=3)
    rows = kwire.spark.range(3000, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
    kwire.write(rows, topic=topic, **{"kafka.compression.type": codec})
    assert numbers(kwire.read(subscribe=topic)) == list(range(3000))
    if codec == "zstd":  # as another client sees it, and in all partitions
        found = consume(kwire.bootstrap, topic)
        assert sorted(int(it.value or b"") for it in found) == list(range(3000))


def test_the_topic_column_chooses_and_a_missing_topic_is_made(kwire: Tables, unique: Callable[[str], str]) -> None:
    first, second, option = unique("first"), unique("second"), unique("option")
    rows = kwire.spark.createDataFrame([(first, "1"), (second, "2"), (first, "3")], "topic string, value string")
    kwire.write(rows)
    assert (numbers(kwire.read(subscribe=first)), numbers(kwire.read(subscribe=second))) == ([1, 3], [2])
    kwire.write(rows, topic=option)
    assert numbers(kwire.read(subscribe=option)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("schema", "row", "options", "message"),
    [
        ("key string", ("k",), {"topic": "t"}, "column value is missing"),
        ("value int", (1,), {"topic": "t"}, "column value is int: it has to be string or binary"),
        ("value string", ("v",), {}, "nothing says which topic"),
        ("value string, partition long", ("v", 1), {"topic": "t"}, "column partition is bigint"),
        ("value string", ("v",), {"topic": "t", "kafka.acks": 1}, "option kafka.acks is '1'"),
        ("value string", ("v",), {"topic": "t", "kwire.sink.mode": "exactly-once"}, "that is for streams"),
        ("value string, topic string", ("v", None), {}, "column topic is null in a row"),
    ],
)
def test_rows_that_cannot_be_written_are_reported(
    kwire: Tables, schema: str, row: tuple[object, ...], options: dict[str, object], message: str
) -> None:
    rows = kwire.spark.createDataFrame([row], schema)
    with pytest.raises(PySparkException, match=message):
        kwire.write(rows, **options)


def test_a_row_too_large_for_the_topic_fails_the_write(kwire: Tables, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"max.message.bytes": "1000"})
    rows = kwire.spark.range(1).selectExpr("repeat('x', 2000) AS value")
    with pytest.raises(PySparkException, match="MESSAGE_TOO_LARGE"):
        kwire.write(rows, topic=topic)


# Streams


_STARTS = 3


@attrs.define(eq=False)
class Copying:
    """A query that copies a topic, with two tasks in each batch."""

    tables: Tables
    source: str
    target: str
    checkpoint: Path

    def stream(self) -> DataFrame:
        return self.tables.stream(subscribe=self.source, startingOffsets="earliest").select("value", "partition")

    def run(self, **options: object) -> None:
        """Copies all there is. Raises what ended it.

        Spark waits ten seconds for a Python process to start, which may take longer while other tests run.
        """
        for _ in range(_STARTS):
            writer = self.tables.write_stream(self.stream(), self.checkpoint, topic=self.target, **options)
            try:
                with running(writer.trigger(availableNow=True)) as query:
                    until_it_ends(query)
            except PySparkException as error:
                if "Python worker failed to connect back" not in str(error):
                    raise
            else:
                return
        raise AssertionError(f"Spark's Python process did not start in {_STARTS} tries")

    def copied(self) -> list[int]:
        return numbers(self.tables.read(subscribe=self.target, **COMMITTED))


@pytest.fixture
def copying(kwire: Tables, new_topic: Callable[..., str], tmp_path: Path) -> Copying:
    return Copying(kwire, new_topic(partitions=2), new_topic(partitions=2), tmp_path / "checkpoint")


def test_a_stream_flows_and_resumes_and_nothing_stays_open(copying: Copying) -> None:
    for first in (0, 10):
        produce(copying.tables.bootstrap, copying.source, numbered(10, first=first, partitions=2))
        copying.run()
        assert copying.copied() == list(range(first + 10))
    assert "kwire-ledger" in topics.names(copying.tables.bootstrap)


def test_at_least_once_needs_no_ledger(copying: Copying) -> None:
    produce(copying.tables.bootstrap, copying.source, numbered(10, partitions=2))
    copying.run(**{"kwire.sink.mode": "at-least-once"})
    assert copying.copied() == list(range(10))


_OTHER_COMMIT_STEPS = [pytest.param(step, marks=pytest.mark.soak) for step in ("decide", "sweep")]


@pytest.mark.parametrize("step", ["write", "commit 1", *_OTHER_COMMIT_STEPS])
def test_a_batch_is_there_once_whatever_died_in_it(copying: Copying, dying: Tables, tmp_path: Path, step: str) -> None:
    """A task, or the process that commits, in the midst of the second batch; `delivery/` has a test for each step.

    `make test` takes one step of the process that commits; `make soak` takes the others too.
    """
    copying = attrs.evolve(copying, tables=dying)
    order = tmp_path / "dies-at"
    with_order = {ORDER: order}
    produce(dying.bootstrap, copying.source, numbered(10, partitions=2))
    copying.run(**with_order)
    order.write_text(step)
    produce(dying.bootstrap, copying.source, numbered(10, first=10, partitions=2))
    with pytest.raises(PySparkException):
        copying.run(**with_order)
    assert not order.exists(), "it did not die"
    copying.run(**with_order)
    assert copying.copied() == list(range(20))
    produce(dying.bootstrap, copying.source, numbered(10, first=20, partitions=2))
    copying.run(**with_order)
    assert copying.copied() == list(range(30))


@pytest.fixture
def dying(kwire: Tables) -> Tables:
    cloudpickle.register_pickle_by_value(dying_source)  # type: ignore[no-untyped-call] # its processes need not find the tests
    kwire.spark.dataSource.register(dying_source.DyingSource)
    return attrs.evolve(kwire, kind="dying")

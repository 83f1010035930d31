"""A broker's topics as Spark tables and streams."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from testkit.basics.waiting import Deadline
from testkit.servers import brokers

_TICK_S = 0.05
_END_WITHIN_S = 60

# Spark requests the end offsets behind a fetch that it sent before. kwire ends that fetch's waiting, and so the tests
# leave the waiting as it is; Apache Kafka lets the request wait, half a second for each partition and micro-batch.
READER_DEFAULTS = {"kafka.fetch.max.wait.ms": "50"} if brokers.IS_KAFKA else {}

# How the connector words it depends on where it notices.
DATA_LOSS = r"(?i)some data may have been (lost|missed)"

_names = itertools.count(1)


def by_partition(topic: str, positions: Mapping[int, int]) -> str:
    """Offsets or timestamps of a topic's partitions, in the form of Spark's options."""
    return json.dumps({topic: {str(partition): position for partition, position in positions.items()}})


def values(rows: DataFrame) -> list[bytes | None]:
    """The value column in the order of partition and offset."""
    found = rows.select("partition", "offset", "value").collect()
    return [
        None if row.value is None else bytes(row.value)
        for row in sorted(found, key=lambda row: (row.partition, row.offset))
    ]


def numbers(rows: DataFrame) -> list[int]:
    """The values of `records.numbered`, sorted: a loss is a hole, a duplicate is a number twice."""
    return sorted(int(row.value) for row in rows.select("value").collect())


@attrs.define(eq=False)
class Tables:
    """Reads and writes the topics of one broker. `defaults` are options for every reader.

    kind: the format: `kafka` is Spark's own connector, `kwire` the one of kwire.pipeline.spark_source.
    """

    spark: SparkSession
    bootstrap: str
    defaults: Mapping[str, object] = attrs.field(factory=dict)
    kind: str = "kafka"

    def read(self, **options: object) -> DataFrame:
        """A batch. Options with dots go in as `**{"kafka.isolation.level": ...}`."""
        reader = self.spark.read.format(self.kind).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**_texts({**self.defaults, **options})).load()

    def stream(self, **options: object) -> DataFrame:
        reader = self.spark.readStream.format(self.kind).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**_texts({**self.defaults, **options})).load()

    def write(self, rows: DataFrame, **options: object) -> None:
        """A batch into the sink."""
        writer = rows.write.format(self.kind).option("kafka.bootstrap.servers", self.bootstrap)
        writer.mode("append").options(**_texts(options)).save()

    def write_stream(self, rows: DataFrame, checkpoint: Path, **options: object) -> DataStreamWriter:
        """A stream into the sink, not started yet."""
        writer = rows.writeStream.format(self.kind).option("kafka.bootstrap.servers", self.bootstrap)
        return writer.option("checkpointLocation", str(checkpoint)).options(**_texts(options))


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


@attrs.define(eq=False)
class Collected:
    """A streaming query that keeps its rows in memory."""

    query: StreamingQuery
    rows: DataFrame

    def drain(self) -> None:
        """Returns when everything that was in the topic before this call has gone through."""
        self.query.processAllAvailable()

    def numbers(self) -> list[int]:
        self.drain()
        return numbers(self.rows)

    def batch_sizes(self) -> list[int]:
        """The number of records of each micro-batch that had any."""
        return [progress.numInputRows for progress in self.query.recentProgress if progress.numInputRows]


@contextmanager
def collecting(stream: DataFrame, **trigger: Any) -> Iterator[Collected]:
    """Runs the stream into memory."""
    name = f"collected_{next(_names)}"
    writer = stream.writeStream.format("memory").queryName(name)
    if trigger:
        writer = writer.trigger(**trigger)
    with running(writer) as query:
        yield Collected(query, stream.sparkSession.table(name))
    stream.sparkSession.catalog.dropTempView(name)


def into_files(stream: DataFrame, folder: Path) -> DataFrame:
    """Runs the stream over everything available, and returns all that it ever read.

    Spark writes files exactly once, and the checkpoint is next to them.
    """
    files = str(folder / "files")
    writer = stream.select("value").writeStream.format("parquet").option("path", files)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    with running(writer.trigger(availableNow=True)) as query:
        until_it_ends(query)
    return stream.sparkSession.read.schema("value binary").parquet(files)


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """Starts the query, and stops it in the end, also after an error."""
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def until(query: StreamingQuery, so: Callable[[], bool], what: str) -> None:
    """Waits while the query runs; raises what ended it, should it end."""
    deadline = Deadline()
    while not so():
        assert deadline.not_over(what)
        ended = query.awaitTermination(_TICK_S)  # type: ignore[arg-type] # It does take fractions.
        assert not ended, f"the query ended before {what}"


def until_it_ends(query: StreamingQuery) -> None:
    """Waits for queries that end by themselves, or that must fail: raises their error."""
    assert query.awaitTermination(_END_WITHIN_S), f"the query still runs after {_END_WITHIN_S} s"

"""Streams whose topics change."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from testkit.raw import topics
from testkit.spark.tables import Tables, numbers


def deleting_after_the_first_batch(tables: Tables, stream: DataFrame, topic: str, seen: list[int]) -> DataStreamWriter:
    """Deletes at a moment when the query has no request about its topics under way.

    Deleted between two of its requests, a topic would be waited for until the client's patience ends, a minute later.
    """

    def handle(rows: DataFrame, number: int) -> None:
        seen.extend(numbers(rows))
        if number == 0:
            topics.delete(tables.bootstrap, topic)

    return stream.writeStream.foreachBatch(handle)


def last_end(query: StreamingQuery) -> dict[str, dict[str, int]]:
    """The offsets by partition by topic at which the last micro-batch ended."""
    progress = query.lastProgress
    end = progress.sources[0].endOffset if progress else "{}"
    found: dict[str, dict[str, int]] = json.loads(end)
    return found

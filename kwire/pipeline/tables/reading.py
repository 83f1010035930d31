"""Reads a topic between offsets, and a table at a snapshot, as batches."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from kwire.pipeline.topic_state import TopicState


def records_between(
    spark: SparkSession, source: Mapping[str, str], topic: TopicState, ranges: Mapping[int, tuple[int, int]]
) -> DataFrame:
    """Returns a topic's records in ranges of offsets, none of a partition without a range.

    source: the connector's options.
    """
    whole = {number: ranges.get(number, (at, at)) for number, at in topic.starts.items()}
    first = {str(number): begin for number, (begin, _) in whole.items()}
    until = {str(number): end for number, (_, end) in whole.items()}
    reader = spark.read.format("kafka").options(**source)
    reader = reader.option("startingOffsets", json.dumps({topic.topic: first}))
    return reader.option("endingOffsets", json.dumps({topic.topic: until})).load()


def pinned(spark: SparkSession, name: str, snapshot_id: int) -> DataFrame:
    """A table as it was at a snapshot."""
    return spark.read.option("snapshot-id", snapshot_id).table(name)

"""Distributes the rows to the tasks, and orders them.

A row goes to the target partition of its key, as in Kafka's own producer; without a key the number of its source
partition decides. One task writes all rows of a target partition, one after another.

Within a target partition, rows of one source partition keep the order of their offsets, so a key that stayed in its
partition keeps its order. Source partitions are merged by timestamp, because a key may be in several of them after
the topic got more. Timestamps may go back from one record to the next, so a row counts as old as the newest row before
it in its source partition.

This costs one shuffle, by the target partition, and two sorts after it: by offset, for the newest so far, and by time.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from kwire.pipeline.delivery.partitioning import partition_of
from kwire.pipeline.replay.writing import COLUMNS

_DRAWN = 64
"""The count of numbers tried per task until one maps to it: one search in e to the power of that fails."""


def in_order(rows: DataFrame, *, partitions: int, tasks: int) -> DataFrame:
    """The rows with the column `target`, a number below `partitions`, distributed to `tasks` tasks."""
    target = F.udf(partial(target_of, count=partitions), "int")("key", "partition")
    keyed = rows.withColumn("target", target).withColumn(
        "_task_key", _task_key(rows.sparkSession, F.col("target"), tasks)
    )
    # Each task owns its partitions, so the next steps need no other shuffle.
    source = Window.partitionBy("_task_key", "target", "partition").orderBy("offset")
    since = source.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    timed = keyed.repartition(tasks, "_task_key").withColumn("_time", F.max("timestamp_ms").over(since))
    return timed.sortWithinPartitions("target", "_time", "partition", "offset").select(*COLUMNS)


def target_of(key: bytes | None, partition: int, *, count: int) -> int:
    return partition % count if key is None else partition_of(bytes(key), count)


def _task_key(spark: SparkSession, target: Column, tasks: int) -> Column:
    """A number for each task that Spark's own hash maps to that task.

    With the hash of the target partition itself a third of the tasks would be idle, and others would have two or three.
    """
    drawn = spark.range(_DRAWN * tasks).selectExpr("int(id) AS number", f"pmod(hash(int(id)), {tasks}) AS task")
    number_of = {row.task: row.number for row in drawn.collect()}
    return F.element_at(F.array(*(F.lit(number_of[task]) for task in range(tasks))), target % tasks + 1)

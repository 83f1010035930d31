"""A million JSON records, of which one in a hundred is broken: each is a row or an error, once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from pyspark.sql import functions as F  # noqa: N812

from kwire.pipeline.tables.plan import table_of
from kwire.pipeline.warehouse import errors_table_name
from testkit.spark.jobs import Jobs
from testkit.spark.records import Record

COUNT = 1_000_000
PARTITIONS = 4
SEED = 16


@pytest.mark.soak
def test_of_many_values_the_broken_ones_and_only_these_are_errors(
    jobs: Jobs, new_topic: Callable[..., str], sent: Callable[..., None]
) -> None:
    topic, chance = new_topic(partitions=PARTITIONS), random.Random(SEED)
    broken = {number for number in range(COUNT) if chance.random() < 0.01}

    def value(number: int) -> bytes:
        whole = json.dumps({"n": number, "text": "x" * (number % 100)}).encode()
        return whole[: len(whole) // 2] if number in broken else whole

    sent(topic, (Record(value(number), key=b"%d" % number, partition=number % PARTITIONS) for number in range(COUNT)))
    report = jobs.once(topic, value="json", schema="n BIGINT, text STRING", max_records_per_commit=COUNT // 3)

    assert len(report.steps) > 2
    assert (sum(it.records for it in report.steps), sum(it.errors for it in report.steps)) == (COUNT, len(broken))
    table = table_of(topic, None)
    names = (table, errors_table_name(table))
    rows, errors = (jobs.spark.table(jobs.warehouse.spark_name(name)) for name in names)
    good = rows.select("value.n", F.col("kafka.key").cast("string").cast("bigint").alias("key"))
    assert good.where("n = key").count() == good.distinct().count() == good.count() == COUNT - len(broken)
    assert {int(it.key) for it in errors.select("kafka.key").collect()} == broken
    assert jobs.verify(topic).sound

"""The same reads by Spark's connector and by ours, and a comparison of all results."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from testkit.spark.tables import Tables


@attrs.frozen
class Both:
    kafka: Tables
    kwire: Tables

    @property
    def bootstrap(self) -> str:
        return self.kwire.bootstrap

    def read(self, **options: object) -> list[dict[str, Any]]:
        """The rows of a batch, in the order of topic, partition and offset; the same by both formats."""
        theirs, ours = self.kafka.read(**options), self.kwire.read(**options)
        assert ours.dtypes == theirs.dtypes
        found = in_order(ours)
        assert found == in_order(theirs)
        return found

    def tasks(self, **options: object) -> list[int]:
        """The number of rows of each task, sorted; the same by both formats. Tasks without rows do not count."""
        theirs, ours = (
            sorted(len(rows) for rows in it.read(**options).rdd.glom().collect() if rows)
            for it in (self.kafka, self.kwire)
        )
        assert ours == theirs, f"{ours} by kwire, {theirs} by kafka"
        return ours

    def fail(self, pattern: str, **options: object) -> str:
        """Asserts that both refuse; returns our error, which has to match `pattern`."""
        with pytest.raises(Exception):  # noqa: B017 - Java's or ours
            self.kafka.read(**options).collect()
        return failing(self.kwire, pattern, **options)


def failing(tables: Tables, pattern: str, **options: object) -> str:
    """Returns the error of the batch."""
    with pytest.raises(PySparkException) as caught:
        tables.read(**options).collect()
    text = str(caught.value)
    assert re.search(pattern, text), text
    return text


def in_order(rows: DataFrame) -> list[dict[str, Any]]:
    """Each row as a dict; binaries as bytes, and the timestamp also in microseconds."""
    found = rows.selectExpr("*", "unix_micros(timestamp) AS timestamp_us").orderBy("topic", "partition", "offset")
    return [{name: _plain(value) for name, value in row.asDict(recursive=True).items()} for row in found.collect()]


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [{name: _plain(part) for name, part in it.items()} for it in value]
    return value

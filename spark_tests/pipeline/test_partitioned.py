"""Tables whose files are kept apart, by Kafka's time or by values."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kwire.pipeline.errors import PipelineError
from testkit.spark import records
from testkit.spark.jobs import Jobs, positions
from testkit.spark.records import Record

pytestmark = pytest.mark.more

Sent = Callable[..., None]

_DAY_MS = 86_400_000


def test_a_tables_files_are_kept_apart_by_day_value_and_bucket_and_late_rows_find_theirs(
    jobs: Jobs, topic: str, sent: Sent
) -> None:
    today = records.an_hour_ago_ms()

    def record(n: int, days_ago: int, country: str | None) -> Record:
        return Record(json.dumps({"n": n, "country": country}).encode(), timestamp_ms=today - days_ago * _DAY_MS)

    parts = ("days(kafka.timestamp)", "value.country", "bucket(4, value.n)")
    sent(topic, [record(1, 0, "de"), record(2, 2, "fr"), record(3, 0, None), Record(b"{broken"), record(4, 2, "de")])
    jobs.once(topic, value="json", schema="n BIGINT, country STRING", partition_by=parts)
    sent(topic, [record(5, 5, "de"), record(6, 0, "de"), Record(None)])
    report = jobs.once(topic, value="json", partition_by=parts)

    found = jobs.table(topic)
    assert [field.name for field in found.spec().fields] == ["kafka.timestamp_day", "value.country", "value.n_bucket"]
    assert [offset for _, offset in positions(jobs.rows(topic))] == [0, 1, 2, 4, 5, 6, 7]
    assert len(jobs.errors(topic)) == 1
    assert [(step.records, step.errors) for step in report.steps] == [(3, 0)]
    kept = {(it["partition"]["value.country"], it["record_count"]) for it in found.inspect.files().to_pylist()}
    assert {country for country, _ in kept} == {"de", "fr", None}
    name = jobs.warehouse.spark_name(jobs.plan(topic).table)
    only = jobs.spark.sql(f"SELECT value.n FROM {name} WHERE value.country = 'de' ORDER BY 1").collect()
    assert [row.n for row in only] == [1, 4, 5, 6]


def test_a_partitioned_table_is_kept_by_key_too(jobs: Jobs, topic: str, sent: Sent) -> None:
    """A row moves with its values."""
    options = {"mode": "upsert", "value": "json", "partition_by": ("value.at",)}
    sent(topic, [Record(b'{"at": "here"}', key=b"a"), Record(b'{"at": "here"}', key=b"b")])
    jobs.once(topic, schema="at STRING", **options)
    sent(topic, [Record(b'{"at": "there"}', key=b"a"), Record(None, key=b"b")])
    jobs.once(topic, **options)
    assert [(row["kafka"]["key"], row["value"]) for row in jobs.rows(topic)] == [(b"a", {"at": "there"})]


@pytest.mark.parametrize("part", ["value.nothing", "nothing(value.n)", "days(value.n)", "bucket(0, value.n)"])
def test_a_partitioning_that_the_table_cannot_have_is_one_line(jobs: Jobs, topic: str, part: str) -> None:
    with pytest.raises(PipelineError, match="cannot be created") as raised:
        jobs.once(topic, value="json", schema="n BIGINT", partition_by=(part,))
    assert "\n" not in str(raised.value)

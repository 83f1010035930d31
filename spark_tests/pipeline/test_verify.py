"""`kwire pipeline verify` finds every wrong row, and no right one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.verify import Finding, Report
from testkit.spark import records
from testkit.spark.jobs import Jobs
from testkit.spark.records import Record, numbered

pytestmark = pytest.mark.more

NewTopic = Callable[..., str]
Sent = Callable[..., None]

SCHEMA = "id BIGINT, name STRING, tags ARRAY<STRING>, of STRUCT<a: BIGINT, b: DOUBLE>"


def _json(n: int) -> Record:
    value = {"id": n, "name": None if n % 3 else f"n{n}", "tags": [None, "x"][: n % 3], "of": {"a": n, "b": n / 2}}
    return Record(json.dumps(value).encode(), key=str(n).encode(), partition=n % 2, headers=[("h", b"1"), ("h", None)])


def _findings(report: Report) -> list[tuple[str, int, int]]:
    return [(it.kind, it.partition, it.offset) for it in report.findings]


def test_a_sound_table_is_reported_as_sound_with_its_lag(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    topic = new_topic(partitions=2)
    sent(topic, [*map(_json, range(40)), Record(b"{broken"), Record(None, key=b"k", partition=1)])
    jobs.once(topic, value="json", schema=SCHEMA)
    sent(topic, [_json(40)])

    report = jobs.verify(topic)

    assert report.sound
    assert report.findings == ()
    assert [(it.records, it.rows, it.errors, it.lag) for it in report.partitions] == [(21, 20, 1, 1), (21, 21, 0, 0)]
    assert all(it.topic_hash == it.table_hash != "-" for it in report.partitions)


def test_what_is_wrong_is_named(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, [*map(_json, range(0, 40, 2)), Record(b"{broken"), Record(b"{also")])
    jobs.once(topic, value="json", schema=SCHEMA)
    plan = jobs.plan(topic)
    table, errors = jobs.warehouse.spark_name(plan.table), jobs.warehouse.spark_name(plan.errors_table)
    sql = jobs.spark.sql
    sql(f"DELETE FROM {table} WHERE kafka.`offset` = 3")
    sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE kafka.`offset` = 5")
    # Two fields that are null in turn: a hash that passes over nulls would not see it.
    sql(f"UPDATE {table} SET value.name = NULL, value.id = NULL WHERE kafka.`offset` = 7")
    sql(f"UPDATE {table} SET kafka.headers = array() WHERE kafka.`offset` = 8")
    sql(f"DELETE FROM {errors} WHERE kafka.`offset` = 20")
    sql(f"UPDATE {errors} SET value = CAST('else' AS BINARY) WHERE kafka.`offset` = 21")

    report = jobs.verify(topic)

    assert not report.sound
    assert _findings(report) == [
        ("missing", 0, 3),
        ("doubled", 0, 5),
        ("different", 0, 7),
        ("different", 0, 8),
        ("missing", 0, 20),
        ("different", 0, 21),
    ]
    (partition,) = report.partitions
    assert (partition.missing, partition.doubled, partition.different, partition.unexpected) == (2, 1, 3, 0)
    assert partition.topic_hash != partition.table_hash


def test_rows_that_nobody_produced_are_named(jobs: Jobs, topic: str, sent: Sent) -> None:
    """An aborted record is such a row: the topic has none at that offset."""
    sent(topic, numbered(10))
    jobs.once(topic)
    table = jobs.warehouse.spark_name(jobs.plan(topic).table)
    jobs.spark.sql(f"DELETE FROM {table} WHERE kafka.`offset` = 4")
    jobs.spark.sql(
        f"INSERT INTO {table} SELECT named_struct('partition', 0, 'offset', 4L, 'timestamp', kafka.`timestamp`, "
        f"'timestamp_type', 0, 'key', NULL, 'headers', NULL), CAST('x' AS BINARY) FROM {table} WHERE kafka.`offset` = 1"
    )
    assert _findings(jobs.verify(topic)) == [("different", 0, 4)]


def test_rows_that_the_topic_forgot_are_no_error(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, numbered(10))
    jobs.once(topic)
    records.delete_records(jobs.bootstrap, topic, {0: 6})

    report = jobs.verify(topic)

    assert report.sound
    assert (report.partitions[0].first, report.partitions[0].records) == (6, 4)


def test_rows_of_an_older_schema_are_no_error(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, [Record(b'{"id": 1, "more": 7}'), Record(b'{"id": 2, "more": "text"}')])
    jobs.once(topic, value="json", schema="id BIGINT")
    sent(topic, [Record(b'{"id": 3, "more": 9}')])
    jobs.once(topic, value="json", schema="id BIGINT, more BIGINT")

    report = jobs.verify(topic)

    assert [row["value"]["more"] for row in jobs.rows(topic)] == [None, None, 9]
    assert report.sound
    assert report.partitions[0].older_schema == 2


def test_a_table_by_key_holds_the_newest_of_each(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, [Record(str(n).encode(), key=b"k%d" % (n % 7)) for n in range(50)])
    sent(topic, [Record(None, key=b"k3"), Record(b"no key")])
    jobs.once(topic, mode="upsert", max_records_per_commit=20)

    sound = jobs.verify(topic)
    assert sound.sound, sound.findings
    assert (sound.partitions[0].rows, sound.partitions[0].errors) == (6, 1)

    table = jobs.warehouse.spark_name(jobs.plan(topic).table)
    # A stale row instead of the newest one.
    jobs.spark.sql(
        f"UPDATE {table} SET kafka.`offset` = 42, value = CAST('42' AS BINARY) WHERE kafka.key = CAST('k0' AS BINARY)"
    )
    assert [(kind, offset) for kind, _, offset in _findings(jobs.verify(topic))] == [
        ("unexpected", 42),
        ("missing", 49),
    ]


def test_a_table_that_is_not_there_is_reported_as_not_found(jobs: Jobs) -> None:
    with pytest.raises(PipelineError, match="not found"):
        jobs.verify("no-such-topic")


def test_a_report_as_json_names_what_was_found() -> None:
    report = Report(
        topic="t", table="t", snapshot_id=1, partitions=(), findings=(Finding(kind="missing", partition=0, offset=3),)
    )
    assert json.loads(report.to_json())["findings"] == [{"kind": "missing", "partition": 0, "offset": 3}]

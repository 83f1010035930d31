"""Records once more: ranges of a topic, and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.backfill import Added, Redone, backfill, redo
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.preparing import grow_to, open_existing
from kwire.pipeline.tables.status import statuses
from kwire.pipeline.tables.writer import TableWriter
from kwire.pipeline.topic_state import TopicState
from testkit.spark import records
from testkit.spark.jobs import Jobs, positions
from testkit.spark.records import Record, numbered

pytestmark = pytest.mark.more

Sent = Callable[..., None]
NewTopic = Callable[..., str]


@contextmanager
def _opened(jobs: Jobs, topic: str) -> Iterator[tuple[TablePlan, TableWriter, SparkSession, TopicState]]:
    plan, writer = open_existing(
        jobs.warehouse, jobs.plan(topic).table, jobs.spark, bootstrap=jobs.bootstrap, options={}, run_id="again"
    )
    try:
        yield plan, writer, jobs.spark, jobs.topics.state(topic, plan.isolation)
    finally:
        writer.drop_drafts()


def _backfill(jobs: Jobs, topic: str, first: dict[int, int], until: dict[int, int]) -> Added:
    with _opened(jobs, topic) as (plan, writer, spark, state):
        return backfill(plan, writer, spark, state, first, until)


def _redo(jobs: Jobs, topic: str, schema: Path | None = None) -> Redone:
    with _opened(jobs, topic) as (plan, writer, spark, state):
        return redo(plan, writer if schema is None else grow_to(plan, writer, spark, schema), spark, state)


def test_a_backfill_adds_what_is_missing_of_its_range_and_nothing_twice(
    jobs: Jobs, new_topic: NewTopic, sent: Sent
) -> None:
    """The table begins at the end of the topic; one row that it had is gone, too."""
    topic = new_topic(partitions=2)
    sent(topic, [*numbered(20, partitions=2), Record(b"{broken"), Record(b"{broken", partition=1)])
    jobs.once(topic, value="json", schema="a BIGINT", begin="latest")
    sent(topic, [Record(b'{"a": 1}'), Record(b'{"a": 2}'), Record(b"{broken")])
    jobs.once(topic, value="json", schema="a BIGINT")
    before = jobs.position(topic)
    table = jobs.warehouse.spark_name(jobs.plan(topic).table)
    jobs.spark.sql(f"DELETE FROM {table} WHERE kafka.`offset` = 12")
    assert positions(jobs.rows(topic)) == [(0, 11)]

    whole = ({0: 3, 1: 0}, {0: 100, 1: 11})
    assert _backfill(jobs, topic, *whole) == Added(records=22, rows=1, errors=19)
    assert _backfill(jobs, topic, *whole) == Added(records=22, rows=0, errors=0)

    assert positions(jobs.rows(topic)) == [(0, 11), (0, 12)]
    assert positions(jobs.errors(topic)) == [*((0, n) for n in (*range(3, 11), 13)), *((1, n) for n in range(11))]
    assert jobs.position(topic) == before
    jobs.once(topic, value="json", schema="a BIGINT")
    assert len(jobs.rows(topic)) == 2


def test_a_backfill_leaves_to_the_job_what_is_behind_the_table(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, numbered(5))
    jobs.once(topic)
    sent(topic, numbered(5, first=5))

    assert _backfill(jobs, topic, {0: 0}, {0: 10}) == Added(records=5, rows=0, errors=0)
    jobs.once(topic)
    assert [offset for _, offset in positions(jobs.rows(topic))] == list(range(10))


def test_a_backfill_by_key_brings_nothing_back_that_was_deleted(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, [Record(b"1", key=b"a"), Record(b"1", key=b"b"), Record(b"1", key=b"c")])
    sent(topic, [Record(None, key=b"a"), Record(b"2", key=b"b")])
    jobs.once(topic, mode="upsert")
    table = jobs.warehouse.spark_name(jobs.plan(topic).table)
    jobs.spark.sql(f"DELETE FROM {table} WHERE kafka.key = CAST('c' AS BINARY)")

    _backfill(jobs, topic, {0: 0}, {0: 3})

    assert sorted((row["kafka"]["key"], row["value"]) for row in jobs.rows(topic)) == [(b"b", b"2"), (b"c", b"1")]
    assert jobs.verify(topic).sound


def test_errors_that_can_be_decoded_by_now_become_rows_and_go(
    jobs: Jobs, topic: str, sent: Sent, schema_file: Callable[[str, str], Path]
) -> None:
    """Confluent's wire format: the schema of some records was not there yet."""
    old = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}'
    new = old.replace("]}", ', {"name": "b", "type": ["null", "long"], "default": null}]}')
    schema_file("schemas/1.avsc", old)
    first, second = b"\x00\x00\x00\x00\x01\x02", b"\x00\x00\x00\x00\x02\x04\x02\x06"
    sent(topic, [Record(first), Record(second), Record(b"neither")])
    folder = schema_file("schemas/readme", "").parent
    from kwire.pipeline.files import read_avro_schemas

    jobs.once(topic, value="confluent-avro", avro=read_avro_schemas(folder, "confluent-avro"))
    assert positions(jobs.errors(topic)) == [(0, 1), (0, 2)]
    assert "unknown schema id" in jobs.errors(topic)[0]["reason"]

    schema_file("schemas/2.avsc", new)
    assert _redo(jobs, topic, folder) == Redone(errors=2, rows=1, too_old=0)
    assert _redo(jobs, topic) == Redone(errors=1, rows=0, too_old=0)

    assert [row["value"] for row in jobs.rows(topic)] == [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    assert positions(jobs.errors(topic)) == [(0, 2)]
    assert jobs.verify(topic).sound


def test_a_redo_that_was_killed_between_its_two_commits_is_ended_by_the_next(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch, schema_file: Callable[[str, str], Path]
) -> None:
    sent(topic, [Record(b'{"a": 1}'), Record(b'{"a": 2, "b": "x"}')])
    jobs.once(topic, value="json", schema="a BIGINT, b BIGINT")
    errors = jobs.warehouse.spark_name(jobs.plan(topic).errors_table)
    jobs.spark.sql(f"UPDATE {errors} SET value = CAST('{{\"a\": 2}}' AS BINARY)")

    def killed(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kwire.pipeline.tables.draft.Table.merge", killed)
        with pytest.raises(KeyboardInterrupt):
            _redo(jobs, topic)
    assert (len(jobs.rows(topic)), len(jobs.errors(topic))) == (2, 1)

    assert _redo(jobs, topic) == Redone(errors=1, rows=1, too_old=0)
    assert (len(jobs.rows(topic)), len(jobs.errors(topic))) == (2, 0)


def test_a_redo_by_key_brings_nothing_back_that_was_deleted(jobs: Jobs, topic: str, sent: Sent) -> None:
    """Three keys had a bad value; one was deleted later, one written again, and one is too old for the topic."""
    bad = [Record(b"{", key=b"old"), Record(b"{", key=b"a"), Record(b"{", key=b"b"), Record(b"{", key=b"c")]
    sent(topic, [*bad, Record(None, key=b"a"), Record(b'{"n": 2}', key=b"b")])
    jobs.once(topic, value="json", schema="n BIGINT", mode="upsert")
    errors = jobs.warehouse.spark_name(jobs.plan(topic).errors_table)
    jobs.spark.sql(f"UPDATE {errors} SET value = CAST('{{\"n\": 1}}' AS BINARY)")
    records.delete_records(jobs.bootstrap, topic, {0: 1})

    assert _redo(jobs, topic) == Redone(errors=4, rows=3, too_old=1)

    assert sorted((row["kafka"]["key"], row["value"]["n"]) for row in jobs.rows(topic)) == [(b"b", 2), (b"c", 1)]
    assert positions(jobs.errors(topic)) == [(0, 0)]


def test_a_table_that_nobody_made_is_reported_as_not_found(jobs: Jobs) -> None:
    with pytest.raises(PipelineError, match="not found"), _opened(jobs, "no-such-topic"):
        pass


def test_the_status_of_a_warehouse_has_lag_errors_and_the_last_commit(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, [Record(b'{"a": 1}'), Record(b"{broken")])
    jobs.once(topic, value="json", schema="a BIGINT")
    sent(topic, [Record(b'{"a": 2}')] * 3)

    found = {it.table: it for it in statuses(jobs.warehouse, jobs.topics)}
    it = found[jobs.plan(topic).table]

    assert (it.topic, it.value, it.mode) == (topic, "json", "append")
    assert (it.rows, it.errors, it.lag, it.offsets) == (1, 1, 3, {0: 2})
    assert it.last_commit_ms is not None
    assert it.problem is None
    assert not any(name.endswith("__errors") for name in found)

"""A topic as a table with a row for each record."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables import writer
from kwire.pipeline.tables.draft import Conflict, Table
from kwire.pipeline.tables.position import LostRange
from testkit.basics.waiting import eventually
from testkit.spark import records
from testkit.spark.jobs import Jobs, positions
from testkit.spark.records import Record, numbered

pytestmark = pytest.mark.more

NewTopic = Callable[..., str]
Sent = Callable[..., None]


def test_every_record_is_a_row_with_all_of_its_parts(jobs: Jobs, topic: str, sent: Sent) -> None:
    at = records.an_hour_ago_ms()
    headers = [("trace", b"\x00\xff"), ("trace", None), ("empty", b"")]
    sent(topic, [Record(b"\x00value", key=b"k", headers=headers, timestamp_ms=at), Record(None), Record(b"", key=b"")])

    jobs.once(topic)

    first, tombstone, empty = jobs.rows(topic)
    assert first["value"] == b"\x00value"
    assert first["kafka"]["key"] == b"k"
    assert first["kafka"]["timestamp"].timestamp() * 1000 == at
    assert first["kafka"]["timestamp_type"] == 0
    assert [(it["key"], it["value"]) for it in first["kafka"]["headers"]] == headers
    assert (tombstone["value"], tombstone["kafka"]["key"]) == (None, None)
    assert (empty["value"], empty["kafka"]["key"]) == (b"", b"")


def test_a_job_resumes_where_the_table_ends(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    topic = new_topic(partitions=3)
    for first in (0, 100, 200):
        sent(topic, numbered(100, first=first, partitions=3))
        jobs.once(topic)
    jobs.once(topic)

    assert sorted(int(row["value"]) for row in jobs.rows(topic)) == list(range(300))
    assert jobs.position(topic).offsets == {0: 100, 1: 100, 2: 100}


def test_a_topic_that_grows_while_the_job_runs_is_read_from_its_new_partitions_beginning(
    jobs: Jobs, topic: str, sent: Sent
) -> None:
    sent(topic, numbered(5))
    jobs.once(topic)
    records.add_partitions(jobs.bootstrap, topic, 3)
    sent(topic, numbered(30, first=5, partitions=3))
    jobs.once(topic)

    assert sorted(int(row["value"]) for row in jobs.rows(topic)) == list(range(35))


def test_bad_json_goes_to_the_errors_table_with_its_bytes_and_the_reason(jobs: Jobs, topic: str, sent: Sent) -> None:
    good = json.dumps({"id": 1, "name": "a"}).encode()
    bad = [b"{broken", b"\xff\xfe", b'{"id": "not a number"}', b"[1]", b"7", b""]
    sent(topic, [Record(good), *map(Record, bad), Record(None, key=b"tombstone")])

    report = jobs.once(topic, value="json", schema="id BIGINT, name STRING")

    assert [row["value"] for row in jobs.rows(topic)] == [{"id": 1, "name": "a"}, None]
    errors = jobs.errors(topic)
    assert [row["value"] for row in errors] == bad
    assert positions(errors) == [(0, n) for n in range(1, 7)]
    assert errors[1]["reason"] == "not UTF-8"
    assert {errors[n]["reason"] for n in (0, 2, 3, 4, 5)} == {"not JSON of the table's schema"}
    assert [(step.records, step.errors) for step in report.steps] == [(8, 6)]


class _Killed(Exception):
    pass


def _publish_errors_only(patch: pytest.MonkeyPatch) -> None:
    publish = Table.publish

    def published(table: Table, *, with_position: bool) -> None:
        if not table.name.endswith("__errors`") and table.head().snapshot_id is not None:
            raise _Killed
        publish(table, with_position=with_position)

    patch.setattr(Table, "publish", published)


@pytest.mark.parametrize("batch", [1, 100], ids=["shorter", "longer"])
def test_a_batch_that_is_made_again_after_a_crash_has_its_errors_once(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    options = {"value": "json", "schema": "id BIGINT"}
    sent(topic, [Record(b"{broken"), Record(b'{"id": 1}'), Record(b"{broken")])
    with monkeypatch.context() as patch:
        _publish_errors_only(patch)
        with pytest.raises(_Killed):
            jobs.once(topic, **options)
    assert (len(jobs.rows(topic)), len(jobs.errors(topic))) == (0, 2)

    sent(topic, [Record(b'{"id": 2}'), Record(b"{broken too")])
    jobs.once(topic, max_records_per_commit=batch, **options)

    assert positions(jobs.rows(topic)) == [(0, 1), (0, 3)]
    assert positions(jobs.errors(topic)) == [(0, 0), (0, 2), (0, 4)]


def test_a_gap_does_not_make_errors_be_written_again(
    jobs: Jobs, new_topic: NewTopic, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors of a batch are published, its rows are not, and retention passes another partition meanwhile."""
    topic = new_topic(partitions=2)
    options = {"value": "json", "schema": "id BIGINT", "on_gap": "record"}
    sent(topic, [Record(b"{broken"), Record(b'{"id": 1}', partition=1), Record(b'{"id": 2}', partition=1)])
    with monkeypatch.context() as patch:
        _publish_errors_only(patch)
        with pytest.raises(_Killed):
            jobs.once(topic, **options)
    records.delete_records(jobs.bootstrap, topic, {1: 1})
    with monkeypatch.context() as patch:
        _publish_errors_only(patch)
        with pytest.raises(_Killed):  # when the gap is noted, and the table is not behind it
            jobs.once(topic, **options)

    jobs.once(topic, **options)

    assert positions(jobs.rows(topic)) == [(1, 1)]
    assert [(it["kafka"]["partition"], it["kafka"]["offset"], it["until"]) for it in jobs.errors(topic)] == [
        (0, 0, None),
        (1, 0, 1),
    ]


def test_of_two_jobs_on_one_table_the_second_to_commit_ends_and_nothing_is_doubled(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other job commits between this one's look at the table and its own commit."""
    sent(topic, numbered(10))
    append = Table.append
    others = iter([lambda: jobs.once(topic)])

    def append_late(table: Table, *arguments: object) -> None:
        append(table, *arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(Table, "append", append)
        next(others)()

    jobs.once(topic, max_records_per_commit=5)  # so that the tables are there
    sent(topic, numbered(10, first=10))
    monkeypatch.setattr(Table, "append", append_late)
    with pytest.raises(writer.AnotherJob, match="another job writes the table"):
        jobs.once(topic)

    assert sorted(int(row["value"]) for row in jobs.rows(topic)) == list(range(20))


def test_a_snapshot_that_comes_in_between_makes_the_batch_be_written_again(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(topic, numbered(10))
    jobs.once(topic)
    sent(topic, numbered(10, first=10))
    publish = Table.publish
    name = jobs.warehouse.spark_name(jobs.plan(topic).table)

    def publish_late(table: Table, *, with_position: bool) -> None:
        monkeypatch.setattr(Table, "publish", publish)
        jobs.spark.sql(f"DELETE FROM {name} WHERE kafka.`offset` = 3")
        publish(table, with_position=with_position)

    monkeypatch.setattr(Table, "publish", publish_late)
    report = jobs.once(topic)

    assert report.warnings == [], "the batch was written again, and not the job begun"
    assert [offset for _, offset in positions(jobs.rows(topic))] == [n for n in range(20) if n != 3]


def test_records_that_are_gone_are_named_and_the_job_continues_behind_them_only_if_allowed(
    jobs: Jobs, topic: str, sent: Sent
) -> None:
    sent(topic, numbered(10))
    jobs.once(topic)
    sent(topic, numbered(20, first=10))
    records.delete_records(jobs.bootstrap, topic, {0: 25})

    with pytest.raises(LostRange, match="partition 0 offsets 10 to 24"):
        jobs.once(topic)
    assert len(jobs.rows(topic)) == 10

    jobs.once(topic, on_gap="record")
    jobs.once(topic, on_gap="record")
    assert [offset for _, offset in positions(jobs.rows(topic))] == [*range(10), *range(25, 30)]
    (gap,) = jobs.errors(topic)
    assert (gap["kafka"]["offset"], gap["until"], gap["value"]) == (10, 25, None)
    assert "offsets 10 to 24" in gap["reason"]


def test_a_topic_that_was_made_again_is_refused(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    from testkit.raw.topics import admin

    topic = new_topic()
    sent(topic, numbered(10))
    jobs.once(topic)
    admin(jobs.bootstrap).delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in admin(jobs.bootstrap).list_topics(timeout=30).topics, "the topic is gone")
    new_topic(name=topic)
    sent(topic, numbered(20))

    with pytest.raises(PipelineError, match="deleted and created again"):
        jobs.once(topic)
    assert len(jobs.rows(topic)) == 10


def test_a_table_of_other_settings_is_refused(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, numbered(1))
    jobs.once(topic)
    with pytest.raises(PipelineError, match="was made with --value bytes, not json"):
        jobs.once(topic, value="json", schema="id BIGINT")
    with pytest.raises(PipelineError, match="was made with --mode append, not upsert"):
        jobs.once(topic, mode="upsert")


def test_lag_tools_see_the_table_as_a_group(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = new_topic(partitions=2)
    sent(topic, numbered(7, partitions=2))
    jobs.once(topic, group="lag-of-table")

    consumer = Consumer({"bootstrap.servers": jobs.bootstrap, "group.id": "lag-of-table"})
    try:
        committed = consumer.committed([TopicPartition(topic, n) for n in (0, 1)], timeout=30)
    finally:
        consumer.close()
    assert [it.offset for it in committed] == [4, 3]


def test_a_draft_that_is_taken_away_is_written_again(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that starts removes the drafts of killed ones, and cannot distinguish them from one that lives."""
    sent(topic, numbered(1))
    jobs.once(topic)
    sent(topic, numbered(1, first=1))
    name = jobs.warehouse.spark_name(jobs.plan(topic).table)
    methods = {it: getattr(Table, it) for it in ("append", "publish")}

    def taken_away_before(method: str) -> None:
        def call(table: Table, *arguments: object, **named: object) -> None:
            monkeypatch.setattr(Table, method, methods[method])
            Table(jobs.spark, name, run_id="other").drop_drafts_of_others()
            methods[method](table, *arguments, **named)

        monkeypatch.setattr(Table, method, call)

    taken_away_before("append")
    report = jobs.once(topic)
    sent(topic, numbered(1, first=2))
    taken_away_before("publish")
    second_report = jobs.once(topic)

    assert sorted(int(row["value"]) for row in jobs.rows(topic)) == [0, 1, 2]
    assert report.warnings == second_report.warnings == []


def test_a_batch_of_which_a_row_is_missing_is_not_committed(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job compares the written rows with the read records, whatever Spark may do in between."""
    sent(topic, numbered(10))
    append = Table.append
    monkeypatch.setattr(
        Table, "append", lambda table, good, summary: append(table, good.where("kafka.`offset` <> 7"), summary)
    )
    with pytest.raises(PipelineError, match="9 rows were written to .*, of 10 records with 0 errors"):
        jobs.once(topic)
    assert jobs.rows(topic) == []


def test_a_draft_that_is_taken_away_while_it_is_written_is_never_published(
    jobs: Jobs, topic: str, sent: Sent, tmp_path: Path
) -> None:
    """Iceberg creates the branch again when the write ends, behind the other job's snapshots."""
    sent(topic, numbered(1))
    jobs.once(topic)
    mine, other = (
        Table(jobs.spark, jobs.warehouse.spark_name(jobs.plan(topic).table), run_id=name) for name in ("mine", "other")
    )
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"

    def wait(offset: int) -> int:
        begun.touch()
        while not go_on.exists():
            time.sleep(0.01)
        return offset

    mine.begin(mine.head())
    slow = F.col("kafka").withField("offset", F.udf(wait, "bigint")("kafka.offset"))
    written: list[BaseException | None] = []

    def write() -> None:
        try:
            mine.append(jobs.spark.table(mine.name).withColumn("kafka", slow), {})
        except BaseException as error:
            written.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        eventually(lambda: begun.exists() or not thread.is_alive(), "the write is under way")
        other.drop_drafts_of_others()
        sent(topic, numbered(1, first=1))
        jobs.once(topic)
    finally:
        go_on.touch()
        thread.join(60)
    assert [type(error) for error in written] == [Conflict]
    with pytest.raises(Conflict):
        mine.publish(with_position=True)
    mine.drop_draft()
    assert positions(jobs.rows(topic)) == [(0, 0), (0, 1)]


def test_of_two_jobs_that_begin_a_table_at_once_one_sets_the_start(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has made the table's first snapshot, and commits, when this one is about to make its own."""
    sent(topic, numbered(3))
    first = Table.commit_first
    others = [lambda: jobs.once(topic)]

    def commit_late(table: Table, properties: dict[str, str]) -> None:
        if not table.name.endswith("__errors`") and others:
            others.pop()()
            sent(topic, numbered(2, first=3))
        first(table, properties)

    monkeypatch.setattr(Table, "commit_first", commit_late)
    jobs.once(topic)

    assert sorted(int(row["value"]) for row in jobs.rows(topic)) == list(range(5))
    assert jobs.position(topic).offsets == {0: 5}
    assert jobs.branches(topic) == set()

"""A job that runs on: its readers, its stop, and changes of its topic and its brokers meanwhile."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.draft import BRANCH_PREFIX, Table
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import Warehouse
from testkit.basics.waiting import eventually
from testkit.raw import topics
from testkit.servers import brokers
from testkit.spark import records
from testkit.spark.jobs import Jobs
from testkit.spark.records import Record, numbered

pytestmark = pytest.mark.more

NewTopic = Callable[..., str]
Sent = Callable[..., None]

_IMPATIENT: dict[str, Any] = {
    "source_options": {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "2000"}
}


def test_a_reader_sees_whole_batches_only_and_never_fewer_rows_than_before(
    jobs: Jobs, new_topic: NewTopic, sent: Sent
) -> None:
    """Batches of 30 from three partitions; errors among them are in their own table."""
    topic = new_topic(partitions=3)
    values = [Record(b'{"id": %d}' % n if n % 10 else b"{broken", partition=n % 3) for n in range(120)]
    seen: list[int] = []
    over = threading.Event()

    def count() -> None:
        while not over.is_set():
            seen.append(len(jobs.table(topic).scan(selected_fields=("kafka",)).to_arrow()))

    sent(topic, values)
    options: dict[str, Any] = {"value": "json", "schema": "id BIGINT", "max_records_per_commit": 30}
    with jobs.running(topic, **options) as job:
        eventually(lambda: len(job.report.steps) > 0 or not job.thread.is_alive(), "the first commit", within_s=60)
        reader = threading.Thread(target=count)
        reader.start()
        try:
            job.until_at({0: 40, 1: 40, 2: 40})
        finally:
            over.set()
            reader.join(60)
    steps = job.report.steps
    totals = {sum(step.records - step.errors for step in steps[:end]) for end in range(len(steps) + 1)}
    assert set(seen) <= totals
    assert seen == sorted(seen)
    assert len(set(seen)) > 1, "it looked while batches were committed"
    assert len(jobs.rows(topic)) == 108
    assert len(jobs.errors(topic)) == 12


def test_a_stop_lets_the_batch_be_committed_and_leaves_nothing_behind(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sent(topic, numbered(50))
    appending, go_on = threading.Event(), threading.Event()
    append = Table.append

    def slowly(table: Table, *arguments: object) -> None:
        appending.set()
        assert go_on.wait(60)
        append(table, *arguments)  # type: ignore[arg-type]

    with jobs.running(topic) as job:
        job.until_at({0: 50})
        monkeypatch.setattr(Table, "append", slowly)
        sent(topic, numbered(50, first=50))
        assert appending.wait(60)
        assert jobs.branches(topic) == {f"{BRANCH_PREFIX}{job.run.run_id}"}
        assert len(list(tmp_path.iterdir())) == 1
        job.job.request_stop()
        job.thread.join(1.0)
        assert job.thread.is_alive(), "it waits for the batch"
        go_on.set()
    assert job.error is None
    assert len(jobs.rows(topic)) == 100
    assert jobs.position(topic).offsets == {0: 100}
    assert jobs.branches(topic) == set()
    assert list(tmp_path.iterdir()) == []
    assert job.report.warnings == []


def test_drafts_that_a_killed_job_left_are_removed_by_the_next(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, numbered(1))
    jobs.once(topic)
    for name in (jobs.plan(topic).table, jobs.plan(topic).errors_table):
        left = Table(jobs.spark, jobs.warehouse.spark_name(name), run_id="killed")
        left.begin(left.head())
    assert jobs.branches(topic) == {f"{BRANCH_PREFIX}killed"}
    jobs.once(topic)
    assert jobs.branches(topic) == set()


def test_a_topic_that_is_deleted_ends_the_job_in_a_line(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, numbered(5))
    with jobs.running(topic) as job:
        job.until_at({0: 5})
        topics.delete(jobs.bootstrap, topic)
        error = job.until_it_ends()
    assert isinstance(error, PipelineError)
    assert "\n" not in str(error)
    # A lookup may create the topic again (auto.create.topics.enable).
    assert "not found" in str(error) or "deleted and created again" in str(error)
    assert len(jobs.rows(topic)) == 5
    assert jobs.branches(topic) == set()


def test_a_topic_that_is_made_again_under_a_running_job_ends_it_and_none_of_its_records_is_taken(
    jobs: Jobs, topic: str, sent: Sent
) -> None:
    sent(topic, numbered(5))
    with jobs.running(topic) as job:
        job.until_at({0: 5})
        topics.delete(jobs.bootstrap, topic)
        topics.create(jobs.bootstrap, topic)
        sent(topic, [Record(b"other")] * 20)
        error = job.until_it_ends()
    assert isinstance(error, PipelineError)
    assert "deleted and created again" in str(error)
    assert [int(row["value"]) for row in jobs.rows(topic)] == list(range(5))


@pytest.fixture
def elsewhere(
    spark: SparkSession, restartable_broker: brokers.RestartableBroker, warehouse: Warehouse
) -> Iterator[Jobs]:
    """Jobs on the broker that may be stopped."""
    with Topics(restartable_broker.bootstrap, timeout_s=3.0) as broker_topics:
        yield Jobs(spark, restartable_broker.bootstrap, warehouse, broker_topics)


def test_a_broker_that_goes_away_is_waited_for(
    elsewhere: Jobs, restartable_broker: brokers.RestartableBroker, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    topics.create(elsewhere.bootstrap, topic, partitions=2)
    records.produce(elsewhere.bootstrap, topic, numbered(10, partitions=2))
    with elsewhere.running(topic, **_IMPATIENT) as job:
        job.until_at({0: 5, 1: 5})
        restartable_broker.kill()
        try:
            eventually(lambda: any("starts again" in it for it in job.report.warnings), "the job notices", within_s=60)
        finally:
            restartable_broker.start()
        records.produce(elsewhere.bootstrap, topic, numbered(10, first=10, partitions=2))
        job.until_at({0: 10, 1: 10})
    assert job.error is None
    assert sorted(int(row["value"]) for row in elsewhere.rows(topic)) == list(range(20))
    assert all("\n" not in it for it in job.report.warnings)
    assert elsewhere.branches(topic) == set()

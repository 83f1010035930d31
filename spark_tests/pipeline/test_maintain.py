"""Upkeep beside a job and readers."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kwire.pipeline.job import Job
from kwire.pipeline.tables.maintain import Upkeep, maintain
from testkit.spark.jobs import Jobs, RecordedReport
from testkit.spark.records import Record, numbered

pytestmark = pytest.mark.more

Sent = Callable[..., None]

EVERYTHING = Upkeep(keep_snapshots_s=0, orphans_older_than_s=None)


def test_upkeep_beside_a_job_loses_nothing_and_leaves_few_files(jobs: Jobs, topic: str, sent: Sent) -> None:
    """The job commits as fast as it can, and so does the upkeep, which expires all that may go."""
    sent(topic, [Record(b"%d" % n, key=b"k%d" % (n % 20)) for n in range(1000)])
    report = RecordedReport()
    run = jobs.run_of(topic, report, mode="upsert", max_records_per_commit=500)
    plain = jobs.run_of(topic, report, table=f"{jobs.plan(topic).table}_plain", max_records_per_commit=500)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            Job([run, plain], 20.0, report.warning).work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    rounds = 0
    while thread.is_alive():
        for it in (run, plain):
            name = jobs.warehouse.spark_name(it.plan.table)
            if jobs.spark.catalog.tableExists(name):
                maintain(jobs.spark, name, EVERYTHING)
                rounds += 1
    thread.join()
    kept = maintain(jobs.spark, jobs.warehouse.spark_name(plain.plan.table), EVERYTHING)

    assert failures == []
    assert report.warnings == []
    assert rounds >= 2
    assert kept.added_files <= 1
    for it in (run, plain):
        verified = jobs.verify(topic, it.plan.table)
        assert verified.sound, verified.findings
        assert verified.partitions[0].lag == 0
    assert len(jobs.rows(topic, plain.plan.table)) == 1000
    assert len(jobs.table(topic, plain.plan.table).inspect.data_files()) == 1


def test_a_job_continues_after_everything_that_may_go_has_expired(jobs: Jobs, topic: str, sent: Sent) -> None:
    for first in (0, 10):
        sent(topic, numbered(10, first=first))
        jobs.once(topic)
    name = jobs.warehouse.spark_name(jobs.plan(topic).table)
    for _ in range(2):
        maintain(jobs.spark, name, EVERYTHING)
    jobs.once(topic)

    assert sorted(int(row["value"]) for row in jobs.rows(topic)) == list(range(20))

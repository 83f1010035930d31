"""Records of every kind, and transactions, as rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from kwire.pipeline.tables.position import LostRange
from testkit.basics.waiting import eventually
from testkit.clients.compacted_tables import frequent_cleanings
from testkit.spark import records
from testkit.spark.jobs import Jobs, positions
from testkit.spark.records import Record, numbered

pytestmark = pytest.mark.more

NewTopic = Callable[..., str]
Sent = Callable[..., None]

_ids = itertools.count(1)


@contextmanager
def _transaction(jobs: Jobs, topic: str, *values: bytes) -> Iterator[Producer]:
    """Begun, and its records are in the log."""
    name = f"tables-{next(_ids)}"
    producer = Producer({"bootstrap.servers": jobs.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value, partition=0)
    assert producer.flush(30) == 0
    yield producer


def test_large_records_and_empty_ones_are_rows(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    topic = new_topic(config={"max.message.bytes": str(4 << 20)})
    large = bytes(range(256)) * 4096
    headers: list[tuple[str, str | bytes | None]] = [("h", large[:50_000]), ("h", b""), ("h", None), ("", b"x")]
    sent(topic, [Record(large, key=large[:100_000], headers=headers), *[Record(large)] * 4, Record(None), Record(b"")])

    jobs.once(topic)

    first, *more, null, empty = jobs.rows(topic)
    assert first["value"] == large
    assert first["kafka"]["key"] == large[:100_000]
    assert [(it["key"], it["value"]) for it in first["kafka"]["headers"]] == headers
    assert [row["value"] == large for row in more] == [True] * 4
    assert (null["value"], null["kafka"]["key"], empty["value"]) == (None, None, b"")


def test_what_was_aborted_is_no_row_and_what_is_open_waits(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, [Record(b"plain")])
    with _transaction(jobs, topic, b"aborted", b"aborted") as producer:
        producer.abort_transaction(30)
    with _transaction(jobs, topic, b"committed") as producer:
        producer.commit_transaction(30)

    report = jobs.once(topic)
    assert [row["value"] for row in jobs.rows(topic)] == [b"plain", b"committed"]
    # 0 plain, 1 and 2 aborted, 3 a marker, 4 committed, 5 a marker: nothing is left behind these.
    assert jobs.position(topic).offsets == {0: 6}
    assert report.steps[-1].lag == {0: 0}

    sent(topic, [Record(b"before it")])
    with _transaction(jobs, topic, b"open") as producer:
        sent(topic, [Record(b"behind it")])
        report = jobs.once(topic)
        assert [(step.records, step.offsets, step.lag) for step in report.steps] == [(1, {0: 7}, {0: 0})]
        jobs.once(topic, table="uncommitted", isolation="read_uncommitted")
        producer.commit_transaction(30)
    report = jobs.once(topic)
    assert [row["value"] for row in jobs.rows(topic)][2:] == [b"before it", b"open", b"behind it"]
    assert (jobs.position(topic).offsets, report.steps[-1].lag) == ({0: 10}, {0: 0})
    uncommitted = [row["value"] for row in jobs.rows(topic, "uncommitted")]
    assert uncommitted == [b"plain", b"aborted", b"aborted", b"committed", b"before it", b"open", b"behind it"]


def test_retention_that_passes_a_running_job_ends_it_and_names_what_is_lost(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, numbered(5))
    with jobs.running(topic) as job:
        job.until_at({0: 5})
        # The job cannot read what is not committed yet, so some of it can be deleted before the job gets there.
        with _transaction(jobs, topic, *(b"%d" % number for number in range(5, 15))) as producer:
            records.delete_records(jobs.bootstrap, topic, {0: 10})
            producer.commit_transaction(30)
        error = job.until_it_ends()
    assert isinstance(error, LostRange)
    assert "partition 0 offsets 5 to 9" in str(error)
    assert len(jobs.rows(topic)) == 5

    with jobs.running(topic, on_gap="record") as job:
        job.until_at({0: 16})
    assert [int(row["value"]) for row in jobs.rows(topic)] == [*range(5), *range(10, 15)]
    assert [(row["kafka"]["offset"], row["until"]) for row in jobs.errors(topic)] == [(5, 10)]


def test_markers_alone_move_the_table_on(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, numbered(3))
    jobs.once(topic)
    with _transaction(jobs, topic, b"aborted") as producer:
        producer.abort_transaction(30)
    report = jobs.once(topic)
    assert [(step.records, step.lag) for step in report.steps] == [(0, {0: 0})]
    assert jobs.position(topic).offsets == {0: 5}
    assert jobs.once(topic).steps == []


def test_a_table_begins_at_the_latest_offsets_on_request(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    topic = new_topic(partitions=2)
    sent(topic, numbered(10, partitions=2))
    jobs.once(topic, begin="latest")
    sent(topic, numbered(4, first=10, partitions=2))
    records.add_partitions(jobs.bootstrap, topic, 3)
    sent(topic, [Record(b"14", partition=2)])
    jobs.once(topic, begin="latest")
    assert sorted(int(row["value"]) for row in jobs.rows(topic)) == [10, 11, 12, 13, 14]


def test_a_topic_that_is_compacted_while_the_job_runs_leaves_no_hole_that_it_waits_at(
    jobs: Jobs, new_topic: NewTopic, sent: Sent
) -> None:
    segment_ms, at_ms = 1000, records.an_hour_ago_ms()
    topic = new_topic(
        config={"cleanup.policy": "compact", "segment.ms": str(segment_ms), "min.cleanable.dirty.ratio": "0"}
    )

    def segment(first: int) -> list[Record]:
        """Records of seven keys, which begin a segment of their own."""
        at = at_ms + 2 * segment_ms * first
        return [Record(b"%d" % n, key=b"%d" % (n % 7), timestamp_ms=at) for n in range(first, first + 20)]

    with frequent_cleanings(jobs.bootstrap), jobs.running(topic, mode="upsert", max_records_per_commit=20) as job:
        for first in (0, 20, 40):
            sent(topic, segment(first))
        job.until_at({0: 60})
        eventually(lambda: len(records.consume(jobs.bootstrap, topic)) <= 27, "the log is compacted")
        sent(topic, segment(60))
        job.until_at({0: 80})
        assert job.report.steps[-1].lag == {0: 0}
    assert job.report.warnings == []
    left = {(it.partition, it.offset) for it in records.consume(jobs.bootstrap, topic)}
    jobs.once(topic, table="after", max_records_per_commit=30)

    newest = {b"%d" % (n % 7): b"%d" % n for n in range(80)}
    assert {row["kafka"]["key"]: row["value"] for row in jobs.rows(topic)} == newest
    after = jobs.rows(topic, "after")
    assert {row["kafka"]["key"]: row["value"] for row in after} == newest
    assert set(positions(after)) <= left, "it may have been compacted once more"
    assert jobs.position(topic, "after").offsets == {0: 80}


def test_an_empty_topic_becomes_an_empty_table(jobs: Jobs, topic: str) -> None:
    jobs.once(topic)
    assert jobs.rows(topic) == []
    assert jobs.position(topic).offsets == {0: 0}

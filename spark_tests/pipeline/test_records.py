"""Records of every kind, and transactions, as rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from compat_tests import topics
from compat_tests.waiting import eventually

from .. import records
from ..records import Record, numbered
from .jobs import Jobs, places

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

    told = jobs.once(topic)
    assert [row["value"] for row in jobs.rows(topic)] == [b"plain", b"committed"]
    # 0 plain, 1 and 2 aborted, 3 a marker, 4 committed, 5 a marker: nothing is left behind these.
    assert jobs.position(topic).offsets == {0: 6}
    assert told.steps[-1].lag == {0: 0}

    with _transaction(jobs, topic, b"open") as producer:
        sent(topic, [Record(b"behind it")])
        assert jobs.once(topic).steps == []
        jobs.once(topic, table="uncommitted", isolation="read_uncommitted")
        producer.commit_transaction(30)
    told = jobs.once(topic)
    assert [row["value"] for row in jobs.rows(topic)][2:] == [b"open", b"behind it"]
    assert (jobs.position(topic).offsets, told.steps[-1].lag) == ({0: 9}, {0: 0})
    uncommitted = [row["value"] for row in jobs.rows(topic, "uncommitted")]
    assert uncommitted == [b"plain", b"aborted", b"aborted", b"committed", b"open", b"behind it"]


def test_markers_alone_move_the_table_on(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, numbered(3))
    jobs.once(topic)
    with _transaction(jobs, topic, b"aborted") as producer:
        producer.abort_transaction(30)
    told = jobs.once(topic)
    assert [(step.records, step.lag) for step in told.steps] == [(0, {0: 0})]
    assert jobs.position(topic).offsets == {0: 5}
    assert jobs.once(topic).steps == []


def test_the_latest_is_where_a_table_begins_if_told_so(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
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
    topic = new_topic(
        config={"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"},
    )
    with jobs.running(topic, mode="upsert", max_records_per_commit=20) as job:
        for round_ in range(5):
            sent(
                topic, [Record(str(n).encode(), key=str(n % 7).encode()) for n in range(round_ * 20, round_ * 20 + 20)]
            )
        job.until_at({0: 100})
        sent(topic, [Record(b"last", key=b"last")])
        job.until_at({0: 101})
        assert job.told.steps[-1].lag == {0: 0}
    wanted = {str(n % 7).encode(): str(n).encode() for n in range(100)} | {b"last": b"last"}
    assert {row["kafka"]["key"]: row["value"] for row in jobs.rows(topic)} == wanted
    assert job.told.warnings == []


def test_a_topic_that_was_compacted_before_has_its_holes_read_over(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    topic = new_topic(
        config={"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"},
    )
    sent(topic, [Record(str(n).encode(), key=str(n % 3).encode()) for n in range(30)])
    jobs.once(topic, max_records_per_commit=10)

    def compacted() -> bool:
        sent(topic, [Record(b"x", key=b"rolls")])
        return len(records.consume(jobs.bootstrap, topic)) < 20

    eventually(compacted, "the log is compacted", within_s=30)
    topics.configure(jobs.bootstrap, topic, {"cleanup.policy": "delete", "segment.ms": "600000"})
    left = records.consume(jobs.bootstrap, topic)
    jobs.once(topic, table="after", max_records_per_commit=10)
    assert places(jobs.rows(topic, "after")) == [(it.partition, it.offset) for it in left]
    assert len(jobs.rows(topic)) == 30


@pytest.mark.parametrize("count", [0, 1])
def test_an_empty_topic_becomes_an_empty_table(jobs: Jobs, topic: str, sent: Sent, count: int) -> None:
    sent(topic, numbered(count))
    jobs.once(topic)
    assert len(jobs.rows(topic)) == count
    assert jobs.position(topic).offsets == {0: count}

"""A topic as a table with a row for each key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kwire.pipeline.tables.draft import Table
from testkit.spark import records
from testkit.spark.jobs import Jobs, RecordedReport, positions
from testkit.spark.records import Record

pytestmark = pytest.mark.more

NewTopic = Callable[..., str]
Sent = Callable[..., None]


def _upsert(jobs: Jobs, topic: str, **options: Any) -> RecordedReport:
    return jobs.once(topic, **{"mode": "upsert", **options})


def _by_key(jobs: Jobs, topic: str) -> dict[bytes, Any]:
    rows = jobs.rows(topic)
    found = {row["kafka"]["key"]: row["value"] for row in rows}
    assert len(found) == len(rows), "a key has one row"
    return found


def test_the_last_value_of_each_key_wins_and_tombstones_delete(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(
        topic,
        [
            Record(b"old", key=b"a"),
            Record(b"b", key=b"b"),
            Record(b"new", key=b"a"),
            Record(b"gone", key=b"c"),
            Record(None, key=b"c"),
            Record(None, key=b"never there"),
            Record(None, key=b"d"),
            Record(b"back", key=b"d"),
            Record(b"no key"),
            Record(None),
            Record(b"of the empty key", key=b""),
        ],
    )
    report = _upsert(jobs, topic)
    assert _by_key(jobs, topic) == {b"a": b"new", b"b": b"b", b"d": b"back", b"": b"of the empty key"}
    assert positions(jobs.errors(topic)) == [(0, 8), (0, 9)]
    assert {row["reason"] for row in jobs.errors(topic)} == {"no key, and the table is kept by key (--mode upsert)"}
    assert [(step.records, step.errors) for step in report.steps] == [(11, 2)]

    sent(
        topic,
        [
            Record(b"newest", key=b"a"),
            Record(None, key=b"b"),
            Record(None, key=b"never there"),
            Record(None, key=b""),
            Record(b"e", key=b"e"),
        ],
    )
    _upsert(jobs, topic)
    assert _by_key(jobs, topic) == {b"a": b"newest", b"d": b"back", b"e": b"e"}
    assert jobs.position(topic).offsets == {0: 16}

    # Batches that change no row still move on.
    sent(topic, [Record(None, key=b"never there")])
    _upsert(jobs, topic)
    sent(topic, [Record(b"no key")])
    _upsert(jobs, topic)
    assert jobs.position(topic).offsets == {0: 18}
    assert len(_by_key(jobs, topic)) == 3


def test_a_bad_value_leaves_the_row_as_it_was(jobs: Jobs, topic: str, sent: Sent) -> None:
    options = {"value": "json", "schema": "id BIGINT"}
    sent(topic, [Record(b'{"id": 1}', key=b"a"), Record(b"{broken", key=b"a"), Record(b"{broken", key=b"b")])
    _upsert(jobs, topic, **options)
    assert _by_key(jobs, topic) == {b"a": {"id": 1}}
    sent(topic, [Record(b"{broken", key=b"a"), Record(b"{}", key=b"c"), Record(b"{", key=None)])
    _upsert(jobs, topic, **options)
    assert _by_key(jobs, topic) == {b"a": {"id": 1}, b"c": {"id": None}}
    assert positions(jobs.errors(topic)) == [(0, 1), (0, 2), (0, 3), (0, 5)]


def test_a_batch_that_was_written_and_not_published_is_written_again(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(topic, [Record(b"1", key=b"a"), Record(b"1", key=b"b")])
    _upsert(jobs, topic)
    sent(topic, [Record(b"2", key=b"a"), Record(None, key=b"b"), Record(b"2", key=b"c")])

    class Killed(Exception):
        pass

    def killed(_table: Table, *, with_position: bool) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Table, "publish", killed)
        with pytest.raises(Killed):
            _upsert(jobs, topic)
    assert _by_key(jobs, topic) == {b"a": b"1", b"b": b"1"}

    sent(topic, [Record(b"3", key=b"c")])
    _upsert(jobs, topic)
    assert _by_key(jobs, topic) == {b"a": b"2", b"c": b"3"}


def test_records_that_come_a_second_time_change_nothing(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table set back to an older position gets its records again: no older value wins, not for a batch."""
    sent(topic, [Record(b"1", key=b"a"), Record(None, key=b"a"), Record(b"3", key=b"a"), Record(b"b", key=b"b")])
    _upsert(jobs, topic)
    before = jobs.position(topic)
    table = Table(jobs.spark, jobs.warehouse.spark_name(jobs.plan(topic).table), run_id="test")
    table.begin(table.head())
    table.append(jobs.spark.table(table.name).limit(0), {"kwire.offsets": before.moved({0: 0}).to_json()})
    table.publish(with_position=True)
    table.drop_draft()

    seen = []
    publish = Table.publish

    def published(table: Table, *, with_position: bool) -> None:
        publish(table, with_position=with_position)
        seen.append(_by_key(jobs, topic))

    monkeypatch.setattr(Table, "publish", published)
    _upsert(jobs, topic, max_records_per_commit=1)

    assert seen == [{b"a": b"3", b"b": b"b"}] * 4
    assert jobs.position(topic) == before


def test_a_key_that_moved_to_a_new_partition_keeps_its_newest_value(jobs: Jobs, topic: str, sent: Sent) -> None:
    """Partitions are read side by side: what is older may come in the same batch, or in a later one."""
    at = records.an_hour_ago_ms()

    def record(value: bytes | None, key: bytes, partition: int, seconds: int) -> Record:
        return Record(value, key=key, partition=partition, timestamp_ms=at + 1000 * seconds)

    sent(topic, [record(b"old", b"a", 0, 0), record(b"old", b"b", 0, 1)])
    _upsert(jobs, topic)
    records.add_partitions(jobs.bootstrap, topic, 2)
    moved = [record(b"newer", b"a", 1, 11), record(b"b", b"b", 1, 12), record(b"d", b"d", 1, 12)]
    sent(topic, [record(b"older", b"a", 0, 10), *moved])
    _upsert(jobs, topic)
    assert _by_key(jobs, topic) == {b"a": b"newer", b"b": b"b", b"d": b"d"}

    late = [record(b"late", b"a", 0, 9), record(None, b"b", 0, 11), record(None, b"c", 0, 11)]
    sent(topic, [*late, record(None, b"d", 0, 13)])
    _upsert(jobs, topic)
    assert _by_key(jobs, topic) == {b"a": b"newer", b"b": b"b"}

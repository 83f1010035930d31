"""An index by field: what the job writes, and what queries find."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.draft import Table
from kwire.pipeline.tables.maintain import Upkeep, maintain
from kwire.pipeline.tables.plan import table_of
from kwire.pipeline.warehouse import index_table_name

from ..records import Record
from .jobs import Jobs, places

NewTopic = Callable[..., str]
Sent = Callable[..., None]

FIELDS = "user.id:BIGINT,log_id:STRING,price:DOUBLE,ok:BOOLEAN"


def index_of(topic: str) -> str:
    return index_table_name(table_of(topic, None))


def as_json(found: dict[str, Any], **record: Any) -> Record:
    return Record(json.dumps(found).encode(), **record)


def test_a_record_is_a_row_with_its_fields_and_its_bytes(jobs: Jobs, topic: str, sent: Sent) -> None:
    whole = {"user": {"id": 7, "name": "n"}, "log_id": "l1", "price": 2, "ok": True, "rest": [1]}
    sent(
        topic,
        [
            as_json(whole, key=b"k", headers=[("h", b"v")]),
            as_json({"user": None, "log_id": None}),
            as_json({"user": {}}),
            Record(None, key=b"gone"),
        ],
    )
    told = jobs.index_once(topic, FIELDS)

    first, *others = jobs.rows(topic, index_of(topic))
    assert [first[name] for name in ("user_id", "log_id", "price", "ok")] == [7, "l1", 2.0, True]
    assert first["value"] == json.dumps(whole).encode()
    assert (first["kafka"]["key"], first["kafka"]["headers"]) == (b"k", [{"key": "h", "value": b"v"}])
    assert places(others) == [(0, 1), (0, 2), (0, 3)]
    for row in others:
        assert [row[name] for name in ("user_id", "log_id", "price", "ok")] == [None] * 4
    assert [row["value"] for row in others] == [b'{"user": null, "log_id": null}', b'{"user": {}}', None]
    assert jobs.errors(topic, index_of(topic)) == []
    assert [(step.records, step.errors) for step in told.steps] == [(4, 0)]


def test_what_has_not_the_fields_types_goes_to_the_errors_table(jobs: Jobs, topic: str, sent: Sent) -> None:
    bad = [b"{", b"[]", b"\xff", b'{"user": 5}', b'{"log_id": 5}', b'{"log_id": {"a": 1}}', b'{"ok": 1}']
    sent(topic, [*map(Record, bad), as_json({"log_id": "good"})])
    jobs.index_once(topic, FIELDS)

    errors = jobs.errors(topic, index_of(topic))
    assert [row["value"] for row in errors] == bad
    assert {errors[at]["reason"] for at in (4, 5)} == {"log_id is no string"}
    assert [row["log_id"] for row in jobs.rows(topic, index_of(topic))] == ["good"]


def test_types_are_found_out_once_and_kept(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, [as_json({"n": 1, "of": {"x": 1.5}, "s": "a"})])
    with pytest.raises(PipelineError, match="the type of gone was looked for in the first .* it is in none of them"):
        jobs.index_once(topic, "n,gone")
    with pytest.raises(PipelineError, match="it is struct<x:double> there: give it one, --fields of:BIGINT"):
        jobs.index_once(topic, "n,of")
    jobs.index_once(topic, "n,of.x,s")
    sent(topic, [as_json({"n": 2, "of": {"x": 2}, "s": "b"})])
    jobs.index_once(topic, "n:BIGINT,of.x,s")
    assert [(row["n"], row["of_x"], row["s"]) for row in jobs.rows(topic, index_of(topic))] == [
        (1, 1.5, "a"),
        (2, 2.0, "b"),
    ]
    jobs.index_once(topic, "s,of.x,n")
    for fields in ("n", "n:STRING,of.x,s"):
        with pytest.raises(PipelineError, match="has the fields n:BIGINT,of.x:DOUBLE,s:STRING"):
            jobs.index_once(topic, fields)
    with pytest.raises(PipelineError, match="is an index"):
        jobs.verify(topic, index_of(topic))


def test_a_job_that_is_killed_before_it_publishes_indexes_each_record_once(
    jobs: Jobs, new_topic: NewTopic, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=2)
    sent(topic, [as_json({"n": n}, partition=n % 2) for n in range(50)])
    jobs.index_once(topic, "n", max_records_per_commit=20)
    sent(topic, [as_json({"n": n}, partition=n % 2) for n in range(50, 80)] + [Record(b"{")])

    class Killed(Exception):
        pass

    def killed(table: Table, *, with_position: bool) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Table, "publish", killed)
        with pytest.raises(Killed):
            jobs.index_once(topic, "n")
    jobs.index_once(topic, "n")
    assert sorted(row["n"] for row in jobs.rows(topic, index_of(topic))) == list(range(80))
    assert len(jobs.errors(topic, index_of(topic))) == 1
    assert jobs.position(topic, index_of(topic)).offsets == {0: 41, 1: 40}


def test_files_are_sorted_by_what_repeats_with_filters_also_when_upkeep_merged_them(
    jobs: Jobs, topic: str, sent: Sent
) -> None:
    for first in (0, 1):
        sent(topic, [as_json({"s": f"s{n}", "n": (n * 7) % 100 << 40}) for n in range(first, 200, 2)])
        jobs.index_once(topic, "s,n")
    before = _check_files(jobs, topic)
    upkeep = Upkeep(keep_snapshots_s=0, orphans_older_than_s=None)
    kept = maintain(jobs.spark, jobs.warehouse.spark_name(index_of(topic)), upkeep)
    assert (before, kept.rewritten_files, kept.added_files) == (4, 4, 2)
    assert _check_files(jobs, topic) == 2
    sent(topic, [as_json({"n": 1000, "s": "new"})])
    jobs.index_once(topic, "n,s")
    assert sorted(row["kafka"]["offset"] for row in jobs.rows(topic, index_of(topic))) == list(range(201))


def _check_files(jobs: Jobs, topic: str) -> int:
    """How many files of rows the index has, each of them sorted and with filters."""
    paths = [it.file.file_path.removeprefix("file:") for it in jobs.table(topic, index_of(topic)).scan().plan_files()]
    for path in paths:
        found = pq.read_table(path, columns=["n"])["n"].to_pylist()
        assert found == sorted(found)
        filters = "SELECT path_in_schema FROM parquet_metadata(?) WHERE bloom_filter_offset IS NOT NULL"
        assert {name for (name,) in duckdb.execute(filters, [path]).fetchall()} >= {"s", "kafka, key"}
    return len(paths)

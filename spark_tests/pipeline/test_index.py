"""An index by field: what the job writes, and what queries find."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.index.fields import NotIndexed, read_fields, with_columns
from kwire.pipeline.index.query import Freshness, Query, execute
from kwire.pipeline.tables.draft import Table
from kwire.pipeline.tables.maintain import Upkeep, maintain
from kwire.pipeline.tables.plan import table_of
from kwire.pipeline.warehouse import index_table_name
from testkit.spark.field_values import NOT_INDEXED
from testkit.spark.jobs import Jobs, positions
from testkit.spark.records import Record, an_hour_ago_ms

pytestmark = pytest.mark.more

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
    report = jobs.index_once(topic, FIELDS)

    first, *others = jobs.rows(topic, index_of(topic))
    assert [first[name] for name in ("user_id", "log_id", "price", "ok")] == [7, "l1", 2.0, True]
    assert first["value"] == json.dumps(whole).encode()
    assert (first["kafka"]["key"], first["kafka"]["headers"]) == (b"k", [{"key": "h", "value": b"v"}])
    assert positions(others) == [(0, 1), (0, 2), (0, 3)]
    for row in others:
        assert [row[name] for name in ("user_id", "log_id", "price", "ok")] == [None] * 4
    assert [row["value"] for row in others] == [b'{"user": null, "log_id": null}', b'{"user": {}}', None]
    assert jobs.errors(topic, index_of(topic)) == []
    assert [(step.records, step.errors) for step in report.steps] == [(4, 0)]


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
    """Returns the number of the index's files of rows, and checks that each is sorted and has filters."""
    paths = [it.file.file_path.removeprefix("file:") for it in jobs.table(topic, index_of(topic)).scan().plan_files()]
    for path in paths:
        found = pq.read_table(path, columns=["n"])["n"].to_pylist()
        assert found == sorted(found)
        filters = "SELECT path_in_schema FROM parquet_metadata(?) WHERE bloom_filter_offset IS NOT NULL"
        assert {name for (name,) in duckdb.execute(filters, [path]).fetchall()} >= {"s", "kafka, key"}
    return len(paths)


# Queries of what a job wrote.

ODD = [
    b"{}",
    b' \n{"n": 1, "d": 2, "s": "x", "b": true, "o": {"i": 3}}\t',
    b'{"n": -9223372036854775808, "d": 1e400, "s": "", "b": false}',
    b'{"n": 9223372036854775808}',
    b'{"n": null, "d": null, "s": null, "b": null, "o": null}',
    b'{"o": {}, "N": "x", "n": -0, "d": -0.0}',
    b'{"n": 1, "n": 2}',
    b'{"s": "\\ud83d\\ude00\\u0000\xc3\xa4"}',
    b'{"s": "a\\ud83d"}',
    b'{"d": 123456789012345678901234567890, "x": [1, {"n": 2}]}',
    b'{"d": 0.1, "s": "12"}',
    b'{"o": {"i": 1}, "o": {}}',
    b'{"o": {"i": 1}, "o": null}',
    *(value for value, _ in NOT_INDEXED if len(value) < 1000),
]


def test_the_tail_is_decoded_as_the_index_is(jobs: Jobs, topic: str, sent: Sent) -> None:
    sent(topic, list(map(Record, ODD)))
    jobs.index_once(topic, "n:BIGINT,d:DOUBLE,s:STRING,b:BOOLEAN,o.i:BIGINT")
    fields = with_columns([("n", "BIGINT"), ("d", "DOUBLE"), ("s", "STRING"), ("b", "BOOLEAN"), ("o.i", "BIGINT")])

    def read(value: bytes) -> list[object] | None:
        try:
            return read_fields(value, fields)
        except NotIndexed:
            return None

    rows = {row["kafka"]["offset"]: row for row in jobs.rows(topic, index_of(topic))}
    found = [[rows[at][it.column] for it in fields] if at in rows else None for at in range(len(ODD))]
    for value, by_spark in zip(ODD, found, strict=True):
        assert (value, read(value)) == (value, by_spark)


def test_queries_find_what_a_scan_finds_while_the_job_continues(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    topic = new_topic(partitions=2)
    at = an_hour_ago_ms()
    everything = [
        as_json({"user": {"id": n % 7}, "log_id": f"l{n}"}, partition=n % 2, timestamp_ms=at + n * 1000, key=b"%d" % n)
        for n in range(120)
    ]

    def found_by(where: str | None, **options: Any) -> tuple[list[int], Freshness]:
        query = Query(
            topic=topic,
            bootstrap=jobs.bootstrap,
            warehouse=jobs.warehouse,
            table=index_of(topic),
            where=where,
            **{"limit": 1000, **options},
        )
        answer = execute(query, now_ms=at)
        return [int(it.key or b"-1") for it in answer.records], answer.freshness

    for until in (50, 90, 120):
        sent(topic, everything[{50: 0, 90: 50, 120: 90}[until] : until])
        if until != 120:
            jobs.index_once(topic, "user.id,log_id", max_records_per_commit=30)
        there = range(until)
        found, freshness = found_by("user.id = 3")
        assert found == [n for n in there if n % 7 == 3]
        assert freshness.lag == ({0: 15, 1: 15} if until == 120 else {0: 0, 1: 0})
        assert found_by("log_id IN ('l5', 'l110', 'l49')")[0] == [n for n in (5, 49, 110) if n in there]
        assert found_by("user.id > 4 AND NOT log_id = 'l5'", since_ms=at + 40_000)[0] == [
            n for n in there if n % 7 > 4 and n >= 40
        ]
        assert found_by("key = '7' OR offset = 20")[0] == [n for n in (7, 40, 41) if n in there]
    maintain(
        jobs.spark,
        jobs.warehouse.spark_name(index_of(topic)),
        Upkeep(keep_snapshots_s=0, orphans_older_than_s=None),
    )
    found, freshness = found_by("user.id = 3")
    assert (found, freshness.rows, freshness.offsets) == ([n for n in range(120) if n % 7 == 3], 90, {0: 45, 1: 45})


def test_values_of_a_megabyte_come_back_whole(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    topic = new_topic(config={"max.message.bytes": "2000000"})
    sent(topic, [as_json({"n": n, "rest": str(n) * (1 << 20)}) for n in range(8)])
    jobs.index_once(topic, "n")
    query = Query(
        topic=topic, bootstrap=jobs.bootstrap, warehouse=jobs.warehouse, table=index_of(topic), where="n >= 6"
    )
    found = [it.value for it in execute(query, now_ms=0).records]
    assert found == [json.dumps({"n": n, "rest": str(n) * (1 << 20)}).encode() for n in (6, 7)]

"""`kwire pipeline replay`: tables and topics back into a topic, compared record by record."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from kwire.client.cluster import Cluster
from kwire.pipeline.bounds import parse_bound
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.job import Job
from kwire.pipeline.replay import run as replay_run
from kwire.pipeline.replay.keeper import peek
from kwire.pipeline.replay.plan import Range, ReplayPlan, TableSource, TopicSource
from kwire.pipeline.replay.run import ReplayRun
from kwire.pipeline.tables.maintain import Upkeep, maintain
from kwire.pipeline.tables.values import AvroSchemas
from testkit.basics.waiting import eventually
from testkit.raw import topics
from testkit.spark.jobs import Jobs, RecordedReport, Running
from testkit.spark.records import Record, Written, an_hour_ago_ms, consume, numbered

pytestmark = pytest.mark.more

NewTopic = Callable[..., str]
Sent = Callable[..., None]

_numbers = itertools.count(1)


def plan_of(jobs: Jobs, source: str, to_topic: str, *, table: bool = False, **options: Any) -> ReplayPlan:
    first, until = options.pop("first", "earliest"), options.pop("until", "latest")
    plan = ReplayPlan(
        source=TableSource(jobs.warehouse, jobs.plan(source).table) if table else TopicSource(jobs.bootstrap, source),
        range=Range(parse_bound(first, now_ms=0), parse_bound(until, now_ms=0), first, until),
        bootstrap=jobs.bootstrap,
        to_topic=to_topic,
        **{"where": None, **options},
    )
    plan.check()
    return plan


def replay(jobs: Jobs, plan: ReplayPlan) -> RecordedReport:
    """Lets a job replay all. Raises what ended it."""
    report = RecordedReport()
    run = ReplayRun(plan, jobs.spark, jobs.topics, f"t{next(_numbers)}", report)
    Job([run], 20.0, report.warning).work()
    assert run.is_done
    return report


def facts(it: Written) -> tuple[Any, ...]:
    """All of a record but its place."""
    return it.key, it.value, it.timestamp_ms, it.headers


def by_key(records: list[Written]) -> dict[bytes | None, list[Any]]:
    found = defaultdict(list)
    for it in records:
        found[it.key].append(facts(it))
    return found


def some_records(count: int, *, partitions: int, seed: int = 1) -> list[Record]:
    """Keys, of which each stays in its partition; times that go back now and then; tombstones and headers."""
    dice, start_ms = random.Random(seed), an_hour_ago_ms()
    return [
        Record(
            None if dice.random() < 0.1 else b"%d" % n,
            key=None if (key := dice.randrange(20)) == 0 else b"key %d" % key,
            partition=key % partitions,
            headers=[("n", str(n).encode()), ("n", None)][: dice.randrange(3)],
            timestamp_ms=start_ms + n * 10 - dice.randrange(100),
        )
        for n in range(count)
    ]


def test_a_topic_is_replayed_as_it_was_and_only_once(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    source, target = new_topic(partitions=3), new_topic(partitions=2)
    sent(source, some_records(300, partitions=3))
    plan = plan_of(jobs, source, target)

    report = replay(jobs, plan)
    assert replay(jobs, plan).steps == []

    expected, found = consume(jobs.bootstrap, source), consume(jobs.bootstrap, target)
    with_key = [it for it in expected if it.key is not None]
    assert by_key([it for it in found if it.key is not None]) == by_key(with_key)
    without = {0: 0, 1: 1, 2: 0}
    for partition in (0, 1):
        wanted = [facts(it) for it in expected if it.key is None and without[it.partition] == partition]
        assert Counter(map(str, wanted)) == Counter(
            str(facts(it)) for it in found if it.key is None and it.partition == partition
        )
    assert sum(it.records for it in report.steps) == 300
    assert report.steps[-1].lag == {0: 0, 1: 0, 2: 0}
    assert report.warnings == []


def test_partitions_are_merged_by_time_where_a_key_moved_to_another(
    jobs: Jobs, new_topic: NewTopic, sent: Sent
) -> None:
    """The newest time so far counts: the record that is stamped too early stays behind the one before it."""
    source, target = new_topic(partitions=2), new_topic()
    start_ms = an_hour_ago_ms()
    positions = [(1, 0), (1, 40), (1, 10), (0, 20), (0, 50), (1, 60), (0, 60)]
    sent(
        source,
        [
            Record(b"%d" % n, key=b"k", partition=partition, timestamp_ms=start_ms + ms)
            for n, (partition, ms) in enumerate(positions)
        ],
    )
    replay(jobs, plan_of(jobs, source, target))
    assert [it.value for it in consume(jobs.bootstrap, target)] == [b"0", b"3", b"1", b"2", b"4", b"6", b"5"]


def test_a_table_of_bytes_gives_back_its_records_and_a_condition_chooses(
    jobs: Jobs, new_topic: NewTopic, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot is tagged while it is replayed."""
    source, target, part = new_topic(partitions=2), new_topic(partitions=2), new_topic()
    sent(source, some_records(100, partitions=2))
    jobs.once(source)
    plan = plan_of(jobs, source, target, table=True)
    with monkeypatch.context() as patch:
        patch.setattr(replay_run, "write", killed)
        with pytest.raises(PipelineError, match="killed"):
            replay(jobs, plan)
    assert plan.tag in jobs.table(source).refs()
    replay(jobs, plan)
    expected = consume(jobs.bootstrap, source)
    assert by_key(consume(jobs.bootstrap, target)) == by_key(expected)
    tags = set(jobs.table(source).refs()) - {"main"}
    assert tags == {"kwire-offsets"}

    where = "value IS NOT NULL AND kafka.key = CAST('key 2' AS BINARY)"
    replay(jobs, plan_of(jobs, source, part, table=True, where=where, first="0:5", until="0:40"))
    wanted = [it for it in expected if it.key == b"key 2" and it.value is not None and 5 <= it.offset < 40]
    assert wanted
    assert [facts(it) for it in consume(jobs.bootstrap, part)] == [facts(it) for it in wanted]


def test_decoded_json_is_written_as_json_and_errors_as_they_came(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    source, target, retry = new_topic(), new_topic(), new_topic()
    sent(
        source,
        [
            Record(b'{"name": "\xc3\xa4",  "id": 1}', key=b"a"),
            Record(b"{broken", key=b"b", headers=[("h", b"1")]),
            Record(b'{"id": 2, "name": null, "place": {"x": 1.5}}'),
            Record(None, key=b"a"),
        ],
    )
    jobs.once(source, value="json", schema="id BIGINT, name STRING, place STRUCT<x: DOUBLE>")
    replay(jobs, plan_of(jobs, source, target, table=True, where="value IS NULL OR value.id < 3"))
    assert [(it.key, it.value) for it in consume(jobs.bootstrap, target)] == [
        (b"a", b'{"id":1,"name":"\xc3\xa4"}'),
        (None, b'{"id":2,"place":{"x":1.5}}'),
        (b"a", None),
    ]
    errors = jobs.plan(source).errors_table
    replay(jobs, plan_of(jobs, errors, retry, table=True, where="reason LIKE 'not JSON%'"))
    assert [(it.key, it.value, it.headers) for it in consume(jobs.bootstrap, retry)] == [
        (b"b", b"{broken", [("h", b"1")])
    ]


def test_avro_is_written_by_the_tables_newest_schema(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    """In Confluent's wire format: what came by the older schema goes by the newer one."""
    source, target = new_topic(), new_topic()
    old = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}'
    new = old.replace("]}", ', {"name": "b", "type": ["null", "long"], "default": null}]}')
    first, second = b"\x00\x00\x00\x00\x01\x02", b"\x00\x00\x00\x00\x02\x04\x02\x06"
    sent(source, [Record(first, key=b"a"), Record(second), Record(None, key=b"a")])
    jobs.once(source, value="confluent-avro", avro=AvroSchemas(new, {1: old, 2: new}))
    replay(jobs, plan_of(jobs, source, target, table=True, where="value IS NULL OR value.a > 0"))
    assert [(it.key, it.value) for it in consume(jobs.bootstrap, target)] == [
        (b"a", b"\x00\x00\x00\x00\x02\x02\x00"),
        (None, second),
        (b"a", None),
    ]


@contextmanager
def running(jobs: Jobs, plan: ReplayPlan) -> Iterator[Running[ReplayRun]]:
    """A replay in a thread of its own, that has written some of its records and not all."""
    report = RecordedReport()
    run = ReplayRun(plan, jobs.spark, jobs.topics, f"t{next(_numbers)}", report)
    found = Running(Job([run], 20.0, report.warning), run, report)
    found.thread.start()
    try:
        eventually(lambda: report.steps or not found.thread.is_alive(), "some records are written", within_s=60)
        yield found
    finally:
        found.stop()


def test_a_replay_that_is_stopped_resumes_where_it_was(jobs: Jobs, new_topic: NewTopic, sent: Sent) -> None:
    """The topic has got more records since then, and the range is the one that the first run found."""
    source, target = new_topic(partitions=2), new_topic(partitions=2)
    sent(source, some_records(200, partitions=2))
    expected = consume(jobs.bootstrap, source)
    plan = plan_of(jobs, source, target)
    with running(jobs, attrs.evolve(plan, rate_per_s=40.0)) as it:
        it.stop()
    assert (it.error, it.report.warnings) == (None, [])
    before = consume(jobs.bootstrap, target)
    assert 0 < len(before) < 200

    sent(source, some_records(10, partitions=2, seed=2))
    report = replay(jobs, plan)

    # Spark gives a task that it cancels two seconds to end.
    assert 0 < sum(step.records for step in report.steps) <= 200 - len(before)
    found = consume(jobs.bootstrap, target)
    assert by_key([it for it in found if it.key is not None]) == by_key([it for it in expected if it.key is not None])
    assert len(found) == 200


def test_a_second_run_takes_over_and_the_first_one_ends_with_an_error(
    jobs: Jobs, new_topic: NewTopic, sent: Sent
) -> None:
    source, target = new_topic(), new_topic()
    sent(source, [Record(b"%d" % n, key=b"k") for n in range(200)])
    plan = plan_of(jobs, source, target)
    with running(jobs, attrs.evolve(plan, rate_per_s=20.0)) as it:
        assert replay(jobs, plan).warnings == []
        assert isinstance(error := it.until_it_ends(), PipelineError)
    assert "another run of replay" in str(error)
    assert [it.value for it in consume(jobs.bootstrap, target)] == [b"%d" % n for n in range(200)]


def test_what_the_target_refuses_is_reported_in_a_line_and_may_be_mended(
    jobs: Jobs, new_topic: NewTopic, sent: Sent
) -> None:
    source, target = new_topic(), new_topic(config={"max.message.bytes": "2000"})
    sent(source, [Record(b"small"), Record(b"x" * 5000)])
    plan = plan_of(jobs, source, target)
    message = "^producer '.*' cannot write to .*MESSAGE_TOO_LARGE.*run the same command again"
    with pytest.raises(PipelineError, match=message) as caught:
        replay(jobs, plan)
    assert "\n" not in str(caught.value)
    topics.configure(jobs.bootstrap, target, {"max.message.bytes": "10000"})
    replay(jobs, plan)
    assert [len(it.value or b"") for it in consume(jobs.bootstrap, target)] == [5, 5000]


def test_what_a_person_has_to_mend_is_refused_before_anything_is_written(
    jobs: Jobs, new_topic: NewTopic, sent: Sent
) -> None:
    source, target = new_topic(), new_topic()
    sent(source, numbered(10))
    for where, message in (
        ("kafka.colour = 1", r"^--where 'kafka.colour = 1' cannot be evaluated: \[FIELD_NOT_FOUND"),
        ("kafka.offset ==== 1", "PARSE_SYNTAX_ERROR"),
        ("kafka.offset", "must be.*BOOLEAN|not a boolean|DATATYPE_MISMATCH"),
    ):
        with pytest.raises(PipelineError, match=message):
            replay(jobs, plan_of(jobs, source, target, where=where, given_name="wrong"))
    with Cluster(jobs.bootstrap) as cluster:
        assert peek(cluster, "wrong", "kwire-replays") is None
    with pytest.raises(PipelineError, match="table never not found"):
        replay(jobs, plan_of(jobs, "never", target, table=True))
    assert consume(jobs.bootstrap, target) == []


@pytest.mark.soak  # an upkeep takes its time; that there is a tag is in the test of bytes
def test_the_snapshot_of_a_replay_outlives_an_upkeep(
    jobs: Jobs, new_topic: NewTopic, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = new_topic(), new_topic()
    sent(source, numbered(3))
    jobs.once(source)
    plan = plan_of(jobs, source, target, table=True)
    with monkeypatch.context() as patch:
        patch.setattr(replay_run, "write", killed)
        with pytest.raises(PipelineError, match="killed"):
            replay(jobs, plan)
    assert plan.tag in jobs.table(source).refs()
    name = jobs.warehouse.spark_name(jobs.plan(source).table)
    jobs.spark.sql(f"DELETE FROM {name} WHERE kafka.`offset` = 1")
    maintain(jobs.spark, name, Upkeep(keep_snapshots_s=0))
    replay(jobs, plan)
    assert [it.value for it in consume(jobs.bootstrap, target)] == [b"0", b"1", b"2"]
    assert plan.tag not in jobs.table(source).refs()


def killed(*_: object) -> None:
    raise PipelineError("killed")

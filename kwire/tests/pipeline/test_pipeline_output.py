"""The output of `kwire pipeline` on plans and results, for programs and for people. No Spark starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from devtools.suite.snapshots import Snapshot
from kwire.client.cluster import Cluster
from kwire.client.topics import NewTopic, create_topics
from kwire.pipeline.tables.backfill import Added, Redone
from kwire.pipeline.tables.maintain import MaintenanceResult
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import Position
from kwire.pipeline.tables.status import TableStatus
from kwire.pipeline.tables.verify import SHOWN, Finding, PartitionReport, Report
from kwire.pipeline.warehouse import parse_warehouse
from kwire.testing import Broker
from testkit.cli.json_page import check_all_keys
from testkit.cli.prompt import Prompt
from testkit.spark.iceberg import table_at


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with the topic orders, of two partitions; nothing is in it."""
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        with Cluster(broker.address) as cluster:
            create_topics(cluster, [NewTopic("orders", 2)])
        yield broker.address


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def prompt(*more: str) -> Prompt:
    return Prompt(["pipeline"], more, {str(Path.cwd()): "/here"})


PLANS = {
    "table": ("orders", "--to", "w", "--value", "json"),
    "index": ("orders", "--to", "w", "--fields", "user.id:BIGINT,total:DOUBLE"),
}


@pytest.mark.parametrize("command", PLANS)
def test_plans_as_people_see_them(bootstrap: str, snapshot: Snapshot, command: str) -> None:
    pipeline = prompt("-b", bootstrap)
    pipeline.renamed = {**pipeline.renamed, bootstrap: "127.0.0.1:9092"}
    pipeline(command, *PLANS[command], "--dry-run")
    snapshot(f"pipeline-{command}", pipeline.transcript)


def test_plans_have_their_keys(bootstrap: str) -> None:
    pipeline = prompt("-b", bootstrap)
    check_all_keys("pipeline table", pipeline.json("table", *PLANS["table"], "--dry-run"))
    check_all_keys("pipeline index", pipeline.json("index", *PLANS["index"], "--dry-run"))


# What starts Spark, with another result in its place.

Found = Callable[[str, str, object], None]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    """Replaces a function of a command's module by one that returns a result, and opens tables without Spark."""
    state = SimpleNamespace(topic="orders", starts={0: 0}, ends={0: 9})
    topics = SimpleNamespace(state=lambda *_: state)
    table = SimpleNamespace(
        plan=SimpleNamespace(topic="orders", isolation="read_committed"), writer=None, spark=None, topics=topics
    )

    def put(module: str, name: str, result: object) -> None:
        # By import_module, since the package has the command under the module's name.
        found = import_module(f"kwire.cli.pipeline.{module}")
        monkeypatch.setattr(found, name, lambda *_: result)
        for opener in ("opened", "spark_for"):
            monkeypatch.setattr(found, opener, lambda *_: nullcontext(table), raising=False)

    return put


SOUND = PartitionReport(
    partition=0, first=0, until=1000, lag=5, records=999, rows=990, errors=9, topic_hash="a", table_hash="a"
)
WRONG = PartitionReport(
    partition=1,
    first=7,
    until=7,
    lag=0,
    records=0,
    rows=1_500,
    errors=0,
    missing=1_000,
    older_schema=2,
    topic_hash="a",
    table_hash="b",
)


def report(*partitions: PartitionReport, findings: int = 0) -> Report:
    found = tuple(Finding(kind="missing", partition=1, offset=number) for number in range(findings))
    return Report(topic="orders", table="orders", snapshot_id=42, partitions=partitions, findings=found)


def test_comparisons_as_people_see_them(found: Found, snapshot: Snapshot) -> None:
    pipeline = prompt()
    found("verify", "verify", report(SOUND))
    pipeline("verify", "orders", "--to", "w")
    found("verify", "verify", report(SOUND, WRONG, findings=SHOWN))
    pipeline("verify", "orders", "--to", "w", code=1)
    snapshot("pipeline-verify", pipeline.transcript)


def test_a_comparison_that_finds_a_difference_ends_with_1(found: Found) -> None:
    found("verify", "verify", report(SOUND))
    assert [it["sound"] for it in prompt().json("verify", "orders", "--to", "w")] == [True]
    found("verify", "verify", report(SOUND, WRONG, findings=1))
    objects = prompt().json("verify", "orders", "--to", "w", code=1)
    check_all_keys("pipeline verify", objects)
    assert (objects[0]["sound"], objects[0]["snapshot_id"]) == (False, 42)
    assert [(it["partition"], it["missing"]) for it in objects[0]["partitions"]] == [(0, 0), (1, 1_000)]
    assert objects[0]["findings"] == [{"kind": "missing", "partition": 1, "offset": 0}]


ADDED = Added(records=12_345, rows=1_000, errors=2)
REDONE = Redone(errors=1_234, rows=1_000, too_old=3)


def test_what_is_read_again_as_people_see_it(found: Found, snapshot: Snapshot) -> None:
    pipeline = prompt()
    found("backfill", "backfill", ADDED)
    pipeline("backfill", "orders", "--to", "w")
    snapshot("pipeline-backfill", pipeline.transcript)
    pipeline = prompt()
    found("backfill", "redo", REDONE)
    pipeline("redo", "orders", "--to", "w")
    found("backfill", "redo", Redone(errors=0, rows=0, too_old=0))
    pipeline("redo", "orders", "--to", "w")
    snapshot("pipeline-redo", pipeline.transcript)


def test_what_is_read_again_is_counted(found: Found) -> None:
    found("backfill", "backfill", ADDED)
    objects = prompt().json("backfill", "orders", "--to", "w")
    check_all_keys("pipeline backfill", objects)
    assert objects == [{"records": 12_345, "rows": 1_000, "errors": 2}]
    found("backfill", "redo", REDONE)
    objects = prompt().json("redo", "orders", "--to", "w")
    check_all_keys("pipeline redo", objects)
    assert objects == [{"errors": 1_234, "rows": 1_000, "too_old": 3}]


def orders_table(bootstrap: str) -> None:
    plan = TablePlan(bootstrap=bootstrap, topic="orders", warehouse=parse_warehouse("w", {}), table="orders")
    with Cluster(bootstrap) as cluster:
        position = Position(cluster.cluster_id or "", "orders", str(cluster.topic("orders").topic_id), {0: 0, 1: 0})
    table_at(plan, position)


@pytest.fixture
def upkeep(bootstrap: str, found: Found) -> None:
    orders_table(bootstrap)
    result = MaintenanceResult(
        table="", rewritten_files=12, added_files=1, expired_files=3, orphans=2, overtaken=1, took_s=1.25
    )
    found("maintain", "maintain", result)


@pytest.mark.usefixtures("upkeep")
def test_maintenance_as_people_see_it(snapshot: Snapshot) -> None:
    pipeline = prompt()
    pipeline("maintain", "--to", "w")
    snapshot("pipeline-maintain", pipeline.transcript)


@pytest.mark.usefixtures("upkeep")
def test_each_table_that_is_maintained_has_an_object() -> None:
    objects = prompt().json("maintain", "--to", "w")
    check_all_keys("pipeline maintain", objects)
    assert [(it["table"], it["rewritten_files"], it["took_s"]) for it in objects] == [("orders", 12, 1.25)]


def test_the_state_of_tables_as_people_see_it(snapshot: Snapshot, found: Found) -> None:
    well = TableStatus(
        table="orders",
        topic="orders",
        value="json",
        mode="append",
        rows=1_234_567,
        errors=12,
        files=1_000,
        snapshots=3,
        offsets={0: 1_234_567},
        last_commit_ms=1_700_000_000_000,
        lag=1_500,
    )
    new = TableStatus(
        table="clicks",
        topic="clicks",
        value="bytes",
        mode="upsert",
        rows=0,
        errors=0,
        files=0,
        snapshots=0,
        offsets={},
        last_commit_ms=None,
        problem="topic [red]clicks not found",
    )
    Path("w").mkdir()
    found("status", "statuses", [well, new])
    pipeline = prompt()
    pipeline("status", "w")
    snapshot("pipeline-status", pipeline.transcript)


def test_the_state_of_a_table_has_its_offsets_and_its_lag(bootstrap: str) -> None:
    orders_table(bootstrap)
    objects = prompt().json("status", "w", "-b", bootstrap)
    check_all_keys("pipeline status", objects)
    assert objects[0].pop("last_commit_ms") > 0
    assert objects == [
        {
            "table": "orders",
            "topic": "orders",
            "value": "bytes",
            "mode": "append",
            "rows": 1,
            "errors": 0,
            "files": 1,
            "snapshots": 1,
            "offsets": {"0": 0, "1": 0},
            "lag": 0,
            "problem": None,
        }
    ]
    assert [it["lag"] for it in prompt().json("status", "w")] == [None]
    (unreached,) = prompt().json("status", "w", "-b", "127.0.0.1:1")
    assert (unreached["lag"], "cannot reach" in unreached["problem"]) == (None, True)

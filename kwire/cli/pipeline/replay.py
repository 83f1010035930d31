"""`kwire pipeline replay`: builds a plan from the flags, and runs it as a job with one run."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from kwire.cli.pipeline.options import Running
from kwire.cli.pipeline.running import show, work
from kwire.pipeline.bounds import parse_bound
from kwire.pipeline.brokers import connect, explaining
from kwire.pipeline.clock import now_ms
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.replay.keeper import peek, resolve_range
from kwire.pipeline.replay.pinned import Pinned, PinnedTable, PinnedTopic
from kwire.pipeline.replay.plan import Range, ReplayPlan, TableSource, TopicSource
from kwire.pipeline.session import SMALL_BATCHES
from kwire.pipeline.tables.plan import table_of
from kwire.pipeline.tables.table_state import table_state
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import parse_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.pipeline.job import Run
    from kwire.pipeline.replay.run import ReplayRun
    from kwire.pipeline.report import Report


def run_replay(
    running: Running,
    *,
    source: str,
    bootstrap: str,
    warehouse: str | None,
    target: str | None,
    first: str,
    until: str,
    source_options: dict[str, str],
    **options: Any,
) -> None:
    """Runs until everything is written, or a stop is requested. Raises PipelineError."""
    plan = ReplayPlan(
        source=_source(source, bootstrap, warehouse, source_options, running.conf),
        range=_range(first, until),
        bootstrap=target or bootstrap,
        **options,
    )
    plan.check()
    with Topics(bootstrap) as topics:
        found = _peek(plan)
        if running.dry_run:
            show({**plan.describe(), **_describe_start(plan, topics, found)}, as_json=running.as_json)
        elif found is not None and found.state == "done" and not plan.again:
            _print_result(plan, found, running)
        else:
            _replay(plan, topics, running)


def _source(
    source: str, bootstrap: str, warehouse: str | None, options: dict[str, str], conf: dict[str, str]
) -> TableSource | TopicSource:
    if warehouse is None:
        return TopicSource(bootstrap, source, options)
    if options:
        raise PipelineError("--option is for Spark's kafka source, but --warehouse reads a table")
    return TableSource(parse_warehouse(warehouse, conf), table_of(source, None))


def _range(first: str, until: str) -> Range:
    at_ms = now_ms()
    begin = parse_bound(first, now_ms=at_ms)
    try:
        return Range(begin, parse_bound(until, now_ms=at_ms), first, until)
    except PipelineError as error:
        raise PipelineError(f"{error}. --to is the end of the range; the folder of a table is --warehouse") from None


def _peek(plan: ReplayPlan) -> Pinned | None:
    """Returns the decision that an earlier run of this command pinned, or None. Raises PipelineError."""
    with connect(plan.bootstrap, "the target's brokers,") as cluster, explaining():
        found = peek(cluster, plan.name, plan.state_topic)
    if found is not None:
        found.check_command(plan.name, plan.command)
    return found


def _describe_start(plan: ReplayPlan, topics: Topics, found: Pinned | None) -> dict[str, object]:
    """Returns the start of a run. Raises PipelineError for errors that can be found without running."""
    with Topics(plan.bootstrap) as targets:
        partitions = len(targets.state(plan.to_topic, "read_committed").starts)
    job_start: dict[str, object] = {"partitions": partitions, "state": "new" if found is None else found.state}
    match plan.source:
        case TableSource(warehouse, table):
            if found is not None and isinstance(found.source, PinnedTable):
                return {**job_start, "snapshot_id": found.source.snapshot_id}
            stands = table_state(warehouse, table)
            if stands is None or stands.snapshot_id is None:
                raise PipelineError(f"table {table} not found in {warehouse}, or it has no rows yet")
            return {**job_start, "snapshot_id": stands.snapshot_id}
        case TopicSource(_, topic):
            if found is not None and isinstance(found.source, PinnedTopic):
                ranges = found.source.ranges
            else:
                ranges = resolve_range(plan.range, topics.state(topic, "read_committed"), topics)
            return {**job_start, "ranges": {str(it): f"{first} to {until}" for it, (first, until) in ranges.items()}}


def _replay(plan: ReplayPlan, topics: Topics, running: Running) -> None:
    warehouse = None
    match plan.source:
        case TableSource():
            warehouse = plan.source.warehouse
            if not warehouse.exists():
                raise PipelineError(f"table {plan.source.table} not found: there are no tables in {warehouse}")
        case TopicSource(_, topic):
            topics.state(topic, "read_committed")
    started: list[ReplayRun] = []

    def runs(spark: SparkSession, report: Report) -> Sequence[Run]:
        from kwire.pipeline.replay.run import ReplayRun

        started.append(ReplayRun(plan, spark, topics, uuid.uuid4().hex[:12], report))
        return started

    work("replay", runs, attrs.evolve(running, conf={**SMALL_BATCHES, **running.conf}), warehouse)
    pinned = started[0].pinned
    assert pinned is not None
    _print_result(plan, pinned, running)


def _print_result(plan: ReplayPlan, pinned: Pinned, running: Running) -> None:
    if running.as_json or not sys.stdout.isatty():
        done = {"event": "done", "name": plan.name, "records": pinned.records}
        click.echo(json.dumps(done if pinned.state == "done" else {"event": "stopped", "name": plan.name}))
    elif pinned.state == "done":
        click.echo(
            f"done: topic {plan.to_topic} has {pinned.records:,} records of {plan.source}, as replay {plan.name}. "
            "--again replays them again"
        )
    else:
        click.echo(f"stopped: the same command continues replay {plan.name}")

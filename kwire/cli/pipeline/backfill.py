"""`kwire pipeline backfill` and `redo`: records once more, into a table that a job made."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import click
from pyspark.sql import SparkSession

from kwire.cli.pipeline.session import spark_for
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.backfill import backfill, redo
from kwire.pipeline.tables.bounds import parse_bound, resolve
from kwire.pipeline.tables.plan import TablePlan, table_of
from kwire.pipeline.tables.position import TopicState
from kwire.pipeline.tables.preparing import grow_to, open_existing
from kwire.pipeline.tables.writer import TableWriter
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import parse_warehouse


@attrs.frozen
class _Opened:
    plan: TablePlan
    writer: TableWriter
    spark: SparkSession
    topics: Topics
    state: TopicState


def run_backfill(
    *,
    topic: str,
    bootstrap: str,
    warehouse: str,
    table_name: str | None,
    first: str,
    until: str,
    source_options: dict[str, str],
    conf: dict[str, str],
    master: str | None,
    as_json: bool,
) -> None:
    """Raises PipelineError."""
    from_bound, to_bound = parse_bound(first), parse_bound(until)
    with _opened("backfill", topic, bootstrap, warehouse, table_name, source_options, conf, master) as it:
        low, high = (
            resolve(bound, it.state, lambda ms: it.topics.offsets_at(topic, ms)) for bound in (from_bound, to_bound)
        )
        added = backfill(it.plan, it.writer, it.spark, it.state, low, high)
    if as_json:
        click.echo(json.dumps(attrs.asdict(added)))
    else:
        click.echo(f"{added.records:,} records looked at, {added.rows:,} rows and {added.errors:,} errors added")


def run_redo(
    *,
    topic: str,
    bootstrap: str,
    warehouse: str,
    table_name: str | None,
    schema: Path | None,
    source_options: dict[str, str],
    conf: dict[str, str],
    master: str | None,
    as_json: bool,
) -> None:
    """Raises PipelineError."""
    with _opened("redo", topic, bootstrap, warehouse, table_name, source_options, conf, master) as it:
        writer = it.writer if schema is None else grow_to(it.plan, it.writer, it.spark, schema)
        done = redo(it.plan, writer, it.spark, it.state)
    if as_json:
        click.echo(json.dumps(attrs.asdict(done)))
        return
    click.echo(f"{done.rows:,} of {done.errors:,} errors are rows now")
    if done.too_old:
        click.echo(
            f"{done.too_old:,} could be, and are older than the topic: whether their keys were deleted since, nobody "
            "knows. They stay errors"
        )


@contextmanager
def _opened(
    command: str,
    topic: str,
    bootstrap: str,
    warehouse: str,
    table_name: str | None,
    options: dict[str, str],
    conf: dict[str, str],
    master: str | None,
) -> Iterator[_Opened]:
    place, name = parse_warehouse(warehouse, conf), table_of(topic, table_name)
    if not place.exists():
        raise PipelineError(f"table {name} not found: there are no tables in {place}")
    with Topics(bootstrap) as topics:
        topics.state(topic, "read_committed")  # a wrong name, or nobody there, costs no Java process
        with spark_for(command, place, conf, master) as spark:
            plan, writer = open_existing(
                place, name, spark, bootstrap=bootstrap, options=options, run_id=uuid.uuid4().hex[:12]
            )
            try:
                yield _Opened(plan, writer, spark, topics, topics.state(plan.topic, plan.isolation))
            finally:
                writer.drop_drafts()

"""`kwire pipeline table`: flags become plans, and plans a job."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.files import read_avro_schemas, read_schema_file
from kwire.pipeline.report import reporting
from kwire.pipeline.tables.plan import TablePlan, check_plans, table_of
from kwire.pipeline.tables.standing import outlook
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import NotReadable, parse_warehouse

if TYPE_CHECKING:
    from kwire.pipeline.tables.run import Opener


def run_table(
    *,
    topics: tuple[str, ...],
    warehouse: str,
    table_name: str | None,
    schema: Path | None,
    conf: dict[str, str],
    master: str | None,
    as_json: bool,
    metrics_port: int | None,
    give_up_after_s: float,
    dry_run: bool,
    **options: Any,
) -> None:
    """Until the job ends. Raises PipelineError."""
    plans = make_plans(topics, warehouse, table_name, schema, conf, options)
    run_plans(
        plans,
        "table",
        _open_tables,
        conf=conf,
        master=master,
        as_json=as_json,
        metrics_port=metrics_port,
        give_up_after_s=give_up_after_s,
        dry_run=dry_run,
    )


def _open_tables() -> Opener:
    from kwire.pipeline.tables.preparing import open_tables

    return open_tables


def run_plans(
    plans: Sequence[TablePlan],
    command: str,
    opener: Callable[[], Opener],
    *,
    conf: dict[str, str],
    master: str | None,
    as_json: bool,
    metrics_port: int | None,
    give_up_after_s: float,
    dry_run: bool,
) -> None:
    """Works until the job ends, or prints the plans. Raises PipelineError.

    `opener` is asked only when Spark is needed: it imports that.
    """
    with Topics(plans[0].bootstrap) as asked:
        if dry_run:
            for plan in plans:
                _show(plan, asked, as_json=as_json)
            return
        for plan in plans:
            _check(plan, asked)
        # They need pyspark, which takes its time, and a dry run does without.
        from kwire.cli.pipeline.session import spark_for
        from kwire.pipeline.job import Job, stopping_on_signals
        from kwire.pipeline.tables.run import TableRun

        run_id = uuid.uuid4().hex[:12]
        with (
            reporting(as_json=as_json, metrics_port=metrics_port) as report,
            spark_for(command, plans[0].warehouse, conf, master) as spark,
        ):
            runs = [TableRun(plan, spark, asked, run_id, report, opener()) for plan in plans]
            job = Job(runs, give_up_after_s, report.warning)
            with stopping_on_signals(job):
                job.work()


def _check(plan: TablePlan, asked: Topics) -> None:
    """Raises PipelineError for what can be known before a Java process is paid for."""
    topic = asked.state(plan.topic, plan.isolation)
    if plan.dead_letter_topic is not None:
        asked.state(plan.dead_letter_topic, plan.isolation)
    with suppress(NotReadable):  # Spark has catalogs that pyiceberg has not
        outlook(plan, topic)
    plan.warehouse.make()


def make_plans(
    topics: tuple[str, ...],
    warehouse: str,
    table_name: str | None,
    schema: Path | None,
    conf: dict[str, str],
    options: dict[str, Any],
) -> list[TablePlan]:
    """A plan for each topic, checked. Raises PipelineError."""
    if not topics:
        raise PipelineError("no topic is named: kwire pipeline table TOPIC... --to WAREHOUSE")
    if table_name is not None and len(topics) > 1:
        raise PipelineError("--table names one table, and there are several topics")
    value = options["value"]
    avro = value in ("avro", "confluent-avro")
    common = {
        **options,
        "partition_by": tuple(options["partition_by"]),
        "warehouse": parse_warehouse(warehouse, conf),
        "schema": read_schema_file(schema) if schema is not None and not avro else None,
        "avro": read_avro_schemas(schema, value) if schema is not None and avro else None,
    }
    plans = [TablePlan(topic=topic, table=table_of(topic, table_name), **common) for topic in topics]
    check_plans(plans)
    return plans


def _show(plan: TablePlan, asked: Topics, *, as_json: bool) -> None:
    """Prints the plan, and where it would start. Raises PipelineError where that cannot be told, the plan printed."""
    described = plan.describe()
    try:
        topic = asked.state(plan.topic, plan.isolation)
        if plan.dead_letter_topic is not None:
            asked.state(plan.dead_letter_topic, plan.isolation)
        described |= outlook(plan, topic).describe()
    finally:
        if as_json:
            click.echo(json.dumps(described))
        else:
            width = max(map(len, described))
            for name, value in described.items():
                click.echo(f"{name.replace('_', ' '):<{width}}  {_shown(value)}")
            click.echo()


def _shown(value: object) -> str:
    match value:
        case None:
            return "-"
        case dict() | list() if not value:
            return "-"
        case dict():
            return " ".join(f"{name}={it}" for name, it in value.items())
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)

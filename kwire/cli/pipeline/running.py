"""Runs plans: the common part of `kwire pipeline table`, `index` and `mirror`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kwire.cli.pipeline.options import Running
from kwire.pipeline.report import Report, reporting
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.table_state import job_start
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import NotReadable, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.pipeline.job import Run
    from kwire.pipeline.tables.run import Opener


def run_plans(plans: Sequence[TablePlan], command: str, opener: Callable[[], Opener], running: Running) -> None:
    """Runs until the job ends, or prints the plans. Raises PipelineError.

    `opener` is called only if Spark is needed, because it imports it.
    """
    with Topics(plans[0].bootstrap) as topics:
        if running.dry_run:
            for plan in plans:
                _show(plan, topics, as_json=running.as_json)
            return
        for plan in plans:
            _check(plan, topics)
        run_id = uuid.uuid4().hex[:12]

        def runs(spark: SparkSession, report: Report) -> Sequence[Run]:
            from kwire.pipeline.tables.run import TableRun

            return [TableRun(plan, spark, topics, run_id, report, opener()) for plan in plans]

        work(command, runs, running, plans[0].warehouse)


def work(
    command: str,
    runs: Callable[[SparkSession, Report], Sequence[Run]],
    running: Running,
    warehouse: Warehouse | None = None,
) -> None:
    """Starts Spark, and runs until the job ends. Raises PipelineError."""
    # These import pyspark, which is slow, and a dry run does not need it.
    from kwire.cli.pipeline.session import spark_for
    from kwire.pipeline.job import Job, stopping_on_signals

    with (
        reporting(as_json=running.as_json, metrics_port=running.metrics_port) as report,
        spark_for(command, warehouse, running.conf, running.master) as spark,
    ):
        job = Job(runs(spark, report), running.give_up_after_s, report.warning)
        with stopping_on_signals(job):
            job.work()


def _check(plan: TablePlan, topics: Topics) -> None:
    """Raises PipelineError for errors that can be found before Java starts."""
    topic = topics.state(plan.topic, plan.isolation)
    if plan.dead_letter_topic is not None:
        topics.state(plan.dead_letter_topic, plan.isolation)
    with suppress(NotReadable):  # Spark supports catalogs that pyiceberg does not
        job_start(plan, topic)
    plan.warehouse.make()


def _show(plan: TablePlan, topics: Topics, *, as_json: bool) -> None:
    """Prints the plan and where it would start. If that is unknown, prints the plan and raises PipelineError."""
    described = plan.describe()
    try:
        topic = topics.state(plan.topic, plan.isolation)
        if plan.dead_letter_topic is not None:
            topics.state(plan.dead_letter_topic, plan.isolation)
        described |= job_start(plan, topic).describe()
    finally:
        show(described, as_json=as_json)


def show(described: Mapping[str, object], *, as_json: bool) -> None:
    """Prints a plan for --dry-run."""
    if as_json:
        click.echo(json.dumps(described))
        return
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

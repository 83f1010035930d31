"""`kwire pipeline mirror`: builds a plan from the flags, and runs it as a job."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import attrs

from kwire.cli.pipeline.options import Running
from kwire.cli.pipeline.running import show, work
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.start import both_clusters, job_start
from kwire.pipeline.session import SMALL_BATCHES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from kwire.pipeline.job import Run
    from kwire.pipeline.report import Report


def run_mirror(
    running: Running,
    *,
    topics: tuple[str, ...],
    groups: str,
    no_groups: bool,
    exclude_config: tuple[str, ...],
    **options: Any,
) -> None:
    """Runs until the job ends. Raises PipelineError."""
    plan = MirrorPlan(
        topics=topics, groups=None if no_groups else groups, excluded_configs=frozenset(exclude_config), **options
    )
    plan.check()
    if running.dry_run:
        _show(plan, as_json=running.as_json)
        return
    # Raises errors that can be found before Java starts.
    with both_clusters(plan) as (source, target):
        job_start(plan, source, target)

    def runs(spark: SparkSession, report: Report) -> Sequence[Run]:
        from kwire.pipeline.mirror.run import MirrorRun

        return [MirrorRun(plan, spark, uuid.uuid4().hex[:12], report)]

    work("mirror", runs, attrs.evolve(running, conf={**SMALL_BATCHES, **running.conf}))


def _show(plan: MirrorPlan, *, as_json: bool) -> None:
    """Prints the plan and where it would start. If that is unknown, prints the plan and raises PipelineError."""
    described = plan.describe()
    topics: dict[str, dict[str, object]] = {}
    try:
        with both_clusters(plan) as (source, target):
            found = job_start(plan, source, target)
            described |= found.describe()
            topics = found.describe_topics()
    finally:
        if as_json:
            show(described | ({"topics": topics} if topics else {}), as_json=True)
        else:
            show(described, as_json=False)
            for topic, fields in topics.items():
                show({"topic": topic, **fields}, as_json=False)

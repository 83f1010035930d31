"""A job in a process of its own, which tests kill: `python -m testkit.spark.job_process FOLDER`.

It runs the same as `kwire pipeline table`, `mirror` and `replay`, in one Java process. FOLDER/job.json describes the
jobs; their reports are written to standard output, a line each. When the job has ended, the tables that "verify" names
are compared; the reports follow.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

from devtools.jars import jars
from devtools.java import java_environment
from devtools.spark_session import QUICK
from kwire.cli.pipeline.session import spark_for
from kwire.pipeline.bounds import Edge
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.job import Job, Run, stopping_on_signals
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.run import MirrorRun
from kwire.pipeline.replay.plan import Range, ReplayPlan, TopicSource
from kwire.pipeline.replay.run import ReplayRun
from kwire.pipeline.report import JsonLines
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.preparing import open_existing
from kwire.pipeline.tables.run import TableRun
from kwire.pipeline.tables.verify import verify
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import Warehouse, parse_warehouse


def main(folder: Path) -> None:
    spec = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    warehouse = parse_warehouse(str(folder / "warehouse"), {})
    conf = {
        "spark.jars": ",".join(map(str, jars("spark-kafka") + jars("spark-iceberg"))),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(QUICK),
        "spark.local.dir": str(folder / "tmp"),
        "spark.sql.shuffle.partitions": "2",
    }
    warehouse.make()
    os.environ.update(java_environment())
    with spark_for("test", warehouse, conf, "local[4]") as spark, Topics(spec["bootstrap"], timeout_s=10.0) as topics:
        report = JsonLines(sys.stdout)
        plans = [_plan(spec, warehouse, options) for options in spec["tables"]]
        run_id = uuid.uuid4().hex[:12]
        runs: list[Run] = [TableRun(plan, spark, topics, run_id, report) for plan in plans]
        runs.append(MirrorRun(_mirror(spec), spark, run_id, report, timeout_s=10.0))
        runs.append(ReplayRun(_replay(spec), spark, topics, run_id, report))
        job = Job(runs, 120.0, report.warning)
        with stopping_on_signals(job):
            job.work()
        for name in spec["verify"]:
            plan, writer = open_existing(
                warehouse, name, spark, bootstrap=spec["bootstrap"], options={}, run_id=f"{run_id}-verify"
            )
            sys.stdout.write(verify(plan, writer, spark, topics).to_json() + "\n")


def _plan(spec: dict[str, Any], warehouse: Warehouse, options: dict[str, object]) -> TablePlan:
    plan = TablePlan(bootstrap=str(spec["bootstrap"]), warehouse=warehouse, once=bool(spec["once"]), **options)  # type: ignore[arg-type]
    plan.check()
    return plan


def _mirror(spec: dict[str, Any]) -> MirrorPlan:
    plan = MirrorPlan(
        source=spec["bootstrap"],
        target=spec["target"],
        topics=tuple(spec["mirror"]),
        exactly_once=True,
        once=spec["once"],
        interval_s=0.2,
        groups=None,
    )
    plan.check()
    return plan


def _replay(spec: dict[str, Any]) -> ReplayPlan:
    it = spec["replay"]
    plan = ReplayPlan(
        source=TopicSource(spec["bootstrap"], it["topic"]),
        range=Range(Edge(latest=False), Edge(latest=True), "earliest", "latest"),
        where=None,
        bootstrap=spec["target"],
        to_topic=it["to_topic"],
        rate_per_s=it["rate_per_s"],
    )
    plan.check()
    return plan


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except PipelineError as error:
        sys.exit(str(error))

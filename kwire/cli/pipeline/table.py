"""`kwire pipeline table`: builds plans from the flags, and runs them as a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwire.cli.pipeline.options import Running
from kwire.cli.pipeline.running import run_plans
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.files import read_avro_schemas, read_schema_file
from kwire.pipeline.tables.plan import TablePlan, check_plans, table_of
from kwire.pipeline.warehouse import parse_warehouse

if TYPE_CHECKING:
    from kwire.pipeline.tables.run import Opener


def run_table(
    running: Running,
    *,
    topics: tuple[str, ...],
    warehouse: str,
    table_name: str | None,
    schema: Path | None,
    **options: Any,
) -> None:
    """Runs until the job ends. Raises PipelineError."""
    run_plans(make_plans(topics, warehouse, table_name, schema, running.conf, options), "table", _open_tables, running)


def _open_tables() -> Opener:
    from kwire.pipeline.tables.preparing import open_tables

    return open_tables


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
        raise PipelineError("no topic is named: use kwire pipeline table TOPIC... --to WAREHOUSE")
    if table_name is not None and len(topics) > 1:
        raise PipelineError("--table names one table, but there are several topics")
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

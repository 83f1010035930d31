"""Opens an existing table for `verify`, `backfill` and `redo`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import attrs
from pyspark.sql import SparkSession

from kwire.cli.pipeline.session import spark_for
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.plan import TablePlan, table_of
from kwire.pipeline.tables.preparing import open_existing
from kwire.pipeline.tables.writer import TableWriter
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import parse_warehouse


@attrs.frozen(kw_only=True)
class ExistingTable:
    """The values of the options EXISTING_TABLE and EXISTING_TABLE_WITH."""

    topic: str
    bootstrap: str
    warehouse: str
    table_name: str | None
    source_options: dict[str, str]
    conf: dict[str, str]
    master: str | None

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Self:
        """Removes its own values from a command's options."""
        return cls(**{it.name: given.pop(it.name) for it in attrs.fields(cls)})


@attrs.frozen
class Opened:
    plan: TablePlan
    writer: TableWriter
    spark: SparkSession
    topics: Topics


@contextmanager
def opened(existing: ExistingTable, command: str) -> Iterator[Opened]:
    """Opens the table in its own Spark session. Raises PipelineError, if possible before Java starts.

    Drops the drafts that the command leaves in the table.
    """
    warehouse, name = parse_warehouse(existing.warehouse, existing.conf), table_of(existing.topic, existing.table_name)
    if not warehouse.exists():
        raise PipelineError(f"table {name} not found: there are no tables in {warehouse}")
    with Topics(existing.bootstrap) as topics:
        topics.state(existing.topic, "read_committed")
        with spark_for(command, warehouse, existing.conf, existing.master) as spark:
            plan, writer = open_existing(
                warehouse,
                name,
                spark,
                bootstrap=existing.bootstrap,
                options=existing.source_options,
                run_id=uuid.uuid4().hex[:12],
            )
            try:
                yield Opened(plan, writer, spark, topics)
            finally:
                writer.drop_drafts()

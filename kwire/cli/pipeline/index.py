"""`kwire pipeline index`: builds a plan from the flags, and runs it as a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kwire.cli.pipeline.options import Running
from kwire.cli.pipeline.running import run_plans
from kwire.pipeline.index.fields import parse_fields
from kwire.pipeline.index.plan import IndexPlan
from kwire.pipeline.tables.plan import check_plans, table_of
from kwire.pipeline.warehouse import index_table_name, parse_warehouse

if TYPE_CHECKING:
    from kwire.pipeline.tables.run import Opener


def run_index(
    running: Running,
    *,
    topic: str,
    warehouse: str,
    table_name: str | None,
    fields: tuple[str, ...],
    **options: Any,
) -> None:
    """Runs until the job ends. Raises PipelineError."""
    plan = IndexPlan(
        topic=topic,
        table=index_table_name(table_of(topic, None)) if table_name is None else table_of(topic, table_name),
        warehouse=parse_warehouse(warehouse, running.conf),
        fields=parse_fields(",".join(fields)),
        **options,
    )
    check_plans([plan])
    run_plans([plan], "index", _open_index, running)


def _open_index() -> Opener:
    from kwire.pipeline.index.layout import open_index

    return open_index

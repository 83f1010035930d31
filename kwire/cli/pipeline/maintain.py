"""`kwire pipeline maintain`: maintains tables, one after the other."""

from __future__ import annotations

import json

import attrs
import click
from rich.console import Console
from rich.table import Table

from kwire.cli.pipeline.session import spark_for
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.maintain import MaintenanceResult, Upkeep, maintain
from kwire.pipeline.tables.plan import table_of
from kwire.pipeline.warehouse import NAMESPACE, Warehouse, errors_table_name, index_table_name, parse_warehouse

_DAY_S = 24 * 3600


def run_maintain(
    *,
    topics: tuple[str, ...],
    warehouse: str,
    table_name: str | None,
    target_file_mib: int,
    keep_snapshots_days: float,
    orphans_days: float,
    conf: dict[str, str],
    master: str | None,
    as_json: bool,
) -> None:
    """Raises PipelineError."""
    location = parse_warehouse(warehouse, conf)
    names = _names(location, topics, table_name)
    upkeep = Upkeep(
        target_file_bytes=target_file_mib << 20,
        keep_snapshots_s=keep_snapshots_days * _DAY_S,
        orphans_older_than_s=orphans_days * _DAY_S,
    )
    upkeep.check()
    done = []
    with spark_for("maintain", location, conf, master) as spark:
        for name in names:
            result = attrs.evolve(maintain(spark, location.spark_name(name), upkeep), table=name)
            done.append(result)
            if as_json:
                click.echo(json.dumps(attrs.asdict(result)))
    if not as_json:
        _print(done)


def _names(location: Warehouse, topics: tuple[str, ...], table_name: str | None) -> list[str]:
    """The tables to maintain, including their indexes and errors tables."""
    if not location.exists():
        raise PipelineError(f"no tables found in {location}: create one with kwire pipeline table")
    there = [name for _, name in location.pyiceberg_catalog().list_tables(NAMESPACE)]
    if table_name is None and not topics:
        return sorted(there)
    wanted = [table_of(topic, None) for topic in topics] or [table_of("", table_name)]
    missing = [name for name in wanted if name not in there and index_table_name(name) not in there]
    if missing:
        raise PipelineError(f"table {', '.join(missing)} not found in {location}, which has {', '.join(sorted(there))}")
    with_indexes = [name for it in wanted for name in (it, index_table_name(it))]
    return [name for it in with_indexes for name in (it, errors_table_name(it)) if name in there]


def _print(done: list[MaintenanceResult]) -> None:
    table = Table()
    for name in ("table", "files rewritten", "files written", "files expired", "orphans removed", "overtaken", "s"):
        table.add_column(name, justify="left" if name == "table" else "right")
    for it in done:
        figures = (it.rewritten_files, it.added_files, it.expired_files, it.orphans, it.overtaken)
        table.add_row(it.table, *map(str, figures), f"{it.took_s:.1f}")
    Console().print(table)

"""The status of all tables of a warehouse, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.plan import ISOLATION_PROPERTY, MODE_PROPERTY, TOPIC_PROPERTY, VALUE_PROPERTY
from kwire.pipeline.tables.position import PROPERTY
from kwire.pipeline.tables.table_state import of_table
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import NAMESPACE, Warehouse, call_catalog, errors_table_name


@attrs.frozen(kw_only=True)
class TableStatus:
    """The status of a table. `lag` is None without brokers, or if they return an error, which is in `problem`."""

    table: str
    topic: str
    value: str
    mode: str
    rows: int
    errors: int
    files: int
    snapshots: int
    offsets: dict[int, int]
    last_commit_ms: int | None
    """The time of a job's last commit, on its clock; maintenance does not count."""
    lag: int | None = None
    problem: str | None = None


def statuses(warehouse: Warehouse, topics: Topics | None) -> list[TableStatus]:
    """The status of each table that kwire made, by name. PipelineError for a warehouse that cannot be read."""
    if not warehouse.exists():
        raise PipelineError(f"no tables found in {warehouse}: kwire pipeline table makes some")
    catalog = warehouse.pyiceberg_catalog()
    try:
        return call_catalog(lambda: list(_statuses(catalog, topics)), f"the tables in {warehouse}")
    finally:
        catalog.close()


def _statuses(catalog: Catalog, topics: Topics | None) -> Iterator[TableStatus]:
    try:
        names = sorted(name for _, name in catalog.list_tables(NAMESPACE))
    except NoSuchNamespaceError:
        return
    for name in names:
        table = catalog.load_table((NAMESPACE, name))
        if TOPIC_PROPERTY in table.properties:
            errors = errors_table_name(name)
            yield _with_lag(
                _status(name, table, catalog.load_table((NAMESPACE, errors)) if errors in names else None),
                table,
                topics,
            )


def _status(name: str, table: Table, errors: Table | None) -> TableStatus:
    table_state = of_table(table)
    properties = table.properties
    commits = [it.timestamp_ms for it in table.snapshots() if it.summary is not None and PROPERTY in it.summary]
    return TableStatus(
        table=name,
        topic=properties[TOPIC_PROPERTY],
        value=properties.get(VALUE_PROPERTY, "bytes"),
        mode=properties.get(MODE_PROPERTY, "append"),
        rows=_total(table, "total-records") - _total(table, "total-position-deletes"),
        errors=0 if errors is None else _total(errors, "total-records") - _total(errors, "total-position-deletes"),
        files=_total(table, "total-data-files"),
        snapshots=len(table.snapshots()),
        offsets={} if table_state.position is None else dict(table_state.position.offsets),
        last_commit_ms=max(commits, default=None),
    )


def _total(table: Table, name: str) -> int:
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get(name, "0"))


def _with_lag(status: TableStatus, table: Table, topics: Topics | None) -> TableStatus:
    if topics is None:
        return status
    try:
        state = topics.state(status.topic, table.properties.get(ISOLATION_PROPERTY, "read_committed"))
    except PipelineError as error:
        return attrs.evolve(status, problem=str(error))
    lag = sum(max(0, end - status.offsets.get(number, state.starts[number])) for number, end in state.ends.items())
    return attrs.evolve(status, lag=lag)

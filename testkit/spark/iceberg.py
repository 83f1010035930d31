"""Tables as a job would have left them, made by pyiceberg."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.catalog import Catalog

from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import PROPERTY, Position
from kwire.pipeline.warehouse import NAMESPACE, Warehouse

_SCHEMA = pa.schema([("value", pa.binary())])


def make_table(warehouse: Warehouse, name: str, properties: Mapping[str, str]) -> None:
    with _catalog(warehouse) as catalog:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        catalog.create_table((NAMESPACE, name), _SCHEMA, properties=dict(properties))


def commit(warehouse: Warehouse, name: str, position: Position | None) -> None:
    """Commits a snapshot of one row; without a position, like another writer."""
    with _catalog(warehouse) as catalog:
        row = pa.Table.from_pylist([{"value": b"v"}], schema=_SCHEMA)
        found = {} if position is None else {PROPERTY: position.to_json()}
        catalog.load_table((NAMESPACE, name)).append(row, snapshot_properties=found)


def table_at(plan: TablePlan, position: Position) -> None:
    """The plan's table, which has come that far."""
    make_table(plan.warehouse, plan.table, plan.table_properties)
    commit(plan.warehouse, plan.table, position)


def _catalog(warehouse: Warehouse) -> Catalog:
    warehouse.make()
    return warehouse.pyiceberg_catalog()

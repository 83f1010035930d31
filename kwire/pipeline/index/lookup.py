"""Queries the index: pyiceberg finds the files that may match, DuckDB reads them.

DuckDB uses the Bloom filters and bounds of each row group, which pyarrow and pyiceberg's own reader do not: finding one
record among ten million takes 20 ms instead of 5 s. Its Iceberg extension is not used, because it would have to be
downloaded.

Files on this machine are read in place. Other files, and tables with deletes or with an older schema (which kwire does
not make), are read through pyiceberg: correct, but slower.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attrs
import duckdb
from pyiceberg import expressions as iceberg
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.index.fields import Field, fields_from_json
from kwire.pipeline.index.found import FoundRecord
from kwire.pipeline.index.plan import FIELDS_PROPERTY
from kwire.pipeline.index.where import And, Column, Compare, Condition, In, IsNull, Not, Operator, Or, Value, lookups
from kwire.pipeline.tables.plan import ISOLATION_PROPERTY, MODE_PROPERTY, TOPIC_PROPERTY
from kwire.pipeline.tables.position import PROPERTY, TAG, Position
from kwire.pipeline.tables.table_state import of_table
from kwire.pipeline.warehouse import NAMESPACE, Warehouse, call_catalog

_MEMORY: Final = "2GB"
_ROWS_AT_ONCE: Final = 100
_SETTINGS: Final[Mapping[str, str | bool]] = {
    "memory_limit": _MEMORY,
    # Otherwise it would spill into the working directory, and download extensions.
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


@attrs.frozen
class Index:
    """An index at its newest snapshot."""

    table: Table
    name: str
    topic: str
    isolation: str
    fields: tuple[Field, ...]
    position: Position
    committed_ms: int
    """The time of the job's last commit, by its own clock."""

    def rows(self) -> int:
        newest = self.table.current_snapshot()
        summary = None if newest is None else newest.summary
        return int((None if summary is None else summary["total-records"]) or 0)

    def find(self, condition: Condition | None, limit: int) -> Iterator[FoundRecord]:
        """Yields the first `limit` records that meet the condition, by time. Raises PipelineError."""
        parts = [None] if condition is None else lookups(condition)
        found = heapq.merge(*(_find(self.table, self.fields, it, limit) for it in parts), key=lambda it: it.order)
        # A record may meet several of the parts: its copies are adjacent, and one of them is kept.
        return islice((it for _, (it, *_) in groupby(found, key=lambda it: it.order)), limit)


def open_index(warehouse: Warehouse, name: str) -> Index:
    """Raises PipelineError for a table that does not exist, is no index, or was never written."""
    if not warehouse.exists():
        raise PipelineError(f"index {name} not found: there are no tables in {warehouse}")
    catalog = warehouse.pyiceberg_catalog()

    def load() -> Index:
        try:
            return _as_index(name, catalog.load_table((NAMESPACE, name)))
        except (NoSuchTableError, NoSuchNamespaceError):
            raise PipelineError(
                f"index {name} not found in {warehouse}: kwire pipeline index makes it, with --fields"
            ) from None

    try:
        return call_catalog(load, f"the index {name} in {warehouse}")
    finally:
        catalog.close()


def _as_index(name: str, table: Table) -> Index:
    properties, table_state = table.properties, of_table(table)
    if properties.get(MODE_PROPERTY) != "index":
        raise PipelineError(f"table {name} is no index: kwire pipeline index makes one, TOPIC__index")
    committed = _committed(table)
    if table_state.position is None or committed is None:
        raise PipelineError(f"index {name} has no offsets yet: no job has written to it")
    return Index(
        table,
        name,
        properties[TOPIC_PROPERTY],
        properties[ISOLATION_PROPERTY],
        fields_from_json(properties.get(FIELDS_PROPERTY, "")),
        table_state.position,
        committed.timestamp_ms,
    )


def _committed(table: Table) -> Snapshot | None:
    """Returns the newest snapshot that a job made; maintenance makes others."""
    newest = table.current_snapshot()
    if newest is not None and newest.summary is not None and PROPERTY in newest.summary.additional_properties:
        return newest
    return table.snapshot_by_name(TAG) or newest


def _find(table: Table, fields: Sequence[Field], condition: Condition | None, limit: int) -> Iterator[FoundRecord]:
    scan = table.scan(row_filter=iceberg.AlwaysTrue() if condition is None else _expression(condition))
    tasks = call_catalog(lambda: list(scan.plan_files()), "the index")
    if not tasks:
        return
    columns = ", ".join(_quoted(it.column) for it in fields)
    where, values = ("TRUE", []) if condition is None else _sql(condition)
    with duckdb.connect(config=dict(_SETTINGS)) as connection:
        paths = _paths(table, tasks)
        source = "read_parquet(?, hive_partitioning = false)"
        if paths is None:
            connection.register("arrow_rows", call_catalog(scan.to_arrow, "the index"))
            source = "arrow_rows"
        try:
            cursor = connection.execute(
                f"""SELECT kafka."partition", kafka."offset", epoch_ms(kafka."timestamp"), kafka.timestamp_type,
                    kafka.key, kafka.headers, value, {columns}
                FROM {source} WHERE {where} ORDER BY kafka."timestamp", kafka."partition", kafka."offset" LIMIT ?""",
                [*([] if paths is None else [paths]), *values, limit],
            )
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                for row in rows:
                    yield _found(row, fields)
        except duckdb.OutOfMemoryException:
            raise PipelineError(f"the answer is larger than {_MEMORY}: ask for fewer records, --limit") from None
        except duckdb.Error as error:
            raise PipelineError(f"the index's files cannot be read: {first_line(error)}") from None


def _found(row: Sequence[Any], fields: Sequence[Field]) -> FoundRecord:
    partition, offset, timestamp_ms, timestamp_type, key, headers, value, *values = row
    return FoundRecord(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        timestamp_type=timestamp_type,
        key=key,
        value=value,
        headers=[(it["key"], it["value"]) for it in headers or ()],
        fields={it.path: found for it, found in zip(fields, values, strict=True)},
    )


def _paths(table: Table, tasks: Sequence[FileScanTask]) -> list[str] | None:
    """The files, if they can be read directly; otherwise None."""
    if len(table.metadata.schemas) > 1 or any(it.delete_files for it in tasks):
        return None
    found = [urlsplit(it.file.file_path) for it in tasks]
    if any(it.scheme not in ("", "file") or it.netloc for it in found):
        return None
    return [unquote(it.path) if it.scheme else it.path for it in found]


_ICEBERG: Final[Mapping[Operator, Any]] = {
    "=": iceberg.EqualTo,
    "!=": iceberg.NotEqualTo,
    "<": iceberg.LessThan,
    "<=": iceberg.LessThanOrEqual,
    ">": iceberg.GreaterThan,
    ">=": iceberg.GreaterThanOrEqual,
}


# The type annotations of pyiceberg do not accept a column's name.
_IN: Final[Callable[[str, list[Value]], iceberg.BooleanExpression]] = iceberg.In  # type: ignore[assignment]
_IS_NULL: Final[Callable[[str], iceberg.BooleanExpression]] = iceberg.IsNull  # type: ignore[assignment]


def _expression(condition: Condition) -> iceberg.BooleanExpression:
    """The condition for pyiceberg, which skips the files that cannot match."""
    match condition:
        case And(of):
            return iceberg.And(*map(_expression, of))
        case Or(of):
            return iceberg.Or(*map(_expression, of))
        case Not(of):
            return iceberg.Not(_expression(of))
        case Compare(column, operator, value):
            found: iceberg.BooleanExpression = _ICEBERG[operator](".".join(column.path), _stored(column, value))
            return found
        case In(column, values):
            return _IN(".".join(column.path), [_stored(column, it) for it in values])
        case IsNull(column):
            return _IS_NULL(".".join(column.path))


def _sql(condition: Condition) -> tuple[str, list[Value]]:
    """The condition for DuckDB: columns are those of the index, and values are parameters."""
    match condition:
        case And(of):
            return _joined(" AND ", of)
        case Or(of):
            return _joined(" OR ", of)
        case Not(of):
            text, values = _sql(of)
            return f"(NOT {text})", values
        case Compare(column, operator, value):
            return f"({_name(column)} {operator} {_placeholder(column)})", [_stored(column, value)]
        case In(column, found):
            placeholders = ", ".join(_placeholder(column) for _ in found)
            return f"({_name(column)} IN ({placeholders}))", [_stored(column, it) for it in found]
        case IsNull(column):
            return f"({_name(column)} IS NULL)", []


def _joined(word: str, of: Sequence[Condition]) -> tuple[str, list[Value]]:
    parts = [_sql(it) for it in of]
    return f"({word.join(text for text, _ in parts)})", [value for _, values in parts for value in values]


def _name(column: Column) -> str:
    return ".".join(map(_quoted, column.path))


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _placeholder(column: Column) -> str:
    return "make_timestamptz(?::BIGINT)" if column.type == "TIMESTAMP" else "?"


def _stored(column: Column, value: Value) -> Value:
    """Converts a timestamp to microseconds, as the files have it."""
    return value * 1000 if column.type == "TIMESTAMP" and isinstance(value, int) else value

"""Reads a table's position without Spark: through pyiceberg, from the same snapshots that a job reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import TAG, Position, Start, newest_position, start
from kwire.pipeline.topic_state import TopicState
from kwire.pipeline.warehouse import NAMESPACE, Warehouse, call_catalog


@attrs.frozen
class TableState:
    """The state of a table in its newest snapshot. `snapshot_id` is None for a table that was never written."""

    properties: Mapping[str, str]
    snapshot_id: int | None
    position: Position | None


def table_state(warehouse: Warehouse, table: str) -> TableState | None:
    """The position of a table of the pipeline; None if it does not exist. Creates nothing. Raises PipelineError."""
    if not warehouse.exists():
        return None
    catalog = warehouse.pyiceberg_catalog()

    def load() -> TableState | None:
        try:
            return of_table(catalog.load_table((NAMESPACE, table)))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    try:
        return call_catalog(load, f"the table {table} in {warehouse}")
    finally:
        catalog.close()


def of_table(table: Table) -> TableState:
    """The position of a table that pyiceberg has loaded. Raises PipelineError for offsets of a newer kwire."""
    newest = table.current_snapshot()
    return TableState(
        properties=dict(table.properties),
        snapshot_id=None if newest is None else newest.snapshot_id,
        position=newest_position(summaries(table, newest)),
    )


def summaries(table: Table, newest: Snapshot | None) -> Iterator[Mapping[str, str]]:
    """The summaries of a snapshot and of its ancestors that were not expired, newest first; then the tagged one's."""
    snapshot = newest
    while snapshot is not None:
        yield {} if snapshot.summary is None else snapshot.summary.additional_properties
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    tagged = table.snapshot_by_name(TAG) if TAG in table.refs() else None
    # A table that was rolled back is older than its tag, so its own snapshots come first.
    if newest is not None and tagged is not None and tagged.summary is not None and _order(tagged) <= _order(newest):
        yield tagged.summary.additional_properties


def _order(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


@attrs.frozen
class JobStart:
    """The start of a job."""

    table_exists: bool
    start: Start
    unread: Mapping[int, int]
    """The number of offsets between the start and the topic's end, by partition."""

    def describe(self) -> dict[str, object]:
        """Returns the start for --dry-run, under stable names."""
        return {
            "table_exists": self.table_exists,
            "start": {str(number): offset for number, offset in sorted(self.start.position.offsets.items())},
            "unread": {str(number): count for number, count in sorted(self.unread.items())},
            "lost": [str(gap) for gap in self.start.gaps],
        }


def job_start(plan: TablePlan, topic: TopicState) -> JobStart:
    """Returns the start of the plan's job. Raises PipelineError for everything that would prevent it."""
    plan.warehouse.check()
    found = table_state(plan.warehouse, plan.table)
    if found is not None:
        plan.check_table(found.properties)
    reached = None if found is None else found.position
    begin_at = topic.starts if plan.begin == "earliest" else topic.ends
    begun = start(reached, topic, begin_at=begin_at, on_gap=plan.on_gap)
    unread = {number: topic.ends[number] - at for number, at in begun.position.offsets.items()}
    return JobStart(found is not None, begun, unread)

"""Maintains a table while readers and a job use it.

Small files are combined into large ones, position deletes are applied to the files, manifests are merged, and old
snapshots are expired. Files that belong to no snapshot (from killed runs) are deleted. Each step is one of Iceberg's
own actions with its own commit; a job whose batch it overtakes writes that batch again. The snapshot with the
table's offsets is tagged, and stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kwire.pipeline.clock import now_ms
from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.tables.java_errors import is_conflict

_ATTEMPTS: Final = 5
YOUNGEST_ORPHAN_S: Final = 24 * 3600
"""The minimum age of files to remove: a younger file may belong to a commit that is being written."""


@attrs.frozen(kw_only=True)
class Upkeep:
    """The settings of maintenance. Times are in seconds."""

    target_file_bytes: int = 128 << 20
    keep_snapshots_s: float = 5 * 24 * 3600
    keep_last: int = 1
    orphans_older_than_s: float | None = 3 * 24 * 3600
    """The minimum age of files of no snapshot that are removed. None removes none."""

    def check(self) -> None:
        """Raises PipelineError."""
        if self.orphans_older_than_s is not None and self.orphans_older_than_s < YOUNGEST_ORPHAN_S:
            raise PipelineError(
                "--orphans-older-than is a day at least: a younger file may belong to a commit that is being written"
            )


@attrs.frozen(kw_only=True)
class MaintenanceResult:
    """The result for one table."""

    table: str
    rewritten_files: int
    added_files: int
    expired_files: int
    orphans: int
    overtaken: int
    """The number of steps that failed because of a running job's commits; the next maintenance repeats them."""
    took_s: float


def maintain(spark: SparkSession, name: str, upkeep: Upkeep) -> MaintenanceResult:
    """Maintains one table, by its name in Spark's SQL. Raises PipelineError."""
    began_s = time.monotonic()
    at_ms = now_ms()
    assert spark._jvm is not None
    iceberg = spark._jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    figures = dict.fromkeys(_FIGURES, 0)
    if table.currentSnapshot() is not None:
        actions = iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
        steps: list[Callable[[], Mapping[str, int]]] = [
            lambda: _rewrite_files(actions, table, upkeep),
            lambda: _rewrite_manifests(actions, table),
            lambda: _expire(actions, table, upkeep, at_ms),
            lambda: _remove_orphans(actions, table, upkeep, at_ms),
        ]
        for step in steps:
            found = _until_not_overtaken(name, table, step)
            if found is None:
                figures["overtaken"] += 1
            else:
                figures.update(found)
    return MaintenanceResult(table=name, **figures, took_s=time.monotonic() - began_s)


_FIGURES = ("rewritten_files", "added_files", "expired_files", "orphans", "overtaken")


def _until_not_overtaken(name: str, table: Any, step: Callable[[], Mapping[str, int]]) -> Mapping[str, int] | None:
    """Returns the counts of a step; None if other writers' commits came in between each time. Raises PipelineError."""
    for _ in range(_ATTEMPTS):
        table.refresh()
        try:
            return step()
        except (PySparkException, Py4JJavaError) as error:
            if not is_conflict(error):
                raise PipelineError(
                    f"upkeep of {name} did not come to its end: {first_line(error)}. It can be started again"
                ) from None
    return None


def _rewrite_files(actions: Any, table: Any, upkeep: Upkeep) -> Mapping[str, int]:
    rewrite = actions.rewriteDataFiles(table)
    if table.sortOrder().isSorted():
        rewrite = rewrite.sort()  # an index: its files are to be sorted when they are merged, too
    for option, value in {
        "target-file-size-bytes": str(upkeep.target_file_bytes),
        "min-input-files": "2",
        # A file with deletes is rewritten without the rows; these deletes then refer to no file.
        "delete-file-threshold": "1",
        "remove-dangling-deletes": "true",
        # Commits each group of files on its own: a job that commits meanwhile makes only one group fail.
        "partial-progress.enabled": "true",
    }.items():
        rewrite = rewrite.option(option, value)
    done = rewrite.execute()
    return {"rewritten_files": done.rewrittenDataFilesCount(), "added_files": done.addedDataFilesCount()}


def _rewrite_manifests(actions: Any, table: Any) -> Mapping[str, int]:
    actions.rewriteManifests(table).execute()
    return {}


def _expire(actions: Any, table: Any, upkeep: Upkeep, at_ms: int) -> Mapping[str, int]:
    expire = actions.expireSnapshots(table).retainLast(upkeep.keep_last)
    done = expire.expireOlderThan(int(at_ms - upkeep.keep_snapshots_s * 1000)).execute()
    deletes = done.deletedPositionDeleteFilesCount() + done.deletedEqualityDeleteFilesCount()
    return {"expired_files": int(done.deletedDataFilesCount() + deletes)}


def _remove_orphans(actions: Any, table: Any, upkeep: Upkeep, at_ms: int) -> Mapping[str, int]:
    if upkeep.orphans_older_than_s is None:
        return {}
    remove = actions.deleteOrphanFiles(table).olderThan(int(at_ms - upkeep.orphans_older_than_s * 1000))
    return {"orphans": sum(1 for _ in remove.execute().orphanFileLocations())}

"""A table's next snapshot: written on a branch, then made `main` if no other writer was faster.

    main   ... - A                       main   ... - A - B
                  \\                                      ^ draft
          draft    B    -- publish -->

`publish` is Iceberg's fast-forward: one atomic change of the table's metadata, which is refused unless `main` is still
at A, an ancestor of B. So a write to the table after A is never overwritten, and a decision based on A (the table's
position) is still valid when B is published. Readers use only `main`.

If a branch is removed while rows are written to it, Iceberg creates it again at the commit, wherever `main` is by then,
such as at another writer's successor of A. That draft could be published, and its rows would be in the table twice. So
each snapshot of a draft has to be the child of the one before.

A snapshot with offsets is tagged in the same change (`kwire-offsets`). Expiry, by `maintain` or by other tools, keeps
tagged snapshots, so the offsets stay when newer snapshots, made by compactions, have none.

This is the only file that uses Iceberg's Java classes: Spark's SQL cannot tell a conflict from another error, nor
answer within milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import attrs
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kwire.pipeline.errors import PipelineError, first_line
from kwire.pipeline.tables.java_errors import is_conflict
from kwire.pipeline.tables.position import TAG, Position, newest_position

BRANCH_PREFIX: Final = "kwire-draft-"
CONFLICTS_IN_A_ROW: Final = 20
"""Compactions and backfills cause a conflict now and then. After this many in a row, something else is wrong."""

_PROPERTY_OPTION = "snapshot-property."
_PROPERTY_SETTING = "spark.sql.iceberg.snapshot-property."
_MERGED_VIEW = "kwire_batch"


class Conflict(Exception):
    """Another writer's snapshot came in between. Nothing was changed; the caller reads the table again."""


@attrs.frozen
class Head:
    """The snapshot of `main`: `snapshot_id` is None for a table that was never written."""

    snapshot_id: int | None
    position: Position | None


class Table:
    """An Iceberg table of a Spark session. One owner: its draft is a single branch, named by `run_id`."""

    def __init__(self, spark: SparkSession, name: str, *, run_id: str) -> None:
        """`name` is as in Spark's SQL, with backticks; the table exists."""
        assert spark._jvm is not None
        self._jvm = spark._jvm
        self._java = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
        self._branch = f"{BRANCH_PREFIX}{run_id}"
        self.name = name
        self._tip: int | None = None
        """The draft's newest snapshot."""
        self.draft_name = f"{name}.`branch_{self._branch}`"

    def head(self) -> Head:
        """Reads the current snapshot of `main`, and the table's position."""
        self._java.refresh()
        snapshot = self._java.currentSnapshot()
        if snapshot is None:
            return Head(None, None)
        summaries = [*_summaries(self._java, snapshot)]
        if self._java.refs().containsKey(TAG):
            tagged = self._java.snapshot(TAG)
            # A table that was rolled back is older than its tag, so its own snapshots come first.
            if tagged.sequenceNumber() <= snapshot.sequenceNumber():
                summaries.append(tagged.summary())
        return Head(snapshot.snapshotId(), newest_position(summaries))

    def properties(self) -> dict[str, str]:
        """The table's properties, as `head` last saw them."""
        return {str(name): str(value) for name, value in self._java.properties().items()}

    def set_property(self, name: str, value: str) -> None:
        self._java.updateProperties().set(name, value).commit()

    def has_snapshot(self, snapshot_id: int) -> bool:
        """Returns True if the snapshot still exists, as `head` last saw the table."""
        return self._java.snapshot(snapshot_id) is not None

    def tag(self, name: str, snapshot_id: int) -> None:
        """Tags a snapshot, so that it is not expired. An existing tag of that name is moved."""

        def put(change: Any, *, is_there: bool) -> None:
            (change.replaceTag if is_there else change.createTag)(name, snapshot_id)

        self._change_tag(name, put)

    def untag(self, name: str) -> None:
        """Removes a tag, if it exists."""

        def take(change: Any, *, is_there: bool) -> None:
            if is_there:
                change.removeTag(name)

        self._change_tag(name, take)

    def _change_tag(self, name: str, how: Callable[..., None]) -> None:
        for _ in range(CONFLICTS_IN_A_ROW):
            self._java.refresh()
            change = self._java.manageSnapshots()
            how(change, is_there=self._java.refs().containsKey(name))
            with suppress(Conflict):
                _commit(change)
                return
        raise PipelineError(f"{CONFLICTS_IN_A_ROW} times in a row somebody else wrote to {self.name}: try again")

    def is_partitioned(self) -> bool:
        return bool(self._java.spec().isPartitioned())

    def schemas(self) -> list[StructType]:
        """All schemas that the table ever had, oldest first, as Spark's types."""
        convert = self._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert
        found = sorted(self._java.schemas().items(), key=lambda it: int(it[0]))
        return [StructType.fromJson(json.loads(convert(schema).json())) for _, schema in found]

    def commit_first(self, properties: Mapping[str, str]) -> None:
        """The first snapshot of a table: these properties and no rows. Raises Conflict if there is one already."""
        self.drop_draft()
        self._tip = None
        append = self._java.newAppend().toBranch(self._branch)
        for key, value in properties.items():
            append.set(key, value)
        with self._writing():
            append.commit()
        self.publish(with_position=True)

    def commit(self, write: Callable[[Head], None], *, with_position: bool) -> None:
        """Lets `write` fill the draft and publishes it; again if another writer's snapshot came in between.

        `write` gets the head of `main`, and decides based on it. If it raises, the table stays as it was.
        """
        for _ in range(CONFLICTS_IN_A_ROW):
            head = self.head()
            try:
                self.begin(head)
                write(head)
                self.publish(with_position=with_position)
            except Conflict:
                continue
            return
        raise PipelineError(
            f"{CONFLICTS_IN_A_ROW} times in a row somebody else wrote to {self.name} while a batch was written: "
            "give the job fewer neighbours, or smaller batches (--max-records-per-commit)"
        )

    def begin(self, head: Head) -> None:
        """Begins the draft at the head of `main` that was read. An earlier draft is dropped.

        Raises Conflict if the table was changed since then.
        """
        assert head.snapshot_id is not None, "a table gets a position before it gets a draft"
        change = self._java.manageSnapshots()
        if self._java.refs().containsKey(self._branch):
            change.replaceBranch(self._branch, head.snapshot_id)
        else:
            change.createBranch(self._branch, head.snapshot_id)
        _commit(change)
        self._tip = head.snapshot_id

    def append(self, rows: DataFrame, properties: Mapping[str, str]) -> None:
        """Adds rows to the draft, in one snapshot that carries `properties`. Raises Conflict."""
        writer = rows.writeTo(self.draft_name)
        for key, value in properties.items():
            writer = writer.option(f"{_PROPERTY_OPTION}{key}", value)
        with self._writing():
            writer.append()

    def merge(self, rows: DataFrame, statement: str, properties: Mapping[str, str]) -> None:
        """Runs a MERGE of `rows`, its view named {rows}, into the draft, named {draft}, in one snapshot.

        It carries `properties`. Raises Conflict if the draft is gone.

        MERGE takes properties from the session's settings: a streaming query has a session of its own, and that is
        the rows'.
        """
        spark = rows.sparkSession
        settings = {f"{_PROPERTY_SETTING}{key}": value for key, value in properties.items()}
        rows.createOrReplaceTempView(_MERGED_VIEW)
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            with self._writing():
                spark.sql(statement.format(rows=_MERGED_VIEW, draft=self.draft_name))
        finally:
            for key in settings:
                spark.conf.unset(key)
            spark.catalog.dropTempView(_MERGED_VIEW)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raises Conflict if the draft was removed before or during the write, and as `_conflicts` does."""
        try:
            with _conflicts():
                yield
        except (PySparkException, Py4JJavaError):  # Spark's error may have another type: check if the draft was removed
            self._java.refresh()
            if self._java.refs().containsKey(self._branch):
                raise
            raise Conflict(f"the draft {self._branch} was removed") from None
        newest = self._newest()
        if newest.snapshotId() != self._tip:
            if newest.parentId() != self._tip:
                raise Conflict(f"the draft {self._branch} was removed, and started again elsewhere")
            self._tip = newest.snapshotId()

    def _newest(self) -> Any:
        """The draft's newest snapshot, as the catalog has it. Raises Conflict if the draft is gone."""
        self._java.refresh()
        snapshot = self._java.snapshot(self._branch)
        if snapshot is None:
            raise Conflict(f"the draft {self._branch} was removed")
        return snapshot

    def draft_summary(self) -> dict[str, str]:
        """Returns Iceberg's counts of the draft's last snapshot: `added-records` and so on.

        Raises Conflict if the draft is gone: a run that started meanwhile has removed it as a leftover.
        """
        return {str(key): str(value) for key, value in self._newest().summary().items()}

    def publish(self, *, with_position: bool) -> None:
        """Makes the draft `main`. Raises Conflict if `main` is no longer where the draft began.

        with_position: the draft's last snapshot carries offsets.
        """
        draft = self._newest()
        if draft.snapshotId() != self._tip:
            raise Conflict(f"the draft {self._branch} is not as it was written")
        change = self._java.manageSnapshots()
        try:
            change.fastForwardBranch("main", self._branch)
        except IllegalArgumentException as error:  # `main` is no ancestor of the draft
            raise Conflict(str(error)) from None
        if with_position:
            tagged = self._java.refs().containsKey(TAG)
            (change.replaceTag if tagged else change.createTag)(TAG, draft.snapshotId())
        _commit(change)

    def drop_draft(self) -> None:
        """Called at the end of a run."""
        self._drop(lambda branch: branch == self._branch)

    def drop_drafts_of_others(self) -> None:
        """Drops the drafts of killed runs. A run that is still alive gets a Conflict, and tries again."""
        self._drop(lambda branch: branch.startswith(BRANCH_PREFIX) and branch != self._branch)

    def _drop(self, which: Callable[[str], bool]) -> None:
        for _ in range(CONFLICTS_IN_A_ROW):
            self._java.refresh()
            change, found = self._java.manageSnapshots(), False
            for branch in filter(which, map(str, list(self._java.refs().keySet()))):
                change.removeBranch(branch)
                found = True
            if not found:
                return
            with suppress(Conflict):
                _commit(change)


def _commit(change: Any) -> None:
    """Commits a change of the table's branches. Raises Conflict if the table has changed since the change began.

    Iceberg retries automatically, finds each time that the table has changed, and gives up.
    """
    with _conflicts():
        change.commit()


@contextmanager
def _conflicts() -> Iterator[None]:
    """Raises Conflict if Iceberg has lost to other writers too often."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if not is_conflict(error):
            raise
        raise Conflict(first_line(error)) from None


def _summaries(table: Any, snapshot: Any) -> Iterator[Mapping[str, str]]:
    """The summaries of a snapshot and of its ancestors that were not expired."""
    while snapshot is not None:
        yield snapshot.summary()
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)

"""Writes a batch of records to its table and its errors table, once.

The order of the steps, and what a kill between them leaves:

1. The good rows are written to a draft of the table, with the offsets after the batch. Drafts have no readers.
2. The bad rows are sent to the dead-letter topic, if there is one; after a kill here they are sent again.
   Then they are written to a draft of the errors table, with the same offsets, and published. A job that starts now
   reads the batch again, or a longer or shorter one, and skips the bad rows that the errors table already has.
3. The table's draft is published. The batch is done.

Each step is dropped and repeated if another writer's snapshot came in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import attrs
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables import rows
from kwire.pipeline.tables.decoding import REASON
from kwire.pipeline.tables.draft import Conflict, Head, Table
from kwire.pipeline.tables.position import PROPERTY, Gap, Position, Start


class AnotherJob(PipelineError):
    """Another writer has moved the table's position."""


@attrs.frozen
class Counts:
    """The counts of one batch."""

    records: int
    errors: int


@attrs.define(eq=False)
class TableWriter:
    """Writes to a table and its errors table.

    decode: adds `decoded` and `reason` to the connector's records.
    upsert: True to keep one row per key.
    send_bad: gets decoded records, and the offsets before which the bad ones were sent already.
    arrange: makes the table's rows of the good ones that `rows.with_kafka` returns. Default: `rows.good`.
    """

    table: Table
    errors: Table
    decode: Callable[[DataFrame], DataFrame]
    upsert: bool = False
    send_bad: Callable[[DataFrame, Mapping[int, int]], None] | None = None
    arrange: Callable[[DataFrame], DataFrame] | None = None

    def reached(self) -> Position | None:
        """The position that the table has now."""
        return self.table.head().position

    def drop_drafts_of_others(self) -> None:
        """Drops the drafts of killed runs. A run that is still alive gets a Conflict, and tries again."""
        for table in (self.table, self.errors):
            table.drop_drafts_of_others()

    def drop_drafts(self) -> None:
        """Called at the end of a run."""
        for table in (self.table, self.errors):
            table.drop_draft()

    def open(self, spark: SparkSession, begun: Start) -> Position:
        """Records the start of a run, and the lost ranges before it; returns the table's position."""
        if self.errors.head().snapshot_id is None:
            with suppress(Conflict):  # another job that starts was first; the table's commits decide between them
                self.errors.commit_first(_summary(attrs.evolve(begun.position, offsets={})))
        lost = self._not_noted(spark, begun.gaps)
        if lost:
            after = _further(begun.position, self._noted(self.errors.head()))
            self.errors.commit(
                lambda _: self.errors.append(rows.gap_rows(spark, lost), _summary(after)), with_position=True
            )
        head = self.table.head()
        if head.snapshot_id is None:
            with suppress(Conflict):
                self.table.commit_first(_summary(begun.position))
        elif begun.gaps:
            empty = spark.table(self.table.name).limit(0)
            self.table.commit(lambda _: self.table.append(empty, _summary(begun.position)), with_position=True)
        found = self.reached()
        assert found is not None
        return found

    def commit(
        self, records: DataFrame, *, reached: Position, after: Position, still_so: Callable[[], object]
    ) -> Counts:
        """Adds the records between two positions. Raises AnotherJob if the table is not at `reached` any more.

        `still_so` is called after the rows are written and before they are published. If it raises, the table stays as
        it was.
        """
        decoded = rows.with_kafka(self.decode(records))
        if self.upsert:
            decoded = rows.require_key(decoded).persist()
        counts: list[Counts] = []

        def write(head: Head) -> None:
            if head.position != reached:
                raise AnotherJob(
                    f"another job writes the table {self.table.name}: this one left it at {_offsets(reached)}, and it "
                    f"is at {_offsets(head.position)}. Stop one of them; nothing was lost or doubled"
                )
            written = self._upsert(decoded, after) if self.upsert else self._append(decoded, after)
            still_so()
            if written.errors:
                self._write_errors(decoded, after)
            counts.append(written)

        try:
            self.table.commit(write, with_position=True)
        finally:
            if self.upsert:
                decoded.unpersist()
        return counts[-1]

    def _append(self, decoded: DataFrame, after: Position) -> Counts:
        """Writes the draft in one pass over the records, which also counts them."""
        seen = Observation()
        all_of_them, bad = F.count(F.lit(1)).alias("records"), F.count(REASON).alias("errors")
        observed = decoded.observe(seen, all_of_them, bad)
        arrange = self.arrange or rows.good
        self.table.append(arrange(observed), _summary(after))
        counts = Counts(seen.get["records"], seen.get["errors"])
        added = int(self.table.draft_summary().get("added-records", "0"))
        if added != counts.records - counts.errors:
            raise PipelineError(
                f"{added} rows were written to {self.table.name}, of {counts.records} records with {counts.errors} "
                "errors among them: the batch was not committed. Please report this"
            )
        return counts

    def _upsert(self, decoded: DataFrame, after: Position) -> Counts:
        (seen,) = decoded.agg(F.count(F.lit(1)).alias("records"), F.count(REASON).alias("errors")).collect()
        if seen.records > seen.errors:
            self.table.merge(rows.newest_by_key(decoded), rows.UPSERT, _summary(after))
        if PROPERTY not in self.table.draft_summary() or seen.records == seen.errors:
            self.table.append(rows.good(decoded).limit(0), _summary(after))
        return Counts(seen.records, seen.errors)

    def _write_errors(self, decoded: DataFrame, after: Position) -> None:
        if self.send_bad is not None:
            self.send_bad(decoded, self._noted(self.errors.head()))

        def write(head: Head) -> None:
            noted = self._noted(head)
            self.errors.append(rows.bad(decoded, since=noted), _summary(_further(after, noted)))

        self.errors.commit(write, with_position=True)

    def _not_noted(self, spark: SparkSession, gaps: Sequence[Gap]) -> list[Gap]:
        """The gaps without those that a killed run has already recorded.

        The position of the errors table does not show that: it is ahead of the table if a batch was not published.
        """
        if not gaps:
            return []
        known = rows.noted_gaps(spark.table(self.errors.name))
        begun = [attrs.evolve(gap, first=max(gap.first, known.get(gap.partition, 0))) for gap in gaps]
        return [gap for gap in begun if gap.first < gap.until]

    @staticmethod
    def _noted(errors: Head) -> Mapping[int, int]:
        """The offsets of the errors table."""
        return {} if errors.position is None else errors.position.offsets


def _further(position: Position, noted: Mapping[int, int]) -> Position:
    """The position, moved back in no partition: a batch repeated after a kill may end before the first one did."""
    return position.moved({number: max(at, position.offsets.get(number, at)) for number, at in noted.items()})


def _summary(position: Position) -> dict[str, str]:
    return {PROPERTY: position.to_json()}


def _offsets(position: Position | None) -> str:
    if position is None:
        return "no offsets"
    return ", ".join(f"{partition}:{offset}" for partition, offset in sorted(position.offsets.items()))

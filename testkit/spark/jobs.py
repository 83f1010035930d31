"""Table jobs in the tests' own Spark session, and their tables as pyiceberg sees them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import attrs
import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import SparkSession

from kwire.pipeline.index.fields import parse_fields
from kwire.pipeline.index.layout import open_index
from kwire.pipeline.index.plan import IndexPlan
from kwire.pipeline.job import Job, Run
from kwire.pipeline.report import Step
from kwire.pipeline.tables.plan import TablePlan, check_plans, table_of
from kwire.pipeline.tables.position import TAG, Position
from kwire.pipeline.tables.preparing import open_existing
from kwire.pipeline.tables.run import TableRun
from kwire.pipeline.tables.table_state import table_state
from kwire.pipeline.tables.verify import Report, verify
from kwire.pipeline.topics import Topics
from kwire.pipeline.warehouse import NAMESPACE, Warehouse, errors_table_name, index_table_name
from testkit.basics.waiting import eventually
from testkit.spark.tables import READER_DEFAULTS

_numbers = itertools.count(1)
R = TypeVar("R", bound=Run)


@attrs.define
class RecordedReport:
    """A report that records its steps and warnings."""

    steps: list[Step] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)

    def step(self, step: Step) -> None:
        self.steps.append(step)

    def warning(self, text: str) -> None:
        self.warnings.append(text)


@attrs.define(eq=False)
class Jobs:
    spark: SparkSession
    bootstrap: str
    warehouse: Warehouse
    topics: Topics
    source_options: Mapping[str, str] = attrs.field(factory=lambda: READER_DEFAULTS)

    def plan(self, topic: str, **options: Any) -> TablePlan:
        table = table_of(topic, options.pop("table", None))
        plan = TablePlan(
            bootstrap=self.bootstrap,
            topic=topic,
            warehouse=self.warehouse,
            table=table,
            **{
                "once": True,
                "interval_s": 0.2,
                **options,
                "source_options": {**self.source_options, **options.get("source_options", {})},
            },
        )
        check_plans([plan])
        return plan

    def index_plan(self, topic: str, fields: str, **options: Any) -> IndexPlan:
        plan = IndexPlan(
            bootstrap=self.bootstrap,
            topic=topic,
            warehouse=self.warehouse,
            table=index_table_name(table_of(topic, None)),
            fields=parse_fields(fields),
            **{"once": True, "interval_s": 0.2, "buckets": 2, **options},
        )
        check_plans([plan])
        return plan

    def index_once(self, topic: str, fields: str, **options: Any) -> RecordedReport:
        """Lets an index job take what there is. Raises what ended it."""
        report, plan = RecordedReport(), self.index_plan(topic, fields, **options)
        run = TableRun(plan, self.spark, self.topics, f"t{next(_numbers)}", report, open_index)
        Job([run], 20.0, report.warning).work()
        return report

    def run_of(self, topic: str, report: RecordedReport | None = None, **options: Any) -> TableRun:
        return TableRun(
            self.plan(topic, **options), self.spark, self.topics, f"t{next(_numbers)}", report or RecordedReport()
        )

    def once(self, topic: str, **options: Any) -> RecordedReport:
        """Lets a job take what there is. Raises what ended it."""
        report = RecordedReport()
        Job([self.run_of(topic, report, **options)], 20.0, report.warning).work()
        return report

    def verify(self, topic: str, table: str | None = None) -> Report:
        plan, writer = open_existing(
            self.warehouse, table_of(topic, table), self.spark, bootstrap=self.bootstrap, options={}, run_id="verify"
        )
        return verify(plan, writer, self.spark, self.topics)

    def table(self, topic: str, table: str | None = None) -> IcebergTable:
        return self.warehouse.pyiceberg_catalog().load_table((NAMESPACE, table_of(topic, table)))

    def rows(self, topic: str, table: str | None = None) -> list[dict[str, Any]]:
        """Returns the rows by partition and offset; `kafka` and `value` as dictionaries."""
        return _sorted(self.table(topic, table).scan().to_arrow())

    def errors(self, topic: str, table: str | None = None) -> list[dict[str, Any]]:
        name = (NAMESPACE, errors_table_name(table_of(topic, table)))
        return _sorted(self.warehouse.pyiceberg_catalog().load_table(name).scan().to_arrow())

    def values(self, topic: str) -> list[Any]:
        """Returns the values as Spark reads them, by partition and offset. (pyiceberg takes a list that is null for an
        empty one.)
        """
        table = self.spark.table(self.warehouse.spark_name(table_of(topic, None)))
        found = table.orderBy("kafka.partition", "kafka.offset").select("value").collect()
        return [None if row.value is None else row.value.asDict(recursive=True) for row in found]

    def position(self, topic: str, table: str | None = None) -> Position:
        found = table_state(self.warehouse, table_of(topic, table))
        assert found is not None
        assert found.position is not None
        return found.position

    def branches(self, topic: str, table: str | None = None) -> set[str]:
        """Returns the branches of the table and its errors table, besides `main`."""
        name = table_of(topic, table)
        catalog = self.warehouse.pyiceberg_catalog()
        refs = (catalog.load_table((NAMESPACE, it)).refs() for it in (name, errors_table_name(name)))
        return {branch for found in refs for branch in found} - {"main", TAG}

    @contextmanager
    def running(self, topic: str, *, give_up_after_s: float = 60.0, **options: Any) -> Iterator[Running[TableRun]]:
        """A job that runs until it is stopped, or the block ends. Raises its error."""
        report = RecordedReport()
        run = self.run_of(topic, report, **{"once": False, **options})
        found = Running(Job([run], give_up_after_s, report.warning), run, report)
        found.thread.start()
        try:
            yield found
        finally:
            found.stop()


@attrs.define(eq=False)
class Running(Generic[R]):
    """A job of one run, in a thread of its own."""

    job: Job
    run: R
    report: RecordedReport
    error: BaseException | None = None
    thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=self._work, name="job")

    def _work(self) -> None:
        try:
            self.job.work()
        except BaseException as error:
            self.error = error

    def until_at(self, offsets: dict[int, int]) -> None:
        """Returns when that is committed."""

        def there() -> bool:
            assert self.thread.is_alive(), f"the job ended: {self.error!r}"
            return bool(self.report.steps) and self.report.steps[-1].offsets == offsets

        eventually(there, f"it is at {offsets}", within_s=60)

    def until_it_ends(self) -> BaseException | None:
        self.thread.join(60)
        assert not self.thread.is_alive(), "the job still runs"
        return self.error

    def stop(self) -> None:
        """Requests a stop, and waits."""
        self.job.request_stop()
        self.thread.join(60)
        assert not self.thread.is_alive(), "the job does not stop"


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.to_pylist()
    return sorted(found, key=lambda row: (row["kafka"]["partition"], row["kafka"]["offset"]))


def positions(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Partition and offset of each."""
    return [(row["kafka"]["partition"], row["kafka"]["offset"]) for row in rows]

"""The format by which Spark passes rows to a task: kwire's own, which takes them as Arrow columns, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kwire.client.waiting import SystemClock
from kwire.pipeline.brokers import connect, explaining
from kwire.pipeline.clock import now_ms
from kwire.pipeline.replay.writing import Assignment, rows_of, write_rows
from kwire.pipeline.spark_source.light_tasks import begin_task, spare_reading_archives

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_FORMAT: Final = "kwire-replay"
_ASSIGNMENT: Final = "assignment"


class ReplaySink(DataSource):
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - Spark's call
        spare_reading_archives()
        return _Writer(Assignment.from_json(self.options[_ASSIGNMENT]))


class _Writer(DataSourceArrowWriter):
    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Called in a task. Raises PipelineError."""
        begin_task()
        it = self._assignment
        with explaining(), connect(it.bootstrap, timeout_s=it.timeout_s) as cluster:
            write_rows(cluster, it, rows_of(iterator), now_ms=now_ms, clock=SystemClock())
        return WriterCommitMessage()


def write(rows: DataFrame, assignment: Assignment) -> None:
    """Lets the tasks write all rows. Raises Spark's error if one fails."""
    spark = rows.sparkSession
    spark.dataSource.register(ReplaySink)
    # Formats are looked up in the thread's session, and a new thread has none.
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    rows.write.format(_FORMAT).option(_ASSIGNMENT, assignment.to_json()).mode("append").save()

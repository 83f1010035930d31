"""Writes a stream into topics: `writeStream.format("kwire")`, each batch once however often Spark runs it.

Spark 4.0 creates a new writer wherever it needs one, and calls, as measured:

| where | calls |
|---|---|
| a process on the driver's machine, each batch | DataSource.streamWriter(), and pickles what it returns |
| each task | write(rows), which returns the task's message |
| another process on that machine | commit(messages, batch id); abort(messages, batch id) when something failed |

Spark's local properties give a task the id of its query, which a restart keeps, and the id of its run, which changes.
The messages carry the query's id to the driver, and it is the writer's name in the ledger. Readers see each batch once
with `read_committed`; `delivery/committing.py` describes what happens after each kind of crash.

A query with a lost or new checkpoint is another query: its batches begin from 0, and it writes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError
from kwire.pipeline.clock import now_ms
from kwire.pipeline.delivery.committing import Committer
from kwire.pipeline.delivery.parts import Part, PartWriter
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.spark_source.batch_writer import Written, add_rows, connect, write_as_it_comes
from kwire.pipeline.spark_source.sink_options import SinkOptions
from kwire.pipeline.spark_source.task import this_task
from kwire.runtime.callbacks import ignore

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@attrs.frozen
class WrittenPart(WriterCommitMessage):
    """A part that a task has left open, and its query."""

    writer: str
    part: Part


class StreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """`DataSourceArrowWriter` makes Spark pass Arrow batches instead of a Row for each row."""

    step: Callable[[str], None] = staticmethod(ignore)
    """Called before each step of a commit; tests die there."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    # In a task

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Raises PipelineError."""
        if not self.options.is_exactly_once:
            return write_as_it_comes(self.options, iterator)
        task = this_task()
        writer_name = self.options.sink_id or task.query_id
        if writer_name is None:
            raise PipelineError(
                "Spark does not give this task the id of its query: set the option kwire.sink.id to a name of it"
            )
        try:
            with connect(self.options) as cluster:
                prefix = self._committer(cluster, writer_name).prefix
                with PartWriter(
                    cluster,
                    f"{prefix}{task.run_id}/{task.partition}/{task.attempt}",
                    task.partition,
                    begun_ms=now_ms(),
                    timeout_ms=self.options.transaction_timeout_ms,
                    compression=self.options.compression,
                ) as writer:
                    add_rows(writer.records, iterator, self.options)
                    return WrittenPart(writer_name, writer.finish())
        except ClientError as error:
            raise PipelineError(error.message) from None

    # On the driver's machine

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Raises PipelineError. Spark calls `abort` then, ends the query, and runs the batch again at its restart."""
        self._for_writer(messages, lambda committer, parts: committer.commit(batchId, parts))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: ARG002, N803
        """Aborts the parts of the batch. Tasks that failed have no message."""
        self._for_writer(messages, lambda committer, parts: committer.abort(parts))

    def _for_writer(
        self, messages: Sequence[WriterCommitMessage | None], act: Callable[[Committer, Sequence[Part]], object]
    ) -> None:
        written = [it for it in messages if isinstance(it, WrittenPart)]
        if not written:
            return
        (writer_name,) = {it.writer for it in written}
        try:
            with connect(self.options) as cluster:
                act(self._committer(cluster, writer_name), [it.part for it in written])
        except ClientError as error:
            raise PipelineError(error.message) from None

    def _committer(self, cluster: Cluster, writer_name: str) -> Committer:
        return Committer(
            cluster=cluster,
            writer=writer_name,
            timeout_ms=self.options.transaction_timeout_ms,
            now_ms=now_ms,
            ledger_topic=self.options.ledger_topic,
            step=self.step,
        )


__all__ = ["StreamWriter", "Written", "WrittenPart"]

"""A streaming query of Spark's connector with given start offsets, which passes each batch to a function.

Spark stores its position in a checkpoint. Here that is an empty folder for each start, because the caller keeps its own
position and decides where to continue. Spark writes a batch's offsets there before the batch begins, and only those are
used: the batch's end, after control records and compacted records, which its rows do not show.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_STOP_WITHIN_S = 120


@attrs.define(eq=False)
class BatchStream:
    """A stream with one owner. Spark calls `act` in a thread of its own, one batch after the other.

    act: gets a batch's records and its number. If it raises, the query ends, and `failure` has the error.
    """

    spark: SparkSession
    act: Callable[[DataFrame, int], None]
    query: StreamingQuery | None = None
    failure: Exception | None = None
    """The error that ended the query, if it was raised within a batch."""
    _checkpoint: Path | None = None
    _busy: threading.Lock = attrs.field(factory=threading.Lock)
    _stopping: bool = False

    def start(
        self,
        name: str,
        source: Mapping[str, str],
        offsets: Mapping[str, Mapping[int, int]],
        *,
        interval_s: float | None,
        max_records: int = 0,
    ) -> None:
        """Starts the query. May be called again when it has ended.

        source: the connector's options, without the offsets.
        offsets: the start offsets, by topic and partition; all partitions are required.
        interval_s: the interval of batches; None reads all records that exist, then ends.
        max_records: the maximum number of records in a batch, of all topics together; 0 for no limit.
        """
        self.forget_checkpoint()
        self.failure = None
        self._checkpoint = Path(tempfile.mkdtemp(prefix="kwire-pipeline-"))
        records = self.spark.readStream.format("kafka").options(**source)
        if max_records:
            records = records.option("maxOffsetsPerTrigger", max_records)
        stream = records.option("startingOffsets", json.dumps(offsets)).load()
        writer = stream.writeStream.foreachBatch(self._batch).queryName(name)
        writer = writer.option("checkpointLocation", self._checkpoint.as_uri())
        if interval_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(interval_s * 1000)} milliseconds")
        self.query = writer.start()

    def stop(self) -> None:
        """Lets the current batch finish, and ends the query. May be called twice."""
        self._stopping = True
        waited = self._busy.acquire(timeout=_STOP_WITHIN_S)
        try:
            if self.query is not None:
                self.query.stop()
        finally:
            if waited:
                self._busy.release()
        self.forget_checkpoint()

    def forget_checkpoint(self) -> None:
        """Deletes the checkpoint of a query that has ended."""
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._checkpoint = None

    def end_of(self, batch_id: int) -> dict[str, dict[int, int]]:
        """The end of a batch that has begun, by topic and partition: the next offset after it."""
        assert self._checkpoint is not None
        lines = Path(self._checkpoint, "offsets", str(batch_id)).read_text(encoding="utf-8").splitlines()
        return {
            topic: {int(partition): offset for partition, offset in ends.items()}
            for topic, ends in json.loads(lines[-1]).items()
        }

    def _batch(self, records: DataFrame, batch_id: int) -> None:
        # A caller of stop() holds the lock until this thread has ended, so waiting for the lock would deadlock.
        if not self._busy.acquire(blocking=False):
            return
        try:
            if not self._stopping:
                self.act(records, batch_id)
        except Exception as error:
            self.failure = error
            raise
        finally:
            self._busy.release()


@attrs.define(eq=False)
class StreamingRun:
    """The part of `job.Run` that is the same for all runs whose query is a stream."""

    _stream: BatchStream = attrs.field(init=False)

    @property
    def query(self) -> StreamingQuery | None:
        return self._stream.query

    @property
    def failure(self) -> Exception | None:
        """The error that ended the query, if it was raised within a batch."""
        return self._stream.failure

    def forget_query(self) -> None:
        """Called when the query has ended and its failure was read."""
        self._stream.query = None

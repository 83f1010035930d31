"""A streaming query of Spark's connector that is told where to start, and hands each batch to a function.

Spark keeps what it has read in a checkpoint; ours is an empty folder for each start, since whoever uses this keeps its
own place and says where to go on. What a batch reads is written there before the batch begins, and that is the one
thing taken from it: where the batch ends, behind control records and what was compacted away, which no row would tell.
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
    """One owner, who starts and stops it. Spark calls `act` in a thread of its own, one batch after the other.

    act: is given a batch's records and its number. What it raises ends the query, and is in `failure`.
    """

    spark: SparkSession
    act: Callable[[DataFrame, int], None]
    query: StreamingQuery | None = None
    failure: Exception | None = None
    """What ended the query, where it was raised within a batch."""
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

        source: the connector's options, but for the offsets.
        offsets: where to start, by topic and partition; all partitions have to be there.
        interval_s: how often a batch begins; None takes what there is, then ends.
        max_records: the most that one batch takes, of all topics together; 0 for all that there is.
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
        """Lets a batch that is being worked on come to its end, and ends the query. May be called twice."""
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
        """Of a query that is over."""
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._checkpoint = None

    def end_of(self, batch_id: int) -> dict[str, dict[int, int]]:
        """Where a batch that has begun ends, by topic and partition: the next offset behind it."""
        assert self._checkpoint is not None
        lines = Path(self._checkpoint, "offsets", str(batch_id)).read_text(encoding="utf-8").splitlines()
        return {
            topic: {int(partition): offset for partition, offset in ends.items()}
            for topic, ends in json.loads(lines[-1]).items()
        }

    def _batch(self, records: DataFrame, batch_id: int) -> None:
        # Who stops the query holds the lock until this thread has ended: to wait for it would be to wait for ever.
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
    """What a job asks of its runs (`job.Run`), where a stream is the run's query."""

    _stream: BatchStream = attrs.field(init=False)

    @property
    def query(self) -> StreamingQuery | None:
        return self._stream.query

    @property
    def failure(self) -> Exception | None:
        """What ended the query, where it was raised within a batch."""
        return self._stream.failure

    def forget_query(self) -> None:
        """When it has ended, and was asked how."""
        self._stream.query = None

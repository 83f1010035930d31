"""A log that has to wait for its bytes: each read is answered when the test calls for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from kwire_storage.log.log import Log, LogSlice
from outcome import Outcome, capture

from kwire.replicas.partition import Partition
from kwire.replicas.partition_log import PartitionLog
from kwire.runtime.futures import Future
from testkit.scenes.partition_files import log_files


class LateLog:
    """Everything but reads is the log's. `waiting` has the reads that have no answer yet."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.is_late = True
        self.waiting: list[tuple[Future[Outcome[LogSlice]], Callable[[], LogSlice]]] = []

    @classmethod
    def of(cls, partition: Partition) -> LateLog:
        """Gives the partition's log this behaviour."""
        late = cls(log_files(partition))
        partition.log = cast(PartitionLog, late)
        return late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(
        self, offset: int, *, max_bytes: int, max_offset: int, min_one_batch: bool = True
    ) -> LogSlice | Future[Outcome[LogSlice]]:
        def work() -> LogSlice:
            return self._log.read(offset, max_bytes=max_bytes, max_offset=max_offset, min_one_batch=min_one_batch)

        if not self.is_late:
            return work()
        future: Future[Outcome[LogSlice]] = Future()
        self.waiting.append((future, work))
        return future

    def answer(self, error: Exception | None = None) -> None:
        """Answers the read that has waited the longest."""

        def fail() -> LogSlice:
            assert error is not None
            raise error

        future, work = self.waiting.pop(0)
        future.set(capture(work if error is None else fail))

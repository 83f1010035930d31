"""The interface of a partition's log: appends, reads, look-ups, producers, epochs, truncation, retention, flushes.

`kwire_storage.log.log.Log`, which has segments, is an implementation. Everything above the log uses this interface, so
that a partition can have another one. Compaction and moves between log dirs work on the files of a `Log`.

The log is synchronous: appends go to the page cache, and all errors of the disk are OSError. A read may also return a
future, for a log whose bytes are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from kwire_protocol.records import BatchHeader
from kwire_storage.config import LogConfig
from kwire_storage.disk.reserve import Reserve
from kwire_storage.log.durability import Flush
from kwire_storage.log.epochs import EpochCache
from kwire_storage.log.log import AppendResult, LogSlice, TimestampOffset
from kwire_storage.producers.states import ProducerStates
from kwire_storage.producers.txn_index import AbortedTxn
from outcome import Outcome

from kwire.runtime.futures import Future

LogRead: TypeAlias = LogSlice | Future[Outcome[LogSlice]]
"""The result of a read: a slice, or a future for one, or for its error."""


class PartitionLog(Protocol):
    """One partition's log. `log_start_offset <= ... <= log_end_offset`; nothing below the `recovery_point` is lost."""

    path: str
    config: LogConfig
    reserve: Reserve
    """The room that is reserved for a full disk."""
    log_start_offset: int
    on_roll: Callable[[], None]
    """Called when a part of the log is complete and can be flushed for good."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def recovery_point(self) -> int: ...

    @property
    def size_in_bytes(self) -> int: ...

    @property
    def failed(self) -> OSError | None:
        """The error after which the log accepts no more appends; None while the disk can be trusted."""

    def fail(self, error: OSError) -> None:
        """Stops all appends until the next start."""

    # -- appends

    def append(
        self, batch: memoryview | bytearray, header: BatchHeader, *, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Sets a checked batch's offset, in place, and appends it. Raises StorageError, KafkaError."""

    def append_as_is(self, buf: memoryview, *, now_ms: int = 0) -> AppendResult:
        """Appends checked batches that already have offsets and epochs. Raises StorageError."""

    # -- reads

    def read(self, offset: int, *, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> LogRead:
        """Returns whole batches from the one that has `offset`, all below `max_offset`.

        At most `max_bytes`, but with `min_one_batch` always the first batch. Size 0 if there is nothing to read yet.
        Raises OffsetOutOfRange at once; OSError and CorruptLogError at once or in the future.
        """

    def batches(self, start_offset: int | None = None) -> Iterator[tuple[BatchHeader, LogSlice]]:
        """Yields every batch from the one that has `start_offset` (default: log start). Raises CorruptLogError."""

    def aborted_transactions(self, start_offset: int, piece: LogSlice) -> list[AbortedTxn]:
        """The aborted transactions that a reader of this slice needs, from `start_offset` on."""

    # -- look-ups

    def offset_for_timestamp(self, timestamp_ms: int, *, max_offset: int) -> TimestampOffset | None:
        """The first record below `max_offset` at or after the timestamp."""

    def max_timestamp_offset(self, *, max_offset: int) -> TimestampOffset | None:
        """The record below `max_offset` with the largest timestamp; the first of several."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and the offset at which the next one begins; (-1, -1) if unknown."""

    @property
    def leader_epochs(self) -> EpochCache: ...

    @property
    def producers(self) -> ProducerStates: ...

    # -- shortening

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> None:
        """Removes everything from the offset on, including the whole batch that has it."""

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Deletes all records; the log continues at the offset."""

    def advance_log_start(self, offset: int, *, now_ms: int = 0) -> bool:
        """Moves the log start (DeleteRecords). Returns False if nothing changed."""

    def maintain(self, now_ms: int, high_watermark: int) -> int:
        """Does periodic work, such as retention. Returns the number of parts that were deleted."""

    # -- flushes, one at a time

    def begin_flush(self) -> Flush: ...

    def finish_flush(self, flush: Flush) -> None: ...

    def give_up_flush(self, flush: Flush) -> None: ...

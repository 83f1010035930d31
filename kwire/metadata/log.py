"""The metadata log: a small interface, and its embedded implementation, a file in KRaft's own format.

The service uses only the interface, so that in a cluster the log can be elsewhere: append at the expected end, read
from an offset, get notified of new records.

The file is `__cluster_metadata-0`, with ordinary record batches; `records.py` frames each record's value. As in KRaft
it begins with a control batch that names the leader of the epoch. The embedded log has no elections, so it has one
epoch. One append is one batch, so after a crash it is complete or missing. An append is durable before it
returns: metadata changes are rare, and an acknowledged CreateTopics must survive a power cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs
from kwire_protocol.wire import Uuid
from kwire_storage.config import LogConfig
from kwire_storage.errors import is_passing
from kwire_storage.log.log import Log

from kwire.metadata.log_batches import (
    EPOCH,
    ReadRecords,
    append_batch,
    leader_change,
    newest_snapshot,
    read_records,
    snapshot_path,
    snapshots_of,
    values_batch,
)
from kwire.metadata.snapshots import Snapshot, snapshot_batches
from kwire.names.topic_names import CLUSTER_METADATA
from kwire.runtime.loop import Loop
from kwire.runtime.slices import Slices
from kwire.runtime.workers import Worker

METADATA_LOG_CONFIG: Final = LogConfig(retention_ms=-1, retention_bytes=-1, synced_one_by_one=True)
"""The metadata log is never deleted by age or size, because it is replayed from the start."""

METADATA_TOPIC: Final = CLUSTER_METADATA
METADATA_TOPIC_ID: Final[Uuid] = bytes(15) + b"\x01"
"""Kafka's Uuid.METADATA_TOPIC_ID."""
Watcher = Callable[[], None]


class AppendConflict(Exception):
    """Another writer appended first: read its records and decide again."""


class LogTruncated(Exception):
    """The log begins later: a snapshot has replaced the requested records."""


class MetadataLog(Protocol):
    """The log; methods that wait are coroutines that await futures. A service makes one append at a time."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record, unless another writer appends first."""
        ...

    async def append(self, values: Sequence[bytes], *, expected_end_offset: int) -> None:
        """Appends all values, durably, if the log ends where the caller expects.

        On a full disk it may use the reserve. Raises AppendConflict, OSError; then nothing was appended.
        """

    async def read(self, offset: int) -> ReadRecords:
        """Reads records from `offset` on, of complete appends; `next_offset` is `offset` if there are none.

        A long log is read in pieces. Raises LogTruncated, if another writer has written a snapshot meanwhile.
        """
        ...

    async def read_snapshot(self) -> Snapshot | None:
        """Reads the newest snapshot; the log may begin at its end. Raises CorruptLogError if the log begins later."""

    async def write_snapshot(self, values: Sequence[bytes], *, end_offset: int) -> None:
        """Stores a snapshot of the log up to that offset, whose records may be deleted. Raises OSError."""

    def watch(self, watcher: Watcher) -> None:
        """Calls `watcher` whenever there are new records to read, including the service's own."""


@attrs.define(eq=False)
class FileMetadataLog:
    """A metadata log in one partition's log, with no other writer. `now_ms` stamps the batches; syncs run in a worker
    thread while a server runs.
    """

    log: Log
    node_id: int
    now_ms: Callable[[], int]
    loop: Loop = attrs.field(factory=Loop)
    _end_offset: int = attrs.field(init=False)
    """The end offset of the durable records."""
    _watchers: list[Watcher] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self._end_offset = self.log.log_end_offset

    @property
    def end_offset(self) -> int:
        return self._end_offset

    async def append(self, values: Sequence[bytes], *, expected_end_offset: int) -> None:
        if expected_end_offset != self.end_offset:
            raise AppendConflict(f"the metadata log ends at {self.end_offset}, not at {expected_end_offset}")
        now_ms = self.now_ms()
        start = self.end_offset
        try:
            if self.log.log_end_offset > start:
                # The records of a failed change, which could not be cut off then.
                self.log.truncate_to(start)
            if start == 0:
                append_batch(self.log, leader_change(self.node_id, now_ms), now_ms)
                # Flushed one by one, like all later ones, so that a crash never leaves a good batch behind a bad one.
                await self._flush()
            append_batch(self.log, values_batch(values, now_ms), now_ms)
            await self._flush()
        except OSError as error:
            if is_passing(error):
                # The caller gets an error, so the batch must not become durable with the next change.
                self.log.truncate_to(start)
            else:
                self.log.fail(error)
            raise
        self._end_offset = self.log.log_end_offset
        for watcher in self._watchers:
            watcher()

    async def read(self, offset: int) -> ReadRecords:
        return read_records(self.log, offset, self.end_offset)

    async def read_snapshot(self) -> Snapshot | None:
        snapshot = newest_snapshot(self.log, self.now_ms())
        self._end_offset = self.log.log_end_offset
        return snapshot

    async def write_snapshot(self, values: Sequence[bytes], *, end_offset: int) -> None:
        assert end_offset == self.end_offset, "the embedded log has no other writer"
        log, now_ms = self.log, self.now_ms()
        older = snapshots_of(self.log)
        slices, content = Slices(self.loop, 1), bytearray()
        for batch in snapshot_batches(values, epoch=EPOCH, now_ms=now_ms):
            content += batch
            await slices.after(1)
        name = snapshot_path(log, end_offset)
        (await self.loop.in_worker(Worker.SNAPSHOT, lambda: log.disk.write_atomic(name, bytes(content)))).unwrap()
        # A start needs no older records from now on. The log continues in a new segment.
        if log.active.base_offset < end_offset:
            log.roll(now_ms)
            await self._flush()
        log.advance_log_start(end_offset, now_ms=now_ms)
        for _, name in older:
            log.disk.remove(name)

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    async def _flush(self) -> None:
        flush = self.log.begin_flush()
        try:
            (await self.loop.in_worker(Worker.FLUSH, flush.run)).unwrap()
        except BaseException:
            self.log.give_up_flush(flush)
            raise
        self.log.finish_flush(flush)

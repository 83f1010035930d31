"""The metadata log: a small interface, and its embedded implementation, a file in KRaft's own format.

The service knows only the interface, so that in a cluster the log can live elsewhere: append at the expected end, read
from an offset, get notified of new records.

The file is `__cluster_metadata-0`, with ordinary record batches; `records.py` frames each record's value. As in KRaft
it begins with a control batch that names the leader of the epoch. The embedded log has no elections, so it has one
epoch. One append is one batch, so after a crash it is there completely or not at all. An append is durable before it
returns: metadata changes are rare, and an acknowledged CreateTopics must survive a power cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs
from kwire_protocol.control_records import ControlType, build_control_batch
from kwire_protocol.internal.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from kwire_protocol.records import Record, build_batch, iter_records, read_header
from kwire_protocol.wire import Uuid, Writer
from kwire_storage import names
from kwire_storage.errors import CorruptLogError, is_passing
from kwire_storage.log.log import Log

from kwire.beside import Beside, Slices
from kwire.metadata.snapshots import Snapshot, read_snapshot_file, snapshot_batches
from kwire.topic_names import CLUSTER_METADATA
from kwire.workers import Worker

logger = logging.getLogger(__name__)

METADATA_TOPIC: Final = CLUSTER_METADATA
METADATA_TOPIC_ID: Final[Uuid] = bytes(15) + b"\x01"
"""Kafka's Uuid.METADATA_TOPIC_ID."""
EPOCH: Final = 1

READ_BYTES: Final = 1 << 20

Watcher = Callable[[], None]


class AppendConflict(Exception):
    """Another writer appended first: read its records and decide again."""


@attrs.frozen
class ReadRecords:
    """Offsets and values of some records, without control records, and the offset at which to continue."""

    records: list[tuple[int, bytes]]
    next_offset: int
    size_in_bytes: int = 0
    """Of the log."""


class MetadataLog(Protocol):
    """Methods that wait are coroutines that await slots. A service makes one append at a time."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets, unless another writer is faster."""
        ...

    async def append(self, values: Sequence[bytes], *, expected_end_offset: int) -> None:
        """Appends all values, durably, if the log ends where the caller expects.

        On a full disk it may use the reserve. Raises AppendConflict, OSError; then nothing was appended.
        """

    async def read(self, offset: int) -> ReadRecords:
        """Records from `offset` on, of complete appends; `next_offset` is `offset` if there are none.

        A long log is read in pieces.
        """
        ...

    async def read_snapshot(self) -> Snapshot | None:
        """The newest snapshot; the log may begin at its end. Raises CorruptLogError if the log begins later."""

    async def write_snapshot(self, values: Sequence[bytes]) -> None:
        """Stores a snapshot of the whole current log; the records that it replaces may be deleted. Raises OSError."""

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
    beside: Beside = attrs.field(factory=Beside)
    _end_offset: int = attrs.field(init=False)
    """The end of what is durable."""
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
            if start == 0:
                self._append(self._leader_change(now_ms))
                # One by one, as all later ones: a good batch behind a bad one is never what a crash left.
                await self._flush()
            self._append(build_batch([Record(delta, now_ms, None, value) for delta, value in enumerate(values)]))
            await self._flush()
        except OSError as error:
            if is_passing(error):
                # The caller is told that nothing changed, so it must not come with the next change.
                self.log.truncate_to(start)
            else:
                self.log.fail(error)
            raise
        self._end_offset = self.log.log_end_offset
        for watcher in self._watchers:
            watcher()

    async def read(self, offset: int) -> ReadRecords:
        found: list[tuple[int, bytes]] = []
        next_offset, size = offset, 0
        for header, piece in self.log.batches(offset):
            if header.base_offset >= self.end_offset or size >= READ_BYTES:
                break
            next_offset = header.next_offset
            size += piece.size
            if not header.is_control:
                records = iter_records(piece.read())
                found += [(it.offset, it.value) for it in records if it.offset >= offset and it.value is not None]
        return ReadRecords(found, next_offset, size)

    async def read_snapshot(self) -> Snapshot | None:
        log = self.log
        for end_offset, name in sorted(self._snapshots(), reverse=True):
            try:
                snapshot = Snapshot(end_offset, read_snapshot_file(log.disk.read_bytes(name)))
            except CorruptLogError as error:
                logger.error("%s cannot be used: %s", name, error)
                continue
            if log.log_end_offset < end_offset:
                # Rot has taken the end of the log, and the snapshot has what it said.
                log.truncate_fully_and_start_at(end_offset, now_ms=self.now_ms())
                self._end_offset = end_offset
            if log.log_start_offset <= end_offset:
                return snapshot
        if log.log_start_offset > 0:
            raise CorruptLogError(f"{log.path} begins at {log.log_start_offset}, and no snapshot reaches as far")
        return None

    async def write_snapshot(self, values: Sequence[bytes]) -> None:
        log, end_offset, now_ms = self.log, self.end_offset, self.now_ms()
        older = self._snapshots()
        slices, content = Slices(self.beside, 1), bytearray()
        for batch in snapshot_batches(values, epoch=EPOCH, now_ms=now_ms):
            content += batch
            await slices.after(1)
        name = f"{log.path}/{names.metadata_snapshot(end_offset, EPOCH)}"
        (await self.beside.in_worker(Worker.SNAPSHOT, lambda: log.disk.write_atomic(name, bytes(content)))).unwrap()
        # From here on a start needs nothing that is older. The log goes on in a segment of its own.
        if log.active.base_offset < end_offset:
            log.roll(now_ms)
            await self._flush()
        log.advance_log_start(end_offset, now_ms=now_ms)
        for _, name in older:
            log.disk.remove(name)

    def _snapshots(self) -> list[tuple[int, str]]:
        """End offset and path of each snapshot."""
        found = [(names.parse_metadata_snapshot(name), name) for name in self.log.disk.listdir(self.log.path)]
        return [(parsed[0], f"{self.log.path}/{name}") for parsed, name in found if parsed is not None]

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    async def _flush(self) -> None:
        flush = self.log.begin_flush()
        try:
            (await self.beside.in_worker(Worker.FLUSH, flush.run)).unwrap()
        except BaseException:
            self.log.give_up_flush(flush)
            raise
        self.log.finish_flush(flush)

    def _append(self, batch: bytes) -> None:
        buffer = bytearray(batch)
        header = read_header(buffer)
        self.log.reserve.spend(lambda: self.log.append(buffer, header, leader_epoch=EPOCH, now_ms=self.now_ms()))

    def _leader_change(self, now_ms: int) -> bytes:
        this_node = [LeaderChangeMessageVoter(self.node_id)]
        writer = Writer()
        LeaderChangeMessage(leader_id=self.node_id, voters=this_node, granting_voters=this_node).write(writer, 0)
        return build_control_batch(
            ControlType.LEADER_CHANGE, writer.getvalue(), timestamp_ms=now_ms, leader_epoch=EPOCH
        )

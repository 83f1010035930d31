"""The log behind the metadata, seen through a small interface, and its embedded form: a file in KRaft's own format.

The interface is all that the service knows, so that in a cluster the log can live elsewhere: append at the end that the
writer believes in, read on from an offset, be told of new records.

The file is `__cluster_metadata-0`, record batches like any other, each record's value framed as `records.py` says. As in
KRaft it begins with a control batch that names the leader of the epoch. Embedded there are no elections, so there is
one epoch. An append is on the medium before it returns: metadata changes are rare, and an answered CreateTopics must
outlive a power cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import attrs
from kwire_protocol.control_records import ControlType, build_control_batch
from kwire_protocol.internal.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from kwire_protocol.records import Record, build_batch, iter_records, read_header
from kwire_protocol.wire import Uuid, Writer
from kwire_storage.log import Log

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final[Uuid] = bytes(15) + b"\x01"
"""Kafka's Uuid.METADATA_TOPIC_ID."""

EPOCH: Final = 1

Watcher = Callable[[int, Sequence[bytes]], None]
"""Told the offset of the first of some new records, and their values."""


class AppendConflict(Exception):
    """Somebody else appended first: read on, decide again."""


class MetadataLog(Protocol):
    @property
    def end_offset(self) -> int: ...

    def append(self, values: Sequence[bytes], expected_end_offset: int) -> None:
        """Appends one batch, durably, if the end is where the caller thinks it is; then tells the watchers.

        Raises AppendConflict, StorageError.
        """

    def read_from(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Offset and value of every data record from `offset` on."""

    def watch(self, watcher: Watcher) -> None: ...


@attrs.define(eq=False)
class FileMetadataLog:
    """Over the log of one partition; `now_ms` stamps the batches."""

    log: Log
    node_id: int
    now_ms: Callable[[], int]
    _watchers: list[Watcher] = attrs.field(factory=list)

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    def append(self, values: Sequence[bytes], expected_end_offset: int) -> None:
        if expected_end_offset != self.end_offset:
            raise AppendConflict(f"the metadata log ends at {self.end_offset}, not at {expected_end_offset}")
        now_ms = self.now_ms()
        if self.end_offset == 0:
            self._append_batch(self._leader_change(now_ms), now_ms)
        first = self.end_offset
        self._append_batch(build_batch([Record(timestamp=now_ms, value=value) for value in values]), now_ms)
        self.log.flush()
        for watcher in self._watchers:
            watcher(first, values)

    def read_from(self, offset: int) -> Iterator[tuple[int, bytes]]:
        for header, piece in self.log.batches(offset):
            if header.is_control:
                continue
            for record in iter_records(piece.read()):
                if record.offset >= offset and record.value is not None:
                    yield record.offset, record.value

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def _append_batch(self, batch: bytes, now_ms: int) -> None:
        buffer = bytearray(batch)
        self.log.append(buffer, [(0, read_header(buffer))], leader_epoch=EPOCH, now_ms=now_ms)

    def _leader_change(self, now_ms: int) -> bytes:
        writer = Writer()
        message = LeaderChangeMessage(
            leader_id=self.node_id, voters=[LeaderChangeMessageVoter(self.node_id)], granting_voters=[LeaderChangeMessageVoter(self.node_id)]
        )
        message.write(writer, 0)
        return build_control_batch(
            ControlType.LEADER_CHANGE, writer.getvalue(), timestamp_ms=now_ms, leader_epoch=EPOCH
        )

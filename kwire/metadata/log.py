"""The log behind the metadata, seen through a small interface, and its embedded form: a file in KRaft's own format.

The interface is all that the service knows, so that in a cluster the log can live elsewhere: append where the writer
believes the end to be, read on from an offset, be told of new records.

The file is `__cluster_metadata-0`, record batches like any other, each record's value framed as `records.py` says. As
in KRaft it begins with a control batch that names the leader of the epoch; embedded there are no elections, so there is
one epoch. One append is one batch, so after a crash it is there whole or not at all. It is on the medium before it
returns: metadata changes are rare, and an answered CreateTopics must outlive a power cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import attrs
from kwire_protocol.control_records import ControlType, build_control_batch
from kwire_protocol.internal.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from kwire_protocol.records import Record, build_batch, iter_records, read_header
from kwire_protocol.wire import Uuid, Writer
from kwire_storage.errors import is_passing
from kwire_storage.log.log import Log

from kwire.topic_names import CLUSTER_METADATA

METADATA_TOPIC: Final = CLUSTER_METADATA
METADATA_TOPIC_ID: Final[Uuid] = bytes(15) + b"\x01"
"""Kafka's Uuid.METADATA_TOPIC_ID."""
EPOCH: Final = 1

Watcher = Callable[[], None]


class AppendConflict(Exception):
    """Somebody else appended first: read on, decide again."""


class MetadataLog(Protocol):
    @property
    def end_offset(self) -> int:
        """The offset that the next record gets, unless somebody else is faster."""
        ...

    def append(self, values: Sequence[bytes], *, expected_end_offset: int) -> None:
        """Appends all of the values, durably, if the log ends where the caller thinks; then tells the watchers.

        On a full disk it may use the room that is kept back for that. Raises AppendConflict, OSError.
        """

    def read_from(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Offset and value of every record from `offset` on, control records left out."""
        ...

    def watch(self, watcher: Watcher) -> None:
        """Calls `watcher` whenever there are new records to read."""


@attrs.define(eq=False)
class FileMetadataLog:
    """Over the log of one partition. `now_ms` stamps the batches."""

    log: Log
    node_id: int
    now_ms: Callable[[], int]
    _watchers: list[Watcher] = attrs.field(factory=list)

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    def append(self, values: Sequence[bytes], *, expected_end_offset: int) -> None:
        if expected_end_offset != self.end_offset:
            raise AppendConflict(f"the metadata log ends at {self.end_offset}, not at {expected_end_offset}")
        now_ms = self.now_ms()
        start = self.end_offset
        try:
            if start == 0:
                self._append(self._leader_change(now_ms))
                # One by one, as all later ones: a good batch behind a bad one is never what a crash left.
                self.log.flush()
            self._append(build_batch([Record(delta, now_ms, None, value) for delta, value in enumerate(values)]))
            self.log.flush()
        except OSError as error:
            if is_passing(error):
                # Whoever asked is told that nothing changed, so it must not come with the next change.
                self.log.truncate_to(start)
            else:
                self.log.fail(error)
            raise
        for watcher in self._watchers:
            watcher()

    def read_from(self, offset: int) -> Iterator[tuple[int, bytes]]:
        for header, piece in self.log.batches(offset):
            if header.is_control:
                continue
            for record in iter_records(piece.read()):
                if record.offset >= offset and record.value is not None:
                    yield record.offset, record.value

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

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

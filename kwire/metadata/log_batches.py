"""The metadata log as batches: those of appends, those of reads, and the snapshots.

As in KRaft the log is the partition `__cluster_metadata-0`, and `records.py` frames each record's value. It
begins with a control batch that names the leader of the epoch; kwire holds no elections for it, so there is one epoch.
One append is one batch, so after a crash it is complete or missing. Functions over a `Log`, for its owner.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import attrs
from kwire_protocol.control_records import ControlType, build_control_batch
from kwire_protocol.internal.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from kwire_protocol.records import Record, build_batch, iter_records, read_header
from kwire_protocol.wire import Writer
from kwire_storage import names
from kwire_storage.errors import CorruptLogError
from kwire_storage.log.log import Log

from kwire.metadata.snapshots import Snapshot, read_snapshot_file

logger = logging.getLogger(__name__)

EPOCH: Final = 1
READ_BYTES: Final = 1 << 20


@attrs.frozen
class ReadRecords:
    """Offsets and values of some records, without control records, and the offset at which to continue."""

    records: list[tuple[int, bytes]]
    next_offset: int
    size_in_bytes: int = 0
    """The size of the part of the log that was read."""


def leader_change(node_id: int, now_ms: int) -> bytes:
    """Returns the first batch of a log."""
    this_node = [LeaderChangeMessageVoter(node_id)]
    writer = Writer()
    LeaderChangeMessage(leader_id=node_id, voters=this_node, granting_voters=this_node).write(writer, 0)
    return build_control_batch(ControlType.LEADER_CHANGE, writer.getvalue(), timestamp_ms=now_ms, leader_epoch=EPOCH)


def values_batch(values: Sequence[bytes], now_ms: int) -> bytes:
    """Returns the batch of one append."""
    return build_batch([Record(delta, now_ms, None, value) for delta, value in enumerate(values)])


def append_batch(log: Log, batch: bytes, now_ms: int) -> None:
    """Appends a batch to the page cache. On a full disk it uses the reserve. Raises OSError."""
    buffer = bytearray(batch)
    header = read_header(buffer)
    log.reserve.spend(lambda: log.append(buffer, header, leader_epoch=EPOCH, now_ms=now_ms))


def read_records(log: Log, offset: int, end_offset: int) -> ReadRecords:
    """Reads records from `offset` on, of complete appends before `end_offset`. A long log is read in pieces."""
    found: list[tuple[int, bytes]] = []
    next_offset, size = offset, 0
    for header, piece in log.batches(offset):
        if header.base_offset >= end_offset or size >= READ_BYTES:
            break
        next_offset = header.next_offset
        size += piece.size
        if not header.is_control:
            records = iter_records(piece.read())
            found += [(it.offset, it.value) for it in records if it.offset >= offset and it.value is not None]
    return ReadRecords(found, next_offset, size)


def newest_snapshot(log: Log, now_ms: int) -> Snapshot | None:
    """Returns the newest readable snapshot. Raises CorruptLogError if the log begins later.

    If the log ends earlier, it is emptied, and continues at the snapshot's end.
    """
    for end_offset, name in sorted(snapshots_of(log), reverse=True):
        try:
            snapshot = Snapshot(end_offset, read_snapshot_file(log.disk.read_bytes(name)))
        except CorruptLogError as error:
            logger.error("%s cannot be used: %s", name, error)
            continue
        if log.log_end_offset < end_offset:
            # The end of the log was damaged and is gone; the snapshot has its contents.
            log.truncate_fully_and_start_at(end_offset, now_ms=now_ms)
        if log.log_start_offset <= end_offset:
            return snapshot
    if log.log_start_offset > 0:
        raise CorruptLogError(f"{log.path} begins at {log.log_start_offset}, and no snapshot reaches as far")
    return None


def snapshots_of(log: Log) -> list[tuple[int, str]]:
    """Yields end offset and path of each snapshot."""
    found = [(names.parse_metadata_snapshot(name), name) for name in log.disk.listdir(log.path)]
    return [(parsed[0], f"{log.path}/{name}") for parsed, name in found if parsed is not None]


def snapshot_path(log: Log, end_offset: int) -> str:
    return f"{log.path}/{names.metadata_snapshot(end_offset, EPOCH)}"

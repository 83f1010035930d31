"""The transaction markers that the producers' state needs."""

from __future__ import annotations

from typing import Protocol

from kwire_protocol.control_records import ControlType, read_control_type, read_coordinator_epoch
from kwire_protocol.records import BatchHeader, iter_records

from kwire_storage.producers.states import NOT_KNOWN, EndTxnMarker, ProducerStates
from kwire_storage.producers.txn_index import AbortedTxn


class AbortSink(Protocol):
    """The object that stores aborted transactions: usually a segment."""

    def add_aborted(self, aborted: AbortedTxn) -> None: ...


def decode_marker(buf: bytes | memoryview, pos: int, header: BatchHeader) -> EndTxnMarker | None:
    """The marker in a control batch at `pos`; None if compaction emptied it, or if it is of another type.

    Raises InvalidBatch for a record that is no control record.
    """
    if not header.records_count:
        return None
    record = next(iter(iter_records(buf, pos)))
    control_type = read_control_type(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return EndTxnMarker(control_type == ControlType.COMMIT, read_coordinator_epoch(record.value))


def apply_batch(
    producers: ProducerStates,
    segment: AbortSink | None,
    header: BatchHeader,
    base_offset: int,
    timestamp_ms: int,
    marker: EndTxnMarker | None,
    now_ms: int = NOT_KNOWN,
) -> None:
    """Applies a producer's batch to the producers' states, and an abort to the segment's transaction index, if given.

    `now_ms` is the time of the append.
    """
    if not header.is_control:
        producers.apply(header, base_offset, timestamp_ms, now_ms)
    elif marker is not None:
        completed = producers.apply_marker(header, base_offset, marker, timestamp_ms, now_ms)
        if completed is not None and completed.aborted and segment is not None:
            stable = producers.last_stable_offset_after(completed)
            segment.add_aborted(
                AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )

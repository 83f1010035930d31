"""Compares `.snapshot` and `.txnindex` with the batches, using the broker's own fold (`markers.py`).

The fold is exact if it began empty at offset 0, or with the snapshot at the first segment's base, and no batch is
missing since. If compaction has made holes, or a range is corrupt, the check is less strict: batches that the broker
had then may no longer be in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kwire_protocol.records import InvalidBatch

from kwire_storage import names
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError
from kwire_storage.inspection.findings import Finding, Kind
from kwire_storage.inspection.layout import Layout, read_small
from kwire_storage.log.walk import Batch
from kwire_storage.producers.markers import apply_batch, decode_marker
from kwire_storage.producers.snapshots import decode_snapshot
from kwire_storage.producers.states import ProducerEntry, ProducerStates
from kwire_storage.producers.txn_index import AbortedTxn, decode_aborted


class ProducerFold:
    """The producers so far, and the transactions aborted in the current segment."""

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self.states = ProducerStates()
        self.aborted: list[AbortedTxn] = []
        self.exact = True
        if not layout.bases or layout.bases[0] == 0:
            return
        self.exact = False
        if layout.has(layout.bases[0], names.SNAPSHOT):
            try:
                entries = decode_snapshot(read_small(disk, layout.of(layout.bases[0], names.SNAPSHOT)))
            except CorruptLogError:
                return
            if not _contradictions(entries, layout.bases[0]):
                self.states.load(entries)
                self.exact = True

    def add_aborted(self, aborted: AbortedTxn) -> None:
        self.aborted.append(aborted)

    def fold(self, batch: Batch) -> str | None:
        """Folds a batch; returns the error if it is a marker that cannot be read."""
        header = batch.header
        if header.producer_id < 0:
            return None
        marker = None
        if header.is_control:
            if batch.data is None:
                return None
            try:
                marker = decode_marker(batch.data, 0, header)
            except InvalidBatch as error:
                self.exact = False
                return error.message
        apply_batch(self.states, self, header, header.base_offset, header.max_timestamp, marker)
        return None


def check_snapshot(disk: Disk, path: str, offset: int, fold: ProducerFold) -> Iterator[Finding]:
    """Checks a snapshot whose offset the fold has just reached."""
    try:
        entries = decode_snapshot(read_small(disk, path))
    except CorruptLogError as error:
        yield Finding(Kind.SNAPSHOT_UNREADABLE, path, str(error))
        return
    wrong = list(_contradictions(entries, offset))
    if not wrong and fold.exact:
        wrong = list(_differences({entry.producer_id: entry for entry in entries}, fold.states.entries))
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        yield Finding(Kind.SNAPSHOT_ENTRY, path, wrong[0] + more)


def _contradictions(entries: list[ProducerEntry], offset: int) -> Iterator[str]:
    """Yields contradictions within the snapshot, independently of the log."""
    ids: set[int] = set()
    open_at: set[int] = set()
    for entry in entries:
        if entry.producer_id in ids:
            yield f"producer {entry.producer_id} stands there twice"
        ids.add(entry.producer_id)
        if entry.batches and (last := entry.batches[-1].last_offset) >= offset:
            yield f"producer {entry.producer_id} has offset {last}, the snapshot ends at {offset}"
        if (began := entry.txn_first_offset) is not None:
            if began >= offset or began in open_at:
                yield f"producer {entry.producer_id} has a transaction that began at {began}"
            open_at.add(began)


def _differences(stored: dict[int, ProducerEntry], folded: dict[int, ProducerEntry]) -> Iterator[str]:
    for producer_id, entry in stored.items():
        if producer_id not in folded:
            yield f"producer {producer_id} has nothing in the log"
        elif _facts(entry) != _facts(folded[producer_id]):
            yield f"producer {producer_id} has {_described(entry)}, by the log {_described(folded[producer_id])}"
    # A broker forgets idle producers, the idlest first, and none with an open transaction.
    stale = [
        (entry.batches[-1].last_offset, entry.last_timestamp_ms)
        for entry in stored.values()
        if entry.batches and entry.txn_first_offset is None
    ]
    for producer_id, entry in folded.items():
        if producer_id in stored:
            continue
        last_offset = entry.batches[-1].last_offset if entry.batches else -1
        lost = any(offset < last_offset and timestamp < entry.last_timestamp_ms for offset, timestamp in stale)
        if lost or entry.txn_first_offset is not None:
            yield f"producer {producer_id} is missing, with {_described(entry)} by the log"


def _facts(entry: ProducerEntry) -> tuple[object, ...]:
    last = entry.batches[-1] if entry.batches else None
    # The file has the batch's length only: a batch that carries sequences has as many of them as offsets.
    return (
        entry.epoch,
        entry.coordinator_epoch,
        entry.txn_first_offset,
        (last.last_sequence, last.first_offset, last.last_offset) if last else None,
    )


def _described(entry: ProducerEntry) -> str:
    began = "" if entry.txn_first_offset is None else f", a transaction since {entry.txn_first_offset}"
    last = entry.batches[-1].last_offset if entry.batches else -1
    return f"epoch {entry.epoch}, sequence {entry.last_sequence} at offset {last}{began}"


def check_aborted(
    disk: Disk, layout: Layout, base: int, end_offset: int, aborted: Iterable[AbortedTxn], *, exact: bool
) -> Iterator[Finding]:
    """Checks a segment's transaction index; `aborted` are the transactions that its markers ended, by the fold."""
    path = layout.of(base, names.TXN_INDEX)
    stored: list[AbortedTxn] = []
    if layout.has(base, names.TXN_INDEX):
        try:
            stored = decode_aborted(read_small(disk, path))
        except CorruptLogError as error:
            yield Finding(Kind.TXN_INDEX_UNREADABLE, path, str(error))
            return
    if [entry.last_offset for entry in stored] != sorted({entry.last_offset for entry in stored}):
        yield Finding(Kind.TXN_INDEX_ENTRY, path, "its entries do not ascend")
        return
    by_marker = {entry.last_offset: entry for entry in stored}
    for found in aborted:
        there = by_marker.pop(found.last_offset, None)
        if there is None or (there != found if exact else there.producer_id != found.producer_id):
            has = "has no entry" if there is None else f"has {there}"
            yield Finding(Kind.TXN_INDEX_ENTRY, path, f"{has}, by its marker it is {found}", offset=found.last_offset)
            return
    for extra in by_marker.values():
        if exact or not base <= extra.last_offset < end_offset:
            yield Finding(Kind.TXN_INDEX_ENTRY, path, f"{extra} has no marker in the segment", offset=extra.last_offset)
            return

"""The records of a batch that compaction retains: Kafka's `Cleaner` and `CleanedTransactionMetadata`, without any I/O.

* The latest record of a key stays, and so do all records beyond the range whose keys are known.
* A tombstone is removed `delete.retention.ms` after a cleaning first saw it and noted that time in the batch's header
  (KIP-534), so that a reader with that much lag still sees the deletion. It is removed only from the part that an
  earlier cleaning has completed: if a power cut undoes half of this one, no deleted key comes back.
* Records of an aborted transaction are removed at once. A transaction's marker is removed like a tombstone, with the
  time counted from the first cleaning that finds no record of the transaction left.
* A batch without records is removed, except the last one of each active producer (it has the producer's sequences) and
  the last one of the range (it marks its end). Those are retained empty.

Offsets never change: the rest of a batch keeps its base offset, its last offset and its records' offsets. A batch that
loses nothing is copied unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import attrs
from kwire_protocol.records import BatchHeader, batch_content, build_empty_batch, build_subset, scan_records

from kwire_storage.compaction.offset_map import OffsetMap
from kwire_storage.config import NEVER
from kwire_storage.producers.markers import decode_marker
from kwire_storage.producers.states import ProducerEntry
from kwire_storage.producers.txn_index import AbortedTxn


class LastRecord(NamedTuple):
    """The last record of an active producer in the log; without a data offset it is a marker of the epoch."""

    epoch: int
    last_data_offset: int | None

    @classmethod
    def of(cls, entry: ProducerEntry) -> LastRecord:
        return cls(entry.epoch, entry.batches[-1].last_offset if entry.batches else None)


@attrs.define(eq=False)
class _Ongoing:
    """An aborted transaction between its first record and its marker."""

    aborted: AbortedTxn
    has_records: bool = False


class Transactions:
    """Follows the transactions of a range of the log, batch by batch, in order.

    `aborted` are those that overlap the range. `retained` are those whose marker still has records before it: they
    belong into the transaction index of the segment that is being written.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self.retained: list[AbortedTxn] = []
        self._coming = deque(sorted(set(aborted), key=lambda txn: txn.first_offset))
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Returns True if a data batch belongs to an aborted transaction."""
        self._begin(header)
        if not header.is_transactional:
            return False
        ongoing = self._aborted.get(header.producer_id)
        if ongoing is not None:
            ongoing.has_records = True
            return True
        self._committed.add(header.producer_id)
        return False

    def is_marker_of_nothing(self, batch: memoryview, header: BatchHeader) -> bool:
        """Returns True if nothing is left of the transaction that this control batch ends, or of the batch itself."""
        self._begin(header)
        if not header.records_count:
            return True
        marker = decode_marker(batch, 0, header)
        if marker is None:
            return False
        producer_id = header.producer_id
        if marker.committed:
            had_records = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_records
        ongoing = self._aborted.pop(producer_id, None)
        if ongoing is None or not ongoing.has_records:
            return True
        self.retained.append(ongoing.aborted)
        return False

    def take_retained(self) -> list[AbortedTxn]:
        retained, self.retained = self.retained, []
        return retained

    def _begin(self, header: BatchHeader) -> None:
        coming = self._coming
        while coming and coming[0].first_offset <= header.last_offset:
            aborted = coming.popleft()
            # One whose marker stands before the range would never end.
            if aborted.last_offset >= header.base_offset:
                self._aborted.setdefault(aborted.producer_id, _Ongoing(aborted))


@attrs.define(eq=False)
class Cleaning:
    """One pass over a range of a log, whose keys are in `keys`; times in ms.

    Earlier cleanings have compacted everything below `first_dirty_offset`.
    """

    keys: OffsetMap
    transactions: Transactions
    last_records: dict[int, LastRecord]
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int

    def clean(self, batch: memoryview, header: BatchHeader, *, may_grow: bool = True) -> memoryview | bytes | None:
        """Returns the batch itself, a smaller one, or None if nothing stays. Raises InvalidBatch if it cannot be read.

        A batch that needs a delete horizon may grow, up to twice its size; without `may_grow` it gets none this time.
        """
        if header.is_control:
            ends_nothing = self.transactions.is_marker_of_nothing(batch, header)
            horizon_ms = header.delete_horizon_ms
            drops_records = ends_nothing and horizon_ms is not None and horizon_ms <= self.now_ms
            needs_horizon = ends_nothing and horizon_ms is None
        else:
            drops_records = self.transactions.is_aborted(header)
            needs_horizon = False
        if drops_records:
            return build_empty_batch(header) if self._must_stay(header) else None
        if not header.records_count:
            return self._without_records(batch, header)
        survivors = None if header.is_control else self.keys.count_survivors(header)
        if survivors is None:
            return self._compared(batch, header, needs_horizon=needs_horizon, may_grow=may_grow)
        if not survivors:
            return self._without_records(batch, header)
        needs_horizon = may_grow and header.delete_horizon_ms is None and self.keys.has_tombstones(header)
        if survivors == header.records_count and not needs_horizon:
            return batch
        content = batch_content(batch, 0, header)
        retained: list[tuple[int, int]] = []
        for scan in scan_records(content, header):
            retained += scan.bounds_of(self.keys.survivors_in(scan))
        return self._subset(header, content, retained, needs_horizon=needs_horizon)

    def _compared(
        self, batch: memoryview, header: BatchHeader, *, needs_horizon: bool, may_grow: bool
    ) -> memoryview | bytes | None:
        """Does the same as `clean`, for a control batch, or for a batch whose records must be compared key by key."""
        content = batch_content(batch, 0, header)
        is_control, horizon_ms = header.is_control, header.delete_horizon_ms
        drops_tombstones = horizon_ms is not None and horizon_ms <= self.now_ms
        retained: list[tuple[int, int]] = []
        for scan in scan_records(content, header, with_keys=not is_control):
            gone = set() if is_control else set(self.keys.outdated(scan))
            if drops_tombstones and not is_control:
                gone.update(index for index in scan.null_values if scan.offsets[index] < self.first_dirty_offset)
            retained += scan.bounds_of(index for index in range(len(scan.ends)) if index not in gone)
            if horizon_ms is None and not gone.issuperset(scan.null_values):
                needs_horizon = True
        if not retained:
            return self._without_records(batch, header)
        needs_horizon = needs_horizon and may_grow
        if len(retained) == header.records_count and not needs_horizon:
            return batch
        return self._subset(header, content, retained, needs_horizon=needs_horizon)

    def _must_stay(self, header: BatchHeader) -> bool:
        """Returns True if the batch stays even without records."""
        if header.next_offset == self.keys.end_offset:
            return True
        last = self.last_records.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return last.last_data_offset == header.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _without_records(self, batch: memoryview, header: BatchHeader) -> memoryview | bytes | None:
        if not self._must_stay(header):
            return None
        return batch if not header.records_count else build_empty_batch(header)

    def _subset(
        self, header: BatchHeader, content: bytes, retained: list[tuple[int, int]], *, needs_horizon: bool
    ) -> bytes:
        # delete.retention.ms may be the largest there is, and the batch stores the horizon.
        horizon_ms = min(self.now_ms + self.delete_retention_ms, NEVER) if needs_horizon else None
        return build_subset(header, content, retained, delete_horizon_ms=horizon_ms)


def note_keys(keys: OffsetMap, transactions: Transactions, batch: memoryview, header: BatchHeader) -> bool:
    """Adds the keys of a batch to the map. Returns False if they had no room: the range ends within the batch."""
    keys.begin_batch(header)
    if header.is_control:
        transactions.is_marker_of_nothing(batch, header)
    elif not transactions.is_aborted(header):
        for scan in scan_records(batch_content(batch, 0, header), header, with_keys=True):
            if not keys.add(scan):
                return False
    keys.pass_batch(header)
    return True

"""The batches of a fetch that are visible to a reader (KIP-98). Pure: bytes and aborted transactions in, batches out.

Markers, the control batches that end transactions, are not visible. For a read_committed reader, each response lists
the aborted transactions that begin in it or before it, by producer and first offset. From that offset on, the
producer's transactional batches belong to the aborted transaction, until its abort marker. Everything else is
committed, because a broker sends nothing beyond the last stable offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kwire_protocol.records import BatchHeader, ControlType, iter_headers, iter_records, read_control_type
from kwire_protocol.wire import Buffer


def visible_batches(
    records: Buffer, aborted: Iterable[tuple[int, int]] = ()
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yields the position and the header of every complete batch, and True if its records are visible to the reader.

    aborted: producer id and first offset of aborted transactions; empty for read_uncommitted.

    Raises InvalidBatch for bytes that cannot be batches. CRCs are not checked.
    """
    to_come = deque(sorted(aborted, key=lambda it: it[1]))
    in_aborted: set[int] = set()
    for pos, header in iter_headers(records):
        while to_come and to_come[0][1] <= header.last_offset:
            in_aborted.add(to_come.popleft()[0])
        if header.is_control:
            if header.producer_id in in_aborted and _is_abort(records, pos):
                in_aborted.discard(header.producer_id)
            yield pos, header, False
        else:
            yield pos, header, not (header.is_transactional and header.producer_id in in_aborted)


def _is_abort(records: Buffer, pos: int) -> bool:
    """Returns True for an abort marker. Compaction may remove a control batch's record; it no longer ends a transaction
    then."""
    return any(read_control_type(it.key) is ControlType.ABORT for it in iter_records(records, pos))

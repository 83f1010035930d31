"""Which batches of a fetch a reader is to see (KIP-98). Pure: bytes and a list of aborted transactions in, batches out.

Markers, the control batches that end transactions, are for no reader. One of committed data is told with each answer
which transactions that begin in it, or before it, were aborted: producer and first offset of each. From that offset on
the producer's transactional batches belong to it, until its abort marker. What is not on the list is committed, for a
broker sends nothing beyond the last stable offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kwire_protocol.records import BatchHeader, ControlType, iter_headers, iter_records, read_control_type
from kwire_protocol.wire import Buffer


def visible_batches(
    records: Buffer, aborted: Iterable[tuple[int, int]] = ()
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Position and header of every whole batch, and whether its records are to be seen.

    aborted: producer id and first offset of aborted transactions; none for a reader of what is uncommitted.

    Raises InvalidBatch for bytes that cannot be batches. Nothing is checked by CRC.
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
    """Compaction may leave a control batch without its record: that one ends nothing any more."""
    return any(read_control_type(it.key) is ControlType.ABORT for it in iter_records(records, pos))

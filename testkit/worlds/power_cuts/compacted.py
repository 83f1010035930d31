"""Checks the result of compaction against the sent records: record by record, where other checks are by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kwire_protocol.records import BatchHeader, iter_records, read_header
from kwire_storage.log.log import Log
from kwire_storage.producers.markers import decode_marker
from kwire_storage.producers.txn_index import AbortedTxn

from testkit.worlds.power_cuts.history import Batch

Row = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key and value of a record."""


def difference(found: list[Batch], sent: list[Batch], start: int, cleaned_end: int) -> str:
    """Why this cannot be what cleanings below `cleaned_end` left of what was sent from `start` on; "" if it can be.

    A batch keeps its offsets, and its records their bytes. Of each key the newest committed record is there, unless it
    is a tombstone, and nothing older takes its place. What is undecided, or beyond the cleanings, is as it was sent.
    """
    by_base = {batch.base: batch for batch in sent if batch.end > start}
    for batch in found:
        original = by_base.get(batch.base)
        if original is None or original.end != batch.end:
            return f"a batch with offsets {batch.base} to {batch.end - 1} was not sent"
        if batch.data != original.data and not _is_part(batch, original):
            return f"the batch at {batch.base} is not part of what was sent"
    is_decided = decided(sent)
    untouched = [it for it in by_base.values() if it.base >= cleaned_end or is_decided.get(it.base) is None]
    missing = [it.base for it in untouched if it not in found]
    if missing:
        return f"the batches at {missing} are not as they were sent"
    table, expected = _table(found, is_decided, start), _table(sent, is_decided, start)
    return "" if table == expected else f"the newest of each key are {table}, sent were {expected}"


def check_cleaned(log: Log, found: list[Batch]) -> None:
    """Checks that the clean part of the log has each key once."""
    keys = [
        row[2]
        for batch in found
        for row in rows(batch)
        if not read_header(batch.data).is_control
        if row[0] < log.cleaned_offset
    ]
    assert len(set(keys)) == len(keys), f"below {log.cleaned_offset}, up to which the log is clean, are the keys {keys}"


def check_aborted(listed: list[AbortedTxn], aborted: list[AbortedTxn], found: list[Batch], cleaned_end: int) -> None:
    """Checks that the log lists the aborted transactions with remaining records, and no others than there were."""
    assert set(listed) <= set(aborted), "aborted transactions that there never were"
    for txn in aborted:
        left = [
            batch.base
            for batch in found
            if txn.first_offset <= batch.base < txn.last_offset and _is_of(read_header(batch.data), txn.producer_id)
        ]
        assert txn in listed or not (left or txn.last_offset >= cleaned_end), f"{txn} is forgotten, and has {left}"


def _is_of(header: BatchHeader, producer_id: int) -> bool:
    return header.producer_id == producer_id and header.is_transactional and header.records_count > 0


def decided(sent: Iterable[Batch]) -> dict[int, bool | None]:
    """Returns True or False by the base offset of each batch, if it is committed or aborted; None while that is
    undecided.
    """
    found: dict[int, bool | None] = {}
    open_batches: dict[int, list[int]] = {}
    for batch in sent:
        header = read_header(batch.data)
        found[batch.base] = True
        marker = decode_marker(batch.data, 0, header) if header.is_control else None
        if marker is not None:
            found |= dict.fromkeys(open_batches.pop(header.producer_id, []), marker.committed)
        elif header.is_transactional:
            found[batch.base] = None
            open_batches.setdefault(header.producer_id, []).append(batch.base)
    return found


def rows(batch: Batch) -> Iterator[Row]:
    for record in iter_records(memoryview(batch.data)):
        key = None if record.key is None else bytes(record.key)
        yield record.offset, record.timestamp, key, None if record.value is None else bytes(record.value)


def _is_part(batch: Batch, original: Batch) -> bool:
    return _identity(batch) == _identity(original) and set(rows(batch)) <= set(rows(original))


def _identity(batch: Batch) -> tuple[object, ...]:
    """The fields of a batch's header that compaction keeps."""
    header = read_header(batch.data)
    return (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.partition_leader_epoch,
        header.is_transactional,
        header.is_control,
        header.compression,
    )


def _table(batches: Iterable[Batch], is_decided: dict[int, bool | None], start: int) -> dict[bytes, tuple[int, bytes]]:
    """Offset and value of the newest committed record of each key that was not deleted, from an offset on."""
    table: dict[bytes, tuple[int, bytes]] = {}
    for batch in batches:
        if not is_decided[batch.base] or read_header(batch.data).is_control:
            continue
        for offset, _, key, value in rows(batch):
            if key is None or offset < start:
                continue
            table.pop(key, None)
            if value is not None:
                table[key] = offset, value
    return table

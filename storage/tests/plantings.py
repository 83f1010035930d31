"""Every kind of corruption, and how it gets into the folder of `inspected.py`.

Segments of `orders-0` there begin at 0, 23, 47, 75 and 103, the log ends at 126.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage import names
from kwire_storage.checkpoints import decode_epochs, decode_offsets, encode_epochs, encode_offsets
from kwire_storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kwire_storage.inspection import Kind
from kwire_storage.memory_disk import MemoryDisk
from kwire_storage.producer_snapshots import decode_snapshot, encode_snapshot
from kwire_storage.txn_index import AbortedTxn, decode_aborted, encode_aborted

FOLDER = "orders-0"
BASES = (0, 23, 47, 75, 103)
END = 126
KEY = ("orders", 0)

Plant = Callable[[MemoryDisk], None]


@attrs.frozen
class Planting:
    """`finds` must be among what a check finds; `left` is all that a repair leaves of errors and warnings."""

    name: str
    plant: Plant
    finds: Kind
    drop: bool = False
    left: frozenset[Kind] = frozenset()
    is_note: bool = False


def of(offset: int, suffix: str) -> str:
    return f"{FOLDER}/{names.offset_name(offset, suffix)}"


def positions(disk: MemoryDisk, base: int) -> list[tuple[int, int]]:
    """(position, size) of each batch of a good segment."""
    data, at, found = disk.read_bytes(of(base, ".log")), 0, []
    while at < len(data):
        size = read_header(data, at).size_in_bytes
        found.append((at, size))
        at += size
    return found


def _edit(path: str, change: Callable[[bytearray], bytes | bytearray | None]) -> Plant:
    """`change` is given the file's content, and changes it or returns another."""

    def plant(disk: MemoryDisk) -> None:
        content = bytearray(disk.read_bytes(path))
        disk.write_bytes(path, bytes(change(content) or content))

    return plant


def _batch(base: int, number: int, change: Callable[[bytearray], bytes | bytearray | None]) -> Plant:
    """`change` is given one batch of a segment, and changes it or returns another."""

    def plant(disk: MemoryDisk) -> None:
        at, size = positions(disk, base)[number]
        content = bytearray(disk.read_bytes(of(base, ".log")))
        batch = content[at : at + size]
        content[at : at + size] = change(batch) or batch
        disk.write_bytes(of(base, ".log"), bytes(content))

    return plant


def _xor(at: int, mask: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[at] ^= mask

    return change


def _put(at: int, value: int, size: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        start = at if at >= 0 else len(data) + at
        data[start : start + size] = value.to_bytes(size, "big", signed=True)

    return change


def _with(**changes: object) -> Callable[[bytearray], bytes]:
    """The same place in the log, filled by another batch whose CRC is right; `records` and what build_batch takes."""

    def change(batch: bytearray) -> bytes:
        header = read_header(batch)
        records = [
            Record(header.base_offset + index, header.max_timestamp) for index in range(header.last_offset_delta + 1)
        ]
        settings: dict[str, object] = {
            "records": records,
            "base_offset": header.base_offset,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "leader_epoch": header.partition_leader_epoch,
            "transactional": header.is_transactional,
            "last_offset_delta": header.last_offset_delta,
            "keep_offsets": True,
        }
        return build_batch(**{**settings, **changes})  # type: ignore[arg-type]

    return change


def _malformed_records(batch: bytearray) -> bytes:
    base = read_header(batch).base_offset
    return _with(records=[Record(base + 1, 1000), Record(base, 1000)], last_offset_delta=1)(batch)


def _wrong_max_timestamp(batch: bytearray) -> bytes:
    from crc32c import crc32c

    changed = bytearray(batch)
    _put(35, 5, 8)(changed)
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def _wrong_count(batch: bytearray) -> bytes:
    from crc32c import crc32c

    changed = bytearray(batch)
    _put(57, read_header(batch).records_count + 1, 4)(changed)
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def _remove(*paths: str) -> Plant:
    def plant(disk: MemoryDisk) -> None:
        for path in paths:
            assert disk.exists(path), path
            disk.remove(path)

    return plant


def _write(path: str, content: bytes = b"anything") -> Plant:
    def plant(disk: MemoryDisk) -> None:
        folder = path.rpartition("/")[0]
        if folder:
            disk.mkdir(folder)
        disk.write_bytes(path, content)

    return plant


def _copy(source: str, target: str) -> Plant:
    return lambda disk: disk.write_bytes(target, disk.read_bytes(source))


def _all(*plants: Plant) -> Plant:
    def plant(disk: MemoryDisk) -> None:
        for each in plants:
            each(disk)

    return plant


def _rows(name: str, offset: int) -> Plant:
    def change(content: bytearray) -> bytes:
        return encode_offsets({**decode_offsets(bytes(content)), KEY: offset})

    return _edit(name, change)


def _epochs(change: Callable[[list[tuple[int, int]]], list[tuple[int, int]]]) -> Plant:
    path = f"{FOLDER}/{names.LEADER_EPOCH_CHECKPOINT}"
    return _edit(path, lambda content: encode_epochs(change(decode_epochs(bytes(content)))))


def _aborted(base: int, change: Callable[[list[AbortedTxn]], list[AbortedTxn]]) -> Plant:
    return _edit(of(base, ".txnindex"), lambda content: encode_aborted(change(decode_aborted(bytes(content)))))


def _snapshot(offset: int, change: Callable[[dict[int, object]], None]) -> Plant:
    def edit(content: bytearray) -> bytes:
        entries = {entry.producer_id: entry for entry in decode_snapshot(bytes(content))}
        change(entries)  # type: ignore[arg-type]
        return encode_snapshot(entries.values())

    return _edit(of(offset, ".snapshot"), edit)


def _swap_of_two(disk: MemoryDisk) -> None:
    """The first two segments, compacted into one, which has not taken their place yet."""
    content = disk.read_bytes(of(0, ".log")) + disk.read_bytes(of(23, ".log"))
    disk.write_bytes(of(0, ".log.swap"), content)
    disk.write_bytes(
        of(0, ".txnindex.swap"), disk.read_bytes(of(0, ".txnindex")) + disk.read_bytes(of(23, ".txnindex"))
    )


def _other_topic_id(disk: MemoryDisk) -> None:
    disk.mkdir("orders-1")
    disk.write_bytes("orders-1/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")


def _twin(disk: MemoryDisk) -> None:
    disk.mkdir("orders-00")
    for name in disk.listdir(FOLDER):
        disk.write_bytes(f"orders-00/{name}", disk.read_bytes(f"{FOLDER}/{name}"))


_LAST_ENTRY, _LAST_TIME_ENTRY = -OFFSET_ENTRY_BYTES, -TIME_ENTRY_BYTES
_MIDDLE = (_copy(of(0, ".log"), of(0, ".log")),)

RECORDS = [
    Planting("a flipped bit in a record", _batch(23, 3, _xor(70, 4)), Kind.CORRUPT_RANGE, drop=True),
    Planting(
        "a flipped bit in a record, left in",
        _batch(23, 3, _xor(70, 4)),
        Kind.CORRUPT_RANGE,
        left=frozenset({Kind.CORRUPT_RANGE}),
    ),
    Planting("a wrong CRC", _batch(0, 1, _xor(18, 1)), Kind.CORRUPT_RANGE, drop=True),
    Planting("a length that is too large", _batch(23, 3, _xor(10, 1)), Kind.CORRUPT_RANGE, drop=True),
    Planting("a length that is too small", _batch(23, 3, _put(8, 3, 4)), Kind.CORRUPT_RANGE, drop=True),
    Planting("an unknown magic", _batch(23, 3, _put(16, 9, 1)), Kind.CORRUPT_RANGE, drop=True),
    Planting("the message format of old", _batch(23, 3, _put(16, 1, 1)), Kind.CORRUPT_RANGE, drop=True),
    Planting(
        "garbage between two batches", _batch(23, 3, lambda batch: batch + bytes(100)), Kind.CORRUPT_RANGE, drop=True
    ),
    Planting(
        "the end of a sealed segment lost",
        _edit(of(47, ".log"), lambda content: content[:-20]),
        Kind.CORRUPT_RANGE,
        drop=True,
    ),
    Planting("a torn tail", _edit(of(103, ".log"), lambda content: content + content[:80]), Kind.TORN_TAIL),
    Planting("the last batch cut short", _edit(of(103, ".log"), lambda content: content[:-9]), Kind.TORN_TAIL),
    Planting("the last batch rotten", _batch(103, -1, _xor(65, 8)), Kind.TORN_TAIL),
    Planting("zeros at the log's end", _edit(of(103, ".log"), lambda content: content + bytes(5000)), Kind.TORN_TAIL),
    Planting("an offset that goes back", _batch(23, 3, _put(0, 2, 8)), Kind.OFFSET_ORDER, drop=True),
    Planting("an offset that leaps", _batch(23, 3, _put(0, 40, 8)), Kind.OFFSET_ORDER, drop=True),
    Planting("an offset beyond the segment", _batch(23, 3, _put(0, 4000, 8)), Kind.OFFSET_ORDER, drop=True),
    Planting("a first offset below the name", _batch(47, 0, _put(0, 46, 8)), Kind.OFFSET_ORDER, drop=True),
    Planting("records out of order", _batch(23, 2, _malformed_records), Kind.MALFORMED_RECORDS, drop=True),
    Planting("more records announced than there are", _batch(23, 2, _wrong_count), Kind.MALFORMED_RECORDS, drop=True),
    Planting(
        "a marker without a key",
        _batch(0, 6, lambda batch: _with(control=True)(batch)),
        Kind.MALFORMED_RECORDS,
        drop=True,
    ),
    Planting(
        "a wrong largest timestamp",
        _batch(23, 2, _wrong_max_timestamp),
        Kind.MAX_TIMESTAMP,
        left=frozenset({Kind.MAX_TIMESTAMP}),
    ),
    Planting(
        "a leader epoch of the past",
        _batch(75, 4, _put(12, 1, 4)),
        Kind.EPOCH_ORDER,
        left=frozenset({Kind.EPOCH_ORDER}),
    ),
    Planting(
        "a segment twice",
        _copy(of(23, ".log"), of(30, ".log")),
        Kind.SEGMENT_OVERLAP,
        left=frozenset({Kind.SEGMENT_OVERLAP, Kind.OFFSET_ORDER, Kind.EPOCH_ORDER}),
    ),
    Planting("a segment lost", _remove(of(47, ".log")), Kind.HOLE, is_note=True),
]

DERIVED = [
    Planting("no index", _remove(of(23, ".index")), Kind.INDEX_MISSING),
    Planting("no time index", _remove(of(23, ".timeindex")), Kind.INDEX_MISSING),
    Planting("half an entry", _edit(of(23, ".index"), lambda content: content[:-3]), Kind.INDEX_SIZE),
    Planting("half a time entry", _edit(of(23, ".timeindex"), lambda content: content[:-3]), Kind.INDEX_SIZE),
    Planting(
        "entries out of order", _edit(of(23, ".index"), lambda content: content[8:] + content[:8]), Kind.INDEX_ORDER
    ),
    Planting("an entry after zeros", _edit(of(23, ".index"), lambda content: bytes(16) + content), Kind.INDEX_ORDER),
    Planting(
        "time entries out of order",
        _edit(of(23, ".timeindex"), lambda content: content[12:] + content[:12]),
        Kind.INDEX_ORDER,
    ),
    Planting("a position within a batch", _edit(of(23, ".index"), _xor(7, 1)), Kind.INDEX_ENTRY),
    Planting("a position beyond the end", _edit(of(23, ".index"), _put(_LAST_ENTRY + 4, 9999, 4)), Kind.INDEX_ENTRY),
    Planting("an offset too small", _edit(of(23, ".index"), _put(0, 1, 4)), Kind.INDEX_ENTRY),
    Planting("an offset too large", _edit(of(23, ".index"), _put(_LAST_ENTRY, 9999, 4)), Kind.INDEX_ENTRY),
    Planting("a time that no batch has", _edit(of(23, ".timeindex"), _xor(7, 1)), Kind.INDEX_ENTRY),
    Planting(
        "a time beyond the end", _edit(of(23, ".timeindex"), _put(_LAST_TIME_ENTRY + 8, 9999, 4)), Kind.INDEX_ENTRY
    ),
    Planting("the last time lost", _edit(of(23, ".timeindex"), lambda content: content[:-12]), Kind.TIME_INDEX_SHORT),
    Planting(
        "no time at all",
        _edit(of(103, ".timeindex"), lambda content: content[:-12] * 0 or b"\0" * 24),
        Kind.TIME_INDEX_SHORT,
    ),
    Planting("no transaction index", _remove(of(23, ".txnindex")), Kind.TXN_INDEX_ENTRY),
    Planting(
        "half an aborted transaction",
        _edit(of(23, ".txnindex"), lambda content: content[:-1]),
        Kind.TXN_INDEX_UNREADABLE,
    ),
    Planting(
        "an aborted transaction too many",
        _aborted(23, lambda it: [*it, it[-1]._replace(last_offset=46)]),
        Kind.TXN_INDEX_ENTRY,
    ),
    Planting(
        "an aborted transaction moved",
        _aborted(23, lambda it: [it[0]._replace(first_offset=1), *it[1:]]),
        Kind.TXN_INDEX_ENTRY,
    ),
    Planting(
        "another last stable offset",
        _aborted(23, lambda it: [it[0]._replace(last_stable_offset=999), *it[1:]]),
        Kind.TXN_INDEX_ENTRY,
    ),
    Planting("aborted transactions out of order", _aborted(23, lambda it: [*it, it[0]]), Kind.TXN_INDEX_ENTRY),
    Planting("a rotten snapshot", _edit(of(47, ".snapshot"), _xor(20, 1)), Kind.SNAPSHOT_UNREADABLE),
    Planting("a snapshot cut short", _edit(of(47, ".snapshot"), lambda content: content[:8]), Kind.SNAPSHOT_UNREADABLE),
    Planting("a producer forgotten amid a transaction", _snapshot(END, lambda it: it.pop(2)), Kind.SNAPSHOT_ENTRY),  # type: ignore[arg-type]
    Planting("a producer of another epoch", _snapshot(47, lambda it: setattr(it[1], "epoch", 7)), Kind.SNAPSHOT_ENTRY),
    Planting(
        "a transaction that was not open",
        _snapshot(47, lambda it: setattr(it[1], "txn_first_offset", 3)),
        Kind.SNAPSHOT_ENTRY,
    ),
    Planting("a producer with the future", _copy(of(END, ".snapshot"), of(47, ".snapshot")), Kind.SNAPSHOT_ENTRY),
    Planting("a snapshot of the future", _copy(of(END, ".snapshot"), of(500, ".snapshot")), Kind.SNAPSHOT_BEYOND_END),
    Planting(
        "a newest snapshot that is not the end",
        _all(_copy(of(103, ".snapshot"), of(110, ".snapshot")), _remove(of(END, ".snapshot"))),
        Kind.SNAPSHOT_NOT_AT_END,
    ),
    Planting("no epochs", _remove(f"{FOLDER}/leader-epoch-checkpoint"), Kind.EPOCHS_MISSING),
    Planting("epochs that cannot be read", _write(f"{FOLDER}/leader-epoch-checkpoint"), Kind.EPOCHS_UNREADABLE),
    Planting("an epoch lost", _epochs(lambda it: it[:1] + it[2:]), Kind.EPOCHS_ENTRY),
    Planting(
        "an epoch that begins late", _epochs(lambda it: [it[0], (it[1][0], it[1][1] + 1), *it[2:]]), Kind.EPOCHS_ENTRY
    ),
    Planting(
        "an epoch that begins early", _epochs(lambda it: [it[0], (it[1][0], it[1][1] - 1), *it[2:]]), Kind.EPOCHS_ENTRY
    ),
    Planting("an epoch of no batch", _epochs(lambda it: [(1, 0), *((e, max(s, 1)) for e, s in it)]), Kind.EPOCHS_ENTRY),
    Planting("epochs out of order", _epochs(lambda it: it[::-1]), Kind.EPOCHS_ENTRY),
    Planting("an epoch beyond the end", _epochs(lambda it: [*it, (9, END + 1)]), Kind.EPOCHS_ENTRY),
]

_TOPIC = frozenset({Kind.TOPIC_ID})
FILES = [
    Planting("a file that waits for its removal", _write(of(0, ".log.deleted")), Kind.LEFTOVER, is_note=True),
    Planting(
        "a file that was to replace another",
        _write(f"{FOLDER}/leader-epoch-checkpoint.tmp"),
        Kind.LEFTOVER,
        is_note=True,
    ),
    Planting("a compaction given up", _write(of(23, ".log.cleaned")), Kind.LEFTOVER, is_note=True),
    Planting(
        "a split interrupted",
        _all(_write(of(23, ".log.cleaned")), _write(of(47, ".log.swap"))),
        Kind.LEFTOVER,
        is_note=True,
    ),
    Planting("a swap interrupted", _swap_of_two, Kind.UNFINISHED_SWAP),
    Planting(
        "a swap interrupted later", _all(_swap_of_two, _remove(of(0, ".log"), of(0, ".index"))), Kind.UNFINISHED_SWAP
    ),
    Planting(
        "a swap that is rotten",
        _all(_swap_of_two, _edit(of(0, ".log.swap"), _xor(200, 1))),
        Kind.UNFINISHED_SWAP,
        left=frozenset({Kind.UNFINISHED_SWAP}),
    ),
    Planting("an index without records", _write(of(60, ".index")), Kind.ORPHAN),
    Planting("records under no name", _write(f"{FOLDER}/126.log"), Kind.MISNAMED, left=frozenset({Kind.MISNAMED})),
    Planting("no partition.metadata", _remove(f"{FOLDER}/partition.metadata"), Kind.METADATA_MISSING),
    Planting("an empty partition.metadata", _write(f"{FOLDER}/partition.metadata", b" "), Kind.METADATA_UNREADABLE),
    Planting(
        "the folder of another topic",
        _write(f"{FOLDER}/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"),
        Kind.TOPIC_ID,
        left=_TOPIC,
    ),
    Planting("partitions of two topics", _other_topic_id, Kind.TOPIC_ID, left=_TOPIC),
    Planting("a partition twice", _twin, Kind.DUPLICATE_PARTITION, left=frozenset({Kind.DUPLICATE_PARTITION})),
    Planting("no meta.properties", _remove("meta.properties"), Kind.META_MISSING, left=frozenset({Kind.META_MISSING})),
    Planting(
        "a meta.properties of another version",
        _write("meta.properties", b"version=7\n"),
        Kind.META_UNREADABLE,
        left=frozenset({Kind.META_UNREADABLE}),
    ),
    *(
        Planting(f"{name} that cannot be read", _write(name), Kind.CHECKPOINT_UNREADABLE)
        for name in (names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT)
    ),
    *(
        Planting(f"{name} beyond the end", _rows(name, END + 1), Kind.CHECKPOINT_BEYOND_END)
        for name in (names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT)
    ),
    Planting(
        "a row of no partition",
        _write(names.RECOVERY_POINT_CHECKPOINT, encode_offsets({KEY: END, ("gone", 0): 5})),
        Kind.CHECKPOINT_STALE_ROW,
        is_note=True,
    ),
    Planting("a deleted partition", _write(f"orders-0.{'a' * 32}-delete/x"), Kind.DOOMED_FOLDER, is_note=True),
    Planting("a stray partition", _write(f"orders-0.{'a' * 32}-stray/x"), Kind.STRAY_FOLDER, is_note=True),
    Planting("a partition on its way", _write(f"orders-0.{'a' * 32}-future/x"), Kind.FUTURE_FOLDER, is_note=True),
    Planting("anybody's folder", _write("holiday/photo"), Kind.UNKNOWN_FOLDER, left=frozenset({Kind.UNKNOWN_FOLDER})),
]

ALL = [*RECORDS, *DERIVED, *FILES]

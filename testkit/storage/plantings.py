"""Every kind of corruption: how it gets into the folder of `inspected.py`, what is found, what a repair leaves."""

from __future__ import annotations

import attrs
from kwire_storage import names
from kwire_storage.checkpoints import encode_offsets
from kwire_storage.inspection import Kind
from kwire_storage.inspection.log_dir_check import CHECKPOINTS
from kwire_storage.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES

from testkit.storage.spoiling import (
    BASES,
    END,
    FOLDER,
    KEY,
    Plant,
    aborted,
    all_of,
    batch,
    copy,
    edit,
    epochs,
    malformed_records,
    of,
    other_batch,
    other_topic_id,
    positions,
    put,
    remove,
    rows,
    snapshot,
    swap_of_two,
    twin,
    write,
    wrong_count,
    wrong_max_timestamp,
    xor,
)

__all__ = ["ALL", "BASES", "END", "FOLDER", "ONE_OF_EACH", "Planting", "of", "positions"]


@attrs.frozen
class Planting:
    """`finds` must be among what a check finds; `left` is all that a repair leaves of errors and warnings."""

    name: str
    plant: Plant
    finds: Kind
    drop: bool = False
    left: frozenset[Kind] = frozenset()
    is_note: bool = False


_LAST_ENTRY, _LAST_TIME_ENTRY = -OFFSET_ENTRY_BYTES, -TIME_ENTRY_BYTES
RECORDS = [
    Planting("a flipped bit in a record", batch(23, 3, xor(70, 4)), Kind.CORRUPT_RANGE, drop=True),
    Planting(
        "a flipped bit in a record, left in",
        batch(23, 3, xor(70, 4)),
        Kind.CORRUPT_RANGE,
        left=frozenset({Kind.CORRUPT_RANGE}),
    ),
    Planting("a wrong CRC", batch(0, 1, xor(18, 1)), Kind.CORRUPT_RANGE, drop=True),
    Planting("a length that is too large", batch(23, 3, xor(10, 1)), Kind.CORRUPT_RANGE, drop=True),
    Planting("a length that is too small", batch(23, 3, put(8, 3, 4)), Kind.CORRUPT_RANGE, drop=True),
    Planting("an unknown magic", batch(23, 3, put(16, 9, 1)), Kind.CORRUPT_RANGE, drop=True),
    Planting("the message format of old", batch(23, 3, put(16, 1, 1)), Kind.CORRUPT_RANGE, drop=True),
    Planting(
        "garbage between two batches", batch(23, 3, lambda batch: batch + bytes(100)), Kind.CORRUPT_RANGE, drop=True
    ),
    Planting(
        "the end of a sealed segment lost",
        edit(of(47, ".log"), lambda content: content[:-20]),
        Kind.CORRUPT_RANGE,
        drop=True,
    ),
    Planting("a torn tail", edit(of(103, ".log"), lambda content: content + content[:80]), Kind.TORN_TAIL),
    Planting("the last batch cut short", edit(of(103, ".log"), lambda content: content[:-9]), Kind.TORN_TAIL),
    Planting("the last batch rotten", batch(103, -1, xor(65, 8)), Kind.TORN_TAIL),
    Planting("zeros at the log's end", edit(of(103, ".log"), lambda content: content + bytes(5000)), Kind.TORN_TAIL),
    Planting("an offset that goes back", batch(23, 3, put(0, 2, 8)), Kind.OFFSET_ORDER, drop=True),
    Planting("an offset that leaps", batch(23, 3, put(0, 40, 8)), Kind.OFFSET_ORDER, drop=True),
    Planting("an offset beyond the segment", batch(23, 3, put(0, 4000, 8)), Kind.OFFSET_ORDER, drop=True),
    Planting("a first offset below the name", batch(47, 0, put(0, 46, 8)), Kind.OFFSET_ORDER, drop=True),
    Planting("records out of order", batch(23, 2, malformed_records), Kind.MALFORMED_RECORDS, drop=True),
    Planting("more records announced than there are", batch(23, 2, wrong_count), Kind.MALFORMED_RECORDS, drop=True),
    Planting(
        "a marker without a key",
        batch(0, 6, lambda batch: other_batch(control=True)(batch)),
        Kind.MALFORMED_RECORDS,
        drop=True,
    ),
    Planting(
        "a wrong largest timestamp",
        batch(23, 2, wrong_max_timestamp),
        Kind.MAX_TIMESTAMP,
        left=frozenset({Kind.MAX_TIMESTAMP}),
    ),
    Planting(
        "a leader epoch of the past",
        batch(75, 4, put(12, 1, 4)),
        Kind.EPOCH_ORDER,
        left=frozenset({Kind.EPOCH_ORDER}),
    ),
    Planting(
        "a segment twice",
        copy(of(23, ".log"), of(30, ".log")),
        Kind.SEGMENT_OVERLAP,
        left=frozenset({Kind.SEGMENT_OVERLAP, Kind.OFFSET_ORDER, Kind.EPOCH_ORDER}),
    ),
    Planting("a segment lost", remove(of(47, ".log")), Kind.HOLE, is_note=True),
]

DERIVED = [
    Planting("no index", remove(of(23, ".index")), Kind.INDEX_MISSING),
    Planting("no time index", remove(of(23, ".timeindex")), Kind.INDEX_MISSING),
    Planting("half an entry", edit(of(23, ".index"), lambda content: content[:-3]), Kind.INDEX_SIZE),
    Planting("half a time entry", edit(of(23, ".timeindex"), lambda content: content[:-3]), Kind.INDEX_SIZE),
    Planting(
        "entries out of order", edit(of(23, ".index"), lambda content: content[8:] + content[:8]), Kind.INDEX_ORDER
    ),
    Planting("an entry after zeros", edit(of(23, ".index"), lambda content: bytes(16) + content), Kind.INDEX_ORDER),
    Planting(
        "time entries out of order",
        edit(of(23, ".timeindex"), lambda content: content[12:] + content[:12]),
        Kind.INDEX_ORDER,
    ),
    Planting("a position within a batch", edit(of(23, ".index"), xor(7, 1)), Kind.INDEX_ENTRY),
    Planting("a position beyond the end", edit(of(23, ".index"), put(_LAST_ENTRY + 4, 9999, 4)), Kind.INDEX_ENTRY),
    Planting("an offset too small", edit(of(23, ".index"), put(0, 1, 4)), Kind.INDEX_ENTRY),
    Planting("an offset too large", edit(of(23, ".index"), put(_LAST_ENTRY, 9999, 4)), Kind.INDEX_ENTRY),
    Planting("a time that no batch has", edit(of(23, ".timeindex"), xor(7, 1)), Kind.INDEX_ENTRY),
    Planting("a time beyond the end", edit(of(23, ".timeindex"), put(_LAST_TIME_ENTRY + 8, 9999, 4)), Kind.INDEX_ENTRY),
    Planting("the last time lost", edit(of(23, ".timeindex"), lambda content: content[:-12]), Kind.TIME_INDEX_SHORT),
    Planting(
        "no time at all",
        edit(of(103, ".timeindex"), lambda content: content[:-12] * 0 or b"\0" * 24),
        Kind.TIME_INDEX_SHORT,
    ),
    Planting("no transaction index", remove(of(23, ".txnindex")), Kind.TXN_INDEX_ENTRY),
    Planting(
        "half an aborted transaction",
        edit(of(23, ".txnindex"), lambda content: content[:-1]),
        Kind.TXN_INDEX_UNREADABLE,
    ),
    Planting(
        "an aborted transaction too many",
        aborted(23, lambda it: [*it, it[-1]._replace(last_offset=46)]),
        Kind.TXN_INDEX_ENTRY,
    ),
    Planting(
        "an aborted transaction moved",
        aborted(23, lambda it: [it[0]._replace(first_offset=1), *it[1:]]),
        Kind.TXN_INDEX_ENTRY,
    ),
    Planting(
        "another last stable offset",
        aborted(23, lambda it: [it[0]._replace(last_stable_offset=999), *it[1:]]),
        Kind.TXN_INDEX_ENTRY,
    ),
    Planting("aborted transactions out of order", aborted(23, lambda it: [*it, it[0]]), Kind.TXN_INDEX_ENTRY),
    Planting("a rotten snapshot", edit(of(47, ".snapshot"), xor(20, 1)), Kind.SNAPSHOT_UNREADABLE),
    Planting("a snapshot cut short", edit(of(47, ".snapshot"), lambda content: content[:8]), Kind.SNAPSHOT_UNREADABLE),
    Planting("a producer forgotten amid a transaction", snapshot(END, lambda it: it.pop(2)), Kind.SNAPSHOT_ENTRY),  # type: ignore[arg-type]
    Planting("a producer of another epoch", snapshot(47, lambda it: setattr(it[1], "epoch", 7)), Kind.SNAPSHOT_ENTRY),
    Planting(
        "a transaction that was not open",
        snapshot(47, lambda it: setattr(it[1], "txn_first_offset", 3)),
        Kind.SNAPSHOT_ENTRY,
    ),
    Planting("a producer with the future", copy(of(END, ".snapshot"), of(47, ".snapshot")), Kind.SNAPSHOT_ENTRY),
    Planting("a snapshot of the future", copy(of(END, ".snapshot"), of(500, ".snapshot")), Kind.SNAPSHOT_BEYOND_END),
    Planting(
        "a newest snapshot that is not the end",
        all_of(copy(of(103, ".snapshot"), of(110, ".snapshot")), remove(of(END, ".snapshot"))),
        Kind.SNAPSHOT_NOT_AT_END,
    ),
    Planting("no epochs", remove(f"{FOLDER}/leader-epoch-checkpoint"), Kind.EPOCHS_MISSING),
    Planting("epochs that cannot be read", write(f"{FOLDER}/leader-epoch-checkpoint"), Kind.EPOCHS_UNREADABLE),
    Planting("an epoch lost", epochs(lambda it: it[:1] + it[2:]), Kind.EPOCHS_ENTRY),
    Planting(
        "an epoch that begins late", epochs(lambda it: [it[0], (it[1][0], it[1][1] + 1), *it[2:]]), Kind.EPOCHS_ENTRY
    ),
    Planting(
        "an epoch that begins early", epochs(lambda it: [it[0], (it[1][0], it[1][1] - 1), *it[2:]]), Kind.EPOCHS_ENTRY
    ),
    Planting("an epoch of no batch", epochs(lambda it: [(1, 0), *((e, max(s, 1)) for e, s in it)]), Kind.EPOCHS_ENTRY),
    Planting("epochs out of order", epochs(lambda it: it[::-1]), Kind.EPOCHS_ENTRY),
    Planting("an epoch beyond the end", epochs(lambda it: [*it, (9, END + 1)]), Kind.EPOCHS_ENTRY),
]

_TOPIC = frozenset({Kind.TOPIC_ID})
FILES = [
    Planting("a file that waits for its removal", write(of(0, ".log.deleted")), Kind.LEFTOVER, is_note=True),
    Planting(
        "a file that was to replace another",
        write(f"{FOLDER}/leader-epoch-checkpoint.tmp"),
        Kind.LEFTOVER,
        is_note=True,
    ),
    Planting("a compaction given up", write(of(23, ".log.cleaned")), Kind.LEFTOVER, is_note=True),
    Planting(
        "a split interrupted",
        all_of(write(of(23, ".log.cleaned")), write(of(47, ".log.swap"))),
        Kind.LEFTOVER,
        is_note=True,
    ),
    Planting("a swap interrupted", swap_of_two, Kind.UNFINISHED_SWAP),
    Planting(
        "a swap interrupted later", all_of(swap_of_two, remove(of(0, ".log"), of(0, ".index"))), Kind.UNFINISHED_SWAP
    ),
    Planting(
        "a swap that is rotten",
        all_of(swap_of_two, edit(of(0, ".log.swap"), xor(200, 1))),
        Kind.UNFINISHED_SWAP,
        left=frozenset({Kind.UNFINISHED_SWAP}),
    ),
    Planting("an index without records", write(of(60, ".index")), Kind.ORPHAN),
    Planting("records under no name", write(f"{FOLDER}/126.log"), Kind.MISNAMED, left=frozenset({Kind.MISNAMED})),
    Planting("no partition.metadata", remove(f"{FOLDER}/partition.metadata"), Kind.METADATA_MISSING),
    Planting("an empty partition.metadata", write(f"{FOLDER}/partition.metadata", b" "), Kind.METADATA_UNREADABLE),
    Planting(
        "the folder of another topic",
        write(f"{FOLDER}/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"),
        Kind.TOPIC_ID,
        left=_TOPIC,
    ),
    Planting("partitions of two topics", other_topic_id, Kind.TOPIC_ID, left=_TOPIC),
    Planting("a partition twice", twin, Kind.DUPLICATE_PARTITION, left=frozenset({Kind.DUPLICATE_PARTITION})),
    Planting("no meta.properties", remove("meta.properties"), Kind.META_MISSING, left=frozenset({Kind.META_MISSING})),
    Planting(
        "a meta.properties of another version",
        write("meta.properties", b"version=7\n"),
        Kind.META_UNREADABLE,
        left=frozenset({Kind.META_UNREADABLE}),
    ),
    *(Planting(f"{name} that cannot be read", write(name), Kind.CHECKPOINT_UNREADABLE) for name in CHECKPOINTS),
    *(Planting(f"{name} beyond the end", rows(name, END + 1), Kind.CHECKPOINT_BEYOND_END) for name in CHECKPOINTS),
    Planting(
        "a row of no partition",
        write(names.RECOVERY_POINT_CHECKPOINT, encode_offsets({KEY: END, ("gone", 0): 5})),
        Kind.CHECKPOINT_STALE_ROW,
        is_note=True,
    ),
    Planting("a deleted partition", write(f"orders-0.{'a' * 32}-delete/x"), Kind.DOOMED_FOLDER, is_note=True),
    Planting("a stray partition", write(f"orders-0.{'a' * 32}-stray/x"), Kind.STRAY_FOLDER, is_note=True),
    Planting("a partition on its way", write(f"orders-0.{'a' * 32}-future/x"), Kind.FUTURE_FOLDER, is_note=True),
    Planting("anybody's folder", write("holiday/photo"), Kind.UNKNOWN_FOLDER, left=frozenset({Kind.UNKNOWN_FOLDER})),
]

ALL = [*RECORDS, *DERIVED, *FILES]

_OF_EACH = {
    "a flipped bit in a record",
    "the end of a sealed segment lost",
    "the last batch cut short",
    "an offset that leaps",
    "no index",
    "entries out of order",
    "no transaction index",
    "an aborted transaction too many",
    "a producer of another epoch",
    "a snapshot of the future",
    "an epoch lost",
    "a file that waits for its removal",
    "a split interrupted",
    "a swap interrupted",
    "a swap interrupted later",
    "an index without records",
    "no partition.metadata",
    f"{names.RECOVERY_POINT_CHECKPOINT} that cannot be read",
}
ONE_OF_EACH = [planting for planting in ALL if planting.name in _OF_EACH]
"""One planting for each action of a repair."""
assert len(ONE_OF_EACH) == len(_OF_EACH), "a name is misspelt"

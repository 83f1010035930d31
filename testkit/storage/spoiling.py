"""Ways to spoil the folder of `inspected.py`.

Segments of `orders-0` there begin at 0, 23, 47, 75 and 103, the log ends at 126.
"""

from __future__ import annotations

from collections.abc import Callable

from kwire_protocol.records import Record, build_batch, read_header
from kwire_storage import names
from kwire_storage.checkpoints import decode_epochs, decode_offsets, encode_epochs, encode_offsets
from kwire_storage.disk.files import Disk
from kwire_storage.producers.snapshots import decode_snapshot, encode_snapshot
from kwire_storage.producers.txn_index import AbortedTxn, decode_aborted, encode_aborted

FOLDER = "orders-0"
BASES = (0, 23, 47, 75, 103)
END = 126
KEY = ("orders", 0)

Plant = Callable[[Disk], None]


def of(offset: int, suffix: str) -> str:
    return f"{FOLDER}/{names.offset_name(offset, suffix)}"


def positions(disk: Disk, base: int) -> list[tuple[int, int]]:
    """(position, size) of each batch of a good segment."""
    data, at, found = disk.read_bytes(of(base, ".log")), 0, []
    while at < len(data):
        size = read_header(data, at).size_in_bytes
        found.append((at, size))
        at += size
    return found


def edit(path: str, change: Callable[[bytearray], bytes | bytearray | None]) -> Plant:
    """`change` is given the file's content, and changes it or returns another."""

    def plant(disk: Disk) -> None:
        content = bytearray(disk.read_bytes(path))
        disk.write_bytes(path, bytes(change(content) or content))

    return plant


def batch(base: int, number: int, change: Callable[[bytearray], bytes | bytearray | None]) -> Plant:
    """`change` is given one batch of a segment, and changes it or returns another."""

    def plant(disk: Disk) -> None:
        at, size = positions(disk, base)[number]
        content = bytearray(disk.read_bytes(of(base, ".log")))
        batch = content[at : at + size]
        content[at : at + size] = change(batch) or batch
        disk.write_bytes(of(base, ".log"), bytes(content))

    return plant


def xor(at: int, mask: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[at] ^= mask

    return change


def put(at: int, value: int, size: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        start = at if at >= 0 else len(data) + at
        data[start : start + size] = value.to_bytes(size, "big", signed=True)

    return change


def other_batch(**changes: object) -> Callable[[bytearray], bytes]:
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


def malformed_records(batch: bytearray) -> bytes:
    base = read_header(batch).base_offset
    return other_batch(records=[Record(base + 1, 1000), Record(base, 1000)], last_offset_delta=1)(batch)


def wrong_max_timestamp(batch: bytearray) -> bytes:
    from crc32c import crc32c

    changed = bytearray(batch)
    put(35, read_header(batch).max_timestamp + 1, 8)(changed)
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def wrong_count(batch: bytearray) -> bytes:
    from crc32c import crc32c

    changed = bytearray(batch)
    put(57, read_header(batch).records_count + 1, 4)(changed)
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def remove(*paths: str) -> Plant:
    def plant(disk: Disk) -> None:
        for path in paths:
            assert disk.exists(path), path
            disk.remove(path)

    return plant


def write(path: str, content: bytes = b"anything") -> Plant:
    def plant(disk: Disk) -> None:
        folder = path.rpartition("/")[0]
        if folder:
            disk.mkdir(folder)
        disk.write_bytes(path, content)

    return plant


def copy(source: str, target: str) -> Plant:
    return lambda disk: disk.write_bytes(target, disk.read_bytes(source))


def all_of(*plants: Plant) -> Plant:
    def plant(disk: Disk) -> None:
        for each in plants:
            each(disk)

    return plant


def rows(name: str, offset: int) -> Plant:
    def change(content: bytearray) -> bytes:
        return encode_offsets({**(decode_offsets(bytes(content)) if content else {}), KEY: offset})

    # Some of them are there only once they have something to say.
    return all_of(lambda disk: disk.open_append(name).close(), edit(name, change))


def epochs(change: Callable[[list[tuple[int, int]]], list[tuple[int, int]]]) -> Plant:
    path = f"{FOLDER}/{names.LEADER_EPOCH_CHECKPOINT}"
    return edit(path, lambda content: encode_epochs(change(decode_epochs(bytes(content)))))


def aborted(base: int, change: Callable[[list[AbortedTxn]], list[AbortedTxn]]) -> Plant:
    return edit(of(base, ".txnindex"), lambda content: encode_aborted(change(decode_aborted(bytes(content)))))


def snapshot(offset: int, change: Callable[[dict[int, object]], None]) -> Plant:
    def changed(content: bytearray) -> bytes:
        entries = {entry.producer_id: entry for entry in decode_snapshot(bytes(content))}
        change(entries)  # type: ignore[arg-type]
        return encode_snapshot(entries.values())

    return edit(of(offset, ".snapshot"), changed)


def swap_of_two(disk: Disk) -> None:
    """The first two segments, compacted into one, which has not taken their place yet."""
    content = disk.read_bytes(of(0, ".log")) + disk.read_bytes(of(23, ".log"))
    disk.write_bytes(of(0, ".log.swap"), content)
    disk.write_bytes(
        of(0, ".txnindex.swap"), disk.read_bytes(of(0, ".txnindex")) + disk.read_bytes(of(23, ".txnindex"))
    )


def other_topic_id(disk: Disk) -> None:
    disk.mkdir("orders-1")
    disk.write_bytes("orders-1/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")


def twin(disk: Disk) -> None:
    disk.mkdir("orders-00")
    for name in disk.listdir(FOLDER):
        disk.write_bytes(f"orders-00/{name}", disk.read_bytes(f"{FOLDER}/{name}"))

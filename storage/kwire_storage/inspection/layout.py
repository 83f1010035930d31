"""The contents of a partition's folder, classified by name."""

from __future__ import annotations

import re

import attrs

from kwire_storage import names
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError

REPAIR_MARK = "kwire-repair-"
"""The mark of a repair's copies: a prefix of their folder's name within a partition's folder, and part of the names of
copies in the log dir itself. Neither kwire nor Apache Kafka uses such names."""

MOST_SMALL_BYTES = 256 << 20
"""The size of a snapshot of five million producers, or of an index of eight million aborted transactions."""

_MISNAMED = re.compile(r"-?\d+\.(log|index|timeindex|txnindex|snapshot)")
_DERIVED = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)


def read_small(disk: Disk, path: str) -> bytes:
    """Reads a whole file. Raises CorruptLogError if it is too large for its kind, and OSError."""
    if (size := disk.size(path)) > MOST_SMALL_BYTES:
        raise CorruptLogError(f"{size} bytes are too many for such a file")
    return disk.read_bytes(path)


@attrs.frozen
class Layout:
    """Names without the folder. `bases` and `snapshots` ascend."""

    path: str
    bases: list[int]
    snapshots: list[int]
    files: set[str]
    leftovers: list[str]
    """`*.deleted`, `*.cleaned`, `*.tmp`, and files of a swap without records."""
    swaps: list[int]
    """The base offsets of `*.log.swap`."""
    orphans: list[str]
    misnamed: list[str]

    def of(self, offset: int, suffix: str) -> str:
        """The path of a file, which need not exist."""
        return f"{self.path}/{names.offset_name(offset, suffix)}"

    def has(self, offset: int, suffix: str) -> bool:
        return names.offset_name(offset, suffix) in self.files

    def next_base(self, base: int) -> int | None:
        return next((other for other in self.bases if other > base), None)


def read_layout(disk: Disk, path: str) -> Layout:
    """Lists the folder. Raises OSError."""
    listed = sorted(disk.listdir(path))
    parsed = {name: found for name in listed if (found := names.parse_offset_name(name)) is not None}
    bases = sorted({offset for offset, suffix in parsed.values() if suffix == names.LOG})
    cleaned = [offset for offset, suffix in parsed.values() if suffix == names.LOG + names.CLEANED]
    swapped = sorted(offset for offset, suffix in parsed.values() if suffix == names.LOG + names.SWAP)
    # A crash while a segment is split leaves both; then the old segment is still whole (Kafka's LogLoader).
    swaps = [offset for offset in swapped if not cleaned or offset < min(cleaned)]
    leftovers, orphans = [], []
    for name in listed:
        stale_swap = name.endswith(names.SWAP) and not (name in parsed and parsed[name][0] in swaps)
        if stale_swap or name.endswith((names.DELETED, names.CLEANED, names.TEMPORARY)):
            leftovers.append(name)
        elif name in parsed and parsed[name][1] in _DERIVED and parsed[name][0] not in (*bases, *swaps):
            orphans.append(name)
    return Layout(
        path=path,
        bases=bases,
        snapshots=sorted(offset for offset, suffix in parsed.values() if suffix == names.SNAPSHOT),
        files=set(listed),
        leftovers=leftovers,
        swaps=swaps,
        orphans=orphans,
        misnamed=[name for name in listed if name not in parsed and _MISNAMED.fullmatch(name)],
    )

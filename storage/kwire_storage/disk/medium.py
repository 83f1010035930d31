"""The possible states of a disk after a power cut: a model, for tests.

A program sees its writes and renames at once; the medium gets them later, in any order, or never, unless the program
syncs. `Medium` receives every change (`apply`), and stores durable content and pending changes separately:

* **Contents** go in sectors of 512 bytes. Since the last sync of a file each of its sectors may be on the medium in any
  version that it ever had, and the file may have any size that it ever had, sector boundaries within a write included.
  If the size was written and the data was not, there are zeros, or earlier content of those sectors (`filler`).
* **Names** belong to their folder. Each of its operations since its last sync may be lost or written, except that those
  on the same name keep their order, and both sides of a rename are one. A rename from one folder to another is two
  operations: the name may be in both, or in neither.
* **A failed sync** drops what was pending, and later syncs do not bring it back, although programs still see it
  (PostgreSQL's "fsyncgate"; Linux marks the pages clean).
* **Rot** flips bits of what was synced.

A `Fate` decides the outcome of a power cut: one function picks the content of each file, and one the surviving
operations of each folder. It is deterministic; callers that want randomness supply it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import attrs

SECTOR_BYTES: Final = 512
ROOT: Final = 0
"""The number of the topmost folder."""


class Write(NamedTuple):
    file: int
    position: int
    data: bytes


class Truncate(NamedTuple):
    file: int
    size: int


class Sync(NamedTuple):
    file: int
    failed: bool = False


class Link(NamedTuple):
    """A file or folder got a name in this folder: a new one, or one from another folder."""

    folder: int
    name: str
    node: int
    is_folder: bool = False


class Rename(NamedTuple):
    folder: int
    old: str
    new: str
    node: int


class Unlink(NamedTuple):
    folder: int
    name: str
    node: int


class SyncNames(NamedTuple):
    folder: int
    failed: bool = False


NameChange = Link | Rename | Unlink
Change = Write | Truncate | Sync | NameChange | SyncNames


@attrs.define(eq=False)
class Content:
    """One file: `durable` is on the medium for certain, `live` is what programs see."""

    durable: bytes = b""
    live: bytearray = attrs.field(factory=bytearray)
    pending: list[Write | Truncate] = attrs.field(factory=list)
    _history: tuple[list[int], dict[int, list[bytes]]] | None = None

    def apply(self, change: Write | Truncate) -> None:
        _change(self.live, change)
        self.pending.append(change)
        self._history = None

    def sync(self, *, failed: bool) -> None:
        if not failed:
            self.durable = self.newest()
        self.pending = []
        self._history = None

    def newest(self) -> bytes:
        """The content with all pending changes on the medium."""
        content = bytearray(self.durable)
        for change in self.pending:
            _change(content, change)
        return bytes(content)

    @property
    def sizes(self) -> list[int]:
        """Every size that the medium may have, oldest first; the first is the durable one."""
        return self._since_sync()[0]

    @property
    def versions(self) -> dict[int, list[bytes]]:
        """The contents of each sector since the last sync, oldest first, by number of sector."""
        return self._since_sync()[1]

    def _since_sync(self) -> tuple[list[int], dict[int, list[bytes]]]:
        if self._history is None:
            sizes = [len(self.durable)]
            sectors: dict[int, list[bytes]] = {}
            content = bytearray(self.durable)
            for change in self.pending:
                before = len(content)
                start, end = (
                    (change.position, change.position + len(change.data))
                    if isinstance(change, Write)
                    else sorted((change.size, before))
                )
                touched = range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES))
                for number in touched:
                    if number not in sectors:
                        sectors[number] = [_sector(content, number)]
                _change(content, change)
                for number in touched:
                    if sectors[number][-1] != (now := _sector(content, number)):
                        sectors[number].append(now)
                if len(content) > before:
                    sizes += range((before // SECTOR_BYTES + 1) * SECTOR_BYTES, len(content), SECTOR_BYTES)
                if len(content) != sizes[-1]:
                    sizes.append(len(content))
            self._history = sizes, sectors
        return self._history

    def as_persisted(self, size: int, versions: Mapping[int, int], filler: bytes = b"") -> bytes:
        """The content with this size, and each sector in the version of that number (the durable one if not given).

        `filler` is the content of sectors that are within the size and were never written; zeros by default.
        """
        content = bytearray(self.durable[:size])
        content += bytes(size - len(content))
        for number, held in self.versions.items():
            start = number * SECTOR_BYTES
            version = versions.get(number, 0)
            data = held[version]
            if filler and version == 0 and start >= len(self.durable):
                data = filler
            room = max(min(SECTOR_BYTES, size - start), 0)
            content[start : start + room] = data[:room].ljust(room, b"\0")
        return bytes(content)

    def grown(self, unsynced_bytes: int) -> bytes:
        """The durable bytes, followed by so many unsynced ones."""
        persisted = len(self.durable) + unsynced_bytes
        return self.durable + bytes(self.live[len(self.durable) : persisted])

    def copy(self) -> Content:
        return Content(self.durable, bytearray(self.live), list(self.pending), self._history)


def _sector(content: bytearray, number: int) -> bytes:
    return bytes(content[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES])


def _change(content: bytearray, change: Write | Truncate) -> None:
    if isinstance(change, Write):
        content += bytes(max(change.position - len(content), 0))
        content[change.position : change.position + len(change.data)] = change.data
    elif change.size < len(content):
        del content[change.size :]
    else:
        content += bytes(change.size - len(content))


@attrs.define(eq=False)
class Names:
    """One folder: numbers of files and folders by name."""

    durable: dict[str, int] = attrs.field(factory=dict)
    live: dict[str, int] = attrs.field(factory=dict)
    pending: list[NameChange] = attrs.field(factory=list)

    def apply(self, change: NameChange) -> None:
        _rename(self.live, change)
        self.pending.append(change)

    def sync(self, *, failed: bool) -> None:
        if not failed:
            self.durable = self.as_persisted(range(len(self.pending)))
        self.pending = []

    def with_forerunners(self, persisted: Collection[int]) -> set[int]:
        """The pending operations of these numbers, with the earlier ones of the same names, on which they depend."""
        closed: set[int] = set()
        needed: set[str] = set()
        for number in range(len(self.pending) - 1, -1, -1):
            names = _names_of(self.pending[number])
            if number in persisted or not needed.isdisjoint(names):
                closed.add(number)
                needed |= names
        return closed

    def as_persisted(self, persisted: Collection[int]) -> dict[str, int]:
        """The folder after the pending operations of these numbers, and those they depend on."""
        entries = dict(self.durable)
        closed = self.with_forerunners(persisted)
        for number, change in enumerate(self.pending):
            if number in closed:
                _rename(entries, change)
        return entries

    def copy(self) -> Names:
        return Names(self.durable, dict(self.live), list(self.pending))


def _names_of(change: NameChange) -> set[str]:
    return {change.old, change.new} if isinstance(change, Rename) else {change.name}


def _rename(entries: dict[str, int], change: NameChange) -> None:
    match change:
        case Link():
            entries[change.name] = change.node
        case Rename():
            entries.pop(change.old, None)
            entries[change.new] = change.node
        case Unlink():
            entries.pop(change.name, None)


@attrs.frozen
class Fate:
    """Decides the content of each file and folder when the power fails.

    `content(number, file)` returns the bytes of a file, `names(number, folder)` the numbers of the pending operations
    that survive.
    """

    content: Callable[[int, Content], bytes]
    names: Callable[[int, Names], Collection[int]]


def persisted_part(share: float) -> Fate:
    """A fate with which this share of the unsynced bytes survives, and no names."""
    return Fate(
        lambda _number, file: file.grown(int(max(len(file.live) - len(file.durable), 0) * share)),
        lambda _number, _folder: (),
    )


NOTHING_UNSYNCED: Final = Fate(lambda _number, file: file.durable, lambda _number, _folder: ())
EVERYTHING: Final = Fate(
    lambda _number, file: file.newest(),
    lambda _number, folder: range(len(folder.pending)),
)


@attrs.define(eq=False)
class Medium:
    """Files and folders by their numbers, which are never used twice."""

    files: dict[int, Content] = attrs.field(factory=dict)
    folders: dict[int, Names] = attrs.field(factory=lambda: {ROOT: Names()})

    def apply(self, change: Change) -> None:
        match change:
            case Write() | Truncate():
                self.files[change.file].apply(change)
            case Sync():
                self.files[change.file].sync(failed=change.failed)
            case SyncNames():
                self.folders[change.folder].sync(failed=change.failed)
            case _:
                if isinstance(change, Link):
                    if change.is_folder:
                        self.folders.setdefault(change.node, Names())
                    else:
                        self.files.setdefault(change.node, Content())
                self.folders[change.folder].apply(change)

    def copy(self) -> Medium:
        """The medium after the process died and the machine continued: pending changes stay pending."""
        return Medium(
            {number: file.copy() for number, file in self.files.items()},
            {number: folder.copy() for number, folder in self.folders.items()},
        )

    def after_power_cut(self, fate: Fate) -> Medium:
        """The medium after the machine has restarted; all of it is durable."""
        medium = Medium()
        waiting = [ROOT]
        while waiting:
            number = waiting.pop()
            folder = self.folders[number]
            names = folder.as_persisted(fate.names(number, folder)) if folder.pending else folder.durable
            medium.folders[number] = Names(names, dict(names))
            for node in names.values():
                if node in self.folders:
                    waiting.append(node)
                elif node not in medium.files:
                    file = self.files[node]
                    content = fate.content(node, file) if file.pending else file.durable
                    medium.files[node] = Content(content, bytearray(content))
        return medium

    def rot(self, file: int, position: int, bits: int = 0xFF) -> None:
        """Flips bits of a synced byte, unnoticed by any program."""
        content = self.files[file]
        assert not content.pending, "only what is on the medium rots there"
        spoilt = bytearray(content.durable)
        spoilt[position] ^= bits
        content.durable = bytes(spoilt)
        content.live[:] = spoilt

    def durable_contents(self) -> tuple[object, ...]:
        """Everything that is durable under a name, as a value: media with equal values have the same content."""
        return self._durable_contents(ROOT)

    def _durable_contents(self, number: int) -> tuple[object, ...]:
        return tuple(
            (name, self._durable_contents(node) if node in self.folders else self.files[node].durable)
            for name, node in sorted(self.folders[number].durable.items())
        )

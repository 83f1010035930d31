"""The states that a power cut may leave, enumerated: all of them where they are few, else a good sample.

A `Choice` picks for each file with unsynced changes a size and a version of each sector, and for each folder the
operations that survive. Where all combinations fit into the bound they are all made. Else come first the telling ones
(nothing, everything, each object's odd behaviour with the rest lost, and with the rest kept), then ones drawn by lot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import attrs
from kwire_storage.disk.medium import SECTOR_BYTES, Content, Fate, Link, Medium, Names, Rename

_SUBSETS_OF = 5
"""Folders with so many pending operations have all their subsets tried."""


class FileChoice(NamedTuple):
    """A size, the number of a version for each sector that is not as synced, and what fills a gap."""

    size: int
    versions: tuple[tuple[int, int], ...] = ()
    stale: bool = False


@attrs.frozen
class Choice:
    files: dict[int, FileChoice] = attrs.field(factory=dict)
    folders: dict[int, frozenset[int]] = attrs.field(factory=dict)

    def fate(self) -> Fate:
        return Fate(self._content, self._names)

    def _content(self, number: int, file: Content) -> bytes:
        choice = self.files.get(number)
        if choice is None:
            return file.durable
        filler = bytes(file.live[:SECTOR_BYTES]) if choice.stale else b""
        return file.as_persisted(choice.size, dict(choice.versions), filler)

    def _names(self, number: int, _folder: Names) -> frozenset[int]:
        return self.folders.get(number, frozenset())

    def description(self, medium: Medium) -> list[str]:
        """Returns a description of the unsynced content that survives, for a person."""
        lines = []
        for number, choice in self.files.items():
            file = medium.files[number]
            held = {sector: f"{version} of {len(file.versions[sector]) - 1}" for sector, version in choice.versions}
            gap = ", old data in the gaps" if choice.stale else ""
            lines.append(
                f"file {number}: {choice.size} bytes (synced {len(file.durable)}, live {len(file.live)}), "
                f"sector: version {held}{gap}"
            )
        for number, durable in self.folders.items():
            closed = medium.folders[number].with_forerunners(durable)
            lines += [
                f"folder {number}: {'kept' if it in closed else 'lost'} {change}"
                for it, change in enumerate(medium.folders[number].pending)
            ]
        return lines


def choices(medium: Medium, bound: int, chance: Random) -> Iterator[Choice]:
    """Yields at most `bound` choices; in the first nothing survives. Some may be equal."""
    files = {number: medium.files[number] for number in sorted(_reachable(medium)) if medium.files[number].pending}
    folders = {number: folder for number, folder in sorted(medium.folders.items()) if folder.pending}
    if _count(files, folders) <= bound:
        yield from _all(files, folders)
        return
    yield from itertools.islice(_sample(files, folders, chance), bound)


def _reachable(medium: Medium) -> set[int]:
    nodes: set[int] = set()
    for folder in medium.folders.values():
        nodes.update(folder.durable.values())
        nodes.update(change.node for change in folder.pending if isinstance(change, Link | Rename))
    return nodes & medium.files.keys()


def _count(files: dict[int, Content], folders: dict[int, Names]) -> float:
    by_file = (
        (1 + _has_gaps(file)) * len(file.sizes) * math.prod(len(held) for held in file.versions.values())
        for file in files.values()
    )
    return math.prod(by_file) * math.prod(2.0 ** len(folder.pending) for folder in folders.values())


def _has_gaps(file: Content) -> bool:
    return any(number * SECTOR_BYTES >= len(file.durable) for number in file.versions)


def _all(files: dict[int, Content], folders: dict[int, Names]) -> Iterator[Choice]:
    of_files = [_all_of_file(file) for file in files.values()]
    of_folders = [_subsets(len(folder.pending)) for folder in folders.values()]
    for picked in itertools.product(*of_files):
        for durable in itertools.product(*of_folders):
            yield Choice(dict(zip(files, picked, strict=True)), dict(zip(folders, durable, strict=True)))


def _all_of_file(file: Content) -> list[FileChoice]:
    sectors = list(file.versions)
    return [
        FileChoice(size, tuple(zip(sectors, versions, strict=True)), stale)
        for size in file.sizes
        for versions in itertools.product(*(range(len(held)) for held in file.versions.values()))
        for stale in ((False, True) if _has_gaps(file) else (False,))
    ]


def _subsets(count: int) -> list[frozenset[int]]:
    return [frozenset(durable) for size in range(count + 1) for durable in itertools.combinations(range(count), size)]


def _newest(file: Content) -> FileChoice:
    return FileChoice(file.sizes[-1], tuple((sector, len(held) - 1) for sector, held in file.versions.items()))


def _sample(files: dict[int, Content], folders: dict[int, Names], chance: Random) -> Iterator[Choice]:
    durable = Choice(
        {number: _newest(file) for number, file in files.items()},
        {number: frozenset(range(len(folder.pending))) for number, folder in folders.items()},
    )
    yield Choice()
    yield durable
    yield Choice(durable.files, {})
    yield Choice({}, durable.folders)
    singles = [
        attrs.evolve(rest, files={**rest.files, number: odd})
        for number, file in files.items()
        for odd in _odd_files(file)
        for rest in (Choice({}, durable.folders), durable)
    ] + [
        attrs.evolve(rest, folders={**rest.folders, number: odd})
        for number, folder in folders.items()
        for odd in _odd_folders(folder)
        for rest in (Choice(), durable)
    ]
    chance.shuffle(singles)
    while True:
        if singles:
            yield singles.pop()
        yield Choice(
            {number: _drawn_file(file, chance) for number, file in files.items()},
            {number: _drawn_folder(folder, chance) for number, folder in folders.items()},
        )


def _odd_files(file: Content) -> list[FileChoice]:
    newest = _newest(file)
    nothing: tuple[tuple[int, int], ...] = ()
    odd = [FileChoice(size, newest.versions) for size in file.sizes[:-1]]
    odd.append(FileChoice(newest.size, nothing))
    if _has_gaps(file):
        odd.append(FileChoice(newest.size, nothing, stale=True))
    for sector in file.versions:
        odd.append(FileChoice(newest.size, tuple(it for it in newest.versions if it[0] != sector)))
        odd.append(FileChoice(newest.size, tuple(it for it in newest.versions if it[0] == sector)))
        odd.append(FileChoice(newest.size, tuple(it for it in newest.versions if it[0] < sector)))
    return odd


def _odd_folders(folder: Names) -> list[frozenset[int]]:
    count = len(folder.pending)
    if count <= _SUBSETS_OF:
        return _subsets(count)
    everything = frozenset(range(count))
    return [
        odd for number in range(count) for odd in (frozenset({number}), everything - {number}, frozenset(range(number)))
    ]


def _drawn_file(file: Content, chance: Random) -> FileChoice:
    match chance.randrange(4):
        case 0:
            return FileChoice(len(file.durable))
        case 1:
            return _newest(file)
        case _:
            versions = tuple((sector, chance.randrange(len(held))) for sector, held in file.versions.items())
            return FileChoice(chance.choice(file.sizes), versions, stale=chance.random() < 0.2)


def _drawn_folder(folder: Names, chance: Random) -> frozenset[int]:
    count = len(folder.pending)
    match chance.randrange(4):
        case 0:
            return frozenset()
        case 1:
            return frozenset(range(count))
        case _:
            return frozenset(number for number in range(count) if chance.random() < 0.5)

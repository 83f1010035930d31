"""The files of one segment as they are held in memory: the records' file, opened when first needed, and the indexes.

`open_files.py` limits open files and indexes, and closes those not used recently. This module reopens it on demand, so
callers do not notice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kwire_storage import names
from kwire_storage.disk.files import Disk, File
from kwire_storage.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from kwire_storage.producers.txn_index import ENTRY_BYTES, AbortedTxn, decode_aborted, encode_aborted

MOST_HIDDEN_ENTRIES: Final = 64
"""The maximum number of index entries that wait to be written together: they cover 256 KiB of records."""
_HIDDEN_SHARE: Final = 4
"""The maximum share of entries that may wait, one in so many, so that a short index is up to date."""
_UNKNOWN: Final = (-1, -1, -1)


class SegmentFiles(ABC):
    """See the module. `path` is that of the files without their suffixes."""

    __slots__ = (
        "_aside",
        "_disk",
        "_file",
        "_index",
        "_index_used",
        "_shown",
        "_size",
        "_time_index",
        "_txn_index",
        "file_suffix",
        "indexes_dirty",
        "path",
        "show_at_entries",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.file_suffix = names.LOG
        """The current suffix of its file of records (`compaction/swap.py`)."""
        self._file: File | None = None
        self._aside: File | None = None
        """The file, if it was not used for a while."""
        self._size: int | None = None
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: list[AbortedTxn] | None = None
        self._index_used = False
        self.indexes_dirty = False
        """True if the indexes in memory have entries that their files lack, or that `show_indexes` has written."""
        self._shown = _UNKNOWN
        """The number of entries that `show_indexes` has written to each file."""
        self.show_at_entries = 0
        """The number of entries of the offset index at which `show_indexes` is due."""

    # -- records

    @property
    def records_path(self) -> str:
        return self.path + self.file_suffix

    @property
    def file(self) -> File:
        """The file of records, which is created if it is absent. Do not hold it while other files may be opened."""
        file = self._file
        if file is None:
            return self._disk.open_files.open(self)
        return file

    def take_file_back(self) -> File | None:
        """Returns the file, if it is open; for OpenFiles."""
        file = self._file = self._file or self._aside
        self._aside = None
        return file

    def open_file(self) -> File:
        """Opens the file; for OpenFiles."""
        file = self._file = self._disk.open_append(self.records_path)
        return file

    def release_file(self) -> bool:
        """Closes the file; for OpenFiles. Returns False if it was used since the last call, or must stay open."""
        if self._file is not None:
            self._aside, self._file = self._file, None
            return False
        file = self._aside
        if file is not None:
            # It may have bytes of a failed append that could not be cut off: only this File excludes them. The same is
            # true while another thread is in the middle of an append, and while the file does not have its final name.
            with suppress(OSError):
                if self._disk.size(self.records_path) == file.size:
                    self._aside = self._size = None
        return self._aside is None

    @property
    def is_open(self) -> bool:
        return self._file is not None or self._aside is not None

    @property
    def open_file_or_none(self) -> File | None:
        """The file; None if it is not open."""
        return self._file or self._aside

    @property
    def size(self) -> int:
        """The size of the records in bytes."""
        file = self._file or self._aside
        if file is not None:
            return file.size
        if self._size is None:
            try:
                self._size = self._disk.size(self.records_path)
            except FileNotFoundError:
                self._size = 0
        return self._size

    def release(self) -> None:
        """Releases the file and the indexes; slices keep the file open as long as they need it."""
        self._disk.open_files.forget(self)
        self._size = self._file = self._aside = None

    # -- indexes

    @property
    def index(self) -> OffsetIndex:
        self._index_used = True
        index = self._index
        return self._load_indexes()[0] if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        self._index_used = True
        index = self._time_index
        return self._load_indexes()[1] if index is None else index

    @property
    def aborted(self) -> list[AbortedTxn]:
        """The aborted transactions that end in this segment."""
        aborted = self._txn_index
        if aborted is None:
            try:
                aborted = decode_aborted(self._disk.read_bytes(self.path + names.TXN_INDEX))
            except FileNotFoundError:
                aborted = []
            self._txn_index = aborted
            self._shown = (*self._shown[:2], len(aborted))
            self._hold_indexes()
        return aborted

    @property
    def aborted_in_memory(self) -> list[AbortedTxn] | None:
        """The same as `aborted`, without a read: None if they are not in memory."""
        return self._txn_index

    def add_aborted(self, aborted: AbortedTxn) -> None:
        self.indexes_dirty = True
        self.aborted.append(aborted)

    def forget_aborted(self, end_offset: int) -> None:
        """Drops the transactions that end at or after the offset."""
        self.indexes_dirty = True
        self._txn_index = [aborted for aborted in self.aborted if aborted.last_offset < end_offset]
        self.forget_shown()

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        try:
            offsets = self._disk.read_bytes(self.path + names.INDEX)
            times = self._disk.read_bytes(self.path + names.TIME_INDEX)
        except FileNotFoundError:
            return self._rebuilt()
        index, time_index = OffsetIndex.from_bytes(offsets), TimeIndex.from_bytes(times)
        whole = len(offsets) % OFFSET_ENTRY_BYTES == 0 and len(times) % TIME_ENTRY_BYTES == 0
        if not whole or (index.positions and index.positions[-1] >= self.size):
            return self._rebuilt()
        if not len(time_index) and self.has_timestamps():
            return self._rebuilt()
        self._index, self._time_index = index, time_index
        self._shown = (len(index), len(time_index), self._shown[2])
        self._hold_indexes()
        return index, time_index

    def _rebuilt(self) -> tuple[OffsetIndex, TimeIndex]:
        self.rebuild()
        assert self._index is not None
        assert self._time_index is not None
        return self._index, self._time_index

    @abstractmethod
    def has_timestamps(self) -> bool:
        """Returns True if a record has a timestamp, and so the time index an entry. Reads up to the first one."""

    @abstractmethod
    def rebuild(self, end_offset: int | None = None) -> None:
        """Rebuilds both sparse indexes from the records."""

    def show_indexes(self) -> None:
        """Appends the entries that the files lack, for tools that read the folder of a running broker.

        Nothing relies on it: a recovery rebuilds these files, and `save_indexes` writes them as a whole. Raises
        OSError; then the next call does the rest.
        """
        index, time_index = self.index, self.time_index
        entries = len(index)
        self.show_at_entries = entries + MOST_HIDDEN_ENTRIES
        offsets_shown, times_shown, aborted_shown = self._shown
        if entries != offsets_shown:
            self._extend(names.INDEX, OFFSET_ENTRY_BYTES, offsets_shown, entries, index.to_bytes)
            self._shown = (entries, times_shown, aborted_shown)
        times = len(time_index)
        if times != times_shown:
            self._extend(names.TIME_INDEX, TIME_ENTRY_BYTES, times_shown, times, time_index.to_bytes)
            self._shown = (entries, times, aborted_shown)
        aborted = self._txn_index
        if aborted is not None and len(aborted) != aborted_shown:
            # Without aborted transactions there is no file; an existing one may have entries that a recovery cut off.
            if aborted or self._disk.exists(self.path + names.TXN_INDEX):
                self._extend(
                    names.TXN_INDEX, ENTRY_BYTES, aborted_shown, len(aborted), lambda n: encode_aborted(aborted[n:])
                )
            self._shown = (entries, times, len(aborted))
        self.show_at_entries = entries + min(entries // _HIDDEN_SHARE + 1, MOST_HIDDEN_ENTRIES)

    def forget_shown(self) -> None:
        """Called when entries in memory were cut off or rebuilt: `show_indexes` then writes all of them."""
        self._shown = _UNKNOWN
        self.show_at_entries = 0

    @property
    def hides_aborted(self) -> bool:
        """Returns True if an aborted transaction is not in its file yet."""
        return len(self._txn_index or ()) > max(self._shown[2], 0)

    def _extend(self, suffix: str, entry_bytes: int, shown: int, entries: int, encode: Callable[[int], bytes]) -> None:
        """Appends to a file with `shown` entries until it has `entries` of them."""
        file = self._disk.open_append(self.path + suffix)
        try:
            if shown < 0 or file.size != shown * entry_bytes:
                shown = 0
                if file.size:
                    file.truncate(0)
            if entries > shown:
                file.append(encode(shown))
        finally:
            file.close()

    def save_indexes(self, suffix: str = "") -> list[str]:
        """Writes the indexes if their files lack something. Returns the paths written, which the caller has to sync.

        `suffix` is for a segment that does not have its final name yet.
        """
        if not self.indexes_dirty:
            return []
        contents = {names.INDEX: self.index.to_bytes(), names.TIME_INDEX: self.time_index.to_bytes()}
        if self._txn_index or self._disk.exists(self.path + names.TXN_INDEX):
            contents[names.TXN_INDEX] = encode_aborted(self.aborted)
        for kind, content in contents.items():
            self._disk.write_bytes(self.path + kind + suffix, content)
        self.indexes_dirty = False
        self._shown = (len(self.index), len(self.time_index), len(self._txn_index or ()))
        if not suffix:
            self._hold_indexes()
        return [self.path + kind + suffix for kind in contents]

    def _hold_indexes(self) -> None:
        size = OFFSET_ENTRY_BYTES * len(self._index or ()) + TIME_ENTRY_BYTES * len(self._time_index or ())
        self._disk.open_files.index_loaded(self, size + ENTRY_BYTES * len(self._txn_index or ()))

    def needs_indexes(self) -> bool:
        """Returns True if the indexes were used since the last call. Otherwise drops them, and returns False; for
        OpenFiles.

        Those that are not in their files are no longer counted, and stay until they are.
        """
        if self.indexes_dirty:
            return False
        if self._index_used:
            self._index_used = False
            return True
        self._index = self._time_index = self._txn_index = None
        return False

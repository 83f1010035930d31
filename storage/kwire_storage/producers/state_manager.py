"""The producers of one log: snapshots on disk, and the current states in memory.

The states are a fold over the log's batches that starts with a snapshot; they are loaded on first use. A snapshot is
for an offset in the log: the start of a segment, or the end at a clean stop. A snapshot for an offset that the log no
longer has must never be used.

Apache Kafka does the same in the class of that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kwire_protocol.records import BatchHeader

from kwire_storage import names
from kwire_storage.config import LogConfig
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError
from kwire_storage.producers.markers import apply_batch
from kwire_storage.producers.snapshots import decode_snapshot, encode_snapshot
from kwire_storage.producers.states import EndTxnMarker, ProducerEntry, ProducerStates


class Replayed(Protocol):
    """The interface of the log that the producers' states need: its segments."""

    end_offset: int
    bases: list[int]

    def producer_batches(self, offset: int) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]: ...


class ProducerStateManager:
    """See the module. `snapshot_offsets` are those of the files in the folder, ascending."""

    def __init__(
        self, disk: Disk, path: str, config: LogConfig, log: Replayed, snapshot_offsets: Sequence[int]
    ) -> None:
        self._disk = disk
        self._path = path
        self._config = config
        self._log = log
        self.snapshot_offsets = list(snapshot_offsets)
        self.states_or_none: ProducerStates | None = None
        """None if the states have not been needed yet, or are out of date."""

    def configure(self, config: LogConfig) -> None:
        self._config = config
        if self.states_or_none is not None:
            self.states_or_none.expiration_ms = config.producer_id_expiration_ms
            self.states_or_none.check_interval_ms = config.producer_id_expiration_check_interval_ms

    @property
    def states(self) -> ProducerStates:
        """The producers' states, which may have to be loaded first. Raises OSError."""
        return self.load() if self.states_or_none is None else self.states_or_none

    def load(self) -> ProducerStates:
        """Loads the newest snapshot up to the log's end, and replays the batches after it."""
        config = self._config
        states = ProducerStates(config.producer_id_expiration_ms, config.producer_id_expiration_check_interval_ms)
        start = self._load_snapshot(states, self._log.end_offset)
        for header, marker in self._log.producer_batches(self._log.bases[0] if start is None else start):
            apply_batch(states, None, header, header.base_offset, header.max_timestamp, marker)
        self.states_or_none = states
        return states

    def forget(self) -> None:
        """Drops the states, because the log's end was cut; they are loaded again when they are needed."""
        self.states_or_none = None

    def adopt(self, states: ProducerStates) -> None:
        """Copies the states of another log with the same records, in which more batches may be deleted."""
        self.states_or_none = states
        if self._log.end_offset in self.snapshot_offsets:
            self._remove(self._log.end_offset)  # of the earlier states; to be written again

    # -- snapshots

    def take_snapshot(self) -> list[str]:
        """Writes the producers at the log end, unless that is written already. Removes snapshots of no segment's base.

        Returns the path that must be synced, if any. Raises OSError. An empty log, too, has producers if its records
        were deleted.
        """
        end = self._log.end_offset
        if end in self.snapshot_offsets or (end == self._log.bases[0] and not self.states.entries):
            return []
        path = self._snapshot_path(end)
        self._disk.write_bytes(path, encode_snapshot(self.states.entries.values()))
        for stray in [offset for offset in self.snapshot_offsets if offset not in self._log.bases]:
            self._remove(stray)
        self.snapshot_offsets.append(end)
        return [path]

    def drop_bad_snapshot(self) -> bool:
        """Removes the snapshot of the log's end if a crash has left only part of it. Returns True if it did."""
        end = self._log.end_offset
        return end in self.snapshot_offsets and self._read(end) is None

    def load_later_snapshot(self, offset: int) -> None:
        """Replaces the states by the newest good snapshot up to the offset, if it is above the log's end."""
        self._load_snapshot(self.states, offset, above=self._log.end_offset)

    def take_out(self, offset: int) -> list[str]:
        """Forgets the snapshot of a segment's beginning. Returns its path, which the caller removes."""
        if offset not in self.snapshot_offsets:
            return []
        self.snapshot_offsets.remove(offset)
        return [self._snapshot_path(offset)]

    def drop_snapshots_above(self, end_offset: int) -> None:
        """Removes, durably, the snapshots above the log's new end; -1: all of them."""
        stale = [offset for offset in self.snapshot_offsets if offset > end_offset]
        if not stale:
            return
        with self._disk.open_folder(self._path) as folder:
            for offset in stale:
                self._remove(offset)
            # If one came back after a power cut, with other records below its offset, it would be trusted.
            folder.sync()

    def drop_stray_snapshots(self) -> None:
        """Keeps the snapshots at the beginning of a segment, and the newest."""
        retained = {*self._log.bases, *self.snapshot_offsets[-1:]}
        for offset in [offset for offset in self.snapshot_offsets if offset not in retained]:
            self._remove(offset)

    def _load_snapshot(self, states: ProducerStates, most_offset: int, above: int = -1) -> int | None:
        """Replaces the states by the newest good snapshot up to `most_offset`; returns its offset.

        Returns None, and keeps the states, if there is none, or none above the offset `above`.
        """
        for offset in reversed([offset for offset in self.snapshot_offsets if above < offset <= most_offset]):
            entries = self._read(offset)
            if entries is not None:
                states.load(entries)
                return offset
        return None

    def _read(self, offset: int) -> list[ProducerEntry] | None:
        """Reads the snapshot of that offset; an invalid one is removed."""
        try:
            return decode_snapshot(self._disk.read_bytes(self._snapshot_path(offset)))
        except (CorruptLogError, FileNotFoundError):
            self._remove(offset)
            return None

    def _remove(self, offset: int) -> None:
        self._disk.remove(self._snapshot_path(offset))
        self.snapshot_offsets.remove(offset)

    def _snapshot_path(self, offset: int) -> str:
        return f"{self._path}/{names.offset_name(offset, names.SNAPSHOT)}"

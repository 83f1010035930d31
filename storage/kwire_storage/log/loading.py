"""Opening a log: from the names in its folder to the parts of a `Log` (Kafka's `LogLoader`).

One listing is all that a cleanly closed log costs. Its end is the offset in the name of the newest producer snapshot,
which a clean stop writes; only if that is missing the last segment is read. Producers and leader epochs are read when
they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from kwire_storage import names
from kwire_storage.config import LogConfig
from kwire_storage.disk.files import Disk
from kwire_storage.disk.reserve import Reserve
from kwire_storage.errors import CorruptLogError, is_full
from kwire_storage.log.durability import Durability
from kwire_storage.log.environment import LogEnvironment
from kwire_storage.log.epochs import EpochCache
from kwire_storage.log.log_segments import LogSegments
from kwire_storage.log.recovery import LogRecovery, Recovery
from kwire_storage.log.swap_files import complete_swap
from kwire_storage.producers.state_manager import ProducerStateManager

MakeFolder = Callable[[], Iterable[str]]
"""Creates a partition's folder with its initial files, and returns their paths. May be called again."""

_LEFTOVERS = (names.DELETED, names.CLEANED, names.TEMPORARY)


@attrs.define(eq=False)
class LogParts:
    """The parts of a log. Its leader epochs are None until they have to be read."""

    segments: LogSegments
    producer_state: ProducerStateManager
    durability: Durability
    leader_epochs: EpochCache | None
    log_start_offset: int
    recovery: Recovery | None
    """None if none was needed."""
    make_folder: MakeFolder | None
    """Set while a full disk has no room for the folder of a new partition."""
    has_file: bool
    """False if the only segment has no file yet."""


@attrs.define(eq=False)
class LogLoader:
    """Finds the segments and the end of the log in folder `path`; recovers unless the last stop was clean.

    `make_folder` creates the folder if it is missing. Offsets are the checkpoints' entries, 0 for a missing one:
    `cleaned_offset` is the offset that compaction has reached.
    """

    disk: Disk
    path: str
    config: LogConfig
    environment: LogEnvironment
    reserve: Reserve
    make_folder: MakeFolder
    log_start_offset: int
    recovery_point: int
    cleaned_offset: int
    clean_shutdown: bool
    now_ms: int
    on_scanned: Callable[[int], None]

    def load(self) -> LogParts:
        """Loads the parts of the log. Raises OSError, and CorruptLogError for contradictions that recovery may not
        repair by a cut."""
        durability = Durability(self.disk, self.path, self.reserve)
        listed = self._list_folder()
        is_made = True
        if listed is None:
            is_made = self._try_to_make_folder(durability)
            listed = _Listed()
        bases = sorted(listed.bases) or [self.log_start_offset]
        segments = LogSegments(self.disk, self.path, self.config, self.environment, bases, now_ms=self.now_ms)
        segments.may_be_compacted = self.cleaned_offset > 0
        producer_state = ProducerStateManager(self.disk, self.path, self.config, segments, sorted(listed.snapshots))
        log_start_offset = max(self.log_start_offset, bases[0])
        if not (self.clean_shutdown or listed.bases):
            # The power failed when the names of the snapshots were on the medium, and those of the segments were not
            # yet.
            producer_state.drop_snapshots_above(-1)
        leader_epochs: EpochCache | None = None
        recovery: Recovery | None = None
        if self.clean_shutdown or not listed.bases:
            segments.end_offset = durability.recovery_point = self._promised_end(segments, producer_state)
        else:
            work = LogRecovery(
                disk=self.disk,
                path=self.path,
                config=self.config,
                reserve=self.reserve,
                segments=segments,
                producer_state=producer_state,
                durability=durability,
                log_start_offset=log_start_offset,
                recovery_point=self.recovery_point,
                cleaned_offset=self.cleaned_offset,
                swapped=listed.swapped,
                now_ms=self.now_ms,
                on_scanned=self.on_scanned,
            )
            recovery, leader_epochs = work.run()
            durability.recovery_point = min(self.recovery_point, segments.end_offset)
        if not self.clean_shutdown:
            durability.note_nothing_synced()
        return LogParts(
            segments,
            producer_state,
            durability,
            leader_epochs,
            log_start_offset,
            recovery,
            None if is_made else self.make_folder,
            bool(listed.bases),
        )

    def _try_to_make_folder(self, durability: Durability) -> bool:
        """Returns False on a full disk."""
        try:
            durability.note_folder_made(self.reserve.spend(self.make_folder))
        except OSError as error:
            if not is_full(error):
                raise
            return False
        return True

    def _list_folder(self) -> _Listed | None:
        """Lists the folder; None if there is none. Removes leftovers of deletions, and finishes a swap."""
        disk, path = self.disk, self.path
        try:
            names_listed = disk.listdir(path)
        except FileNotFoundError:
            return None
        listed = _Listed()
        if any(name.endswith(names.SWAP) for name in names_listed):
            listed.swapped = complete_swap(disk, path)
            names_listed = disk.listdir(path)
        indexes: list[tuple[int, str]] = []
        for name in names_listed:
            parsed = names.parse_offset_name(name)
            if name.endswith(_LEFTOVERS):
                disk.remove(f"{path}/{name}")
            elif parsed is not None:
                offset, suffix = parsed
                if suffix == names.LOG:
                    listed.bases.add(offset)
                elif suffix == names.SNAPSHOT:
                    listed.snapshots.append(offset)
                elif suffix in names.SEGMENT_SUFFIXES:
                    indexes.append((offset, name))
        for offset, name in indexes:
            if offset not in listed.bases:
                disk.remove(f"{path}/{name}")
        return listed

    def _promised_end(self, segments: LogSegments, producer_state: ProducerStateManager) -> int:
        active, snapshot_offsets = segments.active, producer_state.snapshot_offsets
        if snapshot_offsets and snapshot_offsets[-1] > active.base_offset:
            return snapshot_offsets[-1]
        if not active.size:
            return active.base_offset
        try:
            return active.last_offset_in_file() + 1
        except CorruptLogError:
            active.rebuild()
            # Offsets that were assigned once are not assigned again.
            return max(active.last_offset_in_file() + 1, self.recovery_point)


@attrs.define
class _Listed:
    """Offsets in the names of a folder's files; `swapped` are the base offsets of segments whose swap was finished."""

    bases: set[int] = attrs.field(factory=set)
    snapshots: list[int] = attrs.field(factory=list)
    swapped: list[int] = attrs.field(factory=list)

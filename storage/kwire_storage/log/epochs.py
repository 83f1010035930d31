"""The start offset of each leader epoch. With it a follower or consumer detects that its log diverges from ours.

Entries ascend in both epoch and start offset. They live in memory and in `leader-epoch-checkpoint`; every batch carries
its epoch too, so the file needs no fsync of its own: recovery reads the epochs past the recovery point from the
batches.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

from kwire_protocol.records import BatchHeader

from kwire_storage import names
from kwire_storage.checkpoints import decode_epochs
from kwire_storage.disk.files import Disk
from kwire_storage.errors import CorruptLogError

logger = logging.getLogger(__name__)

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochCache:
    """`dirty` is set by each change, for the owner to write the file and reset."""

    __slots__ = ("_epochs", "_starts", "dirty", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.dirty = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        """All (epoch, start offset), in ascending order."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that the epoch begins at the offset, unless it has begun before.

        Entries with the same or a later epoch, or at the same or a later offset, contradict it and are removed.
        """
        if epoch < 0 or start_offset < 0:
            return
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        self._cut(keep)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        self.dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to the requested one, and the offset at which the next epoch begins.

        (-1, -1) if the requested epoch is newer than all known ones, or undefined. (KIP-101, KIP-279)
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(self._epochs, epoch)
        floor = self._epochs[following - 1] if following else epoch
        return floor, self._starts[following]

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the offset was written; -1 when unknown."""
        entry = bisect_right(self._starts, offset) - 1
        return self._epochs[entry] if entry >= 0 else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forgets the epochs that begin at or after the offset."""
        self._cut(bisect_left(self._starts, end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets epochs that ended at or before the offset; the one that has the offset begins there from now on."""
        keep = bisect_right(self._starts, start_offset) - 1
        if keep >= 0 and self._starts[keep] != start_offset:
            self._starts[keep] = start_offset
            self.dirty = True
        if keep > 0:
            del self._epochs[:keep], self._starts[:keep]
            self.dirty = True

    def clear(self) -> None:
        self._cut(0)

    def _cut(self, count: int) -> None:
        if count < len(self._epochs):
            del self._epochs[count:], self._starts[count:]
            self.dirty = True
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH


def epochs_path(folder: str) -> str:
    return f"{folder}/{names.LEADER_EPOCH_CHECKPOINT}"


def load_epochs(
    disk: Disk, folder: str, log_start_offset: int, headers: Callable[[], Iterable[BatchHeader]]
) -> EpochCache:
    """Reads the epochs from a log's file, or from all batches (`headers`) if it cannot be read. Raises OSError."""
    path = epochs_path(folder)
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return EpochCache()
    try:
        epochs = EpochCache(decode_epochs(data))
    except CorruptLogError as error:
        logger.error("%s: %s; leader epochs are taken from the batches", path, error)
        epochs = EpochCache()
        for header in headers():
            epochs.assign(header.partition_leader_epoch, header.base_offset)
    epochs.truncate_from_start(log_start_offset)
    return epochs

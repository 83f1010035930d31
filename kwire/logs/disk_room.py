"""Logs once each that a log dir's disk is full, has room again, or may soon be full.

`kwire_storage/disk/reserve.py` and the writers decide what happens on a full disk. This file only writes the log lines.
"""

from __future__ import annotations

import logging

import attrs
from kwire_storage.directory.log_dirs import LogDirs
from kwire_storage.disk.reserve import Reserve

log = logging.getLogger(__name__)

LOW_RESERVES, LOW_FRACTION = 8, 20
"""A disk runs low when less than this many reserves are left, and less than one in this many bytes of the disk."""


@attrs.define(eq=False)
class DiskRoom:
    """The messages about one log dir, which they call `folder`."""

    folder: str
    reserve: Reserve
    _is_low: bool = attrs.field(default=False, init=False)

    def watch(self) -> None:
        """Begins to log when the disk is found full, and when it is no longer full."""
        self.reserve.on_change = self._log_change
        if self.reserve.is_full:
            self._log_change()

    def reconcile(self) -> None:
        """Restores the reserve if there is room, and warns about a disk that fills up; for housekeeping."""
        space = self.reserve.reconcile()
        if space is None:
            return
        low_bytes = min(LOW_RESERVES * self.reserve.size_bytes, space.total_bytes // LOW_FRACTION)
        if space.usable_bytes >= low_bytes:
            self._is_low = False
        elif not (self._is_low or self.reserve.is_full):
            self._is_low = True
            log.warning(
                "the disk of the log dir %s will soon be full: %d bytes are left", self.folder, space.usable_bytes
            )

    def _log_change(self) -> None:
        reserve = self.reserve
        if not reserve.is_full:
            log.warning("there is room again on the disk of the log dir %s: appends continue", self.folder)
            return
        missing = f", and kwire.log.reserve.bytes={reserve.size_bytes} are not to be had" if reserve.is_out else ""
        log.warning(
            "the disk of the log dir %s is full%s: what needs room is refused until there is some; reading and "
            "deleting continue, so delete topics, or lower their retention, or make the disk larger",
            self.folder,
            missing,
        )


def watched_rooms(log_dirs: LogDirs) -> dict[str, DiskRoom]:
    """Watches the reserve of each log dir. The result is by path."""
    rooms = {folder.path: DiskRoom(folder.path, folder.reserve) for folder in log_dirs}
    for room in rooms.values():
        room.watch()
    return rooms

"""Checks that a folder is not on a network file system, whose locks are not this machine's kernel's."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from kwire_storage.errors import StorageError

MOUNTS: Final = "/proc/self/mountinfo"
_OF_THE_NETWORK: Final = frozenset(
    {
        "9p",
        "afs",
        "ceph",
        "cifs",
        "coda",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "smb3",
        "smbfs",
    }
)


def check_is_local(folder: str) -> None:
    """Raises StorageError if the folder, which exists, is on a network file system. Without /proc it checks nothing."""
    mounts = Path(MOUNTS)
    if not mounts.exists():
        return
    kind = file_system_of(str(Path(folder).resolve()), mounts.read_text(encoding="utf-8", errors="replace"))
    if kind in _OF_THE_NETWORK:
        raise StorageError(
            errno.ENOTSUP,
            f"this is a network file system ({kind}), and the locks there are not those of this machine: choose a "
            "kwire.cluster.dir on a local disk",
            folder,
        )


def file_system_of(path: str, mountinfo: str) -> str | None:
    """The kind of the file system that has an absolute path, according to the text of /proc/self/mountinfo."""
    best, kind = -1, None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        # Spaces and the like are octal there.
        point = fields[4].encode().decode("unicode_escape").rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and len(point) >= best:
            best, kind = len(point), after.split()[0]
    return kind

"""The liveness of a machine's nodes: each holds locks on its own files, and the kernel releases them at its end.

    nodes/1.lock    only node 1 takes it: the process that has it is the node
    nodes/1.life    taken by node 1, too; other nodes wait for it, to detect the node's end

Detecting a death takes a waiting thread, and costs nothing while the node lives. That thread has the lock for a moment
afterwards, when the node may already start again. Hence the second file: a node that starts waits for that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from kwire_storage.disk.files import Disk, DiskLock
from kwire_storage.errors import FolderLockedError

from kwire.cluster.membership import NodeIdTakenError
from kwire.runtime import workers

FOLDER: Final = "nodes"


@attrs.frozen
class Life:
    """The locks of a live node, which is alive until they are released."""

    _node: DiskLock
    _life: DiskLock

    def release(self) -> None:
        self._life.release()
        self._node.release()


def live(disk: Disk, node_id: int) -> Life:
    """Makes the node alive. Raises NodeIdTakenError, StorageError."""
    disk.mkdir(FOLDER)
    try:
        node = disk.lock(_path(node_id, "lock"))
    except FolderLockedError as error:
        raise NodeIdTakenError(
            f"node {node_id} of this cluster is running already: stop it, or choose another node.id"
        ) from error
    return Life(node, disk.lock(_path(node_id, "life"), wait=True))


def is_alive(disk: Disk, node_id: int) -> bool:
    """True if a process runs as that node now."""
    return disk.is_locked(_path(node_id, "lock"))


def at_the_end_of(disk: Disk, node_id: int, call: Callable[[], object]) -> None:
    """Calls `call` once, in another thread, when the node has ended; at once if it is not alive."""

    def wait() -> None:
        disk.wait_for_lock(_path(node_id, "life"))
        call()

    workers.start_waiting(f"end of node {node_id}", wait)


def _path(node_id: int, kind: str) -> str:
    return f"{FOLDER}/{node_id}.{kind}"

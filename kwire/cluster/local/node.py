"""This process as one node of a machine's cluster: its liveness, notifications, and the log that all nodes share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Self

import attrs
import trio
from kwire_storage.disk.files import DiskLock, RealDisk
from kwire_storage.errors import CorruptLogError

from kwire.cluster.local.file_systems import check_is_local
from kwire.cluster.local.lives import FOLDER, Life, at_the_end_of, is_alive, live
from kwire.cluster.local.metadata_log import LOCK, SharedMetadataLog
from kwire.cluster.local.news import News
from kwire.cluster.membership import NO_CONTROLLER, MembershipEnded
from kwire.runtime import workers
from kwire.runtime.callbacks import ignore
from kwire.runtime.loop import Loop
from kwire.runtime.tasks import in_this_task

if TYPE_CHECKING:
    import socket

log = logging.getLogger(__name__)

CLUSTER_ID: Final = "cluster.id"
CONTROLLER: Final = "controller"
CONTROLLER_LOCK: Final = "controller.lock"


@attrs.define(eq=False)
class LocalNode:
    """A `Membership`. Join with `join`, and `leave` at the end; a process that is killed leaves as well.

    The controller is the node that holds the lock `controller.lock`; the file `controller` has its id.
    """

    log_type: ClassVar[type[SharedMetadataLog]] = SharedMetadataLog
    """Tests may use another type."""

    node_id: int
    cluster_id: str
    log: SharedMetadataLog
    _disk: RealDisk
    _life: Life
    _news: News
    _controller: DiskLock | None = None
    """The lock that this node holds as long as it is the controller."""
    _known_controller_id: int = NO_CONTROLLER
    _watched: frozenset[int] = frozenset()
    _awaited: set[int] = attrs.field(factory=set)
    """The nodes whose end a thread waits for. It cannot be stopped, so some of them may not be watched any more."""
    _on_change: Callable[[], None] = ignore
    _token: trio.lowlevel.TrioToken | None = None
    """The token of the loop, while `run` runs in it."""
    _has_left: bool = False

    @classmethod
    def join(
        cls,
        folder: str,
        node_id: int,
        now_ms: Callable[[], int],
        loop: Loop | None = None,
        *,
        new_cluster_id: str,
    ) -> Self:
        """Joins the cluster in `folder`. A missing folder is created, and its cluster gets the id `new_cluster_id`.

        Raises NodeIdTakenError, StorageError, CorruptLogError.
        """
        disk = RealDisk(folder)
        disk.mkdir("")
        check_is_local(folder)
        cluster_id = _cluster_id(disk, new_cluster_id)
        life = live(disk, node_id)
        try:
            # The socket first, so that it gets a datagram for each append after the log was opened.
            news = News(f"{folder}/{FOLDER}", node_id)
            try:
                shared = cls.log_type.open(disk, node_id, now_ms, loop)
            except BaseException:
                news.close()
                raise
        except BaseException:
            life.release()
            raise
        shared.announce = news.notify
        return cls(node_id, cluster_id, shared, disk, life, news)

    @property
    def sock(self) -> socket.socket:
        """The socket that can be read when there is news."""
        return self._news.sock

    @property
    def controller_id(self) -> int:
        known = self._known_controller_id
        return known if known != NO_CONTROLLER and self.is_alive(known) else NO_CONTROLLER

    def is_alive(self, node_id: int) -> bool:
        return node_id == self.node_id or is_alive(self._disk, node_id)

    def watch(self, node_ids: Collection[int]) -> None:
        self._watched = frozenset(node_ids) - {self.node_id}
        for node_id in self._watched - self._awaited:
            try:
                at_the_end_of(self._disk, node_id, partial(self._in_loop, partial(self._ended, node_id)))
            except OSError as error:  # the next change of the metadata tries again
                log.warning(
                    "cannot watch for the end of node %d, and tries again at the next change of the metadata: %s",
                    node_id,
                    error,
                )
            else:
                self._awaited.add(node_id)

    async def run(self, on_change: Callable[[], None]) -> None:
        self._on_change, self._token = on_change, trio.lowlevel.current_trio_token()
        try:
            workers.start_waiting(f"controller of node {self.node_id}", self._wait_to_control)
        except OSError as error:
            raise MembershipEnded(f"this node could never control the cluster: {error}") from error
        while True:
            self._news.take()
            try:
                await in_this_task(self.log.refresh())
                self._read_controller()
            except (OSError, CorruptLogError) as error:
                raise MembershipEnded(f"the metadata log of the cluster cannot be read: {error}") from error
            await trio.lowlevel.wait_readable(self.sock)

    def leave(self) -> None:
        self._has_left = True
        self._token = None
        if self._controller is not None:
            self._controller.release()
        self._news.close()
        self._life.release()

    # In threads, and back in the loop

    def _wait_to_control(self) -> None:
        lock = self._disk.lock(CONTROLLER_LOCK, wait=True)
        if self._has_left:
            lock.release()
        else:
            self._in_loop(partial(self._controls, lock))

    def _in_loop(self, call: Callable[[], None]) -> None:
        token = self._token
        if token is not None:
            with suppress(trio.RunFinishedError):  # the process ends, and its locks with it
                token.run_sync_soon(call)

    def _controls(self, lock: DiskLock) -> None:
        if self._has_left:
            lock.release()
            return
        self._controller = lock
        try:
            self._disk.write_atomic(CONTROLLER, b"%d\n" % self.node_id)
        except OSError as error:
            log.warning("node %d is the controller, but cannot notify the others: %s", self.node_id, error)
        log.info("node %d is the controller of the cluster", self.node_id)
        self._known_controller_id = self.node_id
        self._news.notify()
        self._on_change()

    def _ended(self, node_id: int) -> None:
        self._awaited.discard(node_id)
        if node_id in self._watched:
            self._on_change()

    def _read_controller(self) -> None:
        if self._controller is None and self._disk.exists(CONTROLLER):
            text = self._disk.read_bytes(CONTROLLER).strip()
            if text.isdigit() and int(text) != self._known_controller_id:
                self._known_controller_id = int(text)
                self._on_change()


def _cluster_id(disk: RealDisk, new_cluster_id: str) -> str:
    """The id of the cluster in the folder, which the first node chooses."""
    lock = disk.lock(LOCK, wait=True)
    try:
        if not disk.exists(CLUSTER_ID):
            disk.write_atomic(CLUSTER_ID, f"{new_cluster_id}\n".encode())
        return disk.read_bytes(CLUSTER_ID).decode().strip()
    finally:
        lock.release()

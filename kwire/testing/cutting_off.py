"""A broker that is cut off from the others of its cluster, while clients still reach it.

Between it and the others the network is down: connections break, and new ones fail. As a member of the cluster it is
like a node whose session with ZooKeeper has expired: the others detect that it has ended, and it receives no news of
them, may not change the metadata, and has no controller. It still uses the metadata that it had.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, TypeVar
from weakref import WeakKeyDictionary

import attrs
from kwire_storage.disk.files import DiskLock
from kwire_storage.errors import StorageError

from kwire.client.transport import Address
from kwire.cluster.local.lives import live
from kwire.cluster.local.metadata_log import SharedMetadataLog
from kwire.cluster.local.node import LocalNode
from kwire.cluster.membership import NO_CONTROLLER
from kwire.peers.connecting import connect
from kwire.runtime import workers
from kwire.runtime.futures import drive
from kwire.runtime.transport import Transport

T = TypeVar("T")


@attrs.define(eq=False)
class Network:
    """The connections between the brokers of a cluster. Thread-safe. `node_at` returns the node that has an address."""

    node_at: Callable[[Address], int | None]
    _cut_off: set[int] = attrs.field(factory=set)
    _open: WeakKeyDictionary[socket.socket, tuple[int, int | None]] = attrs.field(factory=WeakKeyDictionary)
    """The nodes at both ends of each connection."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def cut_off(self, node_id: int) -> None:
        """Breaks all connections between the node and other nodes, and refuses new ones."""
        with self._lock:
            self._cut_off.add(node_id)
            broken = [it for it, ends in self._open.items() if node_id in ends]
        for it in broken:
            with suppress(OSError):  # it may be closed already
                it.shutdown(socket.SHUT_RDWR)

    def reconnect(self, node_id: int) -> None:
        with self._lock:
            self._cut_off.discard(node_id)

    def is_cut_off(self, node_id: int) -> bool:
        return node_id in self._cut_off

    async def connect(self, node_id: int, address: Address) -> Transport:
        """A `kwire.peers.connecting.Connect` of that node."""
        transport = await connect(address)
        ends = node_id, self.node_at(address)
        with self._lock:
            if self._cut_off.isdisjoint(ends):
                self._open[transport.sock] = ends
                return transport
        transport.close()
        raise OSError(errno.EHOSTUNREACH, "the test has cut off one of the brokers")


@attrs.define(eq=False)
class DeafLog(SharedMetadataLog):
    """The metadata log of a node. While the node is cut off, it can neither read nor append, and gets no news."""

    is_cut_off: bool = False

    async def refresh(self) -> None:
        if not self.is_cut_off:
            await super().refresh()

    async def _in_worker(self, work: Callable[[], T]) -> T:
        if self.is_cut_off:
            raise StorageError(errno.EHOSTUNREACH, "the test has cut off this broker from its cluster")
        return await super()._in_worker(work)


@attrs.define(eq=False)
class DeafNode(LocalNode):
    """A node that can be cut off. Its methods belong to the loop's thread, as in any `Membership`."""

    log_type: ClassVar = DeafLog
    _waits_to_control: bool = True

    @property
    def is_cut_off(self) -> bool:
        assert isinstance(self.log, DeafLog)
        return self.log.is_cut_off

    @property
    def controller_id(self) -> int:
        return NO_CONTROLLER if self.is_cut_off else super().controller_id

    def cut_off(self) -> None:
        """Makes the other nodes detect that the node has ended, and one of them become the controller."""
        assert isinstance(self.log, DeafLog)
        self.log.is_cut_off = True
        if self._controller is not None:
            self._controller.release()
            self._controller = None
            self._waits_to_control = False
        self._life.release()
        self._on_change()

    def reconnect(self) -> None:
        """Makes the node live again, and read the changes that it has missed."""
        assert isinstance(self.log, DeafLog)
        self._life = live(self._disk, self.node_id)
        self.log.is_cut_off = False
        if not self._waits_to_control:
            self._waits_to_control = True
            workers.start_waiting(f"controller of node {self.node_id}", self._wait_to_control)
        drive(self.log.refresh())
        self._read_controller()
        self._on_change()

    def _controls(self, lock: DiskLock) -> None:
        if self.is_cut_off:
            self._waits_to_control = False
            lock.release()
        else:
            super()._controls(lock)

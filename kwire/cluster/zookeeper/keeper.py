"""The interface to ZooKeeper: a few operations on nodes, each tried once, and the possible attempts.

After a lost connection it is unknown whether an operation has happened. A read can be repeated (`patiently`). A writer
must determine that, so each writer puts a mark into its nodes by which it recognizes them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import attrs
from kwire_storage.errors import StorageError

T = TypeVar("T")


class ZooKeeperError(StorageError):
    """ZooKeeper cannot be used; the text is one line."""

    def __init__(self, text: str, number: int = errno.EIO) -> None:
        super().__init__(number, text)

    def __str__(self) -> str:
        return str(self.strerror)


class TimedOutError(ZooKeeperError):
    """There was no connection for as long as a session lasts without one."""

    def __init__(self, text: str) -> None:
        super().__init__(text, errno.ETIMEDOUT)


class SessionEndedError(ZooKeeperError):
    """The session has ended, and with it its ephemeral nodes."""

    def __init__(self, text: str) -> None:
        super().__init__(text, errno.ENOTCONN)


class AccessRefusedError(ZooKeeperError):
    """The access control list of a node does not allow the operation."""

    def __init__(self, text: str) -> None:
        super().__init__(text, errno.EACCES)


class ConnectionLostError(Exception):
    """There was no answer: the operation may have happened."""


class RefusedError(Exception):
    """Nothing was changed, because a condition of the operation is not met."""


class NoNodeError(RefusedError):
    """There is no such node."""


class NodeExistsError(RefusedError):
    """There is such a node already."""


class BadVersionError(RefusedError):
    """The node's data has been set meanwhile."""


@attrs.frozen
class Stat:
    """`version` counts how often the data was set. `owner` is the session of an ephemeral node, 0 for others.
    `created` is the number of the transaction that created it (czxid), which no other creation has.
    """

    version: int
    owner: int
    created: int


@attrs.frozen
class Found:
    """A node that was read."""

    data: bytes
    stat: Stat


@attrs.frozen
class Create:
    """Creates a node. Refused with NodeExistsError, or NoNodeError if there is no parent."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False


@attrs.frozen
class Check:
    """Refused with BadVersionError or NoNodeError."""

    path: str
    version: int


@attrs.frozen
class SetData:
    """Refused with BadVersionError or NoNodeError."""

    path: str
    data: bytes
    version: int


@attrs.frozen
class Delete:
    """Deletes a node. Refused with NoNodeError."""

    path: str


Operation = Create | Check | SetData | Delete


class Keeper(Protocol):
    """A session with ZooKeeper, for blocking calls from any thread.

    Every operation raises ConnectionLostError, SessionEndedError, AccessRefusedError, ZooKeeperError. With `watch`,
    the listener of the session is called once when the answer has changed.
    """

    @property
    def session_id(self) -> int:
        """The `Stat.owner` of this session's ephemeral nodes."""
        ...

    def attempts(self) -> Iterator[None]:
        """One item for each attempt that may be made now; it waits until there is a connection.

        Raises TimedOutError when a session time-out has passed since the first, and SessionEndedError.
        """
        ...

    def get(self, path: str, *, watch: bool = False) -> Found:
        """Reads a node. Raises NoNodeError."""
        ...

    def exists(self, path: str, *, watch: bool = False) -> Stat | None: ...

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Returns the names of a node's children, in no order. Raises NoNodeError."""
        ...

    def commit(self, *operations: Operation) -> None:
        """Executes all operations or, with a RefusedError, none."""

    def wait_for_end(self, path: str) -> bool:
        """Waits until there is no such node, at most as long as a session lasts. Returns False if it still exists."""
        ...


def patiently(keeper: Keeper, read: Callable[[], T]) -> T:
    """Reads, again after each lost connection. Raises TimedOutError, and the errors of `read`."""
    for _ in keeper.attempts():
        try:
            return read()
        except ConnectionLostError:
            continue
    raise AssertionError("attempts end with an error")


def create_if_missing(keeper: Keeper, path: str, data: bytes = b"") -> None:
    """Creates a node that is the same from any client, unless it exists."""
    for _ in keeper.attempts():
        try:
            if keeper.exists(path) is None:
                keeper.commit(Create(path, data))
            return
        except NodeExistsError:
            return
        except ConnectionLostError:
            continue

"""Asking the operating system which sockets are ready: epoll where there is one, else what `selectors` finds.

On Linux it is the system's own object, without anything of Python's around it: it is asked for every few requests.
"""

from __future__ import annotations

import select
import selectors
from typing import Protocol

NOTHING = 0
READ = 1
WRITE = 4
"""What a descriptor is watched for, as epoll numbers it."""


class Poll(Protocol):
    """Descriptors that are watched, each for READ or for WRITE."""

    def register(self, fd: int, eventmask: int) -> None: ...

    def modify(self, fd: int, eventmask: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """Those that are ready, each with what it is ready for; of an error or a hang-up there may be more bits.

        Waits for at most `timeout` seconds, or without an end if that is below 0. epoll stops at `maxevents`; those
        that it left out come first the next time.
        """
        ...

    def fileno(self) -> int:
        """A descriptor that can be read while one of the watched is ready."""
        ...

    def close(self) -> None: ...


def new_poll() -> Poll:
    return select.epoll() if hasattr(select, "epoll") else SelectorPoll(selectors.DefaultSelector())


class SelectorPoll:
    """The same for other systems."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector

    def register(self, fd: int, eventmask: int) -> None:
        self._selector.register(fd, _EVENTS[eventmask])

    def modify(self, fd: int, eventmask: int) -> None:
        self._selector.modify(fd, _EVENTS[eventmask])

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def poll(self, timeout: float, _maxevents: int, /) -> list[tuple[int, int]]:
        return [
            (key.fd, (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0))
            for key, events in self._selector.select(None if timeout < 0 else timeout)
        ]

    def fileno(self) -> int:
        fd: int = self._selector.fileno()  # type: ignore[attr-defined]  # all but select's own have one
        return fd

    def close(self) -> None:
        self._selector.close()


_EVENTS = {READ: selectors.EVENT_READ, WRITE: selectors.EVENT_WRITE}

"""Polls the operating system for sockets that are ready: epoll, without Python's `selectors`.

This runs once for every few requests, so its overhead counts.
"""

from __future__ import annotations

import select
from typing import Protocol

NOTHING = 0
READ = 1
WRITE = 4
"""The events for which a descriptor is watched, with epoll's numbers."""


class Poll(Protocol):
    """Watched descriptors, each for READ or for WRITE."""

    def register(self, fd: int, eventmask: int) -> None: ...

    def modify(self, fd: int, eventmask: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """Returns the ready descriptors, each with its events. After an error or a hang-up more bits may be set.

        Waits for at most `timeout` seconds, or forever if it is negative. Returns at most `maxevents`; the next call
        begins with those that were left out.
        """
        ...

    def close(self) -> None: ...


def new_poll() -> Poll:
    return select.epoll()

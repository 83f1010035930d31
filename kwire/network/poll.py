"""Asking the operating system which sockets are ready: epoll, without anything of Python's around it.

It is asked for every few requests.
"""

from __future__ import annotations

import select
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

        Waits for at most `timeout` seconds, or without an end if that is below 0. It stops at `maxevents`; those that
        it left out come first the next time.
        """
        ...

    def close(self) -> None: ...


def new_poll() -> Poll:
    return select.epoll()

"""Looks up hosts of other brokers in kwire's worker threads: the threads of trio's own cache are for its event loop."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import trio

from kwire.runtime import workers
from kwire.runtime.workers import Worker


class AddressLookup(trio.abc.HostnameResolver):
    """Calls the operating system's resolver. A cancelled lookup continues, and its result is dropped."""

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name of trio's argument
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        lookup = partial(socket.getaddrinfo, host, port, family, type, proto, flags)
        return await workers.run(Worker.ADDRESSES, lookup, abandon_on_cancel=True)

    async def getnameinfo(self, sockaddr: tuple[Any, ...], flags: int) -> tuple[str, str]:
        return await workers.run(Worker.ADDRESSES, socket.getnameinfo, sockaddr, flags, abandon_on_cancel=True)

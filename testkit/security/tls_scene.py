"""A server with TLS, and clients of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import trio
from trio.testing import wait_all_tasks_blocked

from kwire.security.tls.contexts import client_context
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient
from testkit.security.tls.certificates import HOST, client_settings

UNHURRIED = ("connections.max.idle.ms=1000000000000", "kwire.authentication.timeout.ms=2000000000")
"""Settings without short timeouts: the clock jumps when all tasks are idle, and a busy machine may take a while to
deliver bytes.
"""


class CutStream(trio.abc.Stream):
    """A stream that sends in pieces, and receives no more at once than its sizes."""

    def __init__(self, stream: trio.SocketStream, sizes: Sequence[int]) -> None:
        self.stream = stream
        self._sizes = cycle(sizes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data)
        while left:
            size = next(self._sizes)
            await self.stream.send_all(left[:size])
            await wait_all_tasks_blocked()
            left = left[size:]

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.stream.receive_some(next(self._sizes))

    async def aclose(self) -> None:
        await self.stream.aclose()


CONTEXT = client_context(client_settings())


async def connect(kwire: ServerInTrio, sizes: Sequence[int] = (1 << 20,), **options: int) -> TrioClient:
    client = await kwire.connect(**options)
    below = CutStream(client.stream, sizes)
    encrypted = trio.SSLStream(below, CONTEXT, server_hostname=HOST, https_compatible=True)
    await encrypted.do_handshake()
    return TrioClient(encrypted)  # type: ignore[arg-type]

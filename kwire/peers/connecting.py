"""Connects to the other brokers of the cluster, in plain text or with TLS.

Replicas fetch over the transport itself (`kwire.replication.connection`). Other requests are sent by trio's tasks, over
a `TransportStream` (`peers.py`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import trio
from kwire_protocol.wire import Buffer

from kwire.client.async_connection import AsyncConnect, Stream
from kwire.client.security import ClientSecurity
from kwire.client.transport import Address, NewContext
from kwire.runtime.poll import WRITE
from kwire.runtime.transport import PlainTransport, Transport

Connect = Callable[[Address], Awaitable[Transport]]
"""Connects to an address, ready for requests. Raises the errors of `kwire.client.transport.Connect`."""


def connect_with(security: ClientSecurity) -> Connect:
    """Returns the counterpart of `ClientSecurity.connect`, which is for threads."""
    return partial(connect, new_context=security.new_context)


async def connect(address: Address, *, new_context: NewContext | None = None) -> Transport:
    """Connects as a `Connect`, in plain text if there is no `new_context`."""
    if new_context is None:
        return PlainTransport(await _connected(address))
    # Here, so that a broker in plain text does not load TLS.
    from kwire.runtime.tls_transport import TlsTransport

    context = new_context()
    transport = TlsTransport(await _connected(address), context, server_side=False, server_hostname=address[0])
    try:
        assert transport.handshake is not None
        while waits_for := transport.handshake():
            if waits_for == WRITE:
                await trio.lowlevel.wait_writable(transport.sock)
            else:
                await trio.lowlevel.wait_readable(transport.sock)
    except BaseException:
        transport.close()
        raise
    return transport


async def _connected(address: Address) -> socket.socket:
    """Returns a connected socket that does not block, and sends at once (TCP_NODELAY)."""
    try:
        stream = await trio.open_tcp_stream(*address)
    except OSError as error:
        # This error is for all addresses of the host. Its cause is the error of the last address, with a long message.
        cause = error.__cause__
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[-1]
        if isinstance(cause, OSError) and cause.errno is not None:
            raise OSError(cause.errno, os.strerror(cause.errno)) from None
        raise
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@attrs.frozen(eq=False)
class TransportStream:
    """The stream over a transport, for tasks of trio. See `kwire.client.async_connection.Stream`."""

    transport: Transport

    async def send_all(self, data: Buffer) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.transport.send(rest, 0) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self.transport.sock)

    async def receive_into(self, room: memoryview) -> int:
        while True:
            try:
                return self.transport.recv_into(room)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self.transport.sock)

    def close(self) -> None:
        trio.lowlevel.notify_closing(self.transport.sock)
        self.transport.close()


def over_streams(connect: Connect) -> AsyncConnect:
    """Returns the same connections, as streams."""

    async def connect_stream(address: Address) -> Stream:
        return TransportStream(await connect(address))

    return connect_stream

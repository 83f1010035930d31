"""Requests whose answers must be the same through every transport."""

from __future__ import annotations

import socket
from collections.abc import Callable

from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.wire import ApiMessage
from trio.testing import wait_all_tasks_blocked

from kwire.runtime.transport import Transport
from testkit.raw.client import request_frame
from testkit.raw.simple_requests import fetch, list_end, produce
from testkit.scenes.server_in_trio import ServerInTrio

REQUESTS: list[tuple[ApiMessage, int]] = [
    (ApiVersionsRequest("tests", "1.0"), 4),
    (list_end(), 6),
    (fetch(0), 12),
    (list_end(), 6),
]
"""They change nothing, so the answers are the same each time."""


REQUEST_BYTES = b"".join(request_frame(it, version, correlation_id=i) for i, (it, version) in enumerate(REQUESTS))


async def answers_through(kwire: ServerInTrio, new_transport: Callable[[socket.socket], Transport]) -> bytes:
    """All that is answered to REQUESTS on a new connection."""
    kwire.server.new_transport = new_transport
    client = await kwire.connect()
    await client.stream.send_all(REQUEST_BYTES)
    frames = [await client.read_frame() for _ in REQUESTS]
    await client.hang_up()
    await wait_all_tasks_blocked()
    assert kwire.connections == 0
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


async def produce_some(kwire: ServerInTrio) -> None:
    client = await kwire.connect()
    for value in (b"a", b"b" * 500, b"c" * 5000):
        await client.call(produce(value), 9)
    await client.hang_up()

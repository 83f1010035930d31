"""Requests that arrive share a bounded memory: those that need more than is left wait; all are served."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from trio.testing import wait_all_tasks_blocked

from kwire.network import connection
from kwire.network.connection import LONGEST_STARVED_S
from kwire.network.states import RECEIVING, STARVED
from testkit.raw.client import request_frame
from testkit.raw.simple_requests import produce
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, WithoutWorkers, with_server

BOUND = 1 << 20
PRODUCE = 0
VERSION = 9
SETTINGS = [f"socket.request.max.bytes={BOUND}", f"queued.max.request.bytes={BOUND}", "connections.max.idle.ms=-1"]
LARGE = request_frame(produce(bytes(900_000)), VERSION)
HALF = len(LARGE) // 2


@attrs.define(eq=False)
class Half:
    """A client that sends a large request in two halves. The server may not receive all of them at once."""

    client: TrioClient
    may_continue: trio.Event = attrs.field(factory=trio.Event)

    async def send(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.client.stream.send_all(LARGE[:HALF])
            await self.may_continue.wait()
            await self.client.stream.send_all(LARGE[HALF:])


@asynccontextmanager
async def begun(server: ServerInTrio, count: int = 12) -> AsyncIterator[list[Half]]:
    """Makes so many clients that have sent the first half, as far as there was memory for it."""
    halves = [Half(await server.connect()) for _ in range(count)]
    async with trio.open_nursery() as nursery:
        for half in halves:
            nursery.start_soon(half.send)
        await wait_all_tasks_blocked()
        yield halves
        nursery.cancel_scope.cancel()


def states(server: ServerInTrio) -> list[str]:
    return [it._state.name for it in server.server.connections]


def used_bytes(server: ServerInTrio) -> int:
    return server.server._pool.used_bytes


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets no limit on starvation: trio's clock jumps whenever all tasks wait."""
    monkeypatch.setattr(connection, "LONGEST_STARVED_S", math.inf)


@pytest.mark.usefixtures("patience")
def test_more_than_there_is_memory_for_waits_and_is_served_later() -> None:
    async def scenario(server: ServerInTrio) -> None:
        async with begun(server) as halves:
            assert {*states(server)} == {STARVED.name, RECEIVING.name}
            assert used_bytes(server) <= 4 * BOUND
            await server.assert_sleeps()
            for half in halves:
                half.may_continue.set()
            for half in halves:
                assert await half.client.read_frame()
            await wait_all_tasks_blocked()
            assert {*states(server)} == {RECEIVING.name}
            assert used_bytes(server) == 0
            assert server.partition.log_end_offset == len(halves)

    with_server(scenario, settings=SETTINGS, loop=WithoutWorkers())


@pytest.mark.usefixtures("patience")
def test_small_requests_are_served_while_large_ones_wait() -> None:
    async def scenario(server: ServerInTrio) -> None:
        async with begun(server):
            client = await server.connect()
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            assert STARVED.name in states(server)

    with_server(scenario, settings=SETTINGS, loop=WithoutWorkers())


def test_who_takes_memory_and_sends_nothing_is_closed_when_others_have_waited_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(server: ServerInTrio) -> None:
        started = trio.current_time()
        async with begun(server) as halves:
            while STARVED.name in states(server):
                await trio.sleep(1)
            assert trio.current_time() - started >= LONGEST_STARVED_S
            closed = len(halves) - server.connections
            assert 0 < closed < len(halves)
            assert caplog.text.count("it began a request and has sent next to nothing of it for 30 s") == closed

    with_server(scenario, settings=SETTINGS, loop=WithoutWorkers())


def test_who_takes_memory_and_sends_a_byte_now_and_then_is_closed_too() -> None:
    async def scenario(server: ServerInTrio) -> None:
        async with begun(server, 4) as halves, trio.open_nursery() as nursery:
            for half in halves:
                nursery.start_soon(dribble, half)
            honest = await server.connect()
            nursery.start_soon(honest.stream.send_all, LARGE)
            assert await honest.read_frame()
            nursery.cancel_scope.cancel()

    async def dribble(half: Half) -> None:
        with suppress(trio.BrokenResourceError):
            while True:
                with suppress(trio.BusyResourceError):  # it waits for memory for its first half
                    await half.client.stream.send_all(b"x")
                await trio.sleep(LONGEST_STARVED_S * 2 / 3)

    with_server(scenario, settings=SETTINGS, loop=WithoutWorkers())


@pytest.mark.usefixtures("patience")
def test_memory_is_given_back_when_a_connection_ends_in_the_middle_of_a_request() -> None:
    async def scenario(server: ServerInTrio) -> None:
        async with begun(server) as halves:
            for half in halves:
                await half.client.reset()
            await wait_all_tasks_blocked()
            assert server.connections == 0
            assert used_bytes(server) == 0

    with_server(scenario, settings=SETTINGS, loop=WithoutWorkers())

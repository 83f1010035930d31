"""`FakeBrokers` at the other end of trio's streams, with a virtual clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import trio
from kwire_protocol.wire import Buffer
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

from kwire.client.async_connection import AsyncBrokerConnection
from kwire.client.errors import ClientError
from kwire.client.transport import Address
from testkit.fakes.brokers import FakeBrokers, FakeTransport

TIMEOUT_S = 5.0


@attrs.frozen(eq=False)
class ReceivingInto:
    """A stream of trio's tests, as `kwire.client.async_connection.Stream`."""

    stream: trio.StapledStream[Any, Any]

    async def send_all(self, data: Buffer) -> None:
        await self.stream.send_all(data)

    async def receive_into(self, room: memoryview) -> int:
        data = await self.stream.receive_some(len(room))
        room[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self.stream.send_stream.close()
        self.stream.receive_stream.close()


@attrs.define(eq=False)
class AsyncScene:
    """A broker that answers one request after the other, each after `delay()` seconds, and reads nothing meanwhile.

    lockstep: a connection holds no bytes. To send is to wait until the other side has received.
    """

    brokers: FakeBrokers
    nursery: trio.Nursery
    lockstep: bool = False
    delay: Callable[[], float] = float
    answers_in_pieces: bool = False
    """Byte by byte."""
    spoils: Callable[[bytes], bytes] | None = None
    """Makes something else of an answer."""
    hangs_up_after_bytes: int | None = None
    said: bytearray = attrs.field(factory=bytearray)
    """All that the broker has sent."""
    peers: list[trio.abc.Stream] = attrs.field(factory=list)
    """The broker's ends of what was connected."""

    async def connect(self, address: Address) -> ReceivingInto:
        transport = self.brokers.connect(address, TIMEOUT_S)
        ours, theirs = lockstep_stream_pair() if self.lockstep else memory_stream_pair()
        self.peers.append(theirs)
        self.nursery.start_soon(self._serve, transport, theirs)
        return ReceivingInto(ours)

    async def open(self) -> AsyncBrokerConnection:
        return await AsyncBrokerConnection.open(("node", 1), TIMEOUT_S, connect=self.connect)

    async def _serve(self, transport: FakeTransport, peer: trio.abc.Stream) -> None:
        try:
            async with peer:
                async for data in peer:
                    for at in range(len(data)):  # so that no two requests are answered at once
                        transport.sendall(data[at : at + 1])
                        if answer := transport.take_replies():
                            await trio.sleep(self.delay())
                            await self._send(peer, self.spoils(answer) if self.spoils else answer)
        except (ConnectionResetError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # one of the two hung up

    async def _send(self, peer: trio.abc.Stream, answer: bytes) -> None:
        if self.hangs_up_after_bytes is not None:
            answer = answer[: self.hangs_up_after_bytes - len(self.said)]
        self.said += answer
        for piece in [answer[at : at + 1] for at in range(len(answer))] if self.answers_in_pieces else [answer]:
            await peer.send_all(piece)
            await trio.lowlevel.checkpoint()
        if len(self.said) == self.hangs_up_after_bytes:
            raise ConnectionResetError


def with_brokers(
    brokers: FakeBrokers, scenario: Callable[[AsyncScene], Awaitable[None]], *, lockstep: bool = False
) -> AsyncScene:
    """Runs `scenario` with the brokers. Returns the scene as it was at the end."""

    async def main() -> AsyncScene:
        async with trio.open_nursery() as nursery:
            scene = AsyncScene(brokers, nursery, lockstep=lockstep)
            await scenario(scene)
            nursery.cancel_scope.cancel()
        return scene

    return trio.run(main, clock=MockClock(autojump_threshold=0))


async def fails(
    call: Callable[..., Awaitable[Any]], *arguments: Any, kind: type[ClientError], pattern: str, **more: Any
) -> None:
    """Checks that the call raises an error of this kind, with a message that matches the pattern."""
    with pytest.raises(kind, match=pattern):
        await call(*arguments, **more)


@contextmanager
def takes(seconds: float) -> Iterator[None]:
    """Asserts how much time passes."""
    started = trio.current_time()
    yield
    assert trio.current_time() - started == pytest.approx(seconds, abs=0.001)

"""The lookup of another broker's host runs in a worker, and a cancelled one is not waited for."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
import trio

from kwire.runtime import workers
from kwire.runtime.address_lookup import AddressLookup
from kwire.runtime.workers import Worker

WAIT_S = 30.0


def test_a_host_is_looked_up_where_trio_can_start_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up_by: list[Worker | None] = []
    system_lookup = socket.getaddrinfo

    def look_up(host: Any, *rest: Any) -> Any:
        if host == b"localhost":
            looked_up_by.append(workers.current())
        return system_lookup(host, *rest)

    def refuse(_: object, *rest: object) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        trio.socket.set_custom_hostname_resolver(AddressLookup())
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", refuse)
            stream = await trio.open_tcp_stream("localhost", listener.getsockname()[1])
        await stream.aclose()

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    workers.start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        trio.run(main)
    assert looked_up_by == [Worker.ADDRESSES]


def test_a_lookup_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def hang(*_: Any) -> Any:
        assert answered.wait(WAIT_S)
        raise socket.gaierror

    async def main() -> None:
        with trio.move_on_after(0) as scope:
            await AddressLookup().getaddrinfo(b"far.example", 9092)
        assert scope.cancelled_caught

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        trio.run(main)
    finally:
        answered.set()

"""The log while peers cause errors as quickly as they can: bounded, with a count of the omitted lines."""

from __future__ import annotations

import logging
from contextlib import closing
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.messages.api_versions import ApiVersionsRequest

from kwire.network import connection
from kwire.network.peer_log import MOST_LINES, MOST_TRACEBACKS, PERIOD_S, LineLimit, PeerLog
from kwire.runtime.processor import Processor
from testkit.raw.simple_requests import list_end
from testkit.scenes.server_in_trio import ServerInTrio, with_server

GARBAGE = b"\x00\x00\x00\x08" + b"\x7f" * 8
CLOSING = "closing the connection from 127.0.0.1:"


def test_a_limit_admits_so_many_lines_in_a_period_and_counts_the_others() -> None:
    limit = LineLimit(2, 10.0)
    assert [limit.admits(now) for now in (5.0, 5.0, 6.0, 14.9)] == [True, True, False, False]
    assert limit.ends_at == 15.0
    assert limit.take_left_out() == 2
    assert limit.take_left_out() == 0
    assert [limit.admits(now) for now in (15.0, 24.9, 24.9)] == [True, True, False]
    assert limit.take_left_out() == 1


@given(st.lists(st.floats(0, 5), max_size=60), st.integers(1, 5))
def test_no_line_is_lost_and_no_period_has_too_many(pauses: list[float], most: int) -> None:
    limit = LineLimit(most, 2.0)
    now, written, left_out = 0.0, [], 0
    for pause in pauses:
        now += pause
        if limit.admits(now):
            written.append(now)
            left_out += limit.take_left_out()
    left_out += limit.take_left_out()
    assert len(written) + left_out == len(pauses)
    assert all(later - earlier >= 0 for earlier, later in pairwise(written))
    # A period may begin anywhere in the one before.
    assert all(sum(begin <= it < begin + 2.0 for it in written) <= 2 * most for begin in written)


def test_a_flood_of_garbage_has_a_few_lines_a_second_and_their_number(caplog: pytest.LogCaptureFixture) -> None:
    async def flood(server: ServerInTrio, count: int) -> None:
        for _ in range(count):
            client = await server.connect()
            await client.stream.send_all(GARBAGE)
            assert await client.is_at_end()

    async def scenario(server: ServerInTrio) -> None:
        await flood(server, 50)
        assert sum(CLOSING in message for message in caplog.messages) == MOST_LINES
        await trio.sleep(2 * PERIOD_S)
        assert caplog.messages[-1] == "left out 40 more lines about connections that were closed or refused"
        await flood(server, 12)
        assert (await (await server.connect()).call(ApiVersionsRequest(), 0)).error_code == 0

    with_server(scenario)
    assert sum(CLOSING in message for message in caplog.messages) == 2 * MOST_LINES
    assert caplog.messages[-1].startswith("left out 2 more lines"), "the server ended before the period did"


def test_what_was_left_out_is_counted_before_the_next_line(caplog: pytest.LogCaptureFixture) -> None:
    with closing(Processor()) as processor:
        log = PeerLog("lines", 1, processor)
        for now in (0.0, 0.5, PERIOD_S):
            log.write(logging.WARNING, "at %s", now, now=now)
    assert caplog.messages == ["at 0.0", "left out 1 more lines", "at 1.0"]


def test_a_line_that_nobody_wants_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kwire")

    async def scenario(server: ServerInTrio) -> None:
        for _ in range(2 * MOST_LINES):
            await server.connect()
        await trio.sleep(20)
        assert server.connections == 0

    with_server(scenario, settings=["connections.max.idle.ms=5000"])
    assert caplog.messages == []


def test_a_bug_is_logged_beside_a_flood_of_garbage(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("on purpose")

    async def scenario(server: ServerInTrio) -> None:
        for _ in range(MOST_LINES + 1):
            client = await server.connect()
            await client.stream.send_all(GARBAGE)
            assert await client.is_at_end()
        with monkeypatch.context() as patched:
            patched.setattr(connection.Connection, "_reply", fail)
            for _ in range(MOST_TRACEBACKS + 3):
                client = await server.connect()
                await client.send((list_end(), 5))
                assert await client.is_at_end()

    with pytest.raises(AssertionError):  # the scene raises it for bugs
        with_server(scenario)
    assert caplog.text.count("AssertionError: on purpose") == MOST_TRACEBACKS
    assert "left out 3 more tracebacks of bugs" in caplog.messages

"""Replies that their reader does not take: the queue behind them, in order, and what it leaves when it goes."""

from __future__ import annotations

import socket

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from testkit.raw.client import decoded_reply, request_frame
from testkit.raw.simple_requests import fetch, join, list_end, produce
from testkit.scenes.filling import MIB, fill
from testkit.scenes.server_in_trio import ServerInTrio, with_server
from testkit.scenes.tapped_transport import tap

PRODUCE, FETCH, LIST_OFFSETS, JOIN_GROUP = 0, 1, 2, 11
LONG_MS = 300_000


def test_a_client_that_is_killed_while_its_reply_is_being_sent_leaves_nothing_behind() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await fill(kwire, 8)
        client = await kwire.connect(receive_buffer_bytes=4096)
        await client.send((fetch(0), 12), (list_end(), 6))
        await wait_all_tasks_blocked()
        await kwire.assert_sleeps()
        assert kwire.connections == 1
        await client.reset()
        await wait_all_tasks_blocked()
        assert kwire.connections == 0

    with_server(scenario)


def test_a_reader_that_is_waited_for_again_and_again_gets_a_larger_send_buffer() -> None:
    def send_buffer_bytes(kwire: ServerInTrio) -> int:
        (connection,) = kwire.server.connections
        return connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    async def scenario(kwire: ServerInTrio) -> None:
        await fill(kwire, 8)
        # Of a size of its own: the system would let it grow until most of the reply fits, sooner on a busy machine.
        client = await kwire.connect(receive_buffer_bytes=1 << 16)
        await wait_all_tasks_blocked()
        at_first = send_buffer_bytes(kwire)
        await client.send((fetch(0), 12))
        for _ in range(200):
            await wait_all_tasks_blocked()
            await client.stream.receive_some(1 << 15)
        assert send_buffer_bytes(kwire) > at_first

    with_server(scenario)


def test_requests_behind_a_reply_that_is_not_taken_wait_for_it() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await fill(kwire, 8)
        slow, other = await kwire.connect(receive_buffer_bytes=4096), await kwire.connect()
        await slow.send((fetch(0), 12), (produce(b"behind"), 9), (fetch(8, max_wait_ms=LONG_MS), 12))
        await other.call(list_end(), 6)
        correlation_id, answer = await slow.read(FETCH, 12)
        assert correlation_id == 0
        assert len(answer.responses[0].partitions[0].records) > 8 * (MIB - 1000)
        assert (await slow.read(PRODUCE, 9))[0] == 1
        correlation_id, answer = await slow.read(FETCH, 12)
        assert correlation_id == 2
        assert len(answer.responses[0].partitions[0].records) < 1000
        await kwire.assert_sleeps()

    with_server(scenario)


@pytest.mark.parametrize("is_woken", [False, True])
def test_a_fetch_whose_wait_ends_while_replies_before_it_are_not_taken_is_answered_behind_them(is_woken: bool) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await fill(kwire, 1)
        slow, producer = await kwire.connect(receive_buffer_bytes=4096), await kwire.connect()
        # The first answer is too much for the socket, and too little for the connection to stop at it.
        await slow.send((fetch(0), 12), (fetch(1, max_wait_ms=5_000), 12))
        await trio.sleep(1)
        assert len(kwire.partition.waiters) == 1
        if is_woken:
            await producer.call(produce(b"news"), 9)
        await trio.sleep(9)
        assert not kwire.partition.waiters
        await slow.send((list_end(), 6))
        for correlation_id, has_records in enumerate([True, is_woken]):
            replied_id, answer = await slow.read(FETCH, 12)
            assert replied_id == correlation_id
            assert bool(len(answer.responses[0].partitions[0].records)) == has_records
        await slow.read(LIST_OFFSETS, 6)

    with_server(scenario)


@pytest.mark.parametrize("together", [False, True])
def test_a_join_may_wait_behind_a_reply_that_is_not_taken(together: bool) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await fill(kwire, 1)
        first, member_id = await kwire.member_that_is_asked_to_rejoin()
        slow = await kwire.connect(receive_buffer_bytes=4096)
        if together:
            await slow.send((fetch(0), 12), (join(), 3), (list_end(), 6))
        else:
            await slow.send((fetch(0), 12), (join(), 3))
            await wait_all_tasks_blocked()
            await slow.send((list_end(), 6))
        await wait_all_tasks_blocked()
        await slow.read(FETCH, 12)
        await kwire.assert_sleeps()
        assert not slow.has_answer
        await first.call(join(member_id), 3)
        assert (await slow.read(JOIN_GROUP, 3))[1].generation_id == 2
        await slow.read(LIST_OFFSETS, 6)
        await slow.call(list_end(), 6)

    with_server(scenario)


def test_a_broken_request_closes_when_the_answers_before_it_were_taken_and_nothing_behind_it_is_done() -> None:
    broken = request_frame(list_end(), 6)[4:-1]
    behind_it = request_frame(produce(b"too late"), 9)

    async def scenario(kwire: ServerInTrio) -> None:
        kwire.server.new_transport = tap([], sends=(1, 0))
        client = await kwire.connect()
        whole = request_frame(list_end(), 6, correlation_id=5)
        await client.stream.send_all(whole + len(broken).to_bytes(4, "big") + broken + behind_it)
        assert decoded_reply(await client.read_frame(), LIST_OFFSETS, 6)[0] == 5
        assert await client.is_at_end()
        assert kwire.partition.log_end_offset == 0

    with_server(scenario)

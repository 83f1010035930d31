"""Requests that wait: they hold up their connection and nothing else; what they leave behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.wire import ApiMessage
from trio.testing import wait_all_tasks_blocked

from testkit.raw.simple_requests import fetch, join, list_end, produce
from testkit.scenes.processor_scene import new_pair
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, with_server

PRODUCE, FETCH, LIST_OFFSETS, JOIN_GROUP = 0, 1, 2, 11
LONG_MS = 300_000


# Fetches that wait


def test_a_client_that_hangs_up_while_its_fetch_waits_leaves_nothing_behind() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await client.send((fetch(0, max_wait_ms=LONG_MS), 12))
        await wait_all_tasks_blocked()
        assert (kwire.connections, len(kwire.partition.waiters)) == (1, 1)
        await client.hang_up()
        await wait_all_tasks_blocked()
        assert (kwire.connections, len(kwire.partition.waiters)) == (0, 0)

    with_server(scenario)


def test_a_client_that_is_killed_while_its_fetch_waits_leaves_nothing_behind() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await client.send((fetch(0, max_wait_ms=LONG_MS), 12))
        await wait_all_tasks_blocked()
        await client.reset()
        await wait_all_tasks_blocked()
        assert (kwire.connections, len(kwire.partition.waiters)) == (0, 0)

    with_server(scenario)


def test_a_connection_that_is_gone_is_not_kept_for_the_time_that_its_fetch_would_have_waited() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await client.send((fetch(0, max_wait_ms=LONG_MS), 12))
        await wait_all_tasks_blocked()
        (connection,) = map(weakref.ref, kwire.server.connections)
        await client.hang_up()
        await trio.sleep(LONG_MS / 2000)
        # The processor's last event may keep its connection, until there is another one.
        bystander = await kwire.connect()
        await bystander.call(list_end(), 6)
        gc.collect()
        assert connection() is None

    with_server(scenario)


def test_a_fetch_that_is_woken_for_too_little_waits_for_no_longer_than_it_requested() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer, producer = await kwire.connect(), await kwire.connect()
        began = trio.current_time()
        await consumer.send((fetch(0, max_wait_ms=10_000, min_bytes=10_000), 12))
        for _ in range(3):
            await trio.sleep(3)
            await producer.call(produce(b"little"), 9)
        answer = (await consumer.read(FETCH, 12))[1]
        assert trio.current_time() - began == pytest.approx(10, abs=0.01)
        assert len(answer.responses[0].partitions[0].records) > 0
        assert not kwire.partition.waiters

    with_server(scenario)


def test_the_time_of_a_fetch_that_was_answered_ends_nothing_that_waits_after_it() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        producer = await kwire.connect()
        await kwire.member_that_is_asked_to_rejoin()
        client = await kwire.connect()
        await client.send((fetch(0, max_wait_ms=5_000), 12))
        await trio.sleep(1)
        await producer.call(produce(b"news"), 9)
        await client.read(FETCH, 12)
        began = trio.current_time()
        # The first member never comes back: this one waits until the session of that is over, in ten seconds.
        answer = await client.call(join(), 3)
        assert answer.error_code == ErrorCode.NONE
        assert trio.current_time() - began > 5

    with_server(scenario)


def test_one_fetch_after_the_other_waits_its_whole_time() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client, producer = await kwire.connect(), await kwire.connect()
        for offset, (wait_s, is_woken) in enumerate([(5, True), (8, True), (2, True), (3, False)]):
            began = trio.current_time()
            await client.send((fetch(offset, max_wait_ms=wait_s * 1000), 12))
            if is_woken:
                await trio.sleep(wait_s - 1)
                await producer.call(produce(b"news"), 9)
            await client.read(FETCH, 12)
            assert trio.current_time() - began == pytest.approx(wait_s - is_woken, abs=0.01)

    with_server(scenario)


def test_a_fetch_with_another_request_right_behind_it_does_not_wait() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        began = trio.current_time()
        await client.send((fetch(0, max_wait_ms=LONG_MS), 12), (list_end(), 6))
        assert (await client.read(FETCH, 12))[0] == 0
        assert (await client.read(LIST_OFFSETS, 6))[0] == 1
        assert trio.current_time() - began < 1

    with_server(scenario)


def test_an_append_answers_every_fetch_that_waits_for_it() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumers = [await kwire.connect() for _ in range(20)]
        for consumer in consumers:
            await consumer.send((fetch(0, max_wait_ms=LONG_MS), 12))
        producer = await kwire.connect()
        await producer.call(produce(b"news"), 9)
        began = trio.current_time()
        for consumer in consumers:
            answer = (await consumer.read(FETCH, 12))[1]
            assert len(answer.responses[0].partitions[0].records) > 0
        assert trio.current_time() - began < 1
        assert not kwire.partition.waiters

    with_server(scenario)


def test_an_idle_connection_is_closed_even_while_its_fetch_waits() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await client.send((fetch(0, max_wait_ms=LONG_MS), 12))
        assert await client.is_at_end()
        assert (kwire.connections, len(kwire.partition.waiters)) == (0, 0)
        bystander = await kwire.connect()
        assert (await bystander.call(produce(b"still there"), 9)).responses

    with_server(scenario, settings=["connections.max.idle.ms=20000"])


def test_a_stop_gives_up_what_waits() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        partition = kwire.partition
        for _ in range(3):
            client = await kwire.connect()
            await client.send((fetch(0, max_wait_ms=LONG_MS), 12))
        await wait_all_tasks_blocked()
        assert len(partition.waiters) == 3
        began = trio.current_time()
        kwire.stop()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
        assert trio.current_time() - began < 1
        assert not partition.waiters

    with_server(scenario)


# Joins that wait


def test_requests_behind_a_join_that_waits_are_answered_after_it_in_order() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        first, member_id = await kwire.member_that_is_asked_to_rejoin()
        second = await kwire.connect()
        await second.send((list_end(), 6), (join(), 3), (produce(b"x"), 9), (list_end(), 6))
        await wait_all_tasks_blocked()
        assert (await second.read(LIST_OFFSETS, 6))[0] == 0
        assert not second.has_answer
        assert kwire.partition.log_end_offset == 0, "the requests behind it are not carried out before it"
        await first.send((join(member_id), 3))
        correlation_id, answer = await second.read(JOIN_GROUP, 3)
        assert (correlation_id, answer.generation_id) == (1, 2)
        assert (await second.read(PRODUCE, 9))[0] == 2
        correlation_id, ends = await second.read(LIST_OFFSETS, 6)
        assert (correlation_id, ends.topics[0].partitions[0].offset) == (3, 1)
        assert (await first.read(JOIN_GROUP, 3))[1].generation_id == 2

    with_server(scenario)


def test_what_came_with_a_join_that_waits_is_not_lost_to_what_others_send() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        first, member_id = await kwire.member_that_is_asked_to_rejoin()
        second = await kwire.connect()
        await second.send((join(), 3), (produce(b"x"), 9), (list_end(), 6))
        await wait_all_tasks_blocked()
        # All connections receive into one buffer; this goes where the requests above were.
        await first.call(produce(b"\xff" * 10_000), 9)
        await first.call(join(member_id), 3)
        await second.read(JOIN_GROUP, 3)
        assert (await second.read(PRODUCE, 9))[0] == 1
        assert (await second.read(LIST_OFFSETS, 6))[1].topics[0].partitions[0].offset == 2

    with_server(scenario)


def test_what_comes_while_a_join_waits_is_not_listened_to_and_then_it_is() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        first, member_id = await kwire.member_that_is_asked_to_rejoin()
        second = await kwire.connect()
        await second.send((join(), 3))
        await wait_all_tasks_blocked()
        await second.send((list_end(), 6))
        await kwire.assert_sleeps()
        assert not second.has_answer
        await first.send((join(member_id), 3))
        await second.read(JOIN_GROUP, 3)
        await second.read(LIST_OFFSETS, 6)
        await second.call(list_end(), 6)

    with_server(scenario)


def test_a_broken_frame_behind_a_join_that_waits_closes_after_its_answer() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        first, member_id = await kwire.member_that_is_asked_to_rejoin()
        second = await kwire.connect()
        await second.send((join(), 3))
        await second.stream.send_all(b"\xff\xff\xff\xff")
        await wait_all_tasks_blocked()
        await first.send((join(member_id), 3))
        assert (await second.read(JOIN_GROUP, 3))[1].error_code == ErrorCode.NONE
        assert await second.is_at_end()
        await first.read(JOIN_GROUP, 3)
        assert kwire.connections == 1

    with_server(scenario)


@pytest.mark.parametrize("leave", [TrioClient.hang_up, TrioClient.reset])
def test_a_client_that_leaves_while_its_join_waits_is_forgotten_when_the_join_is_answered(
    leave: Callable[[TrioClient], Awaitable[None]],
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        first, member_id = await kwire.member_that_is_asked_to_rejoin()
        second = await kwire.connect()
        await second.send((join(), 3))
        await wait_all_tasks_blocked()
        await leave(second)
        await kwire.assert_sleeps()
        assert (await first.call(join(member_id), 3)).error_code == ErrorCode.NONE
        await wait_all_tasks_blocked()
        assert kwire.connections == 1
        await first.call(list_end(), 6)

    with_server(scenario)


@pytest.mark.parametrize("is_muted", [False, True])
def test_a_join_that_is_answered_after_its_connection_was_closed_harms_nobody(is_muted: bool) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        first, member_id = await kwire.member_that_is_asked_to_rejoin()
        second = await kwire.connect()
        await second.send((join(), 3))
        if is_muted:
            await wait_all_tasks_blocked()
            await second.send((list_end(), 6))
        await trio.sleep(3)
        await first.call(list_end(), 6)
        await trio.sleep(3)
        assert await second.is_at_end()
        assert kwire.connections == 1
        assert (await first.call(join(member_id), 3)).error_code == ErrorCode.NONE
        await first.call(list_end(), 6)

    with_server(scenario, settings=["connections.max.idle.ms=5000"])


# Connections that are closed


@pytest.mark.parametrize("waiting", [None, (fetch(0, max_wait_ms=LONG_MS), 12), (join(), 3)], ids=["", "fetch", "join"])
def test_a_closed_connection_ignores_what_the_processor_knew_of_it_already(
    waiting: tuple[ApiMessage, int] | None,
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        bystander, _ = await kwire.member_that_is_asked_to_rejoin()
        (others,) = kwire.server.connections
        client = await kwire.connect()
        if waiting is not None:
            await client.send(waiting)
        await wait_all_tasks_blocked()
        (connection,) = kwire.server.connections.keys() - {others}
        pair = new_pair()
        with pair.near, pair.far:

            def closes_it(mask: int) -> None:
                pair.read(mask)
                connection.close()

            kwire.server.processor.add(pair.near, closes_it)
            # Both are ready in the same turn, and the one that closes comes first.
            pair.far.send(b"x")
            await client.send((produce(b"too late"), 9))
            assert await client.is_at_end()
            kwire.server.processor.remove(pair.near)
        assert kwire.connections == 1
        assert kwire.partition.log_end_offset == 0
        await bystander.call(list_end(), 6)

    with_server(scenario)

"""A connection that many tasks use: matching of responses; effects of cancellation, silence and garbage."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import trio
from kwire_protocol.conversation import DEFAULT_MAX_IN_FLIGHT
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kwire_protocol.wire import UnsupportedField
from trio.testing import wait_all_tasks_blocked

from devtools.ports import free_port
from kwire.client.async_connection import AsyncBrokerConnection
from kwire.client.errors import ClientError, ConnectionFailed, NotABroker, VersionNotServed
from kwire.client.transport import Address
from kwire.peers.connecting import connect, over_streams
from testkit.fakes.async_scene import TIMEOUT_S, AsyncScene, ReceivingInto, fails, takes, with_brokers
from testkit.fakes.brokers import FakeBrokers, in_sequence
from testkit.raw.simple_requests import fetch, produce
from testkit.scenes.server_in_trio import ServerInTrio, with_server

HALF_WAY = "a request to node:1 was cancelled half way"


def generation_as_error(node_id: int, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=request.generation_id)


def group_brokers() -> FakeBrokers:
    """Brokers that answer a Heartbeat with its own number."""
    return FakeBrokers(answers={HeartbeatRequest: generation_as_error, ListGroupsRequest: in_sequence(None)})


@pytest.fixture
def brokers() -> FakeBrokers:
    return group_brokers()


async def beat(connection: AsyncBrokerConnection, number: int, **more: Any) -> None:
    answer = await connection.call(HeartbeatRequest("g", number), **more)
    assert answer.error_code == number


async def beat_for(seconds: float, connection: AsyncBrokerConnection, number: int) -> None:
    """Sends a heartbeat, and is cancelled."""
    with trio.move_on_after(seconds) as scope:
        await beat(connection, number)
    assert scope.cancelled_caught


def numbers_seen(brokers: FakeBrokers) -> list[int]:
    return [it.generation_id for it in brokers.requests(HeartbeatRequest)]


def test_each_of_many_askers_gets_its_own_answer(brokers: FakeBrokers) -> None:
    count = 2 * DEFAULT_MAX_IN_FLIGHT + 1

    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.delay = lambda: 0.01
        async with trio.open_nursery() as askers:
            for number in range(count):
                askers.start_soon(beat, connection, number)
            await wait_all_tasks_blocked()
            assert connection._conversation.in_flight == DEFAULT_MAX_IN_FLIGHT
        assert connection._conversation.in_flight == 0

    with_brokers(brokers, scenario)
    assert sorted(numbers_seen(brokers)) == [*range(count)]


def test_several_requests_are_on_their_way_at_once_in_the_order_of_the_calls(brokers: FakeBrokers) -> None:
    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.delay = lambda: 1.0
        async with trio.open_nursery() as askers:
            for number in (5, 3, 8):
                askers.start_soon(beat, connection, number)
                await wait_all_tasks_blocked()
            assert connection._conversation.in_flight == 3

    with_brokers(brokers, scenario)
    assert numbers_seen(brokers) == [5, 3, 8]


def test_the_version_is_within_the_requested_range(brokers: FakeBrokers) -> None:
    brokers.newest[HeartbeatRequest.api_key] = 3

    async def scenario(scene: AsyncScene) -> None:
        async with await scene.open() as connection:
            await beat(connection, 1)
            assert brokers.versions[HeartbeatRequest] == 3
            await beat(connection, 1, at_most=1)
            assert brokers.versions[HeartbeatRequest] == 1
            with pytest.raises(VersionNotServed, match="node:1 does not serve Heartbeat 4 to 4"):
                await beat(connection, 1, at_least=4)
            with pytest.raises(UnsupportedField):
                await connection.call(HeartbeatRequest("g", 1, group_instance_id="static"), at_most=1)
            assert connection.features == {"transaction.version": 2}
            await beat(connection, 2)

    with_brokers(brokers, scenario)


def test_a_request_without_an_answer_is_not_waited_for(brokers: FakeBrokers) -> None:
    brokers.answers[ProduceRequest] = lambda _, request: ProduceResponse() if request.acks else None

    async def scenario(scene: AsyncScene) -> None:
        async with await scene.open() as connection:
            assert await connection.call(ProduceRequest(acks=0)) is None
            assert await connection.call(ProduceRequest(acks=1)) == ProduceResponse()

    with_brokers(brokers, scenario)
    assert len(brokers.requests(ProduceRequest)) == 2


def test_a_large_request_goes_out_in_pieces(brokers: FakeBrokers) -> None:
    batches = [bytes([number]) * 100_000 for number in range(3)]
    data = [PartitionProduceData(number, batch) for number, batch in enumerate(batches)]
    brokers.answers[ProduceRequest] = in_sequence(ProduceResponse())

    async def scenario(scene: AsyncScene) -> None:
        async with await scene.open() as connection:
            await connection.call(
                ProduceRequest(acks=1, topic_data=[TopicProduceData("t", partition_data=data)]), at_most=12
            )

    with_brokers(brokers, scenario)
    (request,) = brokers.requests(ProduceRequest)
    assert [bytes(it.records) for it in request.topic_data[0].partition_data] == batches


# Cancelled


def test_an_asker_that_is_cancelled_while_it_waits_leaves_the_connection_to_the_others(brokers: FakeBrokers) -> None:
    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.delay = lambda: 1.0
        async with trio.open_nursery() as askers:
            askers.start_soon(beat_for, 0.5, connection, 1)
            for number in (2, 3):
                await wait_all_tasks_blocked()
                askers.start_soon(beat, connection, number)
        await beat(connection, 4)

    with_brokers(brokers, scenario)
    assert numbers_seen(brokers) == [1, 2, 3, 4]


def test_the_answer_to_a_cancelled_request_does_not_stop_the_next_one(brokers: FakeBrokers) -> None:
    """In a connection in lockstep each side would wait for ever until the other receives."""

    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.delay = lambda: 1.0
        with takes(2.0):
            await beat_for(0.5, connection, 1)
            await beat(connection, 2)

    with_brokers(brokers, scenario, lockstep=True)


def test_a_request_that_is_cancelled_half_way_closes_the_connection(brokers: FakeBrokers) -> None:
    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.delay = lambda: 1.0
        async with trio.open_nursery() as askers:
            askers.start_soon(partial(fails, beat, connection, 1, kind=ConnectionFailed, pattern=HALF_WAY))
            await wait_all_tasks_blocked()
            await beat_for(0.5, connection, 2)  # the broker reads it when it has answered
        assert connection.is_closed
        await fails(beat, connection, 3, kind=ConnectionFailed, pattern=HALF_WAY)

    with_brokers(brokers, scenario, lockstep=True)


def test_a_request_that_is_cancelled_before_its_turn_is_not_sent(brokers: FakeBrokers) -> None:
    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.delay = lambda: 1.0
        async with trio.open_nursery() as askers:
            for number in (1, 2):  # the second is being sent while the first is answered
                askers.start_soon(beat, connection, number)
                await wait_all_tasks_blocked()
            await beat_for(0.5, connection, 3)
        await beat(connection, 4)

    with_brokers(brokers, scenario, lockstep=True)
    assert numbers_seen(brokers) == [1, 2, 4]


def test_an_asker_that_is_cancelled_already_sends_nothing(brokers: FakeBrokers) -> None:
    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        await beat_for(0, connection, 1)
        await beat(connection, 2)

    with_brokers(brokers, scenario)
    assert numbers_seen(brokers) == [2]


def test_an_asker_that_is_cancelled_as_its_turn_comes_sends_nothing(brokers: FakeBrokers) -> None:
    async def call(connection: AsyncBrokerConnection, scope: trio.CancelScope) -> None:
        with scope:
            await beat(connection, 1)

    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        for _ in range(20):  # trio runs the two in either order
            scope = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, connection, scope)
                await trio.lowlevel.checkpoint()
                scope.cancel()
            assert scope.cancelled_caught
        await beat(connection, 2)

    with_brokers(brokers, scenario)
    assert numbers_seen(brokers) == [2]


@pytest.mark.parametrize("lockstep", [False, True])
def test_whenever_askers_are_cancelled_the_others_get_their_own_answers(*, lockstep: bool) -> None:
    outcomes = {"sound": 0, "closed": 0}

    def run(chance: random.Random) -> None:
        async def call(connection: AsyncBrokerConnection, number: int) -> None:
            await trio.sleep(chance.uniform(0, 3))
            with trio.move_on_after(chance.choice([0.0, chance.uniform(0, 2), 100.0])):
                try:
                    await beat(connection, number, timeout_s=200)
                except ConnectionFailed as error:
                    assert (error.message, lockstep) == (HALF_WAY, True)  # noqa: PT017

        async def scenario(scene: AsyncScene) -> None:
            connection = await scene.open()
            scene.delay = lambda: chance.uniform(0, 0.3)
            async with trio.open_nursery() as askers:
                for number in range(12):
                    askers.start_soon(call, connection, number)
            outcomes["closed" if connection.is_closed else "sound"] += 1
            if not connection.is_closed:
                await beat(connection, 99)
                assert connection._conversation.in_flight == 0

        with_brokers(group_brokers(), scenario, lockstep=lockstep)

    for seed in range(100):
        run(random.Random(seed))
    assert outcomes["sound"] > 10
    assert (outcomes["closed"] > 10) == lockstep


# Late, cut short, garbage


def test_no_answer_in_time_closes_the_connection_for_all(brokers: FakeBrokers) -> None:
    pattern = "node:1 did not answer ListGroups: it timed out"

    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.delay = lambda: 100.0
        with takes(2.0):
            async with trio.open_nursery() as askers:
                call_later = partial(connection.call, ListGroupsRequest(), timeout_s=2)
                askers.start_soon(partial(fails, call_later, kind=ConnectionFailed, pattern=pattern))
                await wait_all_tasks_blocked()
                # Its answer would come behind the other.
                await fails(beat, connection, 1, kind=ConnectionFailed, pattern=pattern)
        assert connection.is_closed

    with_brokers(brokers, scenario)


def test_an_answer_that_trickles_in_is_waited_for_no_longer_than_any(brokers: FakeBrokers) -> None:
    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.answers_in_pieces = True
        scene.delay = lambda: TIMEOUT_S - 1
        await beat(connection, 1)
        scene.delay = lambda: TIMEOUT_S + 1
        with takes(TIMEOUT_S):
            await fails(beat, connection, 2, kind=ConnectionFailed, pattern="did not answer Heartbeat: it timed out")

    with_brokers(brokers, scenario)


def test_cancelled_requests_that_are_never_answered_end_the_connection_in_time(brokers: FakeBrokers) -> None:
    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        for _ in range(3):
            with trio.move_on_after(0.5):
                await connection.call(ListGroupsRequest())
        with takes(TIMEOUT_S):
            await fails(beat, connection, 1, kind=ConnectionFailed, pattern="did not answer Heartbeat: it timed out")

    with_brokers(brokers, scenario)
    assert len(brokers.requests(ListGroupsRequest)) == 1  # the others waited for its answer


def test_a_broker_that_hangs_up_is_reported_to_all_callers(brokers: FakeBrokers) -> None:
    pattern = "node:1 did not answer Heartbeat: it closed the connection"

    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.delay = lambda: 1.0
        async with trio.open_nursery() as askers:
            for number in range(3):
                askers.start_soon(partial(fails, beat, connection, number, kind=ConnectionFailed, pattern=pattern))
            await wait_all_tasks_blocked()
            await scene.peers[0].aclose()

    with_brokers(brokers, scenario)


def test_closing_fails_the_calls_that_wait(brokers: FakeBrokers) -> None:
    fail = partial(fails, beat, kind=ConnectionFailed, pattern="the connection to node:1 is closed")

    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        scene.delay = lambda: 1.0
        async with trio.open_nursery() as askers:
            for number in range(3):
                askers.start_soon(fail, connection, number)
            await wait_all_tasks_blocked()
            connection.close()
        await fail(connection, 4)

    with_brokers(brokers, scenario)


async def open_and_beat(scene: AsyncScene) -> None:
    async with await scene.open() as connection:
        await beat(connection, 7)


def test_answers_may_come_byte_by_byte(brokers: FakeBrokers) -> None:
    async def scenario(scene: AsyncScene) -> None:
        scene.answers_in_pieces = True
        await open_and_beat(scene)

    with_brokers(brokers, scenario)


def test_answers_that_are_cut_short_anywhere_fail(brokers: FakeBrokers) -> None:
    whole = len(with_brokers(brokers, open_and_beat).said)

    async def scenario(scene: AsyncScene) -> None:
        for count in range(whole):
            scene.said.clear()
            scene.hangs_up_after_bytes = count
            await fails(
                open_and_beat, scene, kind=ConnectionFailed, pattern="did not answer .*: it closed the connection"
            )
        scene.said.clear()
        scene.hangs_up_after_bytes = whole
        await open_and_beat(scene)

    with_brokers(brokers, scenario)


def test_an_answer_that_is_none_closes_the_connection(brokers: FakeBrokers) -> None:
    brokers.answers[HeartbeatRequest] = in_sequence(ListGroupsResponse())

    async def scenario(scene: AsyncScene) -> None:
        connection = await scene.open()
        for number in range(2):
            pattern = "what answers at node:1 is no Kafka broker in plain text: "
            await fails(beat, connection, number, kind=NotABroker, pattern=pattern)
        assert connection.is_closed

    with_brokers(brokers, scenario)


@pytest.mark.parametrize("seed", range(5))
def test_garbage_is_an_error_or_waited_for_in_vain(brokers: FakeBrokers, seed: int) -> None:
    chance = random.Random(seed)

    def spoil(answer: bytes) -> bytes:
        spoiled = bytearray(answer)
        for _ in range(chance.randint(1, 4)):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        return bytes(spoiled)

    async def scenario(scene: AsyncScene) -> None:
        for _ in range(50):
            scene.spoils = None
            connection = await scene.open()
            scene.spoils = spoil
            try:
                await connection.call(HeartbeatRequest("g", 7))
            except ClientError as error:
                assert isinstance(error, NotABroker | ConnectionFailed)  # noqa: PT017
                assert connection.is_closed
            else:
                assert not connection.is_closed

    with_brokers(brokers, scenario)


# Connecting


def test_a_broker_that_is_not_there_cannot_be_reached() -> None:
    port = free_port()
    pattern = f"cannot reach 127.0.0.1:{port}: Connection refused"
    opens = partial(AsyncBrokerConnection.open, ("127.0.0.1", port), connect=over_streams(connect))
    trio.run(partial(fails, opens, kind=ConnectionFailed, pattern=pattern))


@pytest.mark.parametrize(
    ("connects", "pattern"), [(False, "cannot reach node:1"), (True, "node:1 did not answer ApiVersions")]
)
def test_connecting_takes_no_longer_than_it_may(brokers: FakeBrokers, pattern: str, *, connects: bool) -> None:
    async def scenario(scene: AsyncScene) -> None:
        async def connect_or_hang(address: Address) -> ReceivingInto:
            if not connects:
                await trio.sleep_forever()
            return await scene.connect(address)

        scene.delay = lambda: 100.0
        opens = partial(AsyncBrokerConnection.open, ("node", 1), 3, connect=connect_or_hang)
        with takes(3.0):
            await fails(opens, kind=ConnectionFailed, pattern=f"{pattern}: it timed out")
        if connects:
            with pytest.raises(trio.BrokenResourceError):  # it was closed
                await scene.peers[0].send_all(b"late")

    with_brokers(brokers, scenario)


# A kwire broker


async def open_to(server: ServerInTrio) -> AsyncBrokerConnection:
    address = "127.0.0.1", server.server.listeners[0].port
    return await AsyncBrokerConnection.open(address, connect=over_streams(connect))


def test_a_broker_answers_a_waiting_fetch_and_the_requests_behind_it() -> None:
    async def scenario(server: ServerInTrio) -> None:
        async with (
            await open_to(server) as consumer,
            await open_to(server) as producer,
            trio.open_nursery() as nursery,
        ):

            async def wait_for(value: bytes) -> None:
                answer = await consumer.call(fetch(0, max_wait_ms=20_000), at_most=12)
                assert value in bytes(answer.responses[0].partitions[0].records)

            nursery.start_soon(wait_for, b"a value")
            await wait_all_tasks_blocked()
            answer = await producer.call(produce(b"a value", acks=-1), at_most=12)
            assert answer.responses[0].partition_responses[0].error_code == 0

    with_server(scenario)


def test_a_fetch_that_is_cancelled_leaves_the_connection_sound() -> None:
    async def scenario(server: ServerInTrio) -> None:
        async with await open_to(server) as connection:
            with takes(2.0):
                with trio.move_on_after(0.5):
                    await connection.call(fetch(0, max_wait_ms=2_000), at_most=12)
                answer = await connection.call(produce(b"a value"), at_most=12)
            assert answer.responses[0].partition_responses[0].error_code == 0

    with_server(scenario)


def test_large_answers_arrive_whole() -> None:
    values = [bytes([65 + number]) * 900_000 for number in range(4)]

    async def scenario(server: ServerInTrio) -> None:
        async with await open_to(server) as connection:
            for value in values:
                await connection.call(produce(value, acks=0), at_most=12)
            answer = await connection.call(fetch(0, max_bytes=1 << 23), at_most=12)
            records = bytes(answer.responses[0].partitions[0].records)
        assert [value in records for value in values] == [True] * 4

    with_server(scenario)


def test_a_server_that_stops_is_reported() -> None:
    async def scenario(server: ServerInTrio) -> None:
        connection = await open_to(server)
        server.stop()
        with trio.CancelScope(shield=True):
            for held in [*server.server.connections]:
                held.close()
            pattern = "did not answer Fetch: (it closed the connection|Connection reset by peer)"
            await fails(connection.call, fetch(0), at_most=12, kind=ConnectionFailed, pattern=pattern)

    with_server(scenario)


def test_closing_ends_a_fetch_that_waits() -> None:
    async def scenario(server: ServerInTrio) -> None:
        connection = await open_to(server)
        async with trio.open_nursery() as nursery:
            call_later = partial(connection.call, fetch(0, max_wait_ms=20_000), at_most=12)
            nursery.start_soon(
                partial(fails, call_later, kind=ConnectionFailed, pattern="the connection to .* is closed")
            )
            await wait_all_tasks_blocked()
            with takes(0):
                connection.close()

    with_server(scenario)

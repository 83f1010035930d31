"""A client that exceeds its quota: its throttle time, and the pause of its connection and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.metadata import MetadataRequest
from kwire_protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire_protocol.messages.share_fetch import PartitionData as SharePartitionData
from kwire_protocol.messages.share_fetch import ShareFetchableTopicResponse, ShareFetchRequest, ShareFetchResponse
from trio.testing import wait_all_tasks_blocked

from kwire.handlers.context import Context
from kwire.network.throttling import Throttling
from kwire.replicas.fetch_sessions import FINAL_EPOCH
from testkit.raw.simple_requests import fetch, join, list_end, produce
from testkit.scenes.broker_in_trio import TrioClock
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, WithoutWorkers, with_server

PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 18, 19
LONG_MS = 300_000
KB = bytes(1000)


def run(scenario: Callable[[ServerInTrio], Awaitable[None]], **how: Any) -> None:
    with_server(scenario, loop=WithoutWorkers(), **how)


async def alter(client: TrioClient, key: str, value: float | None, *, entity_type: str = "user") -> None:
    """Sets the default of users, or of client ids."""
    entity = [AlterClientQuotasRequestEntityData(entity_type, None)]
    op = OpData(key, value or 0.0, remove=value is None)
    answer = await client.call(AlterClientQuotasRequest([AlterClientQuotasRequestEntryData(entity, [op])]), 1)
    assert [it.error_code for it in answer.entries] == [0]


class SessionClock(TrioClock):
    """A clock with reversed ids, as sessions get theirs from the first bytes."""

    def uuid(self) -> bytes:
        return super().uuid()[::-1]


def took_percent(kwire: ServerInTrio, percent: float) -> None:
    """Makes each request take the event loop for so long from now on."""
    steps = count(step=int(percent * 10_000_000))
    kwire.broker.client_quotas.running_ns = lambda: next(steps)


async def unthrottled(consumer: TrioClient, request: Callable[[], FetchRequest]) -> Any:
    """Fetches until it is not throttled. As Kafka's, a rate counts as over ten samples from the first on."""
    while (answer := await consumer.call(request(), 12)).throttle_time_ms:
        assert answer.responses == []
    return answer


async def paused_s(client: TrioClient) -> float:
    """Returns how long it takes until the next request is answered."""
    began = trio.current_time()
    await client.call(list_end(), 6)
    return trio.current_time() - began


def test_a_producer_is_answered_at_once_and_read_later() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        producer, neighbour = await kwire.connect(), await kwire.connect()
        await alter(producer, "producer_byte_rate", 1000)
        began = trio.current_time()
        answer = await producer.call(produce(KB * 9), 9)
        assert answer.throttle_time_ms == 0
        answer = await producer.call(produce(KB * 3), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert 2000 <= answer.throttle_time_ms <= 2500
        assert trio.current_time() == began
        assert await paused_s(neighbour) == 0, "a request that is no Produce, on another connection"
        assert await paused_s(producer) == pytest.approx(answer.throttle_time_ms / 1000, abs=0.01)
        assert await paused_s(producer) == 0

    run(scenario)


def test_clients_that_share_a_quota_pause_each_for_itself() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        first, second = await kwire.connect(), await kwire.connect()
        await alter(first, "producer_byte_rate", 1000)
        assert (await first.call(produce(KB * 9), 9)).throttle_time_ms == 0
        throttle_ms = (await second.call(produce(KB * 3), 9)).throttle_time_ms
        assert throttle_ms > 0
        assert await paused_s(first) == 0
        assert await paused_s(second) == pytest.approx(throttle_ms / 1000, abs=0.01)

    run(scenario)


def test_requests_that_have_come_already_wait_and_are_answered_in_order() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        producer = await kwire.connect()
        await alter(producer, "producer_byte_rate", 1000)
        began = trio.current_time()
        await producer.send((produce(KB * 15), 9), (list_end(), 6), (produce(KB), 9), (list_end(), 6))
        first = await producer.read(PRODUCE, 9)
        await wait_all_tasks_blocked()
        assert not producer.has_answer
        assert trio.current_time() == began
        second = await producer.read(LIST_OFFSETS, 6)
        assert trio.current_time() - began == pytest.approx(first[1].throttle_time_ms / 1000, abs=0.01)
        third, fourth = await producer.read(PRODUCE, 9), await producer.read(LIST_OFFSETS, 6)
        ids = [it[0] for it in (first, second, third, fourth)]
        assert ids == list(range(ids[0], ids[0] + 4))

    run(scenario)


def test_a_connection_that_pauses_is_not_looked_at() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        producer = await kwire.connect()
        await alter(producer, "producer_byte_rate", 1000)
        assert (await producer.call(produce(KB * 100), 9)).throttle_time_ms > 60_000
        await producer.send((list_end(), 6))
        await wait_all_tasks_blocked()
        await kwire.assert_sleeps()

    run(scenario)


@pytest.mark.parametrize("way", ["hang_up", "reset"])
def test_a_client_that_goes_while_it_pauses_is_let_go_after_it(way: str) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        producer = await kwire.connect()
        await alter(producer, "producer_byte_rate", 1000)
        throttle_ms = (await producer.call(produce(KB * 100), 9)).throttle_time_ms
        await getattr(producer, way)()
        await trio.sleep(throttle_ms / 1000 + 0.1)
        await wait_all_tasks_blocked()
        assert kwire.connections == 0

    run(scenario)


def test_a_broker_stops_while_clients_pause() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        producer = await kwire.connect()
        await alter(producer, "producer_byte_rate", 1)
        assert (await producer.call(produce(KB * 100), 9)).throttle_time_ms > 60_000
        kwire.stop()

    run(scenario)


def test_a_pause_and_a_full_socket_hold_up_until_both_are_over() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        producer = await kwire.connect()
        for _ in range(5):
            await producer.call(produce(bytes(900_000)), 9)
        reader = await kwire.connect(receive_buffer_bytes=4096)
        await alter(producer, "request_percentage", 1)
        took_percent(kwire, 11)
        # The first answer fills the socket; the second request has to pause.
        await reader.send((fetch(0), 12), (list_end(), 6), (list_end(), 6))
        await wait_all_tasks_blocked()
        await trio.sleep(5)
        assert kwire.connections == 2
        answer = (await reader.read(FETCH, 12))[1]
        assert answer.throttle_time_ms > 0 or len(answer.responses[0].partitions[0].records) > 4_000_000
        for _ in range(2):
            assert (await reader.read(LIST_OFFSETS, 6))[1].topics[0].partitions[0].offset == 5

    run(scenario, settings=["socket.send.buffer.bytes=8192"])


def test_a_producer_without_acknowledgements_pauses_too() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        producer = await kwire.connect()
        await alter(producer, "producer_byte_rate", 1000)
        await producer.send((produce(KB * 15, acks=0), 9))
        assert await paused_s(producer) == pytest.approx(5, abs=0.3)

    run(scenario)


def test_a_consumer_gets_nothing_before_it_may_have_it_and_then_everything() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer, neighbour = await kwire.connect(), await kwire.connect()
        for _ in range(4):
            await neighbour.call(produce(KB * 4), 9)
        await alter(neighbour, "consumer_byte_rate", 1000)
        began = trio.current_time()
        answer = await consumer.call(fetch(0), 12)
        assert answer.throttle_time_ms == 0
        size = len(answer.responses[0].partitions[0].records)
        assert 8_000 < size < 10_000, "what a window has, in whole batches"
        answer = await consumer.call(fetch(2), 12)
        assert 6_000 < answer.throttle_time_ms < 7_000
        assert answer.responses == []
        assert trio.current_time() == began
        assert await paused_s(consumer) == pytest.approx(answer.throttle_time_ms / 1000, abs=0.01)
        assert await paused_s(neighbour) == 0
        answer = await unthrottled(consumer, lambda: fetch(2))
        assert len(answer.responses[0].partitions[0].records) == size
        assert trio.current_time() - began < 15

    run(scenario)


def test_a_consumer_that_requests_less_than_a_window_has_gets_that_at_once() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer = await kwire.connect()
        for _ in range(2):
            await consumer.call(produce(KB * 4), 9)
        await alter(consumer, "consumer_byte_rate", 1000)
        began = trio.current_time()
        request = fetch(0, max_wait_ms=60_000)
        request.max_bytes = 5000
        answer = await consumer.call(request, 12)
        assert 4000 < len(answer.responses[0].partitions[0].records) < 5000
        assert trio.current_time() == began

    run(scenario)


def test_a_consumer_does_not_wait_for_more_than_a_window_has() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer = await kwire.connect()
        await consumer.call(produce(KB * 15), 9)
        await alter(consumer, "consumer_byte_rate", 1000)
        began = trio.current_time()
        answer = await consumer.call(fetch(0, min_bytes=20_000, max_wait_ms=60_000), 12)
        assert len(answer.responses[0].partitions[0].records) > 15_000
        assert trio.current_time() == began

    run(scenario)


def test_a_consumer_that_wants_any_record_gets_it_at_once() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer = await kwire.connect()
        await consumer.call(produce(KB), 9)
        await alter(consumer, "consumer_byte_rate", 1000)
        began = trio.current_time()
        answer = await consumer.call(fetch(0, min_bytes=1, max_wait_ms=60_000), 12)
        assert answer.responses[0].partitions[0].records
        assert trio.current_time() == began

    run(scenario)


def test_a_consumer_does_not_wait_for_a_window_that_whole_batches_cannot_fill() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer = await kwire.connect()
        for _ in range(4):
            await consumer.call(produce(KB * 4), 9)
        await alter(consumer, "consumer_byte_rate", 1000)
        began = trio.current_time()
        answer = await consumer.call(fetch(0, min_bytes=20_000, max_wait_ms=60_000), 12)
        assert 8000 < len(answer.responses[0].partitions[0].records) < 10_000
        assert trio.current_time() == began

    run(scenario)


def test_a_batch_that_no_window_has_room_for_arrives() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer = await kwire.connect()
        await consumer.call(produce(KB * 100), 9)
        await consumer.call(produce(KB * 100), 9)
        await alter(consumer, "consumer_byte_rate", 1000)
        began = trio.current_time()
        got = 0
        while got < 2:
            answer = await consumer.call(fetch(got), 12)
            got += len(answer.responses)
        assert 10 < trio.current_time() - began < 200

    run(scenario)


def session_fetch(session_id: int, epoch: int, *offsets: int, max_wait_ms: int = 0) -> FetchRequest:
    partitions = [FetchPartition(0, -1, offset, partition_max_bytes=1 << 20) for offset in offsets]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic("t", partitions=partitions)] if partitions else [],
    )


def test_a_session_loses_nothing_in_a_pause() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer, producer = await kwire.connect(), await kwire.connect()
        opened = await consumer.call(session_fetch(0, 0, 0), 12)
        session = opened.session_id
        assert session
        await producer.call(produce(KB * 9), 9)
        await alter(producer, "consumer_byte_rate", 1000)
        answer = await consumer.call(session_fetch(session, 1), 12)
        assert len(answer.responses[0].partitions[0].records) > 9000
        await producer.call(produce(KB * 2), 9)
        answer = await consumer.call(session_fetch(session, 2, 1), 12)
        assert answer.throttle_time_ms > 0
        assert (answer.session_id, answer.responses) == (session, [])
        epochs = count(3)
        answer = await unthrottled(consumer, lambda: session_fetch(session, next(epochs)))
        (partition,) = answer.responses[0].partitions
        assert partition.high_watermark == 2
        assert len(partition.records) > 2000

    run(scenario, wall_clock=SessionClock())


def test_a_session_that_would_begin_with_a_pause_does_not() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer = await kwire.connect()
        await consumer.call(produce(KB * 9), 9)
        await alter(consumer, "consumer_byte_rate", 1000)
        await consumer.call(session_fetch(0, FINAL_EPOCH, 0), 12)
        answer = await consumer.call(session_fetch(0, 0, 0), 12)
        assert answer.throttle_time_ms > 0
        assert (answer.session_id, answer.responses) == (0, [])
        assert len(kwire.broker.fetch_sessions) == 0
        answer = await unthrottled(consumer, lambda: session_fetch(0, 0, 0))
        assert answer.session_id != 0
        assert len(answer.responses[0].partitions[0].records) > 9000

    run(scenario, wall_clock=SessionClock())


def test_followers_do_not_pause() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await client.call(produce(KB * 9), 9)
        await alter(client, "consumer_byte_rate", 1)
        await alter(client, "request_percentage", 1)
        took_percent(kwire, 50)
        request = fetch(0)
        request.replica_id = 1
        for _ in range(3):
            assert (await client.call(request, 12)).throttle_time_ms == 0

    run(scenario)


def test_logging_in_is_not_charged() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client, neighbour = await kwire.connect(), await kwire.connect()
        await alter(neighbour, "request_percentage", 1)
        took_percent(kwire, 60)
        began = trio.current_time()
        for _ in range(3):
            await client.call(SaslHandshakeRequest("PLAIN"), 1)
        assert trio.current_time() == began

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "version"),
    [(list_end(), 6), (MetadataRequest(None), 9), (ApiVersionsRequest("x", "1"), 3)],
)
def test_the_time_of_any_request_is_charged(request_: Any, version: int) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client, neighbour = await kwire.connect(), await kwire.connect()
        await client.call(request_, version)  # Metadata is answered from a cache then
        await alter(neighbour, "request_percentage", 10)
        took_percent(kwire, 60)
        assert (await client.call(request_, version)).throttle_time_ms == 0, "60 % of one second in ten"
        assert (await client.call(request_, version)).throttle_time_ms == 1000, "no more than one sample, as in Kafka"
        assert await paused_s(client) == 1
        await alter(neighbour, "request_percentage", None)
        assert (await client.call(request_, version)).throttle_time_ms == 0, "the answer in the cache has no pause"

    run(scenario)


def test_only_the_time_in_which_a_handler_runs_is_charged() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer = await kwire.connect()
        await alter(consumer, "request_percentage", 10)
        broker = kwire.broker
        broker.client_quotas.running_ns = lambda: int(trio.current_time() * 1e9)
        answer = await consumer.call(fetch(0, max_wait_ms=LONG_MS), 12)
        assert answer.throttle_time_ms == 0
        assert await paused_s(consumer) == 0

    run(scenario)


def test_a_member_that_waits_for_others_is_charged_for_the_time_before_and_after() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        await kwire.member_that_is_asked_to_rejoin()
        newcomer, other = await kwire.connect(), await kwire.connect()
        await alter(other, "request_percentage", 1)
        took_percent(kwire, 6)  # twice, and so 1.2 % of ten seconds
        await newcomer.send((join(rebalance_timeout_ms=5000), 3))
        await wait_all_tasks_blocked()
        assert not newcomer.has_answer
        answer = (await newcomer.read(11, 3))[1]
        assert (answer.error_code, answer.throttle_time_ms) == (0, 1000)
        assert await paused_s(newcomer) == 1

    run(scenario)


def test_quotas_end_and_begin_while_connections_are_open() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        producer, operator = await kwire.connect(), await kwire.connect()
        waiting = await kwire.connect()
        await waiting.send((fetch(0, max_wait_ms=LONG_MS), 12))
        await wait_all_tasks_blocked()
        for _ in range(2):
            assert (await producer.call(produce(KB * 30), 9)).throttle_time_ms == 0
            await alter(operator, "producer_byte_rate", 1000)
            throttle_ms = (await producer.call(produce(KB * 30), 9)).throttle_time_ms
            assert throttle_ms > 0
            await alter(operator, "producer_byte_rate", None)
            assert await paused_s(producer) == pytest.approx(throttle_ms / 1000, abs=0.01)
        assert (await waiting.read(FETCH, 12))[1].throttle_time_ms == 0

    run(scenario)


def test_a_fetch_that_waits_already_is_answered_when_the_first_quota_is_set() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        consumer, operator = await kwire.connect(), await kwire.connect()
        await consumer.send((fetch(0, max_wait_ms=LONG_MS), 12))
        await wait_all_tasks_blocked()
        await alter(operator, "consumer_byte_rate", 1)
        await operator.call(produce(KB * 30), 9)
        answer = (await consumer.read(FETCH, 12))[1]
        assert len(answer.responses[0].partitions[0].records) > 30_000

    run(scenario)


@pytest.mark.parametrize("entity_type", ["user", "client-id"])
def test_who_creates_too_many_topics_pauses(entity_type: str) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client, neighbour = await kwire.connect(), await kwire.connect()
        await alter(client, "controller_mutation_rate", 1, entity_type=entity_type)
        answer = await client.call(CreateTopicsRequest([CreatableTopic("a", 20, 1), CreatableTopic("b", 1, 1)]), 6)
        assert [it.error_code for it in answer.topics] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert answer.throttle_time_ms == pytest.approx(9000, abs=5)
        assert await paused_s(neighbour) == 0
        assert await paused_s(client) == pytest.approx(9, abs=0.01)
        answer = await client.call(DeleteTopicsRequest([DeleteTopicState("a")]), 6)
        assert answer.responses[0].error_code == 0
        answer = await client.call(CreateTopicsRequest([CreatableTopic("b", 1, 1)]), 5)
        assert answer.topics[0].error_code == 0
        assert answer.throttle_time_ms > 0

    run(scenario)


def test_a_client_that_errs_is_closed_as_ever() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await alter(client, "request_percentage", 1)
        await client.send((produce(KB, topic="there is none", acks=0), 9))
        assert await client.is_at_end()

    run(scenario)


def test_a_share_consumer_gets_its_records_and_then_pauses() -> None:
    """They are acquired, so to leave them out would be to count a delivery that there was not."""

    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await alter(client, "consumer_byte_rate", 1000)
        context = Context("host", "127.0.0.1", 9092, api_key=78, api_version=1, client_id="c")
        replies: list[Any] = []
        records = SharePartitionData(0, records=bytes(15_000))
        full = ShareFetchResponse(responses=[ShareFetchableTopicResponse(bytes(16), [records])])
        decoded = lambda *_: full, ShareFetchRequest(max_bytes=1 << 20), 7
        throttling = Throttling(kwire.broker, context, lambda _: decoded, replies.append)
        handle, request, _ = throttling.decode(memoryview(b"a request"))
        assert request.max_bytes == 10_000
        future = handle(request, context).send(None)
        (reply,) = replies
        assert reply.responses == full.responses
        assert 5_000 < reply.throttle_time_ms < 5_200
        assert future.timeout_s == reply.throttle_time_ms / 1000
        assert full.throttle_time_ms == 0

    run(scenario)


def test_without_quotas_requests_are_decoded_as_before() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        client = await kwire.connect()
        await client.call(list_end(), 6)
        (connection,) = kwire.server.connections
        before = connection._decode
        await alter(client, "producer_byte_rate", 1)
        assert connection._decode != before
        await alter(client, "producer_byte_rate", None)
        assert connection._decode == before
        assert connection._context.fetch_throttle_ms is None
        assert not kwire.broker.client_quotas.are_set

    run(scenario)

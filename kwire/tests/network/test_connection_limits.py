"""The limits of connections: their number, their rate, and the sizes of their buffers."""

from __future__ import annotations

import select
import socket

import pytest
import trio
from kwire_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from trio.testing import wait_all_tasks_blocked

from kwire.config.definition import ConfigError
from kwire.config.server import load_config
from kwire.network import server
from kwire.network.server import bind
from kwire.testing import Broker
from testkit.raw.client import ConnectionClosed, RawClient, request_frame
from testkit.scenes.server_in_trio import ServerInTrio, WithoutWorkers, with_server

API_VERSIONS = request_frame(ApiVersionsRequest(), 0)
BROKER_RESOURCE, SET = 4, 0


def served(client: RawClient) -> bool:
    return bool(client.call(ApiVersionsRequest(), 0).api_keys)


def has_answer(client: RawClient) -> bool:
    return bool(select.select([client.sock], [], [], 0)[0])


def test_a_connection_above_max_connections_waits_until_another_one_ends() -> None:
    with Broker(settings={"max.connections": "1"}) as broker, RawClient(broker.address) as first:
        assert served(first)
        with RawClient(broker.address) as second:
            second.send(API_VERSIONS)
            assert served(first)
            assert not has_answer(second)
            first.close()
            assert second.read_frame()


def test_raising_max_connections_lets_the_waiting_ones_in() -> None:
    raised = AlterConfigsResource(BROKER_RESOURCE, "", [AlterableConfig("max.connections", SET, "2")])
    with Broker(settings={"max.connections": "1"}) as broker, RawClient(broker.address) as first:
        assert served(first)
        with RawClient(broker.address) as second:
            second.send(API_VERSIONS)
            answer = first.call(IncrementalAlterConfigsRequest([raised]), 1)
            assert [it.error_code for it in answer.responses] == [0]
            assert second.read_frame()


def test_a_connection_above_max_connections_per_ip_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(settings={"max.connections.per.ip": "1"}) as broker, RawClient(broker.address) as first:
        assert served(first)
        with RawClient(broker.address) as second, pytest.raises(ConnectionClosed):
            served(second)
        assert served(first)
        assert "max.connections.per.ip allows 1" in caplog.text

        first.end()
        assert first.is_closed_by_peer()
        with RawClient(broker.address) as third:
            assert served(third)


def test_another_address_has_connections_of_its_own() -> None:
    with Broker(settings={"max.connections.per.ip": "1"}) as broker, RawClient(broker.address) as first:
        assert served(first)
        with socket.create_connection((broker.host, broker.port), 10, ("127.0.0.2", 0)) as other:
            other.sendall(API_VERSIONS)
            assert other.recv(4)
        assert served(first)


def test_an_address_may_have_more_connections_than_others() -> None:
    settings = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "no.such.host.invalid:5,127.0.0.1:2"}
    with Broker(settings=settings) as broker, RawClient(broker.address) as first, RawClient(broker.address) as second:
        assert served(first)
        assert served(second)
        with RawClient(broker.address) as third, pytest.raises(ConnectionClosed):
            served(third)


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", ":5", "127.0.0.1:five", "127.0.0.1:9999999999", "a b:1"])
def test_overrides_that_name_no_number_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        load_config(settings=[f"max.connections.per.ip.overrides={text}"])


def test_overrides_name_addresses_of_both_kinds() -> None:
    config = load_config(settings=["max.connections.per.ip.overrides=10.0.0.1:5, [::1]:6,::2:7"])
    assert config.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 6, "::2": 7}


def test_connections_that_come_too_fast_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        began = trio.current_time()
        clients = [await kwire.connect() for _ in range(12)]
        for client in clients:
            assert (await client.call(ApiVersionsRequest(), 0)).api_keys
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)
        await trio.sleep(20)
        assert (await (await kwire.connect()).call(ApiVersionsRequest(), 0)).api_keys

    with_server(scenario, settings=["listener.name.plaintext.max.connection.creation.rate=1"])
    assert "max.connection.creation.rate" in caplog.text


def test_a_broker_stops_while_connections_wait() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        for _ in range(12):
            await kwire.connect()
        await wait_all_tasks_blocked()
        kwire.stop()

    with_server(scenario, settings=["max.connection.creation.rate=1"])


def rate_of(address: str | None, rate: float) -> AlterClientQuotasRequest:
    entity = [AlterClientQuotasRequestEntityData("ip", address)]
    op = OpData("connection_creation_rate", rate)
    return AlterClientQuotasRequest([AlterClientQuotasRequestEntryData(entity, [op])])


def test_connections_of_an_address_that_come_too_fast_are_closed_after_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        first = await kwire.connect()
        assert [it.error_code for it in (await first.call(rate_of("127.0.0.1", 1), 1)).entries] == [0]
        began = trio.current_time()
        for _ in range(10):
            assert (await (await kwire.connect()).call(ApiVersionsRequest(), 0)).api_keys
        refused = [await kwire.connect() for _ in range(3)]
        await wait_all_tasks_blocked()
        assert trio.current_time() == began
        assert await refused[2].is_at_end(), "no more than two are kept open"
        assert trio.current_time() == began
        for client in refused[:2]:
            assert await client.is_at_end()
            assert trio.current_time() - began == pytest.approx(1, abs=0.1)
        assert kwire.connections == 11
        await trio.sleep(11)
        assert (await (await kwire.connect()).call(ApiVersionsRequest(), 0)).api_keys
        for _ in range(20):
            await kwire.connect()
        await wait_all_tasks_blocked()
        kwire.stop()  # while some are kept open

    monkeypatch.setattr(server, "MOST_REFUSED", 2)
    with_server(scenario, loop=WithoutWorkers())
    assert "connection_creation_rate" in caplog.text


def test_the_sizes_of_the_sockets_buffers_are_requested_from_the_system() -> None:
    settings = ["socket.receive.buffer.bytes=50000", "socket.send.buffer.bytes=60000"]
    config = load_config(settings=settings, listen=["127.0.0.1:0"])
    with bind(config.listeners[0], config).sock as sock:
        # Linux returns twice the requested size: it includes its own bookkeeping.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (60_000, 120_000)

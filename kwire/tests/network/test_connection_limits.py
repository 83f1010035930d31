"""max.connections, max.connections.per.ip and the sizes of the sockets' buffers."""

from __future__ import annotations

import select
import socket

import pytest
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from kwire.config.server import load_config
from kwire.network.server import bind
from kwire.testing import Broker
from kwire.tests.raw_client import ConnectionClosed, RawClient, request_frame

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


def test_the_sizes_of_the_sockets_buffers_are_asked_of_the_system() -> None:
    settings = ["socket.receive.buffer.bytes=50000", "socket.send.buffer.bytes=60000"]
    config = load_config(settings=settings, listen=["127.0.0.1:0"])
    with bind(config.listeners[0], config).sock as sock:
        # Linux answers with twice what was asked for: its own bookkeeping is in it.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (60_000, 120_000)

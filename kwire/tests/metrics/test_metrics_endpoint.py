"""The HTTP side of the metrics: the clients that it answers, and those that it does not wait for."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import pytest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from kwire.config.definition import ConfigError
from kwire.config.server import load_config
from kwire.metrics import endpoint, reading
from kwire.node.running import StartError, metrics_listener
from kwire.testing import Broker
from testkit.raw.client import RawClient
from testkit.raw.scrapes import GROUP, groups, parsed, scrape, text_at


@contextmanager
def connected(broker: Broker) -> Iterator[socket.socket]:
    host, _, port = broker.metrics_url.removeprefix("http://").removesuffix("/metrics").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        yield sock


def received(sock: socket.socket) -> bytes:
    """Returns all bytes until the broker closes the connection."""
    found = b""
    try:
        while data := sock.recv(1 << 16):
            found += data
    except ConnectionResetError:
        pass
    return found


def test_a_broker_has_no_metrics_unless_they_are_configured() -> None:
    with Broker() as broker, pytest.raises(AssertionError, match="without metrics"):
        broker.metrics_url  # noqa: B018


@pytest.mark.parametrize("address", ["9404", ":9404", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "a b:1", ""])
def test_an_address_that_is_none_is_refused_with_the_way_to_write_it(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^kwire.metrics.listen is .*host:port, with a port from 0 to 65535$"):
        load_config(settings=[f"kwire.metrics.listen={address}"])


def test_an_address_that_is_taken_is_reported_and_nothing_is_left_open() -> None:
    with Broker(metrics=True) as one:
        address = one.metrics_url.removeprefix("http://").removesuffix("/metrics")
        other = Broker(settings={"kwire.metrics.listen": address})
        with pytest.raises(StartError, match=rf"kwire.metrics.listen cannot be {address}: .*Address already in use"):
            other.start()
        assert scrape(one)


def test_an_unknown_host_is_reported() -> None:
    with pytest.raises(StartError, match=r"kwire.metrics.listen cannot be nowhere.invalid:0: .*"):
        Broker(settings={"kwire.metrics.listen": "nowhere.invalid:0"}).start()


def test_an_address_beyond_loopback_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for address, warned in ("127.0.0.1:0", False), ("0.0.0.0:0", True):
        caplog.clear()
        with metrics_listener(load_config(settings=[f"kwire.metrics.listen={address}"])):
            assert ("anyone who reaches this address can see all metrics" in caplog.text) == warned


def test_an_answer_that_is_cut_off_cannot_be_taken_for_a_whole_one() -> None:
    with Broker(metrics=True) as broker, connected(broker) as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        head, _, body = received(sock).partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")


def test_it_answers_over_ipv6_too() -> None:
    with Broker(settings={"kwire.metrics.listen": "[::1]:0"}) as broker:
        assert broker.metrics_url.startswith("http://[::1]:")
        assert scrape(broker)[groups("classic")] == 0


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"POST /metrics HTTP/1.0\r\n\r\n", b"HTTP/1.0 501 "),
        (b"nonsense\r\n", b"400"),
        (b"\x16\x03\x01\x00\xff\x00\x01\r\n", b"400"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.0\r\n\r\n", b""),  # 414, unless what was not read resets it
        (b"GET /metrics HTTP/1.0\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"HTTP/1.0 431 "),
        (b"GET /?name[]=a&name[]=\xff HTTP/1.0\r\n\r\n", b"HTTP/1.0 200 "),
        (b"", b""),
    ],
)
def test_a_request_that_is_none_is_refused_and_the_next_one_answered(request_: bytes, answer: bytes) -> None:
    with Broker(metrics=True) as broker:
        with connected(broker) as sock:
            with suppress(OSError):
                sock.sendall(request_)
                sock.shutdown(socket.SHUT_WR)
            assert answer in received(sock)[:500]
        assert scrape(broker)


def test_clients_that_send_no_request_are_cut_off_and_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "TIMEOUT_S", 0.2)
    with Broker(metrics=True) as broker, connected(broker) as silent, connected(broker) as slow:
        slow.sendall(b"GET /met")
        assert scrape(broker)
        assert received(silent) == b""
        assert received(slow) == b""


def test_a_client_that_hangs_up_in_the_middle_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(metrics=True) as broker:
        with connected(broker) as sock:
            sock.sendall(b"GET /metrics HTTP/1.0\r\n")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        assert scrape(broker)
    assert [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING] == []


def test_a_stop_does_not_wait_for_a_client() -> None:
    broker = Broker(metrics=True).start()
    with connected(broker) as silent, connected(broker) as waiting, connected(broker):
        scrape_begins = time.monotonic()
        broker.stop()
        assert time.monotonic() - scrape_begins < endpoint.TIMEOUT_S / 2
        assert received(silent) == received(waiting) == b""
    assert not [it for it in threading.enumerate() if it.name == "kwire metrics" and it.is_alive() and not it.daemon]


def test_a_bug_in_a_metric_ends_that_request_and_not_the_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: object) -> NoReturn:
        raise LookupError("a bug")

    with Broker(metrics=True) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(reading, "read", broken)
            with pytest.raises(ConnectionResetError):
                urllib.request.urlopen(broker.metrics_url)
        assert scrape(broker)
    assert "metrics could not be read" in caplog.text


def test_metrics_are_read_once_for_many_requests_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers to all of them are whole, while clients get theirs."""
    counts: Counter[str] = Counter()
    read = reading.read

    async def counted(broker: object) -> object:
        counts["read"] += 1
        return await read(broker)  # type: ignore[arg-type]

    def request_repeatedly() -> None:
        for _ in range(25):
            values = parsed(text_at(broker.metrics_url))
            counts["answers"] += f"{GROUP}offset_commit_total" in values

    monkeypatch.setattr(reading, "read", counted)
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])])
    with Broker(metrics=True) as broker, RawClient(broker.address) as client:
        client.call(CreateTopicsRequest([CreatableTopic("t", 1, -1)], 1000), 7)
        began = time.monotonic()
        threads = [threading.Thread(target=request_repeatedly) for _ in range(8)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert client.call(request, 7).topics[0].partitions[0].error_code == 0
            counts["requests"] += 1
        passed_s = time.monotonic() - began
    assert counts["answers"] == 200
    assert counts["requests"] > 50
    assert counts["read"] <= passed_s / endpoint.FRESH_S + 1

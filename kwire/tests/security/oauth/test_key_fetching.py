"""Fetching keys: from a file, and from servers that answer well, badly, too much, or not at all."""

from __future__ import annotations

import os
import ssl
import threading
from pathlib import Path

import pytest
import trustme

from kwire.security.oauth import fetching
from kwire.security.oauth.fetching import KeyFetch, KeysUnavailable
from kwire.security.oauth.keys import MAX_SET_BYTES, KeySet
from kwire.security.tls.settings import TlsSettings
from testkit.security.oauth.issuer import jwk, jwks
from testkit.security.oauth.key_server import key_server, response

KEYS = jwks(jwk("k1"))


def kids(keys: KeySet | None) -> list[str | None]:
    assert keys is not None
    return [key.kid for key in keys.keys]


def trouble(fetch: KeyFetch) -> str:
    with pytest.raises(KeysUnavailable) as caught:
        fetch.fetch()
    assert fetch.url in str(caught.value)
    return str(caught.value)


# -- files


def test_a_file_is_read_again_only_when_it_is_another(tmp_path: Path) -> None:
    file = tmp_path / "the keys.json"
    file.write_bytes(KEYS)
    fetch = KeyFetch(file.as_uri())
    assert fetch.is_file
    assert kids(fetch.fetch()) == ["k1"]
    assert fetch.fetch() is None
    file.write_bytes(jwks(jwk("k1"), jwk("k2")))
    assert kids(fetch.fetch()) == ["k1", "k2"]


def test_a_file_that_is_no_use_is_named(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    fetch = KeyFetch(file.as_uri())
    assert "No such file or directory" in trouble(fetch)
    file.write_bytes(b"no keys")
    assert "not JSON" in trouble(fetch)
    assert "not JSON" in trouble(fetch), "it is not taken for a file that was read"
    file.write_bytes(b" " * (MAX_SET_BYTES + 1))
    assert "more than 1048576 bytes" in trouble(fetch)
    assert "Is a directory" in trouble(KeyFetch(tmp_path.as_uri()))
    assert "more than 1048576 bytes" in trouble(KeyFetch("file:///dev/zero"))


def test_a_pipe_in_place_of_the_file_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.json")
    assert "not JSON" in trouble(KeyFetch((tmp_path / "keys.json").as_uri()))


# -- servers


def test_keys_come_over_http() -> None:
    with key_server(response(KEYS)) as server:
        assert kids(KeyFetch(server.url()).fetch()) == ["k1"]
        assert not KeyFetch(server.url()).is_file
        first = server.requests[0].decode().splitlines()
    assert first[0] == "GET /keys?format=jwks HTTP/1.1"
    assert f"Host: localhost:{server.port}" in first


def test_an_answer_in_chunks_or_without_a_length_is_read() -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (KEYS[:7], KEYS[7:]))
    with key_server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n") as server:
        assert kids(KeyFetch(server.url()).fetch()) == ["k1"]
    with key_server(b"HTTP/1.0 200 OK\r\n\r\n" + KEYS) as server:
        assert kids(KeyFetch(server.url(path="")).fetch()) == ["k1"]
        assert server.requests[0].startswith(b"GET / HTTP/1.1")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed connection without response"),
        (b"garbage\r\n\r\n", "garbage"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", "not a JSON Web Key Set"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000 + b"\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", "cannot be read"),
        (response(b"no", "404 Not Found"), "the status 404, not 200"),
        (response(b"", "302 Found", "Location: http://localhost/keys\r\n"), "the status 302, not 200"),
        (response(b"<html>"), "not JSON"),
        (response(b"[" * 100_000), "too many levels"),
        (response(b" " * (MAX_SET_BYTES + 1)), "more than 1048576 bytes"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b" " * (2 * MAX_SET_BYTES), "more than 1048576 bytes"),
    ],
)
def test_an_answer_that_is_no_use_is_described(answer: bytes, reason: str) -> None:
    with key_server(answer) as server:
        assert reason in trouble(KeyFetch(server.url()))


def test_a_server_that_is_not_there_is_named() -> None:
    with key_server(b"") as server:
        url = server.url()
    assert "Connection refused" in trouble(KeyFetch(url))
    assert "cannot be read" in trouble(KeyFetch(f"http://{'x' * 70}.invalid/keys"))


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
def test_a_server_that_falls_silent_is_given_up(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FETCH_S", 0.2)
    with key_server(answer, closes=False) as server:
        assert "no whole answer within" in trouble(KeyFetch(server.url()))


def test_a_server_that_never_comes_to_the_point_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FETCH_S", 0.2)
    with key_server(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000_000) as server:
        assert "no whole answer within" in trouble(KeyFetch(server.url()))


def test_a_fetch_can_be_cut_off_by_another_thread() -> None:
    with key_server(b"", closes=False) as server:
        fetch = KeyFetch(server.url())
        failures: list[str] = []
        thread = threading.Thread(target=lambda: failures.append(trouble(fetch)))
        thread.start()
        assert server.request_received.acquire(timeout=10)
        fetch.cut_off()
        thread.join(10)
        assert not thread.is_alive()
        assert len(failures) == 1
        assert "the broker stops" in trouble(fetch)


def test_over_https_the_servers_certificate_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    trusted = TlsSettings(truststore_type="PEM", truststore_certificates=authority.cert_pem.bytes().decode())
    with key_server(response(KEYS), context=context) as server:
        assert kids(KeyFetch(server.url("https"), trusted).fetch()) == ["k1"]
        assert "certificate verify failed" in trouble(KeyFetch(server.url("https")))
        other = server.url("https").replace("localhost", "127.0.0.1")
        assert "certificate verify failed" in trouble(KeyFetch(other, trusted))
    monkeypatch.setattr(fetching, "FETCH_S", 0.2)
    with key_server(response(KEYS)) as server:  # It does not speak TLS, and waits for the rest of a request.
        assert "cannot be read" in trouble(KeyFetch(server.url("https")))

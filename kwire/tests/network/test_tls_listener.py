"""Changes of a listener's certificate: by other settings, and by files that are others than before."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from pathlib import Path

import attrs
import pytest

from kwire.network.tls_listener import CHECK_INTERVAL_MS, TlsListener
from kwire.runtime.tls_transport import TlsTransport
from kwire.security.tls.contexts import client_context
from kwire.security.tls.settings import TlsError, TlsSettings
from testkit.security.tls.certificates import (
    HOST,
    Issued,
    client_settings,
    issued,
    server_settings,
    settings_of,
    trusted,
)

FIRST, SECOND = (issued(HOST, name="server", number=number) for number in (1, 2))


@attrs.define(eq=False)
class Time:
    now_ms: int = 0


@attrs.define(eq=False)
class Scene:
    listener: TlsListener
    time: Time

    def certificate(self) -> bytes:
        """Returns the certificate that a new connection gets, in DER."""
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        server = self.listener.new_transport(near)
        context = client_context(client_settings())
        client = context.wrap_socket(far, server_hostname=HOST, do_handshake_on_connect=False)
        shaken = False
        while not shaken:
            with suppress(BlockingIOError, OSError):
                client.do_handshake()
            assert server.handshake is not None
            shaken = not server.handshake()
        shown = client.getpeercert(binary_form=True)
        assert shown is not None
        server.close()
        client.close()
        return shown


def scene_of(settings: TlsSettings) -> Scene:
    time = Time()
    listener = TlsListener("listener L", settings, now_ms=lambda: 0, monotonic_ms=lambda: time.now_ms)
    return Scene(listener, time)


def in_file(path: Path, certificate: Issued) -> TlsSettings:
    path.write_text(certificate.pem)
    return TlsSettings(keystore_type="PEM", keystore_location=str(path))


def test_a_file_that_was_replaced_is_read_at_the_next_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "server.pem"
    scene = scene_of(in_file(path, FIRST))
    first = scene.certificate()
    scene.time.now_ms += CHECK_INTERVAL_MS
    assert scene.certificate() == first
    assert caplog.messages == []
    (tmp_path / "new").write_text(SECOND.pem)
    (tmp_path / "new").rename(path)
    scene.time.now_ms += CHECK_INTERVAL_MS
    assert scene.certificate() != first
    (line,) = caplog.messages
    assert line == "listener L has read its keystore and truststore again, because a file has changed"


def test_files_are_looked_at_once_a_second_at_most(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    scene = scene_of(in_file(path, FIRST))
    first = scene.certificate()
    path.write_text(SECOND.pem)
    scene.time.now_ms += CHECK_INTERVAL_MS - 1
    assert scene.certificate() == first
    scene.time.now_ms += 1
    assert scene.certificate() != first


@pytest.mark.parametrize("content", ["garbage", None, FIRST.key, FIRST.pem[:700]])
def test_a_file_that_is_broken_changes_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    path = tmp_path / "server.pem"
    scene = scene_of(in_file(path, FIRST))
    first = scene.certificate()
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    for _ in range(3):
        scene.time.now_ms += CHECK_INTERVAL_MS
        assert scene.certificate() == first
    (line,) = caplog.messages
    assert line.startswith("listener L keeps its certificate, because a file has changed and cannot be used: ")
    assert str(path) in line
    path.write_text(SECOND.pem)
    scene.time.now_ms += CHECK_INTERVAL_MS
    assert scene.certificate() != first


def test_a_connection_outlives_the_certificate_that_it_was_made_with(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    scene = scene_of(in_file(path, FIRST))
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    server = scene.listener.new_transport(near)
    client = TlsTransport(far, client_context(client_settings()), server_side=False, server_hostname=HOST)
    path.write_text(SECOND.pem)
    scene.time.now_ms += CHECK_INTERVAL_MS
    for _ in range(3):  # in the middle of a handshake, and after it
        scene.certificate()
        for transport in (client, server):
            assert transport.handshake is not None
            transport.handshake()
    client.send(b"still there", 0)
    room = memoryview(bytearray(100))
    assert server.recv_into(room) == 11
    client.close()
    server.close()


def test_other_settings_are_used_or_nothing_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    scene = scene_of(settings_of(FIRST))
    first = scene.certificate()
    scene.listener.change(settings_of(FIRST))
    assert caplog.messages == []
    scene.listener.change(settings_of(SECOND))
    second = scene.certificate()
    assert second != first
    scene.listener.change(attrs.evolve(settings_of(FIRST), keystore_key="none"))
    assert scene.certificate() == second
    assert caplog.messages[0] == "listener L has new TLS settings: new connections use them"
    assert caplog.messages[1].startswith("listener L keeps its TLS settings, because the new ones cannot be used: ")


def test_a_new_certificate_may_differ_in_its_key() -> None:
    scene_of(settings_of(FIRST)).listener.check(settings_of(SECOND))


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (settings_of(issued(HOST, name="other")), "the new certificate is for CN=other,OU=tests,O=kwire, and the"),
        (settings_of(issued("localhost", name="server")), "the new certificate is not for 127.0.0.1, as the present"),
        (server_settings(keystore_key="nothing"), "has no private keys"),
        (server_settings(cipher_suites=("x",)), "ssl.cipher.suites has x"),
        (server_settings(principal_mapping_rules="x"), "ssl.principal.mapping.rules"),
        (settings_of(None), "needs a certificate"),
    ],
)
def test_settings_that_a_running_listener_cannot_go_over_to_are_refused(new: TlsSettings, reason: str) -> None:
    scene = scene_of(server_settings())
    before = scene.certificate()
    with pytest.raises(TlsError, match=reason):
        scene.listener.check(new)
    assert scene.certificate() == before


def test_other_names_are_accepted_where_that_is_allowed() -> None:
    listener = scene_of(server_settings()).listener
    listener.check(attrs.evolve(settings_of(issued(HOST, name="other")), allow_dn_changes=True))
    listener.check(attrs.evolve(settings_of(issued("localhost", name="server")), allow_san_changes=True))
    listener.check(settings_of(issued(HOST, "localhost", name="server")))  # more names are no loss


def test_a_truststore_cannot_be_added_to_a_running_listener() -> None:
    without = attrs.evolve(server_settings(), truststore_certificates=None)
    listener = scene_of(without).listener
    with pytest.raises(TlsError, match="a truststore cannot be added"):
        listener.check(server_settings(truststore_certificates=trusted("two")))


def for_brokers(settings: TlsSettings) -> TlsListener:
    return TlsListener("listener L", settings, now_ms=lambda: 0, monotonic_ms=lambda: 0, is_for_brokers=True)


@pytest.mark.parametrize("client_auth", ["none", "required"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_brokers_must_be_able_to_connect_to_each_other_before_and_after(client_auth: str, version: str) -> None:
    changed = {"client_auth": client_auth, "enabled_protocols": (version,)}
    listener = for_brokers(server_settings(**changed))
    listener.check(attrs.evolve(settings_of(SECOND), **changed))  # type: ignore[arg-type]
    listener.check(server_settings(**changed, truststore_certificates=trusted("one") + trusted("two")))
    with pytest.raises(TlsError, match="brokers with these settings could not connect to each other"):
        listener.check(server_settings(**changed, truststore_certificates=trusted("two")))
    with pytest.raises(TlsError, match="brokers with these settings could not connect to each other"):
        for_brokers(server_settings(**changed, truststore_certificates=trusted("two")))
    by_two = issued(HOST, name="server", by="two")
    with pytest.raises(TlsError, match="could not connect to each other"):
        listener.check(
            server_settings(
                **changed,
                keystore_key=by_two.key,
                keystore_certificate_chain=by_two.chain,
                truststore_certificates=trusted("one") + trusted("two"),
            )
        )


def test_a_listener_that_cannot_begin_names_the_reason(tmp_path: Path) -> None:
    settings = TlsSettings(keystore_type="PEM", keystore_location=str(tmp_path / "none"))
    with pytest.raises(TlsError, match=os.strerror(2)):
        scene_of(settings)


def test_an_expired_certificate_is_warned_of_and_used(caplog: pytest.LogCaptureFixture) -> None:
    far_in_the_future_ms = 1 << 48
    TlsListener("listener L", server_settings(), now_ms=lambda: far_in_the_future_ms, monotonic_ms=lambda: 0)
    (line,) = caplog.messages
    assert line.startswith("listener L: the certificate of CN=server,OU=tests,O=kwire expired on ")

"""TLS of a listener changes while it runs: effects, refusals, and connections that are not affected."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from kwire.config.definition import Scope
from kwire.config.tables.tls import TLS_CONFIGS
from kwire.node.running import StartError
from kwire.security.tls.contexts import client_context
from kwire.testing import Broker
from testkit.scenes.server_in_trio import ServerInTrio, TrioClient, with_server
from testkit.security.tls.certificates import HOST, client_settings, issued, trusted
from testkit.security.tls.keystores import PASSWORD, encrypted, pkcs12_of
from testkit.security.tls_scene import UNHURRIED, connect

BROKER = 4
OF_LISTENER = "listener.name.plaintext."
"""The tests' server has one listener, and its name is PLAINTEXT, whatever it speaks."""

FIRST, SECOND = (issued(HOST, name="server", number=number) for number in (1, 2))
IN_PLACE = {
    "listener.security.protocol.map": "PLAINTEXT:SSL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": FIRST.key,
    "ssl.keystore.certificate.chain": FIRST.chain,
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": trusted("one"),
    "ssl.client.auth": "requested",
}


def as_settings(properties: Mapping[str, str]) -> list[str]:
    return [*UNHURRIED, *(f"{name}={value}" for name, value in properties.items())]


@attrs.frozen
class Seen:
    """A listener as a client sees it."""

    certificate: bytes | None
    version: str
    suite: str
    lets_in: tuple[bool, ...]
    """Clients without a certificate, with one of the authority "one", and of "two"."""


async def look(kwire: ServerInTrio) -> Seen:
    seen: list[ssl.SSLObject] = []
    lets_in = []
    for client in (client_settings(), client_settings("alice"), client_settings("alice", by="two")):
        # The authority that issues a client's certificate need not be the one that the client trusts.
        context = client_context(attrs.evolve(client, truststore_certificates=trusted("one")))
        plain = await kwire.connect()
        stream = trio.SSLStream(plain.stream, context, server_hostname=HOST, https_compatible=True)
        try:
            await stream.do_handshake()
            answer = await TrioClient(stream).call(ApiVersionsRequest("tests", "1"), 4)  # type: ignore[arg-type]
            assert answer.error_code == 0
        except trio.BrokenResourceError:
            lets_in.append(False)
        else:
            lets_in.append(True)
            seen.append(stream._ssl_object)
        await plain.hang_up()
    last = seen[-1]
    cipher = last.cipher()
    assert cipher is not None
    return Seen(
        last.getpeercert(binary_form=True), last.version() or "", cipher[0], (lets_in[0], lets_in[1], lets_in[2])
    )


async def alter(kwire: ServerInTrio, configs: Mapping[str, str], prefix: str = OF_LISTENER) -> tuple[int, str | None]:
    """Requests the change over the listener that it is about. Returns code and message."""
    client = await connect(kwire)
    wanted = AlterConfigsResource(BROKER, "1", [AlterableConfig(prefix + name, 0, it) for name, it in configs.items()])
    (response,) = (await client.call(IncrementalAlterConfigsRequest([wanted]), 1)).responses
    assert (await client.call(ApiVersionsRequest("tests", "1"), 4)).error_code == 0  # this connection stays open
    await client.hang_up()
    return response.error_code, response.error_message


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "first.p12").write_bytes(pkcs12_of(FIRST.chain, FIRST.key))
    (tmp_path / "second.p12").write_bytes(pkcs12_of(SECOND.chain, SECOND.key))
    (tmp_path / "second.pem").write_text(SECOND.pem)
    (tmp_path / "one.p12").write_bytes(pkcs12_of(trusted("one"), None))
    (tmp_path / "two.p12").write_bytes(pkcs12_of(trusted("two"), None))
    (tmp_path / "two.pem").write_text(trusted("two"))
    return tmp_path


def in_files(folder: Path) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:SSL",
        "ssl.keystore.location": str(folder / "first.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(folder / "one.p12"),
        "ssl.truststore.password": PASSWORD,
        "ssl.client.auth": "requested",
    }


ROWS = {
    "ssl.cipher.suites": {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
    "ssl.client.auth": {"ssl.client.auth": "required"},
    "ssl.enabled.protocols": {"ssl.enabled.protocols": "TLSv1.2"},
    "ssl.key.password": {
        "ssl.keystore.key": encrypted(SECOND.key),
        "ssl.key.password": PASSWORD,
        "ssl.keystore.certificate.chain": SECOND.chain,
    },
    "ssl.keystore.certificate.chain": {
        "ssl.keystore.key": SECOND.key,
        "ssl.keystore.certificate.chain": SECOND.chain,
    },
    "ssl.truststore.certificates": {"ssl.truststore.certificates": trusted("two")},
}
ROWS["ssl.keystore.key"] = ROWS["ssl.keystore.certificate.chain"]
ROWS_OF_FILES = {
    "ssl.keystore.location": {"ssl.keystore.location": "second.p12"},
    "ssl.keystore.password": {"ssl.keystore.location": "second.p12", "ssl.keystore.password": PASSWORD},
    "ssl.keystore.type": {"ssl.keystore.location": "second.p12", "ssl.keystore.type": "PKCS12"},
    "ssl.truststore.location": {"ssl.truststore.location": "two.p12"},
    "ssl.truststore.password": {"ssl.truststore.location": "two.p12", "ssl.truststore.password": PASSWORD},
    "ssl.truststore.type": {"ssl.truststore.location": "two.p12", "ssl.truststore.type": "PKCS12"},
}
FOR_CLIENTS = {"ssl.endpoint.identification.algorithm"}
"""Brokers read it when they connect to others."""


def test_every_configuration_that_may_change_has_a_row() -> None:
    changing = {name for name, it in TLS_CONFIGS.items() if it.scope is not Scope.READ_ONLY and it.has_effect}
    assert ROWS.keys() | ROWS_OF_FILES.keys() | FOR_CLIENTS == changing


@pytest.mark.parametrize("name", [*ROWS, *ROWS_OF_FILES])
def test_a_configuration_acts_on_new_connections_when_it_is_changed(name: str, files: Path) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        old = await connect(kwire)
        before = await look(kwire)
        assert before.lets_in == (True, True, False)
        if name in ROWS:
            changed = ROWS[name]
        else:
            changed = {it: str(files / to) if "location" in it else to for it, to in ROWS_OF_FILES[name].items()}
        assert await alter(kwire, changed) == (0, None)
        assert await look(kwire) != before
        assert (await old.call(ApiVersionsRequest("tests", "1"), 4)).error_code == 0

    with_server(scenario, settings=as_settings(IN_PLACE if name in ROWS else in_files(files)))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ssl.keystore.key": SECOND.key}, "does not belong to its first certificate"),
        ({"ssl.keystore.type": "PKCS12"}, "ssl.keystore.type is PKCS12: set it to PEM"),
        ({"ssl.cipher.suites": "x"}, "ssl.cipher.suites has x, which OpenSSL does not have"),
        ({"ssl.enabled.protocols": "TLSv1"}, "ssl.enabled.protocols has TLSv1"),
        (
            {
                "ssl.keystore.key": issued(HOST, name="o").key,
                "ssl.keystore.certificate.chain": issued(HOST, name="o").chain,
            },
            "set ssl.allow.dn.changes=true",
        ),
    ],
)
def test_a_change_that_cannot_be_used_is_refused_and_changes_nothing(changed: dict[str, str], reason: str) -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        before = await look(kwire)
        code, message = await alter(kwire, changed)
        assert code == ErrorCode.INVALID_REQUEST
        assert message is not None
        assert message.startswith("Validation of the listeners' configurations failed: listener PLAINTEXT: ")
        assert reason in message
        assert "PRIVATE" not in message
        assert await look(kwire) == before

    with_server(scenario, settings=as_settings(IN_PLACE))


def test_a_change_of_what_only_a_listener_may_have_is_refused_for_the_broker() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        code, message = await alter(kwire, {"ssl.keystore.key": SECOND.key}, prefix="")
        assert code == ErrorCode.INVALID_REQUEST
        assert "only per-listener" in (message or "")

    with_server(scenario, settings=as_settings(IN_PLACE))


def test_keys_and_passwords_are_not_described() -> None:
    async def scenario(kwire: ServerInTrio) -> None:
        assert await alter(kwire, ROWS["ssl.key.password"]) == (0, None)
        client = await connect(kwire)
        wanted = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1")], include_synonyms=True)
        (result,) = (await client.call(wanted, 4)).results
        described = {it.name: it for it in result.configs}
        for name in ROWS["ssl.key.password"]:
            for it in (described[name], described[OF_LISTENER + name]):
                assert it.is_sensitive
                assert it.value is None
                assert all(synonym.value is None for synonym in it.synonyms)

    with_server(scenario, settings=as_settings(IN_PLACE))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ssl.keystore.key": "x"}, "listener PLAINTEXT: ssl.keystore.key has no private keys in PEM"),
        ({"ssl.client.auth": "required", "ssl.principal.mapping.rules": "x"}, "ssl.principal.mapping.rules"),
    ],
)
def test_a_broker_whose_listener_cannot_have_tls_does_not_begin(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(StartError, match=reason):
        Broker(settings={**IN_PLACE, **changed}).start()

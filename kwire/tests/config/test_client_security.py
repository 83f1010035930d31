"""The security of connections to brokers, from the settings of clients and of brokers."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kwire.client.security import PLAIN_TEXT, ClientSecurity
from kwire.config.client_security import client_security, inter_broker_security
from kwire.config.definition import ConfigError
from kwire.config.listeners import Listener
from kwire.security.tls.dev_certificates import DevAuthority

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";'


def security(**settings: str) -> ClientSecurity:
    return client_security({name.replace("_", "."): text for name, text in settings.items()}, lambda: "nonce")


def kinds(made: ClientSecurity) -> tuple[bool, bool]:
    return made.new_context is not None, made.new_exchange is not None


def test_a_client_has_what_its_security_protocol_needs() -> None:
    assert security() == security(security_protocol="PLAINTEXT") == PLAIN_TEXT
    login = {"sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN}
    assert kinds(security(security_protocol="SSL", **login)) == (True, False)
    assert kinds(security(security_protocol="sasl_plaintext", **login)) == (False, True)
    assert kinds(security(security_protocol="SASL_SSL", **login)) == (True, True)


@pytest.mark.parametrize(
    ("mechanism", "jaas", "first"),
    [("PLAIN", PLAIN, b"\0a\0b"), ("SCRAM-SHA-256", SCRAM, b"n,,n=a,r=nonce")],
)
def test_a_client_logs_in_with_its_login_module_in_a_new_exchange_each_time(
    mechanism: str, jaas: str, first: bytes
) -> None:
    made = security(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_jaas_config=jaas)
    assert made.new_exchange is not None
    exchanges = [made.new_exchange() for _ in range(2)]
    assert exchanges[0] is not exchanges[1]
    assert [it.respond(None) for it in exchanges] == [first] * 2
    assert exchanges[0].mechanism == mechanism


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security_protocol": "TLS"}, "security.protocol is 'TLS': choose one of PLAINTEXT, SSL"),
        ({"security_protocol": "SASL_SSL"}, "sasl.mechanism is not set: kwire logs in with PLAIN, SCRAM-SHA-256"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI'"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl.jaas.config is not set"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_jaas_config": SCRAM},
            "sasl.jaas.config cannot be used: the login module of PLAIN is",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN.replace("a", "")},
            "sasl.jaas.config cannot be used",
        ),
        ({"security_protocol": "SSL", "ssl_engine_factory_class": "x.Y"}, "ssl.engine.factory.class"),
    ],
)
def test_settings_that_cannot_be_used_are_rejected(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        security(**settings)
    assert message in str(refused.value)
    assert '"b"' not in str(refused.value)


def of_broker(properties: dict[str, str], protocol: str = "SASL_PLAINTEXT") -> ClientSecurity:
    return inter_broker_security(lambda: properties, Listener("INTERNAL", "", 0, protocol), lambda: "nonce")


def test_a_broker_logs_in_at_others_with_the_module_of_its_own_listener() -> None:
    properties = {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": PLAIN.replace(";", ' user_a="b";'),
    }
    made = of_broker(properties)
    assert made.new_context is None
    assert made.new_exchange is not None
    assert made.new_exchange().respond(None) == b"\0a\0b"
    assert kinds(of_broker(properties, "SASL_SSL")) == (True, True)
    assert kinds(of_broker(properties, "SSL")) == (True, False)


@pytest.mark.parametrize(
    ("mechanism", "jaas", "message"),
    [
        ("GSSAPI", None, "sasl.mechanism.inter.broker.protocol is 'GSSAPI', which is not among"),
        ("SCRAM-SHA-256", None, "listener.name.internal.scram-sha-256.sasl.jaas.config is not set: this broker needs"),
        ("SCRAM-SHA-256", SCRAM.replace('username="a" ', ""), "to log in at others: the login module has no username"),
    ],
)
def test_a_broker_that_cannot_log_in_at_others_does_not_start(mechanism: str, jaas: str | None, message: str) -> None:
    properties = {"sasl.mechanism.inter.broker.protocol": mechanism, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    if jaas is not None:
        properties["listener.name.internal.scram-sha-256.sasl.jaas.config"] = jaas
    with pytest.raises(ConfigError, match=message):
        of_broker(properties)


def test_a_truststore_that_changes_is_in_force_for_the_next_connection(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    properties = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    made = of_broker(properties, "SSL")
    assert made.new_context is not None
    seen = set()
    for authority in (DevAuthority.new(), DevAuthority.new()):
        path.write_bytes(authority.certificate)
        context = made.new_context()
        assert isinstance(context, ssl.SSLContext)
        seen.add(str(context.get_ca_certs()))
    assert len(seen) == 2


def test_a_login_at_other_brokers_that_changes_is_in_force_for_the_next_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    properties = {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": PLAIN.replace(";", ' user_a="b";'),
        "listener.name.internal.scram-sha-256.sasl.jaas.config": SCRAM,
    }
    made = of_broker(properties)
    assert made.new_exchange is not None
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        properties["sasl.mechanism.inter.broker.protocol"] = mechanism
        assert made.new_exchange().mechanism == mechanism
    properties["sasl.mechanism.inter.broker.protocol"] = "GSSAPI"
    assert made.new_exchange().mechanism == "PLAIN"
    assert "stays as it was" in caplog.text


def test_a_token_is_read_from_its_file_for_each_login(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    url = f"file://{tmp_path}/a%20token"
    client = security(
        security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=url
    )
    broker = of_broker(
        {
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
            "listener.name.internal.oauthbearer.sasl.oauthbearer.token.endpoint.url": url,
        }
    )
    for made in (client, broker):
        assert made.new_exchange is not None
        for token in ("one.two.three", "four.five.six"):
            path.write_text(f"{token}\n")
            assert made.new_exchange().respond(None) == f"n,,\1auth=Bearer {token}\1\1".encode()
        for content in ("", " \n", "x" * 70_000, "ü"):
            path.write_text(content)
            with pytest.raises(ValueError, match="has no token"):
                made.new_exchange().respond(None)
        path.unlink()
        with pytest.raises(ValueError, match="cannot be read: No such file"):
            made.new_exchange().respond(None)


@pytest.mark.parametrize("url", ["", "https://localhost/token", "/token", "file:relative", "file://host/path"])
def test_a_token_comes_from_a_file_only(url: str) -> None:
    with pytest.raises(ConfigError, match="write file:///path"):
        security(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=url)

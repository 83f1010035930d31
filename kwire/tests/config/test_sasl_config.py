"""The configuration of a listener with SASL, and settings that are refused before any client connects."""

from __future__ import annotations

import pytest

from kwire.config.definition import ConfigError
from kwire.config.sasl import MechanismSettings
from kwire.config.server import load_config
from kwire.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, LoginModule

PLAIN = f'{PLAIN_MODULE} required user_alice="hers";'
LISTENERS = "listeners=INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:9093"
PROTOCOLS = "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT"


def settings_of(*settings: str) -> tuple[MechanismSettings, ...]:
    return load_config(settings=[LISTENERS, PROTOCOLS, *settings]).sasl["OUTSIDE"]


def test_only_listeners_with_sasl_have_mechanisms() -> None:
    config = load_config(settings=[LISTENERS, PROTOCOLS, "sasl.enabled.mechanisms=SCRAM-SHA-512"])
    assert config.sasl == {"OUTSIDE": (MechanismSettings("SCRAM-SHA-512", None, 0),)}
    assert load_config().sasl == {}


def test_mechanisms_of_a_listener_are_before_those_of_the_broker() -> None:
    mechanisms = settings_of(
        "sasl.enabled.mechanisms=PLAIN", "listener.name.outside.sasl.enabled.mechanisms=SCRAM-SHA-512, SCRAM-SHA-256"
    )
    assert [it.name for it in mechanisms] == ["SCRAM-SHA-512", "SCRAM-SHA-256"]


def test_users_of_plain_are_in_the_line_of_listener_and_mechanism() -> None:
    (plain,) = settings_of(
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.outside.plain.sasl.jaas.config={PLAIN}",
        "sasl.jaas.config=this is never read",
    )
    assert plain.module == LoginModule(PLAIN_MODULE, "required", {"user_alice": "hers"})


@pytest.mark.parametrize("prefix", ["", "listener.name.outside."])
def test_a_line_without_the_mechanism_is_for_the_one_whose_module_it_names(prefix: str) -> None:
    plain, scram = settings_of("sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", f"{prefix}sasl.jaas.config={PLAIN}")
    assert plain.module == LoginModule(PLAIN_MODULE, "required", {"user_alice": "hers"})
    assert scram.module is None


def test_a_mechanism_without_a_listener_has_no_effect_as_in_kafka() -> None:
    with pytest.raises(ConfigError, match="has no users for PLAIN"):
        settings_of("sasl.enabled.mechanisms=PLAIN", f"plain.sasl.jaas.config={PLAIN}")


def test_an_authentication_may_last_a_different_time_with_each_mechanism() -> None:
    mechanisms = settings_of(
        "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
        "connections.max.reauth.ms=1000",
        "listener.name.outside.scram-sha-512.connections.max.reauth.ms=2000",
    )
    assert [it.max_reauth_ms for it in mechanisms] == [1000, 2000]
    (negative,) = settings_of("sasl.enabled.mechanisms=SCRAM-SHA-256", "connections.max.reauth.ms=-1")
    assert negative.max_reauth_ms == 0


OWN_CLASS = "org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler"


def test_kafkas_own_class_may_be_named() -> None:
    settings_of(
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        f"listener.name.outside.scram-sha-256.sasl.server.callback.handler.class={OWN_CLASS}",
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ((), "sasl.enabled.mechanisms is not set. Kafka's default is GSSAPI .* PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (("sasl.enabled.mechanisms=",), "no mechanism is enabled: set sasl.enabled.mechanisms"),
        (("sasl.enabled.mechanisms=GSSAPI,PLAIN",), r"has GSSAPI \(Kerberos\) in sasl.enabled.mechanisms"),
        (("sasl.enabled.mechanisms=plain",), "has 'plain' in sasl.enabled.mechanisms"),
        (("sasl.enabled.mechanisms=PLAIN",), "set listener.name.outside.plain.sasl.jaas.config=org.*user_alice="),
        (
            ("sasl.enabled.mechanisms=PLAIN", "listener.name.outside.plain.sasl.jaas.config=x"),
            "listener.name.outside.plain.sasl.jaas.config cannot be read: after the login module x there",
        ),
        (
            ("sasl.enabled.mechanisms=PLAIN", f"listener.name.outside.plain.sasl.jaas.config={SCRAM_MODULE} required;"),
            "has the login module org.*ScramLoginModule: the one of PLAIN is org.*PlainLoginModule",
        ),
        (
            ("sasl.enabled.mechanisms=PLAIN", f"listener.name.outside.plain.sasl.jaas.config={PLAIN_MODULE} required;"),
            "plain.sasl.jaas.config has no users: it has to be such as",
        ),
        (
            (
                "sasl.enabled.mechanisms=SCRAM-SHA-256",
                "listener.name.outside.scram-sha-256.sasl.server.callback.handler.class=com.example.Ldap",
            ),
            "class is 'com.example.Ldap': kwire runs no Java, so it can only be org.*ScramServerCallbackHandler",
        ),
        (
            ("sasl.enabled.mechanisms=SCRAM-SHA-256", "sasl.server.callback.handler.class=com.example.Ldap"),
            "^sasl.server.callback.handler.class is 'com.example.Ldap'",
        ),
        (
            (
                "sasl.enabled.mechanisms=SCRAM-SHA-256",
                "listener.name.outside.scram-sha-256.sasl.login.class=com.example.Login",
            ),
            "sasl.login.class is 'com.example.Login': kwire runs no Java",
        ),
        (
            (
                "sasl.enabled.mechanisms=SCRAM-SHA-256",
                "listener.name.outside.scram-sha-256.connections.max.reauth.ms=soon",
            ),
            "Invalid value soon for configuration connections.max.reauth.ms",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(settings: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        settings_of(*settings)


def test_failures_are_answered_before_their_connection_counts_as_idle() -> None:
    settings = ["connections.max.idle.ms=5000", "connection.failed.authentication.delay.ms=5000"]
    with pytest.raises(ConfigError, match=r"delay.ms must be less than connections.max.idle.ms, which is 5000"):
        load_config(settings=settings)
    load_config(settings=[*settings, "connections.max.idle.ms=-1"])


def test_a_line_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as error:
        settings_of(
            "sasl.enabled.mechanisms=PLAIN",
            f'listener.name.outside.plain.sasl.jaas.config={PLAIN_MODULE} required user_alice="hidden"',
        )
    assert "hidden" not in str(error.value)


def test_passwords_are_in_no_repr() -> None:
    (plain,) = settings_of("sasl.enabled.mechanisms=PLAIN", f"sasl.jaas.config={PLAIN}")
    assert "hers" not in repr(plain)


def test_configurations_of_sasl_have_effect_with_their_prefixes(caplog: pytest.LogCaptureFixture) -> None:
    settings_of(
        "listener.name.outside.sasl.enabled.mechanisms=PLAIN",
        f"listener.name.outside.plain.sasl.jaas.config={PLAIN}",
        "listener.name.outside.plain.connections.max.reauth.ms=1000",
        "connection.failed.authentication.delay.ms=10",
    )
    assert caplog.messages == []


def test_other_configurations_of_a_listener_have_none(caplog: pytest.LogCaptureFixture) -> None:
    load_config(settings=["listener.name.plaintext.max.connections=3", "listener.name.x.plain.spam=1"])
    assert caplog.messages == [
        "these configurations have no effect in kwire: listener.name.plaintext.max.connections",
        "unknown configurations: 'listener.name.x.plain.spam'",
    ]


def test_a_configuration_has_no_secrets_in_its_repr() -> None:
    config = load_config(settings=["kwire.sasl.secret=hidden", f"sasl.jaas.config={PLAIN_MODULE} required a=hidden;"])
    assert config.kwire_sasl_secret == "hidden"
    assert "hidden" not in repr(config)

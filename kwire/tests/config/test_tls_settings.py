"""The TLS settings of a listener: its own, and those of the broker."""

from __future__ import annotations

import pytest

from kwire.config.definition import ConfigError
from kwire.config.listeners import Listener
from kwire.config.reading import ConfigReader
from kwire.config.server import load_config, warnings_about
from kwire.config.tls import tls_settings, tls_settings_of_listener
from kwire.security.tls.settings import TlsSettings

OUTSIDE = Listener("OUTSIDE", "", 9093, "SSL")
WITH_SASL = Listener("OUTSIDE", "", 9093, "SASL_SSL")
OF_OUTSIDE = "listener.name.outside."


def test_without_settings_there_are_kafkas_defaults() -> None:
    assert tls_settings(ConfigReader({})) == TlsSettings()


def test_a_listeners_own_settings_win() -> None:
    properties = {
        "ssl.keystore.location": "/broker",
        "ssl.keystore.password": "b",
        "ssl.client.auth": "required",
        f"{OF_OUTSIDE}ssl.keystore.location": "/outside",
        f"{OF_OUTSIDE}ssl.client.auth": "requested",
        f"{OF_OUTSIDE}ssl.principal.mapping.rules": "RULE:CN=(.*),.*/$1/, DEFAULT",
        "listener.name.inside.ssl.keystore.location": "/inside",
    }
    settings = tls_settings_of_listener(properties, OUTSIDE)
    assert (settings.keystore_location, settings.keystore_password) == ("/outside", "b")
    assert settings.client_auth == "requested"
    assert settings.principal_mapping_rules == "RULE:CN=(.*),.*/$1/, DEFAULT"


def test_with_sasl_only_the_listeners_own_setting_requests_certificates() -> None:
    assert tls_settings_of_listener({"ssl.client.auth": "required"}, WITH_SASL).client_auth == "none"
    own = {f"{OF_OUTSIDE}ssl.client.auth": "required"}
    assert tls_settings_of_listener(own, WITH_SASL).client_auth == "required"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({f"{OF_OUTSIDE}ssl.client.auth": "maybe"}, "listener OUTSIDE: Invalid value maybe for configuration"),
        ({"ssl.engine.factory.class": "org.example.Engines"}, "kwire loads no classes of Java: remove it"),
    ],
)
def test_settings_that_are_invalid_by_themselves_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tls_settings_of_listener(properties, OUTSIDE)


def test_what_has_an_effect_for_a_listener_is_not_warned_of() -> None:
    assert warnings_about([f"{OF_OUTSIDE}ssl.keystore.location", "ssl.keystore.location"]) == []
    (warning,) = warnings_about([f"{OF_OUTSIDE}ssl.provider", "ssl.provider", f"{OF_OUTSIDE}num.network.threads"])
    assert warning == (
        "these configurations have no effect in kwire: listener.name.outside.num.network.threads, "
        "listener.name.outside.ssl.provider, ssl.provider"
    )


def test_listeners_of_every_security_protocol_can_be_configured() -> None:
    listeners = "listeners=SSL://:1,SASL_SSL://:2,SASL_PLAINTEXT://:3,PLAINTEXT://:4"
    config = load_config(f"{listeners}\nsasl.enabled.mechanisms=SCRAM-SHA-256")
    assert [(it.has_tls, it.has_sasl) for it in config.listeners] == [
        (True, False),
        (True, True),
        (False, True),
        (False, False),
    ]


def test_passwords_are_not_in_the_text_of_a_configuration() -> None:
    config = load_config("ssl.keystore.password=s3cret")
    assert "s3cret" not in repr(config)
    assert "s3cret" not in repr(ConfigReader(config.properties))

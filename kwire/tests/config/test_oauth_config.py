"""The settings of OAUTHBEARER on a listener."""

from __future__ import annotations

import attrs
import pytest

from kwire.config.definition import ConfigError
from kwire.config.oauth import SIGNED_HANDLER, UNSECURED_HANDLER, SignedTokenConfig
from kwire.config.server import ServerConfig
from kwire.security.oauth.signed import TokenRules
from kwire.security.oauth.unsecured import UnsecuredRules
from kwire.security.sasl.jaas import OAUTHBEARER_MODULE
from kwire.security.tls.settings import TlsSettings

URL = "sasl.oauthbearer.jwks.endpoint.url"
HANDLER = "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class"
KEYS = {URL: "https://issuer/keys"}


JAAS = "listener.name.sasl.oauthbearer.sasl.jaas.config"
BROKER = {
    "listeners": "SASL://localhost:9092",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}


def read(properties: dict[str, str]) -> SignedTokenConfig | UnsecuredRules | None:
    (settings,) = ServerConfig.from_properties(BROKER | properties).sasl["SASL"]
    assert settings.name == "OAUTHBEARER"
    return settings.tokens


def test_by_default_tokens_must_be_signed() -> None:
    assert read(KEYS) == SignedTokenConfig("https://issuer/keys", 3_600_000, 100, 10_000, TokenRules())
    assert read(KEYS | {HANDLER: SIGNED_HANDLER}) == read(KEYS)
    with pytest.raises(ConfigError, match=r"listener SASL://localhost:9092 needs sasl.oauthbearer.jwks.endpoint.url"):
        read({})


def test_unsigned_tokens_are_accepted_only_if_their_handler_is_named() -> None:
    assert read({HANDLER: UNSECURED_HANDLER}) == UnsecuredRules()
    rules = read(
        KEYS
        | {HANDLER: UNSECURED_HANDLER}
        | {JAAS: f'{OAUTHBEARER_MODULE} required unsecuredValidatorPrincipalClaimName="name";'}
    )
    assert rules == UnsecuredRules("name")
    # As in Kafka, the name without the mechanism is for other mechanisms.
    assert isinstance(read(KEYS | {"sasl.server.callback.handler.class": UNSECURED_HANDLER}), SignedTokenConfig)
    with pytest.raises(ConfigError, match="unsecuredValidatorAllowableClockSkewMs is not a number"):
        read(
            {
                HANDLER: UNSECURED_HANDLER,
                JAAS: f'{OAUTHBEARER_MODULE} required unsecuredValidatorAllowableClockSkewMs="x";',
            }
        )


def test_settings_are_those_of_the_mechanism_the_listener_or_the_broker() -> None:
    config = read(
        {
            URL: "https://issuer/broker",
            f"listener.name.sasl.{URL}": "https://issuer/listener",
            f"listener.name.other.{URL}": "https://issuer/other",
            "listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.issuer": "https://issuer",
            "sasl.oauthbearer.expected.issuer": "https://other",
            "sasl.oauthbearer.expected.audience": "kafka, kwire",
            "sasl.oauthbearer.clock.skew.seconds": "5",
            "sasl.oauthbearer.scope.claim.name": "scp",
            "sasl.oauthbearer.sub.claim.name": "name",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "60000",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "10",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "20",
        }
    )
    rules = TokenRules(5, ("kafka", "kwire"), "https://issuer", "scp", "name")
    assert config == SignedTokenConfig("https://issuer/listener", 60_000, 10, 20, rules)


def test_the_login_module_contains_the_tls_settings_of_the_key_server() -> None:
    options = 'ssl.truststore.type="PEM" ssl.truststore.location="/etc/ca.pem" other="x"'
    config = read(KEYS | {JAAS: f"{OAUTHBEARER_MODULE} required {options};"})
    assert isinstance(config, SignedTokenConfig)
    assert config.tls == TlsSettings(truststore_type="PEM", truststore_location="/etc/ca.pem")
    assert hash(config) == hash(attrs.evolve(config))
    with pytest.raises(ConfigError, match=r"listener.name.sasl.oauthbearer.sasl.jaas.config: .*ssl.client.auth"):
        read(KEYS | {JAAS: f'{OAUTHBEARER_MODULE} required ssl.client.auth="perhaps";'})


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (KEYS | {HANDLER: "com.example.Handler"}, "which kwire does not have"),
        (KEYS | {"sasl.oauthbearer.jwt.validator.class": "a.ClientJwtValidator"}, "ClientJwtValidator'; kwire has"),
        (KEYS | {"sasl.oauthbearer.sub.claim.name": " "}, "sub.claim.name is empty"),
        (KEYS | {"sasl.oauthbearer.clock.skew.seconds": "-1"}, "clock.skew.seconds"),
        (KEYS | {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "refresh.ms"),
        ({URL: "ftp://issuer/keys"}, "only file, http and https"),
        ({URL: "keys.json"}, "only file, http and https"),
        ({URL: "file://keys.json"}, "a file is written file:///"),
        ({URL: "file:keys.json"}, "a file is written file:///"),
        ({URL: "https:///keys"}, "has no host"),
        ({URL: "https://issuer:port/keys"}, "not a URL"),
        ({URL: "https://issuer/the keys"}, "%xx"),
        ({URL: "https://issuer/the\x7fkeys"}, "%xx"),
        ({URL: "https://issuer/k\u00e9ys"}, "%xx"),
    ],
)
def test_what_is_wrong_is_named(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(properties)

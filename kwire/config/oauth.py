"""The settings of OAUTHBEARER on one listener: the validator of clients' tokens, and its rules.

Kafka's own default for a listener without a callback handler is to accept unsigned tokens, which anybody can make.
kwire accepts them only where that handler is configured by its name; its default is the handler for signed tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs
from kwire_protocol.kafka_error import quoted

from kwire.config.definition import ConfigError
from kwire.config.listeners import Listener
from kwire.config.reading import ConfigReader
from kwire.config.tls import tls_settings
from kwire.security.oauth.signed import TokenRules
from kwire.security.oauth.unsecured import UnsecuredRules
from kwire.security.tls.settings import TlsSettings

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
SIGNED_HANDLER: Final = f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
UNSECURED_HANDLER: Final = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
VALIDATORS: Final = (f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")

_HANDLER: Final = "sasl.server.callback.handler.class"
_JAAS: Final = "sasl.jaas.config"
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"


@attrs.frozen
class SignedTokenConfig:
    """The settings for tokens that are signed with one of the keys at `jwks_url`."""

    jwks_url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    rules: TokenRules
    tls: TlsSettings = attrs.field(factory=TlsSettings)
    """The settings for https: the options of the login module that begin with ssl."""


def read_oauth_config(
    reader: ConfigReader, own: Mapping[str, str], listener: Listener, jaas_options: Mapping[str, str]
) -> SignedTokenConfig | UnsecuredRules:
    """Reads the settings of OAUTHBEARER. `reader` reads the values in force for the mechanism on that listener. `own`
    are the values set for just that, the only ones that may have a handler, as in Kafka. `jaas_options` are those of
    its login module. Raises ConfigError."""
    prefix = f"listener.name.{listener.name.lower()}.oauthbearer."
    handler = own.get(_HANDLER, "").strip() or SIGNED_HANDLER
    if handler == UNSECURED_HANDLER:
        try:
            return UnsecuredRules.of(jaas_options)
        except ValueError as error:
            raise ConfigError(f"{prefix}{_JAAS}: {error}") from None
    if handler != SIGNED_HANDLER:
        raise ConfigError(
            f"{prefix}{_HANDLER} is {quoted(handler)}, which kwire does not have. Signed tokens are checked by "
            f"{SIGNED_HANDLER}; unsigned ones, which anybody can make, are accepted by {UNSECURED_HANDLER}"
        )
    validator = reader.text(_VALIDATOR)
    if validator not in VALIDATORS:
        raise ConfigError(f"{_VALIDATOR} is {quoted(validator)}; kwire has {' and '.join(VALIDATORS)}")
    url = (reader.optional_text(_URL) or "").strip()
    if not url:
        raise ConfigError(
            f"listener {listener} needs {_URL} for OAUTHBEARER, the keys that tokens are signed with: file:///path, "
            "https://host/path or http://host/path"
        )
    return SignedTokenConfig(
        jwks_url=_checked(url),
        refresh_ms=reader.int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        retry_backoff_ms=reader.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        retry_backoff_max_ms=reader.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        rules=TokenRules(
            clock_skew_s=reader.int("sasl.oauthbearer.clock.skew.seconds"),
            expected_audience=reader.names("sasl.oauthbearer.expected.audience"),
            expected_issuer=(reader.optional_text("sasl.oauthbearer.expected.issuer") or "").strip() or None,
            scope_claim=_claim(reader, "sasl.oauthbearer.scope.claim.name"),
            sub_claim=_claim(reader, "sasl.oauthbearer.sub.claim.name"),
        ),
        tls=_tls(jaas_options, prefix),
    )


def _tls(jaas_options: Mapping[str, str], prefix: str) -> TlsSettings:
    options = {name: text for name, text in jaas_options.items() if name.startswith("ssl.")}
    try:
        return tls_settings(ConfigReader(options))
    except ConfigError as error:
        raise ConfigError(f"{prefix}{_JAAS}: {error}") from None


def _claim(reader: ConfigReader, name: str) -> str:
    claim = reader.text(name).strip()
    if not claim:
        raise ConfigError(f"{name} is empty: it is the name of a claim")
    return claim


def _checked(text: str) -> str:
    """Returns the URL. Raises ConfigError if keys cannot be fetched from it."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError as error:
        raise ConfigError(f"{_URL} is {quoted(text)}, which is not a URL: {error}") from None
    scheme = url.scheme.lower()
    if scheme not in ("file", "http", "https"):
        raise ConfigError(f"{_URL} is {quoted(text)}: only file, http and https can be read")
    if scheme == "file" and (url.netloc not in ("", "localhost") or not unquote(url.path).startswith("/")):
        raise ConfigError(f"{_URL} is {quoted(text)}: a file is written file:///path/of/the/file")
    if scheme != "file" and not url.hostname:
        raise ConfigError(f"{_URL} is {quoted(text)}, which has no host")
    if not text.isprintable() or not text.isascii() or " " in text:
        raise ConfigError(f"{_URL} is {quoted(text)}: write what is not plain ASCII as %xx")
    return text

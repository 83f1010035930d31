"""The security of a client's connections, from Kafka's settings: those of a client, or of a broker for its peers.

A client has settings of its own (security.protocol, sasl.mechanism, sasl.jaas.config), and the same ssl.* as a broker.
A broker connects to its peers at their inter-broker listener. There it is a client with the settings of its own
listener of that name: it presents the certificate of its keystore, it trusts the authorities of its truststore, and the
login module of sasl.mechanism.inter.broker.protocol has its username and password.

With OAUTHBEARER both have a token instead, in the file of sasl.oauthbearer.token.endpoint.url.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from kwire_protocol.kafka_error import quoted

from kwire.client.login import NewExchange
from kwire.client.security import ClientSecurity
from kwire.client.transport import NewContext
from kwire.config.definition import ConfigError
from kwire.config.listeners import SECURITY_PROTOCOLS, Listener
from kwire.config.reading import ConfigReader
from kwire.config.sasl import sasl_settings
from kwire.config.tls import tls_settings, tls_settings_of_listener
from kwire.security.sasl.client import CLIENT_MECHANISMS, client_exchange
from kwire.security.sasl.jaas import JaasError, LoginModule, parse_jaas
from kwire.security.tls.settings import TlsSettings

if TYPE_CHECKING:
    import ssl

    from kwire.security.sasl.client import ClientExchange

log = logging.getLogger(__name__)

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
OAUTHBEARER: Final = "OAUTHBEARER"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
INTER_BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"

NewNonce = Callable[[], str]
"""Returns a new random text each time, which cannot be guessed."""


def client_security(properties: Mapping[str, str], new_nonce: NewNonce) -> ClientSecurity:
    """Returns the security of a client with these settings, which come from the file of --command-config.

    Settings that do not concern security are ignored. Raises ConfigError.
    """
    protocol = properties.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise ConfigError(f"{PROTOCOL} is {quoted(protocol)}: choose one of {', '.join(SECURITY_PROTOCOLS)}")
    return ClientSecurity(
        _new_context(lambda: tls_settings(ConfigReader(properties))) if protocol.endswith("SSL") else None,
        _exchange_of_client(properties, new_nonce) if protocol.startswith("SASL") else None,
    )


def inter_broker_security(
    properties: Callable[[], Mapping[str, str]], listener: Listener, new_nonce: NewNonce
) -> ClientSecurity:
    """Returns the security of a broker as a client of its peers. `properties` returns the current settings, and
    `listener` is the broker's own inter-broker listener. Raises ConfigError."""
    protocol = listener.security_protocol
    return ClientSecurity(
        _new_context(lambda: tls_settings_of_listener(properties(), listener)) if protocol.endswith("SSL") else None,
        _exchange_of_broker(properties, listener, new_nonce) if protocol.startswith("SASL") else None,
    )


def _new_context(settings: Callable[[], TlsSettings]) -> NewContext:
    settings()  # raises the errors of the settings now

    def new_context() -> ssl.SSLContext:
        from kwire.security.tls.contexts import client_context

        return client_context(settings())

    return new_context


def _exchange_of_client(properties: Mapping[str, str], new_nonce: NewNonce) -> NewExchange:
    mechanism = properties.get(MECHANISM, "").strip()
    if mechanism == OAUTHBEARER:
        return _token_exchange(properties.get(TOKEN_URL))
    if mechanism not in CLIENT_MECHANISMS:
        problem = f"is {quoted(mechanism)}" if mechanism else "is not set"
        raise ConfigError(f"{MECHANISM} {problem}: kwire logs in with {', '.join(CLIENT_MECHANISMS)}, {OAUTHBEARER}")
    text = properties.get(JAAS)
    if text is None:
        raise ConfigError(f'{JAAS} is not set: it has the login module, with username="..." and password="..."')
    try:
        return _exchange(mechanism, parse_jaas(text), new_nonce)
    except JaasError as error:
        raise ConfigError(f"{JAAS} cannot be used: {error}") from None


def _exchange_of_broker(
    properties: Callable[[], Mapping[str, str]], listener: Listener, new_nonce: NewNonce
) -> NewExchange:
    login = _own_login(properties(), listener, new_nonce)

    def new_exchange() -> ClientExchange:
        nonlocal login
        try:
            login = _own_login(properties(), listener, new_nonce)
        except ConfigError as error:
            log.error("the login at other brokers stays as it was, because its new settings cannot be used: %s", error)
        return login()

    return new_exchange


def _own_login(properties: Mapping[str, str], listener: Listener, new_nonce: NewNonce) -> NewExchange:
    """Returns the broker's own login by the current configuration. Raises ConfigError."""
    read = ConfigReader(properties)
    mechanism = read.of_listener(listener.name).text(INTER_BROKER_MECHANISM)
    enabled = {it.name: it.module for it in sasl_settings(read, listener)}
    if mechanism not in enabled:
        raise ConfigError(
            f"{INTER_BROKER_MECHANISM} is {quoted(mechanism)}, which is not among the sasl.enabled.mechanisms of the "
            f"inter-broker listener {listener.name}: {', '.join(enabled)}"
        )
    if mechanism == OAUTHBEARER:
        own = f"listener.name.{listener.name.lower()}.oauthbearer.{TOKEN_URL}"
        return _token_exchange(properties.get(own) or read.of_listener(listener.name).optional_text(TOKEN_URL))
    module = enabled[mechanism]
    where = f"listener.name.{listener.name.lower()}.{mechanism.lower()}.{JAAS}"
    if module is None:
        raise ConfigError(f'{where} is not set: this broker needs username="..." and password="..." for the others')
    try:
        return _exchange(mechanism, module, new_nonce)
    except JaasError as error:
        raise ConfigError(f"{where} cannot be used by this broker to log in at others: {error}") from None


def _token_exchange(url: str | None) -> NewExchange:
    """Raises ConfigError."""
    from kwire.security.oauth.token_file import TokenFileClient

    address = urlsplit(url or "")
    if address.scheme != "file" or address.netloc or not address.path.startswith("/"):
        problem = f"is {quoted(url)}" if url else "is not set"
        raise ConfigError(f"{TOKEN_URL} {problem}: kwire logs in with a token from a file, so write file:///path")
    path = unquote(address.path)
    return lambda: TokenFileClient(path)


def _exchange(mechanism: str, module: LoginModule, new_nonce: NewNonce) -> NewExchange:
    """Raises JaasError."""
    client_exchange(mechanism, module, nonce=new_nonce())  # raises errors now
    return lambda: client_exchange(mechanism, module, nonce=new_nonce())

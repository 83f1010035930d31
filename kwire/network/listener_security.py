"""The security of a listener's connections: their transport, and their authentication by SASL.

Both are prepared before clients connect, or else the broker does not start. Configurations of listeners that change at
run time (listener.name.NAME.ssl.keystore.location and others) are checked before they are accepted. New connections
use the configuration that is in force when they are accepted.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from kwire.config.definition import ConfigError
from kwire.config.listeners import Listener
from kwire.metadata.image import Changes
from kwire.network.services import Node
from kwire.runtime.clock import secret_of
from kwire.runtime.loop import StartSoon
from kwire.runtime.transport import NewTransport, PlainTransport
from kwire.security.sasl.exchange import SaslSession

if TYPE_CHECKING:
    from kwire.network.sasl_mechanisms import SaslListener
    from kwire.network.tls_listener import TlsListener

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class ListenerSecurity:
    """`new_transport` makes the transport of an accepted socket. `new_session` begins its authentication by SASL; it is
    None if the listener has none."""

    new_transport: NewTransport = PlainTransport
    new_session: Callable[[], SaslSession] | None = None
    start: Callable[[StartSoon], None] | None = None
    """Starts the tasks that it needs besides connections, once the event loop runs."""


def securities_of(node: Node) -> dict[str, ListenerSecurity]:
    """Returns the security of each listener, by name, without PLAINTEXT listeners. Raises ConfigError."""
    securities: dict[str, ListenerSecurity] = {}
    encrypted: dict[Listener, TlsListener] = {}
    secret = _secret(node)
    for listener in node.config.listeners:
        security = ListenerSecurity()
        if listener.has_tls:
            tls = encrypted[listener] = _tls_listener(node, listener)
            security.new_transport = tls.new_transport
        if listener.name in node.config.sasl:
            sasl = _sasl_listener(node, listener.name, secret)
            security.new_session, security.start = sasl.new_session, sasl.start
        if listener.has_tls or listener.has_sasl:
            securities[listener.name] = security
    if encrypted:
        _follow_changes(node, encrypted)
    return securities


def _secret(node: Node) -> bytes:
    """Returns 32 secret bytes: the hash of kwire.sasl.secret, or random bytes."""
    text = node.config.kwire_sasl_secret
    return secret_of(node.clock) if text is None else hashlib.sha256(text.encode()).digest()


def _sasl_listener(node: Node, listener_name: str, secret: bytes) -> SaslListener:
    # Imported here, so that a broker without authentication does not load the modules of SASL.
    from kwire.network.sasl_mechanisms import SaslListener

    return SaslListener(node, listener_name, secret)


def _tls_listener(node: Node, listener: Listener) -> TlsListener:
    # Imported here, so that a broker without TLS does not load its modules.
    from kwire.config.tls import tls_settings_of_listener
    from kwire.network.tls_listener import TlsListener
    from kwire.security.tls.settings import TlsError

    settings = tls_settings_of_listener(node.metadata.configs.effective, listener)
    clock = node.clock
    label = f"listener {listener.name}"
    try:
        return TlsListener(
            label,
            settings,
            now_ms=clock.now_ms,
            monotonic_ms=clock.monotonic_ms,
            # Kafka checks this even without other brokers.
            is_for_brokers=listener.name == node.config.inter_broker_listener_name and not node.metadata.is_alone,
        )
    except TlsError as error:
        raise ConfigError(f"{label}: {error}") from error


def _follow_changes(node: Node, encrypted: Mapping[Listener, TlsListener]) -> None:
    from kwire.config.tls import tls_settings_of_listener
    from kwire.security.tls.settings import TlsError

    def check(properties: Mapping[str, str]) -> None:
        for listener, tls in encrypted.items():
            settings = tls_settings_of_listener(properties, listener)
            try:
                tls.check(settings)
            except TlsError as error:
                raise ConfigError(f"{tls.label}: {error}") from error

    def follow(changes: Changes) -> None:
        if changes.configures_this_broker(node.metadata.node_id):
            for listener, tls in encrypted.items():
                try:
                    tls.change(tls_settings_of_listener(node.metadata.configs.effective, listener))
                except ConfigError as error:  # accepted by another version
                    log.error("%s keeps its TLS settings, because the new ones cannot be used: %s", tls.label, error)

    node.metadata.check_listeners = check
    node.metadata.watch(follow)

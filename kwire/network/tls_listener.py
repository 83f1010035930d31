"""TLS of one listener: the certificate of new connections, which changes without closing existing ones.

It changes when the configuration does, and when a file of the keystore or truststore does. Files are checked when a
client connects, at most once a second, so that a listener without connections does nothing. A change that cannot be
used leaves everything unchanged, and is logged in one line.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs
from cryptography import x509

from kwire.runtime.tls_transport import TlsTransport
from kwire.security.tls.contexts import check_handshake, client_context, server_context, warnings_about
from kwire.security.tls.keystores import FileState, KeyStore, file_states, load_stores
from kwire.security.tls.principals import MappingRules
from kwire.security.tls.settings import TlsError, TlsSettings

if TYPE_CHECKING:
    import ssl

    from kwire.security.tls.keystores import Stores

log = logging.getLogger(__name__)

CHECK_INTERVAL_MS: Final = 1000


class TlsListener:
    """Makes the transports of a listener's connections.

    label: the listener, for log lines. `now_ms` is the time of day, and `monotonic_ms` a monotonic clock. With
    `is_for_brokers` other brokers connect to it, and have the same settings: then the settings must be compatible with
    themselves, and with the previous ones, because not all brokers change at once. Raises TlsError if the settings
    cannot be used.
    """

    def __init__(
        self,
        label: str,
        settings: TlsSettings,
        *,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        is_for_brokers: bool = False,
    ) -> None:
        self.label = label
        self._is_for_brokers = is_for_brokers
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._files: tuple[FileState, ...] = ()
        self._next_check_ms = 0
        self._context: ssl.SSLContext
        self._stores: Stores
        self._rules: MappingRules
        self.settings = settings
        self._use(settings)

    def new_transport(self, sock: socket.socket) -> TlsTransport:
        """Returns the transport of an accepted socket, which is non-blocking."""
        if self._monotonic_ms() >= self._next_check_ms:
            self._check_files()
        return TlsTransport(sock, self._context, principal_of=self._rules.principal_of)

    def check(self, settings: TlsSettings) -> None:
        """Raises TlsError unless a running listener may change to these settings, as in Kafka.

        A new certificate must have the same distinguished name, and all alternative names of the previous one, unless
        ssl.allow.dn.changes and ssl.allow.san.changes permit otherwise. A keystore or truststore cannot be added.
        """
        if settings == self.settings and file_states(settings) == self._files:
            return
        stores = load_stores(settings)
        server_context(settings, stores)
        MappingRules.parse(settings.principal_mapping_rules)
        if stores.trusted is not None and self._stores.trusted is None:
            raise TlsError("a truststore cannot be added while the listener runs: restart the broker with it")
        before, after = self._stores.key_store, stores.key_store
        assert before is not None, "no listener is without"
        assert after is not None, "server_context has looked"
        _check_names(before, after, settings)
        if self._is_for_brokers:
            _check_brokers(settings, stores, self.settings, self._stores)
            _check_brokers(self.settings, self._stores, settings, stores)

    def change(self, settings: TlsSettings) -> None:
        """Applies the settings to new connections. If they cannot be used, this is logged, and nothing changes."""
        if settings == self.settings:
            return
        try:
            self._use(settings)
        except TlsError as error:
            log.error("%s keeps its TLS settings, because the new ones cannot be used: %s", self.label, error)
        else:
            log.info("%s has new TLS settings: new connections use them", self.label)

    def _use(self, settings: TlsSettings) -> None:
        files = file_states(settings)  # before they are read: a change in between is detected at the next check
        stores = load_stores(settings)
        context, rules = server_context(settings, stores), MappingRules.parse(settings.principal_mapping_rules)
        if self._is_for_brokers:
            _check_brokers(settings, stores, settings, stores)
        for warning in warnings_about(settings, stores, now_ms=self._now_ms()):
            log.warning("%s: %s", self.label, warning)
        self.settings, self._files = settings, files
        self._stores, self._context, self._rules = stores, context, rules
        self._next_check_ms = self._monotonic_ms() + CHECK_INTERVAL_MS

    def _check_files(self) -> None:
        self._next_check_ms = self._monotonic_ms() + CHECK_INTERVAL_MS
        files = file_states(self.settings)
        if files == self._files:
            return
        self._files = files  # a broken file is logged once
        try:
            self._use(self.settings)
        except TlsError as error:
            log.error("%s keeps its certificate, because a file has changed and cannot be used: %s", self.label, error)
        else:
            log.info("%s has read its keystore and truststore again, because a file has changed", self.label)


def _check_brokers(server: TlsSettings, its: Stores, client: TlsSettings, ours: Stores) -> None:
    unnamed = attrs.evolve(client, endpoint_identification_algorithm="")
    try:
        check_handshake(server_context(server, its), client_context(unnamed, ours))
    except TlsError as error:
        raise TlsError(
            f"brokers with these settings could not connect to each other ({error}): the truststore has to have the "
            "authority of the keystore's certificate"
        ) from error


def _check_names(before: KeyStore, after: KeyStore, settings: TlsSettings) -> None:
    old, new = before.certificate, after.certificate
    if not settings.allow_dn_changes and old.subject != new.subject:
        was, would_be = old.subject.rfc4514_string(), new.subject.rfc4514_string()
        if was.lower() != would_be.lower():
            raise TlsError(
                f"the new certificate is for {would_be}, and the present one for {was}: set ssl.allow.dn.changes=true "
                "if that is meant"
            )
    if not settings.allow_san_changes:
        lacking = _alternative_names(old) - _alternative_names(new)
        if lacking:
            raise TlsError(
                f"the new certificate is not for {', '.join(sorted(lacking))}, as the present one is: set "
                "ssl.allow.san.changes=true if that is meant"
            )


def _alternative_names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(getattr(name, "value", name)) for name in names}

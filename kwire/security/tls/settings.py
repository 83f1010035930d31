"""The TLS settings of a listener or of a client: Kafka's ssl.* configurations as values.

Error messages use the names of configurations without a listener's prefix. The caller adds the listener.
"""

from __future__ import annotations

from typing import Final

import attrs

DEFAULT_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")


class TlsError(Exception):
    """The settings cannot be used. The message, on one line, has the setting, the reason, and the remedy."""


@attrs.frozen(kw_only=True)
class TlsSettings:
    """Each field has the name of a configuration after its ssl., with underscores for dots, and its meaning.

    None means not set. Without a truststore the system's authorities are trusted, as Java trusts its own.
    """

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: str | None = attrs.field(default=None, repr=False)
    keystore_key: str | None = attrs.field(default=None, repr=False)
    keystore_certificate_chain: str | None = attrs.field(default=None, repr=False)
    key_password: str | None = attrs.field(default=None, repr=False)
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = attrs.field(default=None, repr=False)
    truststore_certificates: str | None = attrs.field(default=None, repr=False)
    enabled_protocols: tuple[str, ...] = DEFAULT_PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    """Java's names of cipher suites. If it is empty, OpenSSL's defaults are used."""
    client_auth: str = "none"
    """The client authentication of servers: none, requested or required."""
    endpoint_identification_algorithm: str = "https"
    """The check of the server's certificate by clients. https: it has to be for the requested host. Empty: for any."""
    principal_mapping_rules: str = "DEFAULT"
    allow_dn_changes: bool = False
    """True if a certificate that is changed at run time may have another distinguished name."""
    allow_san_changes: bool = False
    """True if the new certificate may lack some of the alternative names of the previous one."""

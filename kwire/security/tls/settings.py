"""What TLS is configured with, for a listener or for a client: Kafka's ssl.* configurations as values.

Errors name configurations as they are here. Who reads them for a listener says which listener it is.
"""

from __future__ import annotations

from typing import Final

import attrs

DEFAULT_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")


class TlsError(Exception):
    """The settings cannot be used. One line says which, why, and what to do."""


@attrs.frozen(kw_only=True)
class TlsSettings:
    """Each field has the name of a configuration after its ssl., with underscores for dots, and its meaning.

    None: not set. Without a truststore the system's authorities are trusted, as Java trusts its own.
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
    """Java's names. Empty: what OpenSSL thinks is safe."""
    client_auth: str = "none"
    """none, requested or required. For servers."""
    endpoint_identification_algorithm: str = "https"
    """https: the server's certificate has to be for the host that was dialled. Empty: for any. For clients."""
    principal_mapping_rules: str = "DEFAULT"
    allow_dn_changes: bool = False
    """Whether another certificate may have another distinguished name, when it is changed at run time."""
    allow_san_changes: bool = False
    """Whether another certificate may lack some of the former's alternative names."""

"""Reads the configurations of TLS: the broker's, or those in force for one listener."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kwire.config.definition import ConfigError
from kwire.config.listeners import Listener
from kwire.config.reading import ConfigReader
from kwire.security.tls.settings import TlsSettings


def tls_settings(reader: ConfigReader) -> TlsSettings:
    """Raises ConfigError for a value that is invalid on its own. Nothing is read from disk."""
    reader.value("ssl.engine.factory.class")  # a Java class: only Kafka's own is valid
    return TlsSettings(
        keystore_type=reader.text("ssl.keystore.type"),
        keystore_location=reader.optional_text("ssl.keystore.location") or None,
        keystore_password=reader.optional_text("ssl.keystore.password"),
        keystore_key=reader.optional_text("ssl.keystore.key"),
        keystore_certificate_chain=reader.optional_text("ssl.keystore.certificate.chain"),
        key_password=reader.optional_text("ssl.key.password"),
        truststore_type=reader.text("ssl.truststore.type"),
        truststore_location=reader.optional_text("ssl.truststore.location") or None,
        truststore_password=reader.optional_text("ssl.truststore.password"),
        truststore_certificates=reader.optional_text("ssl.truststore.certificates"),
        enabled_protocols=reader.names("ssl.enabled.protocols"),
        cipher_suites=reader.names("ssl.cipher.suites"),
        client_auth=reader.text("ssl.client.auth"),
        endpoint_identification_algorithm=reader.text("ssl.endpoint.identification.algorithm"),
        principal_mapping_rules=reader.text("ssl.principal.mapping.rules"),
        allow_dn_changes=reader.flag("ssl.allow.dn.changes"),
        allow_san_changes=reader.flag("ssl.allow.san.changes"),
    )


def tls_settings_of_listener(properties: Mapping[str, str], listener: Listener) -> TlsSettings:
    """Returns the settings in force for one listener. Raises ConfigError, with the listener in its message.

    On SASL_SSL the principal comes from SASL. As in Kafka (KIP-684), such a listener requests certificates only if
    ssl.client.auth is set for that listener.
    """
    try:
        settings = tls_settings(ConfigReader(properties).of_listener(listener.name))
    except ConfigError as error:
        raise ConfigError(f"listener {listener.name}: {error}") from error
    if listener.security_protocol == "SASL_SSL":
        own = f"listener.name.{listener.name.lower()}.ssl.client.auth"
        if own not in properties:
            return attrs.evolve(settings, client_auth="none")
    return settings

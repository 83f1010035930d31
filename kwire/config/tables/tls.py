"""The broker configurations of TLS: keys, certificates, who is trusted, and which protocols are spoken."""

from __future__ import annotations

from typing import Final

from kwire.config.definition import table
from kwire.config.tables.rows import (
    BOOLEAN,
    CLASS,
    LIST,
    PASSWORD,
    PER_BROKER,
    PER_LISTENER,
    STRING,
    row_without_effect,
)
from kwire.config.validators import ListOf, OneOf

TLS_CONFIGS: Final = table(
    row_without_effect("ssl.allow.dn.changes", BOOLEAN, False),
    row_without_effect("ssl.allow.san.changes", BOOLEAN, False),
    row_without_effect("ssl.cipher.suites", LIST, (), ListOf(), PER_BROKER),
    row_without_effect("ssl.client.auth", STRING, "none", OneOf(("required", "requested", "none")), PER_BROKER),
    row_without_effect("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), ListOf(), PER_BROKER),
    row_without_effect("ssl.endpoint.identification.algorithm", STRING, "https", None, PER_BROKER),
    row_without_effect("ssl.engine.factory.class", CLASS, None, None, PER_BROKER),
    row_without_effect("ssl.key.password", PASSWORD, None, None, PER_LISTENER),
    row_without_effect("ssl.keymanager.algorithm", STRING, "SunX509", None, PER_BROKER),
    row_without_effect("ssl.keystore.certificate.chain", PASSWORD, None, None, PER_LISTENER),
    row_without_effect("ssl.keystore.key", PASSWORD, None, None, PER_LISTENER),
    row_without_effect("ssl.keystore.location", STRING, None, None, PER_LISTENER),
    row_without_effect("ssl.keystore.password", PASSWORD, None, None, PER_LISTENER),
    row_without_effect("ssl.keystore.type", STRING, "JKS", None, PER_LISTENER),
    row_without_effect("ssl.principal.mapping.rules", STRING, "DEFAULT"),
    row_without_effect("ssl.protocol", STRING, "TLSv1.3", None, PER_BROKER),
    row_without_effect("ssl.provider", STRING, None, None, PER_BROKER),
    row_without_effect("ssl.secure.random.implementation", STRING, None, None, PER_BROKER),
    row_without_effect("ssl.trustmanager.algorithm", STRING, "PKIX", None, PER_BROKER),
    row_without_effect("ssl.truststore.certificates", PASSWORD, None, None, PER_LISTENER),
    row_without_effect("ssl.truststore.location", STRING, None, None, PER_LISTENER),
    row_without_effect("ssl.truststore.password", PASSWORD, None, None, PER_LISTENER),
    row_without_effect("ssl.truststore.type", STRING, "JKS", None, PER_LISTENER),
)

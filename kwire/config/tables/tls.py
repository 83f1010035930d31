"""The broker configurations of TLS: keys, certificates, trusted authorities, and protocols."""

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
    row,
    row_without_effect,
)
from kwire.config.validators import JavaClass, ListOf, OneOf

SSL_ENGINES: Final = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"
"""Kafka's class if ssl.engine.factory.class is not set."""

TLS_CONFIGS: Final = table(
    row(
        "ssl.allow.dn.changes",
        BOOLEAN,
        False,
        None,
        "Whether a certificate that is changed at run time may have another distinguished name.",
    ),
    row(
        "ssl.allow.san.changes",
        BOOLEAN,
        False,
        None,
        "Whether a certificate that is changed at run time may lack some of the former's alternative names.",
    ),
    row(
        "ssl.cipher.suites",
        LIST,
        (),
        ListOf(),
        "The cipher suites, by Java's names. Not set: those that OpenSSL considers safe. If one of TLS 1.3 is listed, "
        "all three of them are offered.",
        PER_BROKER,
    ),
    row(
        "ssl.client.auth",
        STRING,
        "none",
        OneOf(("required", "requested", "none")),
        "Whether clients have to show a certificate (required), may (requested), or need not (none).",
        PER_BROKER,
    ),
    row(
        "ssl.enabled.protocols",
        LIST,
        ("TLSv1.2", "TLSv1.3"),
        ListOf(),
        "The versions of TLS: TLSv1.2, TLSv1.3.",
        PER_BROKER,
    ),
    row(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        None,
        "https: a broker that connects to another checks that the other's certificate is for the host that it dialled. "
        "Empty: it does not.",
        PER_BROKER,
    ),
    row_without_effect("ssl.engine.factory.class", CLASS, None, JavaClass((SSL_ENGINES,)), PER_BROKER),
    row(
        "ssl.key.password",
        PASSWORD,
        None,
        None,
        "The password of an encrypted private key in PEM.",
        PER_LISTENER,
    ),
    row_without_effect("ssl.keymanager.algorithm", STRING, "SunX509", None, PER_BROKER),
    row(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        None,
        "The certificate in PEM, followed by those of its issuers.",
        PER_LISTENER,
    ),
    row(
        "ssl.keystore.key",
        PASSWORD,
        None,
        None,
        "The private key in PEM (PKCS #8).",
        PER_LISTENER,
    ),
    row(
        "ssl.keystore.location",
        STRING,
        None,
        None,
        "The file with private key and certificate.",
        PER_LISTENER,
    ),
    row(
        "ssl.keystore.password",
        PASSWORD,
        None,
        None,
        "The password of a keystore of the type PKCS12.",
        PER_LISTENER,
    ),
    row(
        "ssl.keystore.type",
        STRING,
        "JKS",
        None,
        "PEM or PKCS12. JKS means PKCS12, too; kwire does not read Java's own format.",
        PER_LISTENER,
    ),
    row(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        None,
        "Rules that make a principal's name of the distinguished name in a client's certificate.",
    ),
    row_without_effect("ssl.protocol", STRING, "TLSv1.3", None, PER_BROKER),
    row_without_effect("ssl.provider", STRING, None, None, PER_BROKER),
    row_without_effect("ssl.secure.random.implementation", STRING, None, None, PER_BROKER),
    row_without_effect("ssl.trustmanager.algorithm", STRING, "PKIX", None, PER_BROKER),
    row(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        None,
        "The certificates of trusted authorities in PEM.",
        PER_LISTENER,
    ),
    row(
        "ssl.truststore.location",
        STRING,
        None,
        None,
        "The file with the certificates of trusted authorities. Not set: the system's are trusted.",
        PER_LISTENER,
    ),
    row(
        "ssl.truststore.password",
        PASSWORD,
        None,
        None,
        "The password of a truststore of the type PKCS12.",
        PER_LISTENER,
    ),
    row(
        "ssl.truststore.type",
        STRING,
        "JKS",
        None,
        "PEM or PKCS12. JKS means PKCS12, too; kwire does not read Java's own format.",
        PER_LISTENER,
    ),
)

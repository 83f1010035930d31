"""The broker configurations of SASL: mechanisms, their secrets, and how long an authentication lasts."""

from __future__ import annotations

from typing import Final

from kwire.config.definition import table
from kwire.config.tables.rows import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    row,
    row_without_effect,
)
from kwire.config.validators import ListOf, OneOf, Range

SASL_CONFIGS: Final = table(
    row(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        Range(0),
        "How long a failed authentication waits for its answer, after which the connection is closed.",
    ),
    row(
        "connections.max.reauth.ms",
        LONG,
        0,
        None,
        "How long an authentication lasts at most; after that a client has to authenticate again. 0: as long as the "
        "connection, or as the credentials. May have the prefix of a listener and a mechanism.",
    ),
    row_without_effect("sasl.client.callback.handler.class", CLASS, None),
    row(
        "sasl.enabled.mechanisms",
        LIST,
        ("GSSAPI",),
        ListOf(),
        "The mechanisms of listeners that use SASL: some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. There is no GSSAPI. "
        "May have the prefix of a listener.",
        PER_BROKER,
    ),
    row(
        "sasl.jaas.config",
        PASSWORD,
        None,
        None,
        "A login module and its options, such as the users of PLAIN (user_NAME). Has the prefix of a listener and a "
        "mechanism.",
        PER_BROKER,
    ),
    row_without_effect("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, PER_BROKER),
    row_without_effect("sasl.kerberos.min.time.before.relogin", LONG, 60000, None, PER_BROKER),
    row_without_effect("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), ListOf(), PER_BROKER),
    row_without_effect("sasl.kerberos.service.name", STRING, None, None, PER_BROKER),
    row_without_effect("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, None, PER_BROKER),
    row_without_effect("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, None, PER_BROKER),
    row_without_effect("sasl.login.callback.handler.class", CLASS, None),
    row_without_effect("sasl.login.class", CLASS, None),
    row_without_effect("sasl.login.connect.timeout.ms", INT, None),
    row_without_effect("sasl.login.read.timeout.ms", INT, None),
    row_without_effect("sasl.login.refresh.buffer.seconds", SHORT, 300, None, PER_BROKER),
    row_without_effect("sasl.login.refresh.min.period.seconds", SHORT, 60, None, PER_BROKER),
    row_without_effect("sasl.login.refresh.window.factor", DOUBLE, 0.8, None, PER_BROKER),
    row_without_effect("sasl.login.refresh.window.jitter", DOUBLE, 0.05, None, PER_BROKER),
    row_without_effect("sasl.login.retry.backoff.max.ms", LONG, 10000),
    row_without_effect("sasl.login.retry.backoff.ms", LONG, 100),
    row_without_effect("sasl.mechanism.controller.protocol", STRING, "GSSAPI"),
    row_without_effect("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, PER_BROKER),
    row_without_effect(
        "sasl.oauthbearer.assertion.algorithm", STRING, "RS256", OneOf(("ES256", "RS256"), any_case=True)
    ),
    row_without_effect("sasl.oauthbearer.assertion.claim.aud", STRING, None),
    row_without_effect("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, Range(0, 86400)),
    row_without_effect("sasl.oauthbearer.assertion.claim.iss", STRING, None),
    row_without_effect("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False),
    row_without_effect("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, Range(0, 3600)),
    row_without_effect("sasl.oauthbearer.assertion.claim.sub", STRING, None),
    row_without_effect("sasl.oauthbearer.assertion.file", STRING, None),
    row_without_effect("sasl.oauthbearer.assertion.private.key.file", STRING, None),
    row_without_effect("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None),
    row_without_effect("sasl.oauthbearer.assertion.template.file", STRING, None),
    row_without_effect("sasl.oauthbearer.client.credentials.client.id", STRING, None),
    row_without_effect("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None),
    row_without_effect("sasl.oauthbearer.clock.skew.seconds", INT, 30),
    row_without_effect("sasl.oauthbearer.expected.audience", LIST, (), ListOf()),
    row_without_effect("sasl.oauthbearer.expected.issuer", STRING, None),
    row_without_effect("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000),
    row_without_effect("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000),
    row_without_effect("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100),
    row_without_effect("sasl.oauthbearer.jwks.endpoint.url", STRING, None),
    row_without_effect(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    row_without_effect(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    row_without_effect("sasl.oauthbearer.scope", STRING, None),
    row_without_effect("sasl.oauthbearer.scope.claim.name", STRING, "scope"),
    row_without_effect("sasl.oauthbearer.sub.claim.name", STRING, "sub"),
    row_without_effect("sasl.oauthbearer.token.endpoint.url", STRING, None),
    row(
        "sasl.server.callback.handler.class",
        CLASS,
        None,
        None,
        "Checks passwords. Can only be Kafka's own class of the mechanism, since kwire runs no Java.",
    ),
    row(
        "sasl.server.max.receive.size",
        INT,
        524_288,
        None,
        "The largest request before a client of a listener with SASL has authenticated, in bytes.",
    ),
)

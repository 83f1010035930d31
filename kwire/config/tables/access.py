"""The broker configurations of principals and authorization: ACLs, delegation tokens."""

from __future__ import annotations

from typing import Final

from kwire.config.definition import table
from kwire.config.tables.rows import BOOLEAN, CLASS, LONG, PASSWORD, PER_BROKER, STRING, row, row_without_effect
from kwire.config.validators import JavaClass, OptionalChoice, Principals, Range

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's own class, and the only one that works without a JVM."""

PRINCIPAL_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
"""Kafka's own class, whose function is in `security/tls/principals.py` and `security/sasl/`."""

ACCESS_CONFIGS: Final = table(
    # Kafka's broker does not define these two, which its authorizer reads. They are described only if they are set.
    row(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        None,
        "Whether everybody may do everything to a resource that no ACL is about. For the authorizer.",
        internal=True,
    ),
    row(
        "authorizer.class.name",
        STRING,
        "",
        OptionalChoice(("", STANDARD_AUTHORIZER)),
        f"Who decides what a client may do: {STANDARD_AUTHORIZER} goes by ACLs. Not set: everybody may do everything.",
    ),
    row(
        "super.users",
        STRING,
        "",
        Principals(),
        "Principals that may do everything, separated by semicolons: User:admin;User:node1. For the authorizer.",
        internal=True,
    ),
    row(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        3_600_000,
        Range(1),
        "How often delegation tokens that have expired are removed.",
    ),
    row(
        "delegation.token.expiry.time.ms",
        LONG,
        86_400_000,
        Range(1),
        "How long a delegation token is valid before it has to be renewed.",
    ),
    row(
        "delegation.token.max.lifetime.ms",
        LONG,
        604_800_000,
        Range(1),
        "How long a delegation token can be renewed.",
    ),
    row(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        None,
        "What the secrets of delegation tokens are made with; the same for all brokers. Not set: there are no tokens.",
    ),
    row_without_effect(
        "principal.builder.class", CLASS, PRINCIPAL_BUILDER, JavaClass((PRINCIPAL_BUILDER,)), PER_BROKER
    ),
)

"""The broker configurations about who is behind a connection and what that may do: ACLs, delegation tokens."""

from __future__ import annotations

from typing import Final

from kwire.config.definition import table
from kwire.config.tables.rows import CLASS, LONG, PASSWORD, PER_BROKER, STRING, row_without_effect
from kwire.config.validators import Range

ACCESS_CONFIGS: Final = table(
    row_without_effect("authorizer.class.name", STRING, ""),
    row_without_effect("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, Range(1)),
    row_without_effect("delegation.token.expiry.time.ms", LONG, 86_400_000, Range(1)),
    row_without_effect("delegation.token.max.lifetime.ms", LONG, 604_800_000, Range(1)),
    row_without_effect("delegation.token.secret.key", PASSWORD, None),
    row_without_effect(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        None,
        PER_BROKER,
    ),
)

"""The settings of the transaction machine, by Kafka's names (transaction.*, transactional.*)."""

from __future__ import annotations

import attrs

MINUTE_MS = 60_000


@attrs.frozen
class TransactionConfig:
    """Defaults are Kafka 4's."""

    max_timeout_ms: int = 15 * MINUTE_MS
    """transaction.max.timeout.ms: an InitProducerId above it gets INVALID_TRANSACTION_TIMEOUT."""
    id_expiration_ms: int = 7 * 24 * 60 * MINUTE_MS
    """transactional.id.expiration.ms: the time after its last use at which an id without a transaction is removed."""
    expiration_check_interval_ms: int = 60 * MINUTE_MS
    """transaction.remove.expired.transaction.cleanup.interval.ms."""
    two_phase_commit_enable: bool = False
    """transaction.two.phase.commit.enable: True if a producer may request transactions without a time-out (KIP-939)."""

"""The settings of the group machine, by Kafka's names (group.*, offset.*, offsets.*), in their base units."""

from __future__ import annotations

import attrs

MINUTE_MS = 60_000


@attrs.frozen
class GroupConfig:
    """Defaults are Kafka 4's, except the initial rebalance delay: here the first consumer does not wait 3 s."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms: a JoinGroup below it is INVALID_SESSION_TIMEOUT."""
    max_session_timeout_ms: int = 30 * MINUTE_MS
    """group.max.session.timeout.ms."""
    initial_rebalance_delay_ms: int = 0
    """group.initial.rebalance.delay.ms: how long an empty group waits for company before its first generation."""
    max_size: int = 2**31 - 1
    """group.max.size: members beyond it are GROUP_MAX_SIZE_REACHED."""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """How long a member that never had an answer may stay parked in JoinGroup (a constant in Kafka)."""
    offset_metadata_max_length: int = 4_096
    """offset.metadata.max.bytes, which Kafka counts in UTF-16 units."""
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    """offsets.retention.minutes."""
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    """offsets.retention.check.interval.ms."""

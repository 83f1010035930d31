"""The settings of the share coordinator's machine, by Kafka's names (share.coordinator.*)."""

from __future__ import annotations

import attrs

MINUTE_MS = 60_000


@attrs.frozen
class ShareStateConfig:
    """Defaults are Kafka 4's."""

    updates_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot: the number of updates between two snapshots. With 0, each
    record is a snapshot."""
    cold_snapshot_interval_ms: int = 5 * MINUTE_MS
    """share.coordinator.cold.partition.snapshot.interval.ms: a state whose last snapshot is older gets a new one."""
    prune_interval_ms: int = 5 * MINUTE_MS
    """share.coordinator.state.topic.prune.interval.ms: the interval at which obsolete records are deleted."""

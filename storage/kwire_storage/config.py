"""The settings of one log: Kafka's topic settings of the same names, units last."""

from __future__ import annotations

import attrs

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
NEVER = 2**63 - 1


@attrs.frozen
class LogConfig:
    """Defaults are Kafka's. `max_message_bytes` is for the code that checks batches before they are appended."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    cleanup_policy: str = "delete"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = CREATE_TIME
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    synced_one_by_one: bool = False
    """True if each append is on the medium before the next one begins: then a crash damages at most the last one."""

    @property
    def deletes(self) -> bool:
        """True if old records are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """True if only the latest record of each key stays, so that offsets may be missing."""
        return "compact" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The maximum age of the active segment: it must not delay the compaction of its records for too long."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def stamps(self) -> bool:
        """True if records get the broker's time."""
        return self.message_timestamp_type == LOG_APPEND_TIME

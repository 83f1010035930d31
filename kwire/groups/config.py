"""The settings of the group machine, by Kafka's names (group.*, offset.*, offsets.*), in their base units."""

from __future__ import annotations

from enum import Enum

import attrs

MINUTE_MS = 60_000


class MigrationPolicy(Enum):
    """group.consumer.migration.policy: which way a group with members may change its kind (KIP-848)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """True if a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@attrs.frozen
class ConsumerGroupSettings:
    """The settings of one consumer group: consumer.* of its configuration, else the broker's group.consumer.*.

    The defaults are Kafka 4's, except the assignment interval: here the second member does not wait for its share.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 0
    """The minimum time between two computations of the target assignment (KIP-1263)."""


@attrs.frozen
class SharePartitionSettings:
    """The settings with which partition leaders deliver to one share group: share.* of its configuration, else the
    broker's group.share.*."""

    max_record_locks: int = 2_000
    """The maximum number of records in flight of one partition."""
    delivery_count_limit: int = 5
    record_lock_duration_ms: int = 30_000
    reads_committed: bool = False
    """share.isolation.level."""
    auto_offset_reset: str = "latest"
    """The start offset of the group in a partition: latest, earliest, or by_duration: and an ISO 8601 duration."""
    may_renew: bool = True
    """share.renew.acknowledge.enable."""
    dead_letter_topic: str = ""
    """errors.deadletterqueue.topic.name; empty for none (KIP-1191)."""
    copies_dead_letters: bool = False
    """errors.deadletterqueue.copy.record.enable."""
    release_delay_ms: int = 0
    """kwire.share.release.delay.ms: the delay of a record that was released once; it doubles with each delivery."""
    max_release_delay_ms: int = 60_000
    """kwire.share.release.delay.max.ms."""


@attrs.frozen
class ShareGroupSettings:
    """The settings of one share group: share.* of its configuration, else the broker's group.share.*.

    The defaults are Kafka 4's.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """The minimum time between two computations of the target assignment (KIP-1263)."""


@attrs.frozen
class WarmupSettings:
    """The settings by which tasks move between members of a streams group (`streams/warmups.py`)."""

    num_warmup_replicas: int = 2
    """The maximum number of tasks that warm up at a time; with 0, tasks move at once."""
    acceptable_recovery_lag: int = 10_000
    """The maximum number of records that a task may lack on the member to which it moves."""


@attrs.frozen
class StreamsGroupSettings:
    """The settings of one streams group: streams.* of its configuration, else the broker's group.streams.*.

    The defaults are Kafka 4's.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """The minimum time between two computations of the target assignment (KIP-1263)."""
    num_standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3_000
    """The time for which an empty group waits for more members before its first assignment."""
    warmups: WarmupSettings = attrs.field(factory=WarmupSettings)
    task_offset_interval_ms: int = 60_000
    """The interval at which members report the offsets of their tasks."""


@attrs.frozen
class GroupConfig:
    """Defaults are Kafka 4's, except the initial rebalance delay: here the first consumer does not wait 3 s."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms: a JoinGroup below it is INVALID_SESSION_TIMEOUT."""
    max_session_timeout_ms: int = 30 * MINUTE_MS
    """group.max.session.timeout.ms."""
    initial_rebalance_delay_ms: int = 0
    """group.initial.rebalance.delay.ms: the wait of an empty group before its first generation."""
    max_size: int = 2**31 - 1
    """group.max.size: members beyond it are GROUP_MAX_SIZE_REACHED."""
    consumer_max_size: int = 2**31 - 1
    """group.consumer.max.size: the same for consumer groups."""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors, the default first."""
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """group.consumer.migration.policy."""
    consumer_regex_refresh_interval_ms: int = 10 * MINUTE_MS
    """group.consumer.regex.refresh.interval.ms: the interval at which subscribed regular expressions are matched."""
    share_max_size: int = 200
    """group.share.max.size: the maximum size of share groups."""
    share_initialize_retry_interval_ms: int = 30_000
    """group.share.initialize.retry.interval.ms: the time after which an unanswered request is repeated."""
    streams_max_size: int = 2**31 - 1
    """group.streams.max.size: the maximum size of streams groups."""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """The maximum time for which a new member stays parked in its first JoinGroup (a constant in Kafka)."""
    offset_metadata_max_length: int = 4_096
    """offset.metadata.max.bytes, which Kafka counts in UTF-16 units."""
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    """offsets.retention.minutes."""
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    """offsets.retention.check.interval.ms."""

"""Internal topics: their sizes and configurations, as Kafka creates them."""

from __future__ import annotations

import attrs

from kwire.config.server import ServerConfig
from kwire.config.tables.topic import SEGMENT_BYTES_MIN
from kwire.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE


@attrs.frozen
class TopicPlan:
    """A topic that the broker creates itself; the replication factor is at most the number of brokers."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


def plan_topic(name: str, config: ServerConfig) -> TopicPlan:
    """How an automatically created topic is made: internal topics with their own settings, others with the defaults."""
    if name == CONSUMER_OFFSETS:
        return TopicPlan(
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                **_segment_bytes(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE:
        return TopicPlan(
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "unclean.leader.election.enable": "false",
                **_segment_bytes(config.transaction_state_log_segment_bytes),
            },
        )
    if name == SHARE_GROUP_STATE:
        return TopicPlan(
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                **_segment_bytes(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    return TopicPlan(config.num_partitions, config.default_replication_factor, {})


def _segment_bytes(size: int) -> dict[str, str]:
    # The settings of internal topics may be below what segment.bytes allows.
    return {"segment.bytes" if size >= SEGMENT_BYTES_MIN else "internal.segment.bytes": str(size)}

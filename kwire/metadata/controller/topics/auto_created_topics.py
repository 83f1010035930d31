"""The topics that brokers create without a CreateTopics request: internal ones, and those that a client has named."""

from __future__ import annotations

import attrs

from kwire.config.server import ServerConfig
from kwire.config.tables.topic import SEGMENT_BYTES_MIN
from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.partitions.placement import Placer
from kwire.metadata.controller.topics.new_topics import check_new_name, clamped_replication_factor, topic_records
from kwire.names.topic_names import INTERNAL_TOPICS


@attrs.frozen
class TopicPlan:
    """A topic that the broker creates itself. A broker that is alone has one replica of it, for any configuration."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


def auto_create_topic(state: ClusterState, name: str) -> Records:
    """Creates a topic with the default settings, or with its own if it is internal.

    Raises KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR (no broker).
    """
    check_new_name(state, name)
    plan = plan_topic(name, state.config)
    assignment = Placer.of(state.image).place(
        count=plan.partitions,
        replication_factor=clamped_replication_factor(state, plan.replication_factor),
    )
    return topic_records(state, name, state.new_id(), plan.configs, assignment)


def plan_topic(name: str, config: ServerConfig) -> TopicPlan:
    """The plan of an automatically created topic: internal topics have their own settings, others the defaults."""
    topic = INTERNAL_TOPICS.get(name)
    if topic is None:
        return TopicPlan(config.num_partitions, config.default_replication_factor, {})
    sizes = config.internal_topics[name]
    configs = {**topic.configs, **_segment_bytes(sizes.segment_bytes)}
    if sizes.min_isr is not None:
        configs["min.insync.replicas"] = str(sizes.min_isr)
    return TopicPlan(sizes.num_partitions, sizes.replication_factor, configs)


def _segment_bytes(size: int) -> dict[str, str]:
    # The settings of internal topics may be below the minimum of segment.bytes.
    return {"segment.bytes" if size >= SEGMENT_BYTES_MIN else "internal.segment.bytes": str(size)}

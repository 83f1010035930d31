"""Makes a topic: checks its name, chooses the default number of replicas, and returns its records.

Separate from `topic_creation`, because brokers also create topics without a CreateTopics request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.metadata_configs import ConfigRecord
from kwire_protocol.internal.metadata_topics import TopicRecord
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.metadata.controller.deciding import ClusterState, Records
from kwire.metadata.controller.partitions.placement import partition_record
from kwire.metadata.image import ConfigResourceType
from kwire.names.topic_names import CLUSTER_METADATA, check_topic_name, has_collision_chars, unified_name


def check_new_name(state: ClusterState, name: str) -> None:
    """Checks a name. Raises INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (__cluster_metadata), TOPIC_ALREADY_EXISTS."""
    check_topic_name(name)
    if name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in state.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.")
    if has_collision_chars(name):
        colliding = state.image.colliding_names.get(unified_name(name))
        if colliding:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic {name!r} collides with existing topic {min(colliding)!r}: metrics cannot tell '.' from '_'. "
                "Choose another name.",
            )


def clamped_replication_factor(state: ClusterState, configured: int) -> int:
    """A configured replication factor: at most 1 for a broker that is alone.

    In a cluster it is used as configured. If it were limited to the brokers that start first, the topics that they
    create would have too few replicas forever.
    """
    return max(1, min(configured, len(state.image.live_brokers()))) if state.is_alone else configured


def topic_records(
    state: ClusterState, name: str, topic_id: Uuid, configs: Mapping[str, str], assignment: Sequence[Sequence[int]]
) -> Records:
    """Returns the topic, its configurations, then its partitions in order, as Kafka writes them."""
    return [
        TopicRecord(name, topic_id),
        *(ConfigRecord(ConfigResourceType.TOPIC, name, key, value) for key, value in configs.items()),
        *(partition_record(state.image, topic_id, index, replicas) for index, replicas in enumerate(assignment)),
    ]

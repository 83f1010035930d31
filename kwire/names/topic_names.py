"""The rules for valid topic names, and the list of internal topics. The rules are Kafka's.

A topic's name is part of a path, so it is checked before any other use.

`INTERNAL_TOPICS` is the only list of internal topics: all code that marks, creates, configures or describes them uses
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted

MAX_NAME_LENGTH: Final = 249

CLUSTER_METADATA: Final = "__cluster_metadata"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"


@attrs.frozen
class InternalTopicSettings:
    """A topic that brokers write for themselves. They create it when it is first needed.

    `num_partitions`, `replication_factor`, `segment_bytes` and `min_isr` are the names of the broker configurations
    with which it is created. `configs` are its other configurations.
    """

    name: str
    num_partitions: str
    replication_factor: str
    segment_bytes: str
    min_isr: str | None
    configs: Mapping[str, str]


INTERNAL_TOPICS: Final[Mapping[str, InternalTopicSettings]] = {
    it.name: it
    for it in (
        InternalTopicSettings(
            CONSUMER_OFFSETS,
            "offsets.topic.num.partitions",
            "offsets.topic.replication.factor",
            "offsets.topic.segment.bytes",
            None,
            {"cleanup.policy": "compact", "compression.type": "producer"},
        ),
        InternalTopicSettings(
            TRANSACTION_STATE,
            "transaction.state.log.num.partitions",
            "transaction.state.log.replication.factor",
            "transaction.state.log.segment.bytes",
            "transaction.state.log.min.isr",
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
            },
        ),
        InternalTopicSettings(
            SHARE_GROUP_STATE,
            "share.coordinator.state.topic.num.partitions",
            "share.coordinator.state.topic.replication.factor",
            "share.coordinator.state.topic.segment.bytes",
            "share.coordinator.state.topic.min.isr",
            {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
        ),
    )
}
"""The internal topics by name. Responses mark them as internal."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION) if the name is not valid."""
    if not name:
        why = "the empty string is not allowed."
    elif name in (".", ".."):
        why = f"{name!r} is not allowed."
    elif len(name) > MAX_NAME_LENGTH:
        why = f"its length of {len(name)} characters is longer than the max allowed length {MAX_NAME_LENGTH}."
    elif not _LEGAL.fullmatch(name):
        why = f"{quoted(name)} contains characters other than ASCII alphanumerics, '.', '_' and '-'."
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def no_such_topic(name: str) -> str:
    return f"This server does not host this topic-partition: topic {quoted(name)} not found."


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def has_collision_chars(name: str) -> bool:
    return "." in name or "_" in name


def unified_name(name: str) -> str:
    """Returns the name as in Kafka's metrics, where `.` and `_` are the same."""
    return name.replace(".", "_")


def internal_replication_factors(replicas: int) -> dict[str, str]:
    """Returns the broker configurations with which every internal topic has that many replicas."""
    return {topic.replication_factor: str(replicas) for topic in INTERNAL_TOPICS.values()}

"""Which topic names are valid, and which topics are internal. The rules are Kafka's.

A topic's name is part of a path, so it is checked before any other use.
"""

from __future__ import annotations

import re
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted

MAX_NAME_LENGTH: Final = 249

CLUSTER_METADATA: Final = "__cluster_metadata"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE))
"""Topics that responses mark as internal."""

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
    """The name as in Kafka's metrics, where `.` and `_` are the same."""
    return name.replace(".", "_")

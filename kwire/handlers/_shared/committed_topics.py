"""Helpers of OffsetCommit and TxnOffsetCommit: offsets are committed only for partitions that exist.

Each other partition gets its own error; the rest of the request is carried out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.offset_commit import OffsetCommitRequestTopic, OffsetCommitResponseTopic
from kwire_protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic, TxnOffsetCommitResponseTopic
from kwire_protocol.wire import Uuid

from kwire.metadata.image import MetadataImage

Topic = TypeVar("Topic", OffsetCommitRequestTopic, TxnOffsetCommitRequestTopic)
Answer = TypeVar("Answer", OffsetCommitResponseTopic, TxnOffsetCommitResponseTopic)


@attrs.frozen
class Missing:
    """The partitions of a topic that do not exist, and their error."""

    name: str
    topic_id: Uuid
    partitions: list[int]
    error: ErrorCode


def committed_name(image: MetadataImage, topic: Topic, *, by_id: bool) -> str | None:
    """Returns the topic's name; None if no topic has this id."""
    if not by_id:
        return topic.name
    found = image.topics_by_id.get(topic.topic_id)
    return None if found is None else found.name


def take_missing(image: MetadataImage, topics: Sequence[Topic], *, by_id: bool) -> Iterator[Missing]:
    """Sets each topic's name and id, and removes the partitions that do not exist."""
    for topic in topics:
        found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        if found is None:
            count, error = 0, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic.name, topic.topic_id = found.name, found.topic_id
            count, error = len(found.partitions), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = [it.partition_index for it in topic.partitions if not 0 <= it.partition_index < count]
        if missing:
            yield Missing(topic.name, topic.topic_id, missing, error)
            topic.partitions = [it for it in topic.partitions if 0 <= it.partition_index < count]


def merged(refused: list[Answer], answered: list[Answer]) -> list[Answer]:
    """Returns one response for each topic, refused partitions first."""
    topics = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in answered:
        known = topics.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions += topic.partitions
    return list(topics.values())

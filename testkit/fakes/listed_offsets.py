"""Answers to ListOffsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def response_of(request: Any, answer: Callable[[int], tuple[int, int]]) -> ListOffsetsResponse:
    """`answer`: partition to error code and offset."""
    (topic,) = request.topics
    partitions = []
    for it in topic.partitions:
        code, offset = answer(it.partition_index)
        partitions.append(ListOffsetsPartitionResponse(it.partition_index, code, offset=offset))
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic.name, partitions)])

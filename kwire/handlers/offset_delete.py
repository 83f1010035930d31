"""OffsetDelete: v0 (KIP-496).

Offsets of topics that a member of the group is subscribed to are in use and stay: GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(broker: Broker, request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    wanted, request.topics = request.topics, []
    for topic in wanted:
        _check(broker, topic, refused)
        if topic.partitions:
            request.topics.append(topic)
    try:
        response = await broker.groups.delete_offsets(request)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    if response.error_code:
        return response
    for answered in response.topics:
        known = refused.setdefault(answered.name, answered)
        if known is not answered:
            known.partitions += answered.partitions
    return OffsetDeleteResponse(topics=list(refused.values()))


def _check(broker: Broker, topic: OffsetDeleteRequestTopic, refused: dict[str, OffsetDeleteResponseTopic]) -> None:
    """Moves the partitions that do not exist to `refused`."""
    found = broker.metadata.image.topics.get(topic.name)
    count = 0 if found is None else len(found.partitions)
    missing = [it.partition_index for it in topic.partitions if not 0 <= it.partition_index < count]
    if missing:
        answer = refused.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name))
        answer.partitions += [
            OffsetDeleteResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in missing
        ]
        topic.partitions = [it for it in topic.partitions if 0 <= it.partition_index < count]

"""ListPartitionReassignments: v0 (KIP-455).

Lists the reassignments in progress, of all topics or of some partitions. Partitions that do not exist are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.image import TopicImage
    from kwire.metadata.service import MetadataService


def handle(
    metadata: MetadataService,
    authorization: Authorization,
    request: ListPartitionReassignmentsRequest,
    context: Context,
) -> ListPartitionReassignmentsResponse:
    try:
        authorization.check(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    response = ListPartitionReassignmentsResponse(error_message=None)
    for topic, indexes in _requested(metadata, request):
        ongoing = [
            OngoingPartitionReassignment(index, list(it.replicas), list(it.adding_replicas), list(it.removing_replicas))
            for index in indexes
            if 0 <= index < len(topic.partitions)
            and ((it := topic.partitions[index]).adding_replicas or it.removing_replicas)
        ]
        if ongoing:
            response.topics.append(OngoingTopicReassignment(topic.name, ongoing))
    return response


def _requested(
    metadata: MetadataService, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[TopicImage, Iterable[int]]]:
    topics = metadata.image.topics
    if request.topics is None:
        for topic in topics.values():
            yield topic, range(len(topic.partitions))
        return
    for requested in request.topics:
        if requested.name in topics:
            yield topics[requested.name], requested.partition_indexes

"""OffsetForLeaderEpoch: v2-4.

* v2: current_leader_epoch, leader_epoch in the response (KIP-320)
* v3: replica_id
* v4: flexible

Returns the end offset of a leader epoch, by which a reader detects that the log was truncated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.replicas.reading import Find
    from kwire.replicas.table import PartitionTable


def handle(
    authorization: Authorization,
    partitions: PartitionTable,
    request: OffsetForLeaderEpochRequest,
    context: Context,
) -> OffsetForLeaderEpochResponse:
    # Followers and consumers send it.
    is_follower = authorization.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    find = partitions.find if is_follower else authorization.finder(context, Operation.DESCRIBE)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic.topic, [_end(find, topic.topic, wanted) for wanted in topic.partitions])
            for topic in request.topics
        ]
    )


def _end(find: Find, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = find(topic, wanted.partition)
        partition.leader(wanted.current_leader_epoch)
        try:
            epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
        except OSError as error:
            raise partition.storage_error(error) from error
    except KafkaError as error:
        return EpochEndOffset(error.code, wanted.partition)
    return EpochEndOffset(0, wanted.partition, epoch, end_offset)

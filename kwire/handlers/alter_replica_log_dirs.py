"""AlterReplicaLogDirs: v1-2 (KIP-113).

* v2: flexible

Responds when the move has started; DescribeLogDirs reports its progress. Naming the folder that the partition is in
cancels a move in progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.logs.moves import LogMoves


def handle(
    authorization: Authorization, moves: LogMoves, request: AlterReplicaLogDirsRequest, context: Context
) -> AlterReplicaLogDirsResponse:
    # As in Kafka, a partition that is named for several folders goes to the last of them.
    wanted = {
        (topic.name, index): log_dir.path
        for log_dir in request.dirs
        for topic in log_dir.topics
        for index in topic.partitions
    }
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in wanted.items():
        result = results.setdefault(name, AlterReplicaLogDirTopicResult(name))
        result.partitions.append(
            AlterReplicaLogDirPartitionResult(index, _move(authorization, moves, context, name, index, path))
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(
    authorization: Authorization, moves: LogMoves, context: Context, topic: str, index: int, path: str
) -> ErrorCode:
    try:
        authorization.check(context, Operation.ALTER, ResourceType.CLUSTER)
        moves.request(topic, index, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE

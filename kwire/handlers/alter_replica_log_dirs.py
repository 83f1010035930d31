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

from kwire.handlers._shared.authorization import check
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
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
        result.partitions.append(AlterReplicaLogDirPartitionResult(index, _move(broker, context, name, index, path)))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(broker: Broker, context: Context, topic: str, index: int, path: str) -> ErrorCode:
    try:
        check(broker, context, Operation.ALTER, ResourceType.CLUSTER)
        broker.moves.request(topic, index, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE

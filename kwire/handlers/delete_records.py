"""DeleteRecords: v0-2.

* v2: flexible

An offset of -1 means the high watermark. The low watermark in the response is the new log start offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from kwire.handlers._shared.authorization import finder
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

UNKNOWN = -1


def handle(broker: Broker, request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name, [_delete(broker, context, topic.name, wanted) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(
    broker: Broker, context: Context, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        partition = finder(broker, context, Operation.DELETE)(topic, wanted.partition_index)
        if partition.is_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        low_watermark = partition.delete_records_before(wanted.offset, now_ms=broker.clock.now_ms())
    except KafkaError as error:
        return DeleteRecordsPartitionResult(wanted.partition_index, UNKNOWN, error.code)
    return DeleteRecordsPartitionResult(wanted.partition_index, low_watermark, 0)

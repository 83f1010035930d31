"""DeleteRecords: v0-2.

* v2: flexible

An offset of -1 means the high watermark. The answer waits until the leader has deleted the records, and all other live
replicas too, for at most timeout_ms. The low watermark in it is the lowest of their log start offsets.
"""

from __future__ import annotations

from collections.abc import Coroutine
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
from kwire.replicas.partition import Acknowledgement, Partition
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

UNKNOWN = -1

Waiting = tuple[DeleteRecordsPartitionResult, Partition, Acknowledgement]


def handle(
    broker: Broker, request: DeleteRecordsRequest, context: Context
) -> DeleteRecordsResponse | Coroutine[Future[KafkaError | None], None, DeleteRecordsResponse]:
    waiting: list[Waiting] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name, [_delete(broker, context, topic.name, wanted, waiting) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )
    return _settled(broker, request, response, waiting) if waiting else response


def _delete(
    broker: Broker, context: Context, topic: str, wanted: DeleteRecordsPartition, waiting: list[Waiting]
) -> DeleteRecordsPartitionResult:
    try:
        partition = finder(broker, context, Operation.DELETE)(topic, wanted.partition_index)
        if partition.is_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        offset = partition.delete_records_before(wanted.offset, now_ms=broker.clock.now_ms())
    except KafkaError as error:
        return DeleteRecordsPartitionResult(wanted.partition_index, UNKNOWN, error.code)
    result = DeleteRecordsPartitionResult(wanted.partition_index, partition.low_watermark, 0)
    acknowledgement = partition.when_deleted(offset)
    if acknowledgement is not None:
        waiting.append((result, partition, acknowledgement))
    return result


async def _settled(
    broker: Broker, request: DeleteRecordsRequest, response: DeleteRecordsResponse, waiting: list[Waiting]
) -> DeleteRecordsResponse:
    deadline_ms = broker.clock.monotonic_ms() + request.timeout_ms
    for result, partition, acknowledgement in waiting:
        acknowledgement.wait_at_most(max(deadline_ms - broker.clock.monotonic_ms(), 0))
        error = await acknowledgement
        if error is None:
            result.low_watermark = partition.low_watermark
        else:
            result.error_code = error.code
            if error.code != ErrorCode.REQUEST_TIMED_OUT:
                result.low_watermark = UNKNOWN
    return response

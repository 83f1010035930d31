"""DeleteRecords: v0-2.

* v2: flexible

An offset of -1 means the high watermark. The response waits until the leader and all other live replicas have deleted
the records, for at most timeout_ms. Its low watermark is the lowest of their log start offsets.
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

from kwire.replicas.acknowledging import Acknowledgement
from kwire.replicas.partition import Partition
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.runtime.clock import Clock

UNKNOWN = -1

Waiting = tuple[DeleteRecordsPartitionResult, Partition, Acknowledgement]


def handle(
    authorization: Authorization, clock: Clock, request: DeleteRecordsRequest, context: Context
) -> DeleteRecordsResponse | Coroutine[Future[KafkaError | None], None, DeleteRecordsResponse]:
    waiting: list[Waiting] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [_delete(authorization, clock, context, topic.name, wanted, waiting) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    return _settled(clock, request, response, waiting) if waiting else response


def _delete(
    authorization: Authorization,
    clock: Clock,
    context: Context,
    topic: str,
    wanted: DeleteRecordsPartition,
    waiting: list[Waiting],
) -> DeleteRecordsPartitionResult:
    try:
        partition = authorization.finder(context, Operation.DELETE)(topic, wanted.partition_index)
        if partition.is_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        offset = partition.delete_records_before(wanted.offset, now_ms=clock.now_ms())
    except KafkaError as error:
        return DeleteRecordsPartitionResult(wanted.partition_index, UNKNOWN, error.code)
    result = DeleteRecordsPartitionResult(wanted.partition_index, partition.low_watermark, 0)
    acknowledgement = partition.when_deleted(offset)
    if acknowledgement is not None:
        waiting.append((result, partition, acknowledgement))
    return result


async def _settled(
    clock: Clock, request: DeleteRecordsRequest, response: DeleteRecordsResponse, waiting: list[Waiting]
) -> DeleteRecordsResponse:
    deadline_ms = clock.monotonic_ms() + request.timeout_ms
    for result, partition, acknowledgement in waiting:
        acknowledgement.wait_at_most(max(deadline_ms - clock.monotonic_ms(), 0))
        error = await acknowledgement
        if error is None:
            result.low_watermark = partition.low_watermark
        else:
            result.error_code = error.code
            if error.code != ErrorCode.REQUEST_TIMED_OUT:
                result.low_watermark = UNKNOWN
    return response

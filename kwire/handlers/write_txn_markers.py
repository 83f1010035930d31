"""WriteTxnMarkers: v1-2.

* v1: flexible
* v2: transaction_version (KIP-1228): from 2 on a marker's epoch is above that of the transaction's records

A coordinator sends it to the leaders of a transaction's partitions, and an admin client to end a hanging transaction
(KIP-664). Each partition has its own result. As with acks=-1, the response waits until the marker is committed. As in
Kafka, a partition of `__consumer_offsets` that is being loaded is NOT_LEADER_OR_FOLLOWER, and the sender retries.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from kwire.replicas.acknowledging import ALL_IN_SYNC, Acknowledgement
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.replicas.table import PartitionTable
    from kwire.runtime.clock import Clock

Results = dict[int, dict[str, dict[int, WritableTxnMarkerPartitionResult]]]
"""The results by producer id, topic and partition. Several markers for the same key have one result, the last one's."""
Pending = list[tuple[WritableTxnMarkerPartitionResult, Acknowledgement]]


def handle(
    authorization: Authorization,
    partitions: PartitionTable,
    groups: GroupService,
    clock: Clock,
    request: WriteTxnMarkersRequest,
    context: Context,
) -> WriteTxnMarkersResponse | Coroutine[Future[Any], None, WriteTxnMarkersResponse]:
    # Coordinators send it, and admin clients that end a hanging transaction.
    is_allowed = authorization.allows(context, Operation.ALTER, ResourceType.CLUSTER) or authorization.allows(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    )
    results: Results = {}
    pending: Pending = []
    for marker in request.markers:
        for topic in marker.topics:
            answers = results.setdefault(marker.producer_id, {}).setdefault(topic.name, {})
            for index in topic.partition_indexes:
                if is_allowed:
                    answers[index] = _write(partitions, groups, clock, marker, topic.name, index, pending)
                else:
                    answers[index] = WritableTxnMarkerPartitionResult(index, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response = WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                producer_id,
                [WritableTxnMarkerTopicResult(name, list(answers.values())) for name, answers in topics.items()],
            )
            for producer_id, topics in results.items()
        ]
    )
    return _when_committed(response, pending) if pending else response


def _write(
    partitions: PartitionTable,
    groups: GroupService,
    clock: Clock,
    marker: WritableTxnMarker,
    topic: str,
    index: int,
    pending: Pending,
) -> WritableTxnMarkerPartitionResult:
    answer = WritableTxnMarkerPartitionResult(index)
    try:
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        partition = partitions.find(topic, index)
        offsets = groups.runtime
        if topic == offsets.topic.name and offsets.is_loading(index):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        result = partition.write_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            now_ms=clock.now_ms(),
        )
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    acknowledgement = partition.when_committed(result.last_offset, ALL_IN_SYNC)
    if acknowledgement is not None:
        pending.append((answer, acknowledgement))
    return answer


async def _when_committed(response: WriteTxnMarkersResponse, pending: Pending) -> WriteTxnMarkersResponse:
    for answer, acknowledgement in pending:
        error = await acknowledgement
        if error is not None:
            answer.error_code = error.code
    return response

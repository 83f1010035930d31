"""Produce: v3-13.

* v3: transactional_id; record batches (magic 2)
* v5: log_start_offset
* v7: zstd
* v8: record_errors, error_message (KIP-467)
* v9: flexible
* v10: current_leader, node_endpoints (KIP-951)
* v13: topic ids instead of names (KIP-516)

With acks=0 there is no response; an error closes the connection, which is all such a producer can learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

from kwire.handlers.leaders import node_endpoints
from kwire.partition import Partition, is_leader_error
from kwire.partitions import TopicKey
from kwire.produce_validation import InvalidRecords, check_produced

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

VALID_ACKS = (-1, 0, 1)
MAX_TOLD_NAME_LENGTH = 249
"""Of a topic's name in the log: whoever made it up may have made it longer than names can be."""
LEADERS_TOLD_SINCE = 10


class UnacknowledgedProduceFailed(Exception):
    """A produce with acks=0 failed: the connection closes, since no answer may be sent."""


async def handle(broker: Broker, request: ProduceRequest, context: Context) -> ProduceResponse | None:
    now_ms = broker.clock.now_ms()
    failed = False
    moved = False
    responses = []
    for topic in request.topic_data:
        key = (topic.name, topic.topic_id)
        partition_responses = []
        for data in topic.partition_data:
            answer = _append(broker, key, data, request, context.api_version, now_ms)
            failed = failed or answer.error_code != 0
            moved = moved or answer.current_leader is not None
            partition_responses.append(answer)
        responses.append(TopicProduceResponse(topic.name, topic.topic_id, partition_responses))
    if request.acks == 0:
        if failed:
            raise UnacknowledgedProduceFailed(_first_error(responses))
        return None
    return ProduceResponse(responses, 0, node_endpoints(broker, context, NodeEndpoint) if moved else [])


def _append(
    broker: Broker, key: TopicKey, data: PartitionProduceData, request: ProduceRequest, version: int, now_ms: int
) -> PartitionProduceResponse:
    partition: Partition | None = None
    try:
        if request.acks not in VALID_ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        partition = broker.partitions.find(key, data.index)
        if partition.is_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to {partition.topic}")
        checked = check_produced(data.records, partition.rules, version=version, now_ms=now_ms)
        if checked.header.is_transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition is not part of an open transaction")
        result = partition.append(checked, acks=request.acks, now_ms=now_ms)
    except KafkaError as error:
        return _refused(data.index, error, partition, version)
    return PartitionProduceResponse(
        data.index, 0, result.base_offset, result.log_append_time_ms, partition.log.log_start_offset
    )


def _refused(index: int, error: KafkaError, partition: Partition | None, version: int) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index, error.code, -1, error_message=error.message)
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(record.batch_index, record.message) for record in error.record_errors
        ]
    if partition is not None:
        if error.code == ErrorCode.INVALID_RECORD:
            answer.log_start_offset = partition.log_start_offset
        if version >= LEADERS_TOLD_SINCE and is_leader_error(error.code):
            answer.current_leader = LeaderIdAndEpoch(partition.leader_id, partition.leader_epoch)
    return answer


def _first_error(responses: list[TopicProduceResponse]) -> str:
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                name = ErrorCode(answer.error_code).name
                told = (topic.name or topic.topic_id.hex())[:MAX_TOLD_NAME_LENGTH]
                return f"acks=0 to {told!a}, partition {answer.index}: {name}: {answer.error_message}"
    raise AssertionError("called without an error")

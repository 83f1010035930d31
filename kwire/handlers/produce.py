"""Produce: v3-13.

* v3: transactional_id; record batches (magic 2)
* v5: log_start_offset
* v7: zstd
* v8: record_errors, error_message (KIP-467)
* v9: flexible
* v10: current_leader, node_endpoints (KIP-951)
* v13: topic ids instead of names (KIP-516)

Under flush.messages the answer waits for the fsync (kwire.flush_gate). With acks=0 there is no response: an error
closes the connection, which is all such a producer can learn.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kwire_protocol.wire import Uuid

from kwire.handlers.leaders import node_endpoints
from kwire.handlers.produce_refusals import refused
from kwire.partition import Partition
from kwire.partitions import TopicRef
from kwire.produce_validation import check_produced
from kwire.waits import Slot

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

VALID_ACKS = (-1, 0, 1)
MAX_TOLD_NAME_LENGTH = 249
"""Of a topic's name in the log: whoever made it up may have made it longer than names can be."""
FIRST_VERSION_WITH_IDS = 13


class UnacknowledgedProduceFailed(Exception):
    """A produce with acks=0 failed: the connection closes, since no answer may be sent."""


Held = list[tuple[PartitionProduceResponse, Slot[KafkaError | None]]]
"""Answers that flush.messages keeps back, each with what tells when, and whether, the medium has it."""


def handle(
    broker: Broker, request: ProduceRequest, context: Context
) -> ProduceResponse | Coroutine[Slot[Any], None, ProduceResponse] | None:
    now_ms = broker.clock.now_ms()
    refusals: list[PartitionProduceResponse] = []
    held: Held = []
    responses = []
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    topics = request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        topics = _each_once(topics)
    for topic in topics:
        ref = topic.topic_id if by_id else topic.name
        partition_responses = []
        for data in topic.partition_data:
            answer = _append(broker, ref, data, request, context.api_version, now_ms, held)
            if answer.error_code:
                refusals.append(answer)
            partition_responses.append(answer)
        responses.append(TopicProduceResponse(topic.name, topic.topic_id, partition_responses))
    if request.acks == 0:
        if refusals:
            raise UnacknowledgedProduceFailed(_first_error(responses))
        return None
    response = ProduceResponse(responses)
    if refusals and any(refusal.current_leader is not None for refusal in refusals):
        response.node_endpoints = node_endpoints(broker, context, NodeEndpoint)
    return _when_flushed(response, held) if held else response


async def _when_flushed(response: ProduceResponse, held: Held) -> ProduceResponse:
    for answer, slot in held:
        error = await slot
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    return response


def _each_once(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Each partition once, however often it is named: what is named last counts, as in Kafka."""
    merged: dict[tuple[str, Uuid], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        merged.setdefault((topic.name, topic.topic_id), {}).update({data.index: data for data in topic.partition_data})
    return [TopicProduceData(*key, list(named.values())) for key, named in merged.items()]


def _append(
    broker: Broker,
    ref: TopicRef,
    data: PartitionProduceData,
    request: ProduceRequest,
    version: int,
    now_ms: int,
    held: Held,
) -> PartitionProduceResponse:
    partition: Partition | None = None
    try:
        if request.acks not in VALID_ACKS:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        partition = broker.partitions.find(ref, data.index)
        if partition.is_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to {partition.topic}")
        batch, header = check_produced(data.records, partition.rules, version=version, now_ms=now_ms)
        if header.is_transactional:
            if request.transactional_id is None:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition is not part of an open transaction")
        result = partition.append(batch, header, acks=request.acks, now_ms=now_ms)
    except KafkaError as error:
        return refused(data, error, partition, version)
    answer = PartitionProduceResponse(
        data.index, 0, result.base_offset, result.log_append_time_ms, partition.log.log_start_offset
    )
    gate = partition.flush_gate
    if result.last_offset >= gate.held_from:
        held.append((answer, gate.when_flushed(result.last_offset)))
    return answer


def _first_error(responses: list[TopicProduceResponse]) -> str:
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                name = ErrorCode(answer.error_code).name
                told = (topic.name or topic.topic_id.hex())[:MAX_TOLD_NAME_LENGTH]
                return f"acks=0 to {told!a}, partition {answer.index}: {name}: {answer.error_message}"
    raise AssertionError("called without an error")

"""Produce: v3-13.

* v3: transactional_id; record batches (magic 2)
* v5: log_start_offset
* v7: zstd
* v8: record_errors, error_message (KIP-467)
* v9: flexible
* v10: current_leader, node_endpoints (KIP-951)
* v11: TRANSACTION_ABORTABLE may be returned
* v12: a transaction's first batch adds the partition to it (KIP-890, transaction version 2)
* v13: topic ids instead of names (KIP-516)

What comes before a transaction's first batch is in `_shared/produce_enlisting.py`. What an answer may have to wait for
is in `_shared/produce_held.py`. With acks=0 there is no response: an error closes the connection, which is all such a
producer can learn.
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

from kwire.handlers._shared.leaders import node_endpoints
from kwire.handlers._shared.produce_enlisting import enlist
from kwire.handlers._shared.produce_held import Held, settled, settled_unacknowledged
from kwire.handlers._shared.produce_refusals import refuse, unacknowledged
from kwire.replicas.partition import Partition
from kwire.replicas.table import TopicRef
from kwire.replicas.validation import check_produced
from kwire.waits import Slot

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

VALID_ACKS = (-1, 0, 1)
FIRST_VERSION_WITH_IDS = 13


def handle(
    broker: Broker, request: ProduceRequest, context: Context
) -> ProduceResponse | Coroutine[Slot[Any], None, ProduceResponse | None] | None:
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
        if held:
            return settled_unacknowledged(broker, responses, held, context.api_version)
        if refusals:
            raise unacknowledged(responses)
        return None
    response = ProduceResponse(responses)
    if refusals and any(refusal.current_leader is not None for refusal in refusals):
        response.node_endpoints = node_endpoints(broker, context, NodeEndpoint)
    return settled(broker, response, held, context) if held else response


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
            enlistment = enlist(
                broker,
                request.transactional_id,
                partition,
                batch,
                header,
                acks=request.acks,
                version=version,
                now_ms=now_ms,
            )
            if enlistment is not None:
                answer = PartitionProduceResponse(data.index)
                held.append((answer, enlistment))
                return answer
        result = partition.append(batch, header, acks=request.acks, now_ms=now_ms)
    except KafkaError as error:
        answer = PartitionProduceResponse(data.index)
        refuse(answer, data.records, error, partition, version)
        return answer
    answer = PartitionProduceResponse(
        data.index, 0, result.base_offset, result.log_append_time_ms, partition.log.log_start_offset
    )
    gate = partition.flush_gate
    if result.last_offset >= gate.held_from and request.acks:
        held.append((answer, gate.when_flushed(result.last_offset)))
    return answer

"""What an answer to Produce waits for: a transaction's coordinator (`produce_enlisting.py`), or the medium.

The medium where flush.messages asks for it (`kwire.replicas.flush_gate`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.produce import (
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

from kwire.handlers._shared.leaders import node_endpoints
from kwire.handlers._shared.produce_enlisting import Enlistment
from kwire.handlers._shared.produce_refusals import refuse, unacknowledged
from kwire.waits import Slot

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

Held = list[tuple[PartitionProduceResponse, Slot[KafkaError | None] | Enlistment]]
"""Answers that are not complete yet, each with what it waits for."""


async def settled(broker: Broker, response: ProduceResponse, held: Held, context: Context) -> ProduceResponse:
    """The response, when all its answers are complete."""
    refusals = await _settle(broker, held, context.api_version)
    if not response.node_endpoints and any(refusal.current_leader is not None for refusal in refusals):
        response.node_endpoints = node_endpoints(broker, context, NodeEndpoint)
    return response


async def settled_unacknowledged(
    broker: Broker, responses: list[TopicProduceResponse], held: Held, version: int
) -> None:
    """Raises UnacknowledgedProduceFailed."""
    await _settle(broker, held, version)
    if any(answer.error_code for topic in responses for answer in topic.partition_responses):
        raise unacknowledged(responses)


async def _settle(broker: Broker, held: Held, version: int) -> list[PartitionProduceResponse]:
    """Completes the answers; returns those that have become refusals."""
    refusals = []
    flushing: list[tuple[PartitionProduceResponse, Slot[KafkaError | None]]] = []
    # All are appended before the first flush is waited for: they share it.
    for answer, waited in held:
        if not isinstance(waited, Enlistment):
            flushing.append((answer, waited))
            continue
        partition = waited.partition
        try:
            result = await waited.append(broker)
        except KafkaError as error:
            refuse(answer, waited.batch, error, partition, version)
            refusals.append(answer)
            continue
        answer.base_offset, answer.log_append_time_ms = result.base_offset, result.log_append_time_ms
        answer.log_start_offset = partition.log_start_offset
        if waited.acks and result.last_offset >= partition.flush_gate.held_from:
            flushing.append((answer, partition.flush_gate.when_flushed(result.last_offset)))
    for answer, slot in flushing:
        error_or_none = await slot
        if error_or_none is not None:
            answer.error_code, answer.error_message = error_or_none.code, error_or_none.message
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
            refusals.append(answer)
    return refusals

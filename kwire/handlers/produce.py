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

`kwire.replicas.append` decides whether a batch is appended, and when that is acknowledged. With acks=0 there is no
response, so an error closes the connection; it cannot be reported in another way.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kwire_protocol.record_batch import read_header
from kwire_protocol.wire import Uuid

from kwire.handlers._shared.leaders import node_endpoints
from kwire.handlers.context import CloseConnection
from kwire.replicas.append import Appends, Refusals
from kwire.runtime.futures import Future
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.runtime.clock import Clock
    from kwire.transactions.service import TransactionService

FIRST_VERSION_WITH_IDS = 13
MAX_SHOWN_NAME_LENGTH = 249
"""The maximum length of a topic's name in a log line: a client may send a name that is longer than allowed."""


def handle(
    nodes: Nodes,
    authorization: Authorization,
    transactions: TransactionService,
    clock: Clock,
    request: ProduceRequest,
    context: Context,
) -> ProduceResponse | Coroutine[Future[Any], None, ProduceResponse | None] | None:
    version = context.api_version
    find = authorization.finder(context, Operation.WRITE)
    appends = Appends(version, find, transactions.enlist, request, clock.now_ms())
    if request.transactional_id is not None:
        try:
            authorization.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        except KafkaError as error:
            if _is_transactional(request):
                appends.refusal = error
    by_id = version >= FIRST_VERSION_WITH_IDS
    topics = request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        topics = _each_once(topics)
    response = ProduceResponse()
    for topic in topics:
        ref = topic.topic_id if by_id else topic.name
        answers = [appends.append(ref, data) for data in topic.partition_data]
        response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
    if appends.pending:
        return _settled(nodes, clock, response, appends, context)
    if appends.has_refusals or not request.acks:
        return completed(nodes, response, appends, request.acks, context)
    return response


async def _settled(
    nodes: Nodes, clock: Clock, response: ProduceResponse, appends: Appends, context: Context
) -> ProduceResponse | None:
    await appends.settle(clock)
    return completed(nodes, response, appends, appends.request.acks, context)


def completed(
    nodes: Nodes, response: ProduceResponse, refusals: Refusals, acks: int, context: Context
) -> ProduceResponse | None:
    """Returns the response to send to the client; None with acks=0.

    Raises CloseConnection for refusals with acks=0.
    """
    if acks == 0:
        if refusals.has_refusals:
            raise _unacknowledged(response)
        return None
    if refusals.leader_moved:
        response.node_endpoints = node_endpoints(nodes, context, NodeEndpoint)
    return response


def _is_transactional(request: ProduceRequest) -> bool:
    """Returns True if a batch is transactional. Others need no transactional id, even if the request has one."""
    return any(_has_flag(data.records or b"") for topic in request.topic_data for data in topic.partition_data)


def _is_batch(records: bytes | bytearray | memoryview) -> bool:
    try:
        read_header(records)
    except KafkaError:
        return False
    return True


def _has_flag(batch: bytes | bytearray | memoryview) -> bool:
    try:
        return read_header(batch).is_transactional
    except KafkaError:
        return False  # no batch


def _each_once(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Returns each partition once, even if the request has it several times.

    As in Kafka, the last entry counts, unless the records of one are not a batch, which is the partition's error then.
    """
    if len(topics) == 1 and len({data.index for data in topics[0].partition_data}) == len(topics[0].partition_data):
        return topics
    merged: dict[tuple[str, Uuid], dict[int, PartitionProduceData]] = {}
    no_batches = []
    for topic in topics:
        key = topic.name, topic.topic_id
        merged.setdefault(key, {}).update({data.index: data for data in topic.partition_data})
        no_batches += [(key, data) for data in topic.partition_data if not _is_batch(data.records or b"")]
    for key, data in no_batches:
        merged[key][data.index] = data
    return [TopicProduceData(*key, list(named.values())) for key, named in merged.items()]


def _unacknowledged(response: ProduceResponse) -> CloseConnection:
    """Returns the error that closes the connection of a producer with acks=0: the first one in the response."""
    topic, answer = next(
        (topic, answer) for topic in response.responses for answer in topic.partition_responses if answer.error_code
    )
    name = ErrorCode(answer.error_code).name
    shown_name = (topic.name or topic.topic_id.hex())[:MAX_SHOWN_NAME_LENGTH]
    return CloseConnection(f"acks=0 to {shown_name!a}, partition {answer.index}: {name}: {answer.error_message}")

"""DescribeProducers: v0 (KIP-664).

Lists every producer with state in this broker's replica, leader or not, including those without transactions. A
producer with an open transaction has the transaction's first offset. A transaction that its coordinator does not have,
or has ended, is hanging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

from kwire.names.topic_names import check_topic_name
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.runtime.clock import Clock

NO_TRANSACTION = -1


def handle(
    authorization: Authorization, clock: Clock, request: DescribeProducersRequest, context: Context
) -> DescribeProducersResponse:
    # Each partition once, however often it is named: it may have very many producers.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name, [_describe(authorization, clock, context, name, index) for index in indexes])
            for name, indexes in wanted.items()
        ]
    )


def _describe(
    authorization: Authorization, clock: Clock, context: Context, topic: str, index: int
) -> PartitionResponse:
    try:
        check_topic_name(topic)
        partition = authorization.finder(context, Operation.READ)(topic, index)
        producers = partition.describe_producers(now_ms=clock.now_ms())
    except KafkaError as error:
        return PartitionResponse(index, error.code, error.message)
    return PartitionResponse(
        index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=(
                    NO_TRANSACTION if producer.txn_first_offset is None else producer.txn_first_offset
                ),
            )
            for producer in producers
        ],
    )

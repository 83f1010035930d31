"""DescribeTransactions: v0 (KIP-664). Flexible from the beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

from kwire.handlers._shared.authorization import check, divided
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: DescribeTransactionsRequest, context: Context) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(broker, context, transactional_id) for transactional_id in request.transactional_ids
        ]
    )


def _describe(broker: Broker, context: Context, transactional_id: str) -> TransactionState:
    try:
        check(broker, context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        state = broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    state.topics, _ = divided(broker, context, Operation.DESCRIBE, state.topics, lambda it: it.topic)
    return state

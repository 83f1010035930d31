"""DescribeTransactions: v0 (KIP-664). Flexible from the beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.transactions.service import TransactionService


def handle(
    authorization: Authorization,
    transactions: TransactionService,
    request: DescribeTransactionsRequest,
    context: Context,
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(authorization, transactions, context, transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


def _describe(
    authorization: Authorization, transactions: TransactionService, context: Context, transactional_id: str
) -> TransactionState:
    try:
        authorization.check(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        state = transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    state.topics, _ = authorization.divided(context, Operation.DESCRIBE, state.topics, lambda it: it.topic)
    return state

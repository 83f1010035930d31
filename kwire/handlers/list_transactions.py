"""ListTransactions: v0-2 (KIP-664).

* v0: flexible; filters by state and producer id
* v1: duration_filter: only transactions that have been open for at least this many ms (KIP-994)
* v2: transactional_id_pattern (KIP-1152)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.transactions.service import TransactionService


def handle(
    authorization: Authorization, transactions: TransactionService, request: ListTransactionsRequest, context: Context
) -> ListTransactionsResponse:
    try:
        response = transactions.list_transactions(request)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    response.transaction_states = [
        it
        for it in response.transaction_states
        if authorization.allows(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, it.transactional_id)
    ]
    return response

"""EndTxn: v0-5.

* v2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
* v3: flexible
* v4: TRANSACTION_ABORTABLE may be returned (KIP-890)
* v5: transaction version 2: the epoch is bumped at the end of each transaction, and returned

Responds when the decision is in the log. The markers are written after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

from kwire.handlers._shared.transactions import older_error
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.transactions.service import TransactionService

FIRST_VERSION_WITH_EPOCH_BUMP = 5


async def handle(
    authorization: Authorization, transactions: TransactionService, request: EndTxnRequest, context: Context
) -> EndTxnResponse:
    bumps_epoch = context.api_version >= FIRST_VERSION_WITH_EPOCH_BUMP
    try:
        authorization.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        response = await transactions.end(request, transaction_version=2 if bumps_epoch else 0)
    except KafkaError as error:
        response = EndTxnResponse(error_code=error.code)
    response.error_code = older_error(response.error_code, context.api_version)
    return response

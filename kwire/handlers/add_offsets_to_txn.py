"""AddOffsetsToTxn: v0-4.

* v2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
* v3: flexible
* v4: TRANSACTION_ABORTABLE may be returned (KIP-890)

Adds the group's partition of `__consumer_offsets` to the transaction. From transaction version 2 on, TxnOffsetCommit
does this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

from kwire.handlers._shared.transactions import older_error
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.transactions.service import TransactionService


async def handle(
    authorization: Authorization,
    groups: GroupService,
    transactions: TransactionService,
    request: AddOffsetsToTxnRequest,
    context: Context,
) -> AddOffsetsToTxnResponse:
    try:
        authorization.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        transactions.runtime.find(request.transactional_id)  # before the group's topic is created
        partition = await groups.partition_of(request.group_id)
        error = await transactions.add_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, [partition], transaction_version=0
        )
    except KafkaError as refused:
        error = refused.code
    return AddOffsetsToTxnResponse(error_code=older_error(error, context.api_version))

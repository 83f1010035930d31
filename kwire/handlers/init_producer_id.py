"""InitProducerId: v0-6, v6 only with unstable.api.versions.enable.

* v2: flexible
* v3: producer_id and producer_epoch, for a producer that recovers (KIP-360)
* v4: PRODUCER_FENCED may be returned (KIP-588)
* v5: TRANSACTION_ABORTABLE may be returned (KIP-890)
* v6: enable2_pc, keep_prepared_txn (KIP-939); the latter is UNSUPPORTED_VERSION, as in Kafka so far

A producer without a transactional id always gets a new producer id and epoch 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.producer_ids import ProducerIds
    from kwire.transactions.service import TransactionService

NONE = -1
FIRST_VERSION_WITH_FENCED = 4


async def handle(
    producer_ids: ProducerIds,
    authorization: Authorization,
    transactions: TransactionService,
    request: InitProducerIdRequest,
    context: Context,
) -> InitProducerIdResponse:
    try:
        response = await _initialize(producer_ids, authorization, transactions, request, context)
    except KafkaError as error:
        response = InitProducerIdResponse(error_code=error.code, producer_id=NONE, producer_epoch=NONE)
    if response.error_code == ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_VERSION_WITH_FENCED:
        response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return response


async def _initialize(
    producer_ids: ProducerIds,
    authorization: Authorization,
    transactions: TransactionService,
    request: InitProducerIdRequest,
    context: Context,
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        authorization.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        if request.enable2_pc:
            authorization.check(
                context, Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, request.transactional_id
            )
    elif not authorization.authorizer.allows_any(context.requester, Operation.WRITE, ResourceType.TOPIC):
        authorization.check(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer's id and its epoch go together")
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=await producer_ids.draw(), producer_epoch=0)
    return await transactions.init_producer_id(request)

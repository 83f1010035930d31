"""InitProducerId: v0-5.

* v2: flexible
* v3: producer_id and producer_epoch of a producer that recovers (KIP-360)
* v4: PRODUCER_FENCED may be returned (KIP-588)
* v5: TRANSACTION_ABORTABLE may be returned (KIP-890)

An idempotent producer always gets a fresh id and epoch 0. Transactions are not there yet: a transactional id gets
UNSUPPORTED_VERSION, which ends the producer's wait at once, where «coordinator not available» would have it try until
its patience is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

NONE = -1


def handle(broker: Broker, request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=_allocate(broker, request), producer_epoch=0)
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=NONE, producer_epoch=NONE)


def _allocate(broker: Broker, request: InitProducerIdRequest) -> int:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer's id and its epoch go together")
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "transactions are not there yet")
    return broker.metadata.next_producer_id()

"""The five requests for share coordinators (KIP-932), which only brokers send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kwire_protocol.kafka_error import KafkaError

from kwire.handlers._shared.authorization import check
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context
    from kwire.share.coordinator.kinds import Kind


async def answer(broker: Broker, context: Context, kind: Kind, request: Any) -> Any:
    """The response: for each partition CLUSTER_AUTHORIZATION_FAILED, or what the share coordinator says."""
    try:
        check(broker, context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    except KafkaError as error:
        return kind.all_refused(request, error)
    return await broker.share_state.answer(kind, request)

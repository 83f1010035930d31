"""The five requests for share coordinators (KIP-932), which only brokers send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kwire_protocol.kafka_error import KafkaError

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.share.coordinator.kinds import Kind
    from kwire.share.coordinator.service import ShareStateService


async def answer(
    authorization: Authorization, share_state: ShareStateService, context: Context, kind: Kind, request: Any
) -> Any:
    """Returns the response: for each partition CLUSTER_AUTHORIZATION_FAILED, or the share coordinator's result."""
    try:
        authorization.check(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    except KafkaError as error:
        return kind.all_refused(request, error)
    return await share_state.answer(kind, request)

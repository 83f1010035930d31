"""The fast path of ConsumerGroupHeartbeat: a dynamic member confirms its epoch, and changes nothing."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

from kwire.groups.consumer.member import JOINING_EPOCH
from kwire.handlers._shared.group_protocols import CONSUMER, check_protocol
from kwire.handlers.fast.templates import encoded
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Answer, Context
    from kwire.handlers.shapes import WholeRequest
    from kwire.metadata.service import MetadataService

_CORRELATION_ID = Struct(">i")


def answer_to(
    metadata: MetadataService, authorization: Authorization, groups: GroupService, shape: WholeRequest
) -> Answer | None:
    """Returns the function that answers requests of that shape; None if they have more than a member and its epoch."""
    request: ConsumerGroupHeartbeatRequest = shape.request
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    bare = ConsumerGroupHeartbeatRequest(group_id, member_id, epoch)
    if request != bare or epoch <= JOINING_EPOCH or not member_id.strip() or not group_id.strip():
        return None
    client_id, size = shape.client_id or "", shape.head_stop
    allows, confirm = authorization.allows_unaudited, groups.confirm_consumer
    replies: dict[int, tuple[bytes, bytes]] = {}
    """The bytes before and after the correlation id, for the last heartbeat interval."""

    def answer(frame: memoryview, context: Context, correlation_id: int) -> bytes | None:
        if len(frame) != size:
            return None
        try:
            check_protocol(metadata, CONSUMER)
            if not allows(context, Operation.READ, ResourceType.GROUP, group_id):
                return None
            interval_ms = confirm(group_id, member_id, epoch, client_id, f"/{context.client_host}")
        except KafkaError:
            return None
        if interval_ms is None:
            return None
        reply = replies.get(interval_ms)
        if reply is None:
            response = ConsumerGroupHeartbeatResponse(
                member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms
            )
            frame_of_reply = encoded(shape, response)
            replies.clear()
            reply = replies[interval_ms] = frame_of_reply[:4], frame_of_reply[8:]
        return reply[0] + _CORRELATION_ID.pack(correlation_id) + reply[1]

    return answer

"""JoinGroup: v0-9.

* v1: rebalance_timeout_ms (KIP-62); v0 uses the session timeout
* v2: throttle_time_ms
* v4: a new member first gets its id, with MEMBER_ID_REQUIRED (KIP-394)
* v5: group_instance_id (KIP-345)
* v6: flexible
* v7: protocol_type; an empty protocol_name is sent as null (KIP-559)
* v8: reason (KIP-800)
* v9: skip_assignment (KIP-814)

Responds when the rebalance completes. Until then the connection waits. As in Kafka, only some refusals repeat the
member id of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

from kwire.handlers._shared.members import member_context
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context

FIRST_VERSION_WITH_NULL_PROTOCOL = 7


async def handle(
    authorization: Authorization, groups: GroupService, request: JoinGroupRequest, context: Context
) -> JoinGroupResponse:
    try:
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        response = await groups.join(request, member_context(authorization, context))
    except KafkaError as error:
        response = JoinGroupResponse(error_code=error.code)
        if error.code is ErrorCode.INVALID_GROUP_ID:
            response.member_id = request.member_id
    if not response.protocol_name:
        response.protocol_name = None if context.api_version >= FIRST_VERSION_WITH_NULL_PROTOCOL else ""
    return response

"""LeaveGroup: v0-5.

* v1: throttle_time_ms
* v3: several members, by member id or instance id, each with its own error (KIP-345)
* v4: flexible
* v5: reason (KIP-800)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context

FIRST_VERSION_WITH_MEMBERS = 3


async def handle(
    authorization: Authorization, groups: GroupService, request: LeaveGroupRequest, context: Context
) -> LeaveGroupResponse:
    one_member = context.api_version < FIRST_VERSION_WITH_MEMBERS
    if one_member:
        request.members = [MemberIdentity(member_id=request.member_id)]
    try:
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        response = await groups.leave(request)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if one_member and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response

"""DeleteGroups: v0-3.

* v1: throttle_time_ms
* v2: flexible
* v3: error_message

Only groups without members can be deleted. Their offsets are deleted too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context


async def handle(
    authorization: Authorization, groups: GroupService, request: DeleteGroupsRequest, context: Context
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            await _delete(authorization, groups, context, group_id) for group_id in dict.fromkeys(request.groups_names)
        ]
    )


async def _delete(
    authorization: Authorization, groups: GroupService, context: Context, group_id: str
) -> DeletableGroupResult:
    try:
        authorization.check(context, Operation.DELETE, ResourceType.GROUP, group_id)
        (result,) = await groups.delete_group(group_id)
    except KafkaError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
    return result

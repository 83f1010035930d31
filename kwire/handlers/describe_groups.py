"""DescribeGroups: v0-6.

* v1: throttle_time_ms
* v3: authorized operations (KIP-430)
* v4: group_instance_id (KIP-345)
* v5: flexible
* v6: error_message, and GROUP_ID_NOT_FOUND for an unknown group; earlier versions report it as "Dead" (KIP-1043)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context


def handle(
    authorization: Authorization, groups: GroupService, request: DescribeGroupsRequest, context: Context
) -> DescribeGroupsResponse:
    described = [_describe(authorization, groups, context, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = authorization.operations(
                    context, ResourceType.GROUP, group.group_id, wanted=True
                )
    return DescribeGroupsResponse(groups=described)


def _describe(authorization: Authorization, groups: GroupService, context: Context, group_id: str) -> DescribedGroup:
    try:
        authorization.check(context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        return groups.describe(group_id, api_version=context.api_version)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)

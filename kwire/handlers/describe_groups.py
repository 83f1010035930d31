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

from kwire.handlers._shared.authorization import authorized_operations, check
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    groups = [_describe(broker, context, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = authorized_operations(
                    broker, context, ResourceType.GROUP, group.group_id, wanted=True
                )
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: Broker, context: Context, group_id: str) -> DescribedGroup:
    try:
        check(broker, context, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        return broker.groups.describe(group_id, api_version=context.api_version)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)

"""DescribeGroups: v0-6.

* v1: throttle_time_ms
* v3: authorized operations (KIP-430)
* v4: group_instance_id (KIP-345)
* v5: flexible
* v6: error_message, and GROUP_ID_NOT_FOUND for a group that is not there; before, it is "Dead" (KIP-1043)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11
GROUP_OPERATIONS: Final = sum(1 << operation for operation in (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))
"""Kafka's AclOperation codes as a bit field; without access control everybody may do everything."""


def handle(broker: Broker, request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    groups = [_describe(broker, group_id, context.api_version) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: Broker, group_id: str, api_version: int) -> DescribedGroup:
    try:
        return broker.groups.describe(group_id, api_version=api_version)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)

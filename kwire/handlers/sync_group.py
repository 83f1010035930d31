"""SyncGroup: v0-5.

* v1: throttle_time_ms
* v3: group_instance_id (KIP-345)
* v4: flexible
* v5: protocol_type and protocol_name, both required (KIP-559)

Followers wait for the leader's assignment. Until then the connection waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context

FIRST_VERSION_NAMING_PROTOCOL = 5


async def handle(
    authorization: Authorization, groups: GroupService, request: SyncGroupRequest, context: Context
) -> SyncGroupResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= FIRST_VERSION_NAMING_PROTOCOL and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        return await groups.sync(request)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)

"""Heartbeat: v0-4.

* v1: throttle_time_ms
* v3: group_instance_id (KIP-345)
* v4: flexible

As in Kafka, a member gets no error while its group is being loaded: its session begins when the load ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context


def handle(
    authorization: Authorization, groups: GroupService, request: HeartbeatRequest, context: Context
) -> HeartbeatResponse:
    try:
        authorization.check(context, Operation.READ, ResourceType.GROUP, request.group_id)
        return groups.heartbeat(request)
    except KafkaError as error:
        if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()
        return HeartbeatResponse(error_code=error.code)

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

from kwire.handlers._shared.authorization import check
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


async def handle(broker: Broker, request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[await _delete(broker, context, group_id) for group_id in dict.fromkeys(request.groups_names)]
    )


async def _delete(broker: Broker, context: Context, group_id: str) -> DeletableGroupResult:
    try:
        check(broker, context, Operation.DELETE, ResourceType.GROUP, group_id)
        (result,) = await broker.groups.delete_group(group_id)
    except KafkaError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
    return result

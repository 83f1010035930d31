"""ListGroups: v0-5.

* v1: throttle_time_ms
* v3: flexible
* v4: states_filter, group_state (KIP-518)
* v5: types_filter, group_type (KIP-848)

Lists the groups that this broker coordinates; a client sends it to every broker. While one of the broker's partitions
is being loaded the list would be incomplete, so the response is COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context


def handle(
    authorization: Authorization, groups: GroupService, request: ListGroupsRequest, context: Context
) -> ListGroupsResponse:
    try:
        listed = groups.list_groups(states=request.states_filter, types=request.types_filter)
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    if not authorization.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER):
        listed = [
            it for it in listed if authorization.allows(context, Operation.DESCRIBE, ResourceType.GROUP, it.group_id)
        ]
    return ListGroupsResponse(groups=listed)

"""ListGroups: v0-5.

* v1: throttle_time_ms
* v3: flexible
* v4: states_filter, group_state (KIP-518)
* v5: types_filter, group_type (KIP-848)

Lists the groups that this broker coordinates; a client asks every broker. While one of the broker's partitions is being
loaded the list would be incomplete, so the answer is COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

from kwire.handlers._shared.authorization import allows
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context


def handle(broker: Broker, request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    try:
        groups = broker.groups.list_groups(states=request.states_filter, types=request.types_filter)
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    if not allows(broker, context, Operation.DESCRIBE, ResourceType.CLUSTER):
        groups = [it for it in groups if allows(broker, context, Operation.DESCRIBE, ResourceType.GROUP, it.group_id)]
    return ListGroupsResponse(groups=groups)

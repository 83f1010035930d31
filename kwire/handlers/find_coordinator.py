"""FindCoordinator: v0-6.

* v1: key_type (0 group, 1 transaction, 2 share-partition), error_message
* v3: flexible
* v4: several keys in one request (KIP-699)
* v5: TRANSACTION_ABORTABLE may be returned (KIP-890)
* v6: share-partitions (KIP-932), for brokers: the key is `group:topic id:partition`

The first lookup of a group creates `__consumer_offsets`, the first of a transactional id `__transaction_state`, and the
first of a share-partition `__share_group_state`. No other request creates them. Before that, they have no coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

from kwire.handlers._shared.authorization import check
from kwire.security.authorizer import Operation, ResourceType
from kwire.share.coordinator.state import SharePartitionKey

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

FIRST_VERSION_WITH_KEYS = 4
GROUP = 0
TRANSACTION = 1
SHARE = 2
FIRST_VERSION_WITH_SHARE = 6
NO_NODE = -1


async def handle(broker: Broker, request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    if context.api_version >= FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(
            coordinators=[await _find(broker, context, request.key_type, key) for key in request.coordinator_keys]
        )
    found = await _find(broker, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message if found.error_code else ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(broker: Broker, context: Context, key_type: int, key: str) -> Coordinator:
    try:
        if key_type == GROUP:
            check(broker, context, Operation.DESCRIBE, ResourceType.GROUP, key)
            node_id = await broker.groups.runtime.coordinator_of(key)
        elif key_type == TRANSACTION:
            check(broker, context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
            node_id = await broker.transactions.runtime.coordinator_of(key)
        elif key_type == SHARE and context.api_version >= FIRST_VERSION_WITH_SHARE:
            check(broker, context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
            node_id = await broker.share_state.runtime.coordinator_of(SharePartitionKey.parse(key).text)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type}.")
        node = next((node for node in broker.endpoints(context) if node.node_id == node_id), None)
        if node is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except KafkaError as error:
        return Coordinator(key, NO_NODE, "", -1, error.code, error.message)
    return Coordinator(key, node.node_id, node.host, node.port, 0, "")

"""FindCoordinator: v0-6.

* v1: key_type (0 group, 1 transaction, 2 share-partition), error_message
* v3: flexible
* v4: several keys in one request (KIP-699)
* v5: TRANSACTION_ABORTABLE may be returned (KIP-890)
* v6: share-partitions (KIP-932), for brokers: the key is `group:topic id:partition`

The first lookup of a group creates `__consumer_offsets`, the first of a transactional id `__transaction_state`, and the
first of a share-partition `__share_group_state`. No other request creates these topics. Before that there are no
coordinators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

from kwire.security.authorizer import Operation, ResourceType
from kwire.share.coordinator.state import SharePartitionKey

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.groups.service import GroupService
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.share.coordinator.service import ShareStateService
    from kwire.transactions.service import TransactionService

FIRST_VERSION_WITH_KEYS = 4
GROUP = 0
TRANSACTION = 1
SHARE = 2
FIRST_VERSION_WITH_SHARE = 6
NO_NODE = -1


async def handle(
    nodes: Nodes,
    authorization: Authorization,
    groups: GroupService,
    transactions: TransactionService,
    share_state: ShareStateService,
    request: FindCoordinatorRequest,
    context: Context,
) -> FindCoordinatorResponse:
    if context.api_version >= FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(
            coordinators=[
                await _find(nodes, authorization, groups, transactions, share_state, context, request.key_type, key)
                for key in request.coordinator_keys
            ]
        )
    found = await _find(nodes, authorization, groups, transactions, share_state, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message if found.error_code else ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(
    nodes: Nodes,
    authorization: Authorization,
    groups: GroupService,
    transactions: TransactionService,
    share_state: ShareStateService,
    context: Context,
    key_type: int,
    key: str,
) -> Coordinator:
    try:
        if key_type == GROUP:
            authorization.check(context, Operation.DESCRIBE, ResourceType.GROUP, key)
            node_id = await groups.runtime.coordinator_of(key)
        elif key_type == TRANSACTION:
            authorization.check(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
            node_id = await transactions.runtime.coordinator_of(key)
        elif key_type == SHARE and context.api_version >= FIRST_VERSION_WITH_SHARE:
            authorization.check(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
            node_id = await share_state.runtime.coordinator_of(SharePartitionKey.parse(key).text)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type}.")
        node = next((node for node in nodes.endpoints(context) if node.node_id == node_id), None)
        if node is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except KafkaError as error:
        return Coordinator(key, NO_NODE, "", -1, error.code, error.message)
    return Coordinator(key, node.node_id, node.host, node.port, 0, "")

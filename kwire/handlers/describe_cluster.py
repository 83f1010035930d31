"""DescribeCluster: v0-2.

* v1: endpoint_type, for requests to a controller (KIP-919)
* v2: fenced brokers are described on request (KIP-1073)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

from kwire.metadata.answers import EncodedResponse

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService

BROKERS = 1
CONTROLLERS = 2
NO_CONTROLLER = -1


def handle(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    request: DescribeClusterRequest,
    context: Context,
) -> EncodedResponse | DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=f"endpoint type {CONTROLLERS} asks a controller, but this is a broker: ask type {BROKERS}",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"there is no endpoint type {request.endpoint_type}: "
            f"{BROKERS} stands for brokers, {CONTROLLERS} for controllers",
        )
    key = (
        request.api_key,
        context.api_version,
        context.listener_name,
        context.local_host,
        context.local_port,
        context.requester,
        request.include_cluster_authorized_operations,
        request.include_fenced_brokers,
    )
    answer = metadata.answers.get(key)
    if answer is not None:
        return answer
    brokers = [
        DescribeClusterBroker(node.node_id, node.host, node.port, node.rack) for node in nodes.endpoints(context)
    ]
    controller_id = brokers[0].broker_id if brokers else NO_CONTROLLER
    if request.include_fenced_brokers:
        listed = {it.broker_id for it in brokers}
        for registered in metadata.image.brokers.values():
            endpoint = registered.endpoints.get(context.listener_name)
            # One that is shutting down is not fenced yet, and not in service any more.
            if registered.broker_id not in listed and endpoint is not None:
                brokers.append(
                    DescribeClusterBroker(
                        registered.broker_id, endpoint.host, endpoint.port, registered.rack, is_fenced=True
                    )
                )
    response = DescribeClusterResponse(
        cluster_id=metadata.cluster_id,
        controller_id=controller_id,
        brokers=brokers,
        cluster_authorized_operations=authorization.cluster_operations(
            context, wanted=request.include_cluster_authorized_operations
        ),
    )
    return metadata.answers.put(key, response, context.api_version)

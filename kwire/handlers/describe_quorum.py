"""DescribeQuorum: v0-2.

* v1: the times when a replica last fetched, and was last caught up
* v2: error messages, directory ids, addresses of the controllers (KIP-853)

kwire has no quorum: its nodes share one ordered log. In the terms of Kafka's tools, the controller (the node that
reacts when other nodes start or fail) is the leader and the only voter. All other nodes are observers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

from kwire.metadata.log import METADATA_TOPIC
from kwire.metadata.log_batches import EPOCH
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.runtime.clock import Clock

FIRST_VERSION_WITH_NODES = 2


def handle(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    clock: Clock,
    request: DescribeQuorumRequest,
    context: Context,
) -> DescribeQuorumResponse:
    try:
        authorization.check(context, Operation.DESCRIBE, ResourceType.CLUSTER)
    except KafkaError as error:
        return DescribeQuorumResponse(error_code=error.code, error_message=error.message)
    requested = [(topic.topic_name, [it.partition_index for it in topic.partitions]) for topic in request.topics]
    if requested != [(METADATA_TOPIC, [0])]:
        # Kafka also has only this partition, and responds to others like this.
        return DescribeQuorumResponse(
            error_message=None,
            topics=[
                DescribeQuorumResponseTopicData(
                    name,
                    [
                        DescribeQuorumResponsePartitionData(
                            index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in requested
            ],
        )
    controller_id = nodes.controller_id
    end_offset = metadata.log.end_offset
    now_ms = clock.now_ms()
    live = metadata.image.live_brokers()
    states = {it.broker_id: ReplicaState(it.broker_id, log_end_offset=end_offset) for it in live}
    for state in states.values():
        # Every node in service reads the log as it grows; only the node itself has its position.
        state.last_fetch_timestamp = state.last_caught_up_timestamp = now_ms
    answer = DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_message=None,
        leader_id=controller_id,
        leader_epoch=EPOCH,
        high_watermark=end_offset,
        current_voters=[states[controller_id]] if controller_id in states else [],
        observers=[state for broker_id, state in states.items() if broker_id != controller_id],
    )
    response = DescribeQuorumResponse(
        error_message=None, topics=[DescribeQuorumResponseTopicData(METADATA_TOPIC, [answer])]
    )
    if context.api_version >= FIRST_VERSION_WITH_NODES:
        response.nodes = [
            Node(it.broker_id, [Listener(name, to.host, to.port) for name, to in it.endpoints.items()])
            for it in live
            if it.broker_id == controller_id
        ]
    return response

"""ShareAcknowledge: v1-2 (KIP-932), for the leader of the partitions.

* v2: is_renew_ack, acquisition_lock_timeout_ms (KIP-1222)

The request belongs to a share session, which a ShareFetch has opened. It acknowledges delivered records, and the
response is sent when the share coordinator has recorded that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.share_acknowledge import (
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

from kwire.handlers._shared.leaders import node_endpoints
from kwire.handlers._shared.sharing import Acknowledging, authorized_member, by_topic, close_session, set_current_leader
from kwire.share.leader.sessions import FINAL_EPOCH, SharedPartition

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.share.leader.service import SharingService

FIRST_VERSION_WITH_LOCK_TIMEOUT: Final = 2


async def handle(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    sharing: SharingService,
    request: ShareAcknowledgeRequest,
    context: Context,
) -> ShareAcknowledgeResponse:
    try:
        member = authorized_member(metadata, authorization, context, request)
        sharing.sessions.acknowledge(*member, request.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    acknowledgements = [
        (SharedPartition(topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
        for topic in request.topics
        for partition in topic.partitions
    ]
    acknowledging = Acknowledging(
        authorization, sharing, context, member, acknowledgements, may_renew=request.is_renew_ack
    )
    answers: list[tuple[SharedPartition, PartitionData]] = []
    leader_moved = False
    for shared, failure in (await acknowledging.outcomes()).items():
        data = PartitionData(shared.partition)
        if failure is not None:
            data.error_code, data.error_message = failure.code, failure.message
            leader_moved |= set_current_leader(data, failure)
        answers.append((shared, data))
    if request.share_session_epoch == FINAL_EPOCH:
        await close_session(sharing, member)
    response = ShareAcknowledgeResponse(responses=by_topic(answers, ShareAcknowledgeTopicResponse))
    if context.api_version >= FIRST_VERSION_WITH_LOCK_TIMEOUT:
        response.acquisition_lock_timeout_ms = sharing.settings(member.group_id).record_lock_duration_ms
    if leader_moved:
        response.node_endpoints = node_endpoints(nodes, context, NodeEndpoint)
    return response

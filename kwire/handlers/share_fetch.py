"""ShareFetch: v1-2 (KIP-932), for the leader of the partitions.

* v2: share_acquire_mode (KIP-1206), is_renew_ack (KIP-1222)

A request belongs to a share session (`kwire.share.leader.sessions`). It may have acknowledgements. Fetching and
acknowledging start together, and the response has the results of both. A request that renews locks fetches nothing.

As in Fetch, records are ranges of segment files with whole batches, which the connection sends from the page cache. The
acquired offsets are those of the records that the member has. `kwire.share.leader.fetching` reads and acquires them.

An unknown topic id is an error of its partitions, as in KIP-932, and an unknown acquire mode is INVALID_REQUEST.
Kafka 4.3.1 fails with UNKNOWN_SERVER_ERROR in both cases.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.share_fetch import (
    AcquiredRecords,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

from kwire.handlers._shared.leaders import node_endpoints
from kwire.handlers._shared.sharing import Acknowledging, authorized_member, by_topic, close_session, set_current_leader
from kwire.runtime.futures import ParkedFetch
from kwire.security.authorizer import Operation
from kwire.share.leader.fetching import FetchLimits, ShareFetching
from kwire.share.leader.sessions import FINAL_EPOCH, SharedPartition
from kwire.share.leader.states import AcquireMode

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.runtime.clock import Clock
    from kwire.share.leader.service import SharingService

_MODES: Final = frozenset(AcquireMode)


async def handle(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    sharing: SharingService,
    clock: Clock,
    request: ShareFetchRequest,
    context: Context,
) -> ShareFetchResponse:
    sharing.counts.fetches += 1
    acknowledgements = [
        (SharedPartition(topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
        for topic in request.topics
        for partition in topic.partitions
    ]
    to_acknowledge = [(shared, batches) for shared, batches in acknowledgements if batches]
    try:
        member = authorized_member(metadata, authorization, context, request)
        _check(request)
        session = sharing.sessions.begin(
            *member,
            request.share_session_epoch,
            [shared for shared, _ in acknowledgements],
            [SharedPartition(topic.topic_id, it) for topic in request.forgotten_topics_data for it in topic.partitions],
            connection=context,
            has_acknowledgements=bool(to_acknowledge),
        )
    except KafkaError as error:
        sharing.counts.failed_fetches += 1
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
            await ParkedFetch(request.max_wait_ms / 1000)  # as in Kafka: the member would fetch again at once
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    if session.is_first:
        context.on_closed = partial(sharing.disconnected, context)
        for other in session.ended:
            if other.key != member:
                sharing.release(other)
    acknowledging = Acknowledging(
        authorization, sharing, context, member, to_acknowledge, may_renew=request.is_renew_ack
    )
    fetch = ShareFetching.begin(
        sharing,
        clock,
        member,
        [] if request.is_renew_ack else session.partitions,
        authorization.finder(context, Operation.READ),
        FetchLimits(
            request.max_wait_ms,
            request.min_bytes,
            min(request.max_bytes, metadata.config.fetch_max_bytes),
            request.max_records,
            request.batch_size,
            AcquireMode(request.share_acquire_mode),
        ),
        rotation=request.share_session_epoch,
    )
    await fetch.run()
    acknowledged = dict(await acknowledging.outcomes())
    if request.share_session_epoch == FINAL_EPOCH:
        await close_session(sharing, member)
    leader_moved = has_failed = False
    answers: list[tuple[SharedPartition, PartitionData]] = []
    for fetched in fetch.partitions:
        data, failure = PartitionData(fetched.shared.partition), fetched.failure
        if failure is not None:
            has_failed = True
            data.error_code, data.error_message = failure.code, failure.message
            leader_moved |= set_current_leader(data, failure)
        if fetched.records is not None:
            data.records = fetched.records
            data.acquired_records = [AcquiredRecords(*it) for it in fetched.acquired]
        if session.must_respond(fetched.shared, has_records=fetched.records is not None, has_error=failure is not None):
            answers.append((fetched.shared, data))
    sharing.counts.failed_fetches += has_failed
    known = dict(answers)
    for shared, failure in acknowledged.items():
        if shared not in known:
            known[shared] = PartitionData(shared.partition)
            answers.append((shared, known[shared]))
        if failure is not None:
            known[shared].acknowledge_error_code, known[shared].acknowledge_error_message = (
                failure.code,
                failure.message,
            )
            leader_moved |= set_current_leader(known[shared], failure)
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=sharing.settings(member.group_id).record_lock_duration_ms,
        responses=by_topic(answers, ShareFetchableTopicResponse),
    )
    if leader_moved:
        response.node_endpoints = node_endpoints(nodes, context, NodeEndpoint)
    return response


def _check(request: ShareFetchRequest) -> None:
    if request.share_acquire_mode not in _MODES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no acquire mode {request.share_acquire_mode}.")
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A request that renews locks fetches nothing: max_bytes, min_bytes, max_records and max_wait_ms must be 0.",
        )

"""Fetch: v4-18.

* v4: isolation_level, last_stable_offset, aborted_transactions
* v5: log_start_offset
* v7: incremental sessions (KIP-227), see `kwire.replicas.fetch_sessions`
* v9: current_leader_epoch (KIP-320)
* v10: zstd may be returned
* v11: rack_id, preferred_read_replica (KIP-392)
* v12: flexible; last_fetched_epoch, diverging_epoch (KIP-595)
* v13: topic ids instead of names (KIP-516)
* v15: replica_state (KIP-903)
* v16: node_endpoints, and current_leader filled in (KIP-951)
* v17: replica_directory_id (KIP-853)
* v18: the replica's high_watermark (KIP-1166)

Responses refer to ranges of segment files, which the connection sends from the page cache. They contain only whole
batches. A fetch that finds less than min_bytes waits for an append to its partitions, for its deadline, or for input
on its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from typing import TYPE_CHECKING

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint

from kwire.handlers._shared.leaders import node_endpoints
from kwire.replicas.fetch_sessions import FINAL_EPOCH, NO_SESSION, CachedPartition, FetchContext
from kwire.replicas.partition import CONSUMER, READ_COMMITTED, read_bound
from kwire.replicas.reading import FetchLimits, FetchResult, FollowersFetch, await_late, read_partitions, to_response
from kwire.replicas.roles import NO_EPOCH
from kwire.runtime.futures import Future, ParkedFetch
from kwire.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.metadata.service import MetadataService
    from kwire.replicas.fetch_sessions import FetchSessions
    from kwire.replicas.partition import Partition
    from kwire.replicas.quotas import ReplicationQuota
    from kwire.replicas.reading import Find
    from kwire.replicas.table import PartitionTable
    from kwire.runtime.clock import Clock


def handle(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    partitions: PartitionTable,
    fetch_sessions: FetchSessions,
    leader_quota: ReplicationQuota,
    clock: Clock,
    request: FetchRequest,
    context: Context,
) -> FetchResponse | Coroutine[Future[bool], None, FetchResponse]:
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    if replica_id < CONSUMER:
        replica_id = CONSUMER
    try:
        fetch = _begin(authorization, fetch_sessions, clock, request, replica_id, context)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return read(
        metadata,
        nodes,
        authorization,
        partitions,
        fetch_sessions,
        leader_quota,
        clock,
        request,
        context,
        fetch,
        replica_id,
    )


def read(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    partitions: PartitionTable,
    fetch_sessions: FetchSessions,
    leader_quota: ReplicationQuota,
    clock: Clock,
    request: FetchRequest,
    context: Context,
    fetch: FetchContext,
    replica_id: int,
) -> FetchResponse | Coroutine[Future[bool], None, FetchResponse]:
    """Reads for a request whose session, if it has one, has been found."""
    limits = FetchLimits(
        version=context.api_version,
        max_bytes=min(request.max_bytes, metadata.config.fetch_max_bytes),
        committed=request.isolation_level == READ_COMMITTED,
        bound=read_bound(replica_id, request.isolation_level),
        replica_id=replica_id,
    )
    if replica_id == CONSUMER:
        find = authorization.finder(context, Operation.READ)
        if request.rack_id:
            limits.is_near = _nearness(metadata, context, request.rack_id)
        if fetch.session is not None:
            limits.may_rest = True
    else:
        find = _finder_of_replica(authorization, partitions, context)
        now_ms = clock.monotonic_ms()
        limits.follower = FollowersFetch(now_ms, quota=leader_quota)
        if fetch.session is not None:
            limits.may_rest = True
            fetch.session.last_fetch.time_ms = now_ms
        if request.replica_state is not None:
            limits.follower.broker_epoch = request.replica_state.replica_epoch
    result = read_partitions(find, fetch.partitions, limits)
    if result.late or (
        result.size < request.min_bytes and request.max_wait_ms > 0 and not fetch.is_empty and not result.is_urgent
    ):
        return _wait_for_data(nodes, fetch_sessions, clock, request, context, find, fetch, limits, result)
    return _answer(nodes, fetch_sessions, context, fetch, limits, result)


def _nearness(metadata: MetadataService, context: Context, rack: str) -> Callable[[int], bool] | None:
    """Returns a test for brokers from which a consumer in `rack` should read; None if this broker is as good as any."""
    if metadata.config.replica_selector_class is None or metadata.config.broker_rack == rack:
        return None

    def is_near(node_id: int) -> bool:
        it = metadata.image.brokers.get(node_id)
        return it is not None and it.rack == rack and not it.fenced and context.listener_name in it.endpoints

    return is_near


def _answer(
    nodes: Nodes,
    fetch_sessions: FetchSessions,
    context: Context,
    fetch: FetchContext,
    limits: FetchLimits,
    result: FetchResult,
) -> FetchResponse:
    if context.fetch_throttle_ms is not None and limits.follower is None:
        throttle_ms = context.fetch_throttle_ms(result.size)
        if throttle_ms:
            return _throttled(fetch_sessions, fetch, throttle_ms)
    response = to_response(fetch, result)
    if limits.follower is not None:
        limits.follower.sent()
    elif result.leader_moved:  # followers have the brokers' own addresses
        response.node_endpoints = node_endpoints(nodes, context, NodeEndpoint)
    return response


def _throttled(fetch_sessions: FetchSessions, fetch: FetchContext, throttle_ms: int) -> FetchResponse:
    """Returns an empty response with the throttle time: the consumer has to pause, and fetches again.

    As in Kafka, a session that would have begun with this response does not exist.
    """
    session = fetch.session
    if session is None:
        return FetchResponse(throttle_time_ms=throttle_ms)
    if not fetch.incremental:
        fetch_sessions.close(session.session_id)
        return FetchResponse(throttle_time_ms=throttle_ms)
    # The response has no partitions, so the session reads the same ones again.
    return FetchResponse(throttle_time_ms=throttle_ms, session_id=session.session_id)


def _finder_of_replica(authorization: Authorization, partitions: PartitionTable, context: Context) -> Find:
    if authorization.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return partitions.find
    return _refused


def _refused(_topic: object, _index: int) -> Partition:
    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _begin(
    authorization: Authorization,
    fetch_sessions: FetchSessions,
    clock: Clock,
    request: FetchRequest,
    replica_id: int,
    context: Context,
) -> FetchContext:
    wanted = [
        CachedPartition(
            (topic.topic, topic.topic_id),
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    if request.session_id == NO_SESSION and request.session_epoch == FINAL_EPOCH:
        if len(wanted) > 1:  # a duplicate partition is read once, with the values of its last entry
            wanted = list({(it.topic, it.index): it for it in wanted}.values())
        return FetchContext(wanted, None, incremental=False)
    forgotten = [
        ((topic.topic, topic.topic_id), index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    return fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        wanted,
        forgotten,
        now_ms=clock.now_ms(),
        reader=_reader(authorization, request, replica_id, context),
    )


def consumer_of(request: FetchRequest, context: Context) -> Hashable:
    """Returns the values on which the responses to a consumer's session depend, besides its partitions."""
    return context.api_version, (context.requester, request.isolation_level, request.rack_id)


def _reader(authorization: Authorization, request: FetchRequest, replica_id: int, context: Context) -> Hashable:
    """Returns the values on which the responses to a session depend, besides its partitions."""
    if replica_id == CONSUMER:
        return consumer_of(request, context)
    is_allowed = authorization.allows(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    broker_epoch = NO_EPOCH if request.replica_state is None else request.replica_state.replica_epoch
    return context.api_version, replica_id, broker_epoch, is_allowed


async def _wait_for_data(
    nodes: Nodes,
    fetch_sessions: FetchSessions,
    clock: Clock,
    request: FetchRequest,
    context: Context,
    find: Find,
    fetch: FetchContext,
    limits: FetchLimits,
    result: FetchResult,
) -> FetchResponse:
    deadline_ms = clock.monotonic_ms() + request.max_wait_ms
    session, woken = fetch.session, request.max_wait_ms > 0 and not fetch.is_empty
    if result.late:
        await await_late(limits, result)
    while woken and result.size < request.min_bytes and not result.is_urgent:
        parked = ParkedFetch((deadline_ms - clock.monotonic_ms()) / 1000)
        partitions = [partition for followed, partition in result.found if not followed.rests]
        for partition in partitions:
            partition.waiters[parked] = None
        if session is not None:
            session.parked = parked  # for those that rest
        try:
            woken = await parked
        finally:
            for partition in partitions:
                partition.waiters.pop(parked, None)
            if session is not None and session.parked is parked:
                session.parked = None
        if not woken and not result.size:
            break  # there is no new data
        if limits.follower is not None:
            limits.follower.read_again(clock.monotonic_ms())
        result = read_partitions(find, fetch.partitions, limits)
        if result.late:
            await await_late(limits, result)
    return _answer(nodes, fetch_sessions, context, fetch, limits, result)

"""The fast path of Fetch: a consumer without a session reads one partition from its leader, or waits for it; v5 to v18.

If nothing is there yet, it waits like the handler: for a change of the partition, for its deadline, or for input on its
connection. After a wait that a change has ended it tries again, and leaves to the handler what it cannot answer.
`session_fetch.py` is for consumers with a session.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING

from kwire_protocol.messages.fetch import FetchResponse

from kwire.handlers.fast.fetched import NotPlainError, PartitionResponses, Reads, Response, is_plain, is_plain_partition
from kwire.handlers.fast.session_fetch import answer_in_session
from kwire.handlers.fetch import read
from kwire.handlers.shapes import NO_SESSION, FetchShape, SessionFetch
from kwire.replicas.partition import READ_COMMITTED, Partition
from kwire.replicas.reading import FIRST_VERSION_WITH_IDS
from kwire.runtime.futures import Future, ParkedFetch

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Answer, Context
    from kwire.metadata.service import MetadataService
    from kwire.replicas.fetch_sessions import FetchSessions
    from kwire.replicas.quotas import ReplicationQuota
    from kwire.replicas.table import PartitionTable
    from kwire.runtime.clock import Clock


def answer_to(
    metadata: MetadataService,
    nodes: Nodes,
    authorization: Authorization,
    partitions: PartitionTable,
    fetch_sessions: FetchSessions,
    leader_quota: ReplicationQuota,
    clock: Clock,
    shape: FetchShape | SessionFetch,
) -> Answer | None:
    """Returns the function that answers requests of that shape; None for followers, and for consumers in a rack."""
    reads = Reads(metadata, authorization, partitions)
    if isinstance(shape, FetchShape):
        return _answer_without_session(reads, clock, shape)
    services = metadata, nodes, authorization, partitions, fetch_sessions, leader_quota, clock
    return answer_in_session(reads, partial(read, *services), fetch_sessions, clock, shape)


def _answer_without_session(reads: Reads, clock: Clock, shape: FetchShape) -> Answer | None:
    request, version, handle = shape.request, shape.version, shape.handle
    wanted, index = shape.partition, shape.partition.partition
    if not is_plain(request, version) or not is_plain_partition(wanted):
        return None
    topic = shape.topic.topic_id if version >= FIRST_VERSION_WITH_IDS else shape.topic.topic
    epoch, min_bytes, max_wait_ms = wanted.current_leader_epoch, request.min_bytes, request.max_wait_ms
    is_committed = request.isolation_level == READ_COMMITTED
    max_bytes = min(wanted.partition_max_bytes, request.max_bytes)
    find, offset_of = reads.find, shape.offset_of
    responses = PartitionResponses(
        shape, (shape.topic.topic, shape.topic.topic_id), index, session_id=NO_SESSION, is_committed=is_committed
    )

    def read_once(partition: Partition, offset: int) -> tuple[Response | None, int]:
        """Returns the response, and the size of its records in bytes; no response if the handler has to read."""
        try:
            found = reads.read(partition, offset, max_bytes, is_committed=is_committed)
        except NotPlainError:
            return None, 0
        return responses.of(found), 0 if found.records is None else found.records.size

    def answer(
        frame: memoryview, context: Context, _correlation_id: int
    ) -> Response | Coroutine[Future[bool], None, Response | FetchResponse] | None:
        offset = offset_of(frame)
        if offset is None:
            return None
        partition = find(context, topic, index, epoch)
        if partition is None:
            return None
        response, size = read_once(partition, offset)
        if response is not None and size < min_bytes and max_wait_ms > 0:
            return wait(partition, offset, context, response, size)
        return response

    async def wait(
        partition: Partition, offset: int, context: Context, response: Response, size: int
    ) -> Response | FetchResponse:
        deadline_ms = clock.monotonic_ms() + max_wait_ms
        parked = ParkedFetch(max_wait_ms / 1000)
        partition.waiters[parked] = None
        try:
            woken = await parked
        finally:
            partition.waiters.pop(parked, None)
        # Quotas may have been set meanwhile.
        if context.fetch_throttle_ms is None:
            if not woken and not size:
                return response
            if find(context, topic, index, epoch) is partition:
                again, size = read_once(partition, offset)
                if again is not None and size >= min_bytes:
                    return again
        rest_ms = max(deadline_ms - clock.monotonic_ms(), 0) if woken else 0
        handled = handle(shape.request_at(offset).replace(max_wait_ms=rest_ms), context)
        answered: FetchResponse = await handled if type(handled) is CoroutineType else handled
        return answered

    return answer

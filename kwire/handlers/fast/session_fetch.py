"""The fast path of Fetch in a session with one partition (KIP-227), as a Java consumer of one partition sends it.

It finds the session by what the request and the reader must have in common with it, and leaves all else to the handler.
Then it continues the session by the methods that the handler calls. From there on it must answer: what is not plain is
read by the rest of the handler, `kwire.handlers.fetch.read`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from kwire_protocol.messages.fetch import FetchRequest, FetchResponse

from kwire.handlers.fast.fetched import (
    Found,
    NotPlainError,
    PartitionResponses,
    Reads,
    Response,
    is_plain,
    is_plain_partition,
)
from kwire.handlers.fast.templates import encoded_body
from kwire.handlers.fetch import consumer_of
from kwire.metadata.answers import EncodedResponse
from kwire.replicas.fetch_sessions import CachedPartition, FetchContext, FetchSession, PartitionKey
from kwire.replicas.partition import CONSUMER, READ_COMMITTED, Partition
from kwire.replicas.reading import FIRST_VERSION_WITH_IDS
from kwire.replicas.roles import NO_EPOCH
from kwire.runtime.futures import Future, ParkedFetch

if TYPE_CHECKING:
    from kwire.handlers.context import Answer, Context
    from kwire.handlers.shapes import SessionFetch, SessionForm
    from kwire.replicas.fetch_sessions import FetchSessions
    from kwire.runtime.clock import Clock

ReadRest = Callable[
    [FetchRequest, "Context", FetchContext, int], FetchResponse | Coroutine[Future[bool], None, FetchResponse]
]
"""The rest of the handler, `kwire.handlers.fetch.read`, bound to its services."""


def answer_in_session(
    reads: Reads, read_rest: ReadRest, fetch_sessions: FetchSessions, clock: Clock, shape: SessionFetch
) -> Answer | None:
    """Returns the function that answers requests of that shape; None for followers, and for consumers in a rack."""
    forms, values_of, version = shape.forms, shape.values_of, shape.version
    if not all(_is_plain_form(form, version) for form in forms.values()):
        return None
    # These fields are in the head, which all forms have in common.
    request = next(iter(forms.values())).request
    session_id, min_bytes, max_wait_ms = request.session_id, request.min_bytes, request.max_wait_ms
    is_committed = request.isolation_level == READ_COMMITTED
    by_id = version >= FIRST_VERSION_WITH_IDS
    nothing = EncodedResponse(encoded_body(shape, FetchResponse(session_id=session_id)))
    responses: dict[PartitionKey, PartitionResponses] = {}
    """The encoded responses about the session's partition."""

    def find(context: Context, followed: CachedPartition) -> Partition | None:
        topic = followed.topic[1] if by_id else followed.topic[0]
        return reads.find(context, topic, followed.index, followed.current_leader_epoch)

    def read(partition: Partition, followed: CachedPartition) -> Found:
        """Reads the partition as the handler does, which may let it rest. Raises NotPlainError."""
        max_bytes = min(followed.max_bytes, request.max_bytes)
        found = reads.read(partition, followed.fetch_offset, max_bytes, is_committed=is_committed)
        if found.is_at_end:
            followed.rest(partition, None)
        return found

    def respond(session: FetchSession, followed: CachedPartition, found: Found | None) -> Response:
        """Returns the response, which leaves out a partition without news."""
        if found is None:
            return nothing
        records = found.records
        is_news = followed.is_news(
            has_records=records is not None,
            high_watermark=found.high_watermark,
            log_start_offset=found.log_start_offset,
            is_urgent=False,
        )
        session.update_due(followed, has_records=records is not None)
        if not is_news:
            return nothing
        key = followed.topic, followed.index
        known = responses.get(key)
        if known is None:
            responses.clear()
            known = responses[key] = PartitionResponses(
                shape, followed.topic, followed.index, session_id=session_id, is_committed=is_committed
            )
        return known.of(found)

    def answer(
        frame: memoryview, context: Context, _correlation_id: int
    ) -> Response | FetchResponse | Coroutine[Future[bool], None, Response | FetchResponse] | None:
        form = forms.get(len(frame))
        if form is None:
            return None
        values = values_of(form, frame)
        if values is None:
            return None
        session_epoch, offset = values
        session = fetch_sessions.find(session_id, session_epoch, consumer_of(form.request, context))
        if session is None or len(session.partitions) != 1:
            return None
        [followed] = session.partitions.values()
        wanted = followed
        if form.offset_at:
            wanted = _named(form, offset)
            if wanted.index != followed.index or wanted.topic != followed.topic:
                return None
        partition = find(context, wanted)
        if partition is None or wanted.last_fetched_epoch != NO_EPOCH:
            return None
        # From here on the session has changed.
        fetch_sessions.advance(session, clock.now_ms())
        if wanted is not followed:
            session.read_again(followed)
            followed.named_again(wanted)
        found, size = None, 0
        if followed in session.due:
            try:
                found = read(partition, followed)
            except NotPlainError:
                return read_rest(form.request_at(session_epoch, offset), context, _continuing(session), CONSUMER)
            if found.records is not None:
                size = found.records.size
        if size < min_bytes and max_wait_ms > 0:
            if found is not None and not followed.rests:
                return read_rest(form.request_at(session_epoch, offset), context, _continuing(session), CONSUMER)
            return wait(form.request_at(session_epoch, offset), context, session, followed, found)
        return respond(session, followed, found)

    async def wait(
        wanted: FetchRequest,
        context: Context,
        session: FetchSession,
        followed: CachedPartition,
        found: Found | None,
    ) -> Response | FetchResponse:
        deadline_ms = clock.monotonic_ms() + max_wait_ms
        session.parked = parked = ParkedFetch(max_wait_ms / 1000)
        try:
            woken = await parked
        finally:
            if session.parked is parked:
                session.parked = None
        # Quotas may have been set meanwhile.
        if context.fetch_throttle_ms is None:
            if not woken:
                return respond(session, followed, found)
            partition = find(context, followed)
            if partition is not None and followed in session.due and len(session.partitions) == 1:
                try:
                    found = read(partition, followed)
                except NotPlainError:
                    pass
                else:
                    if found.records is not None and found.records.size >= min_bytes:
                        return respond(session, followed, found)
        wanted.max_wait_ms = max(deadline_ms - clock.monotonic_ms(), 0) if woken else 0
        handled = read_rest(wanted, context, _continuing(session), CONSUMER)
        return await handled if isinstance(handled, Coroutine) else handled

    return answer


def _continuing(session: FetchSession) -> FetchContext:
    return FetchContext([], session, incremental=True)


def _is_plain_form(form: SessionForm, version: int) -> bool:
    return is_plain(form.request, version) and all(
        is_plain_partition(partition) for topic in form.request.topics for partition in topic.partitions
    )


def _named(form: SessionForm, offset: int) -> CachedPartition:
    """Returns the partition that a request names."""
    [topic] = form.request.topics
    [partition] = topic.partitions
    return CachedPartition(
        (topic.topic, topic.topic_id),
        partition.partition,
        offset,
        partition.partition_max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
        partition.log_start_offset,
    )

"""ShareFetch: v1-2 (KIP-932), for the leader of the partitions.

* v2: share_acquire_mode (KIP-1206), is_renew_ack (KIP-1222)

A request belongs to a share session (`kwire.share.leader.sessions`). It may bring acknowledgements. Both halves are
begun at once, and the response has the outcome of both. One that renews locks fetches nothing.

As in Fetch, records are ranges of segment files with whole batches, which the connection sends from the page cache. The
acquired offsets say which of their records the member has. A fetch that finds less than min_bytes, or nothing that it
may acquire, waits for a change of its share partitions, for its deadline, or for input on its connection.

Each request begins with another partition of the session, and max_bytes are divided equally among those that have
something to acquire (Kafka's PartitionRotateStrategy and PartitionMaxBytesStrategy).

An unknown topic id is an error of its partitions, as KIP-932 says, and an unknown acquire mode is INVALID_REQUEST.
Kafka 4.3.1 fails with UNKNOWN_SERVER_ERROR in both cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
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
from kwire_storage.log.slices import LogSlice

from kwire.handlers._shared.authorization import finder
from kwire.handlers._shared.leaders import node_endpoints
from kwire.handlers._shared.sharing import Acknowledging, asking_member, by_topic, close_session, tell_leader
from kwire.runtime.futures import ParkedFetch
from kwire.security.authorizer import Operation
from kwire.share.leader.led import LedSharePartition
from kwire.share.leader.sessions import FINAL_EPOCH, SessionKey, ShareContext, SharedPartition
from kwire.share.leader.states import AcquireMode

if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.context import Context

_MODES: Final = frozenset(AcquireMode)


async def handle(broker: Broker, request: ShareFetchRequest, context: Context) -> ShareFetchResponse:
    sharing = broker.sharing
    sharing.counts.fetches += 1
    asked = [
        (SharedPartition(topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
        for topic in request.topics
        for partition in topic.partitions
    ]
    to_acknowledge = [(shared, batches) for shared, batches in asked if batches]
    try:
        member = asking_member(broker, context, request)
        _check(request)
        session = sharing.sessions.begin(
            *member,
            request.share_session_epoch,
            [shared for shared, _ in asked],
            [SharedPartition(topic.topic_id, it) for topic in request.forgotten_topics_data for it in topic.partitions],
            connection=context,
            has_acknowledgements=bool(to_acknowledge),
        )
    except KafkaError as error:
        sharing.counts.failed_fetches += 1
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
            await ParkedFetch(request.max_wait_ms / 1000)  # as in Kafka: it would ask again at once
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    if session.is_first:
        context.on_closed = partial(sharing.disconnected, context)
        for other in session.ended:
            if other.key != member:
                sharing.release(other)
    acknowledging = Acknowledging(broker, context, member, to_acknowledge, may_renew=request.is_renew_ack)
    fetch = _Fetch.begun(broker, request, context, member, session)
    await fetch.run()
    acknowledged = dict(await acknowledging.outcomes())
    if request.share_session_epoch == FINAL_EPOCH:
        await close_session(broker, member)
    leader_moved = has_failed = False
    answers: list[tuple[SharedPartition, PartitionData]] = []
    for shared, data, failure in fetch.answers():
        if failure is not None:
            has_failed = True
            data.error_code, data.error_message = failure.code, failure.message
            leader_moved |= tell_leader(data, failure)
        has_records = bool(data.acquired_records)
        if session.must_respond(shared, has_records=has_records, has_error=failure is not None):
            answers.append((shared, data))
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
            leader_moved |= tell_leader(known[shared], failure)
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=sharing.settings(member.group_id).record_lock_duration_ms,
        responses=by_topic(answers, ShareFetchableTopicResponse),
    )
    if leader_moved:
        response.node_endpoints = node_endpoints(broker, context, NodeEndpoint)
    return response


def _check(request: ShareFetchRequest) -> None:
    if request.share_acquire_mode not in _MODES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no acquire mode {request.share_acquire_mode}.")
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A request that renews locks fetches nothing: max_bytes, min_bytes, max_records and max_wait_ms must be 0.",
        )


@attrs.define(eq=False)
class _Target:
    """One partition of a fetch: its share partition, or why there is none; and the answer."""

    shared: SharedPartition
    led: LedSharePartition | None = None
    error: KafkaError | None = None
    data: PartitionData = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.data = PartitionData(self.shared.partition)

    @property
    def failure(self) -> KafkaError | None:
        if self.error is None and self.led is not None:
            return self.led.ended
        return self.error


@attrs.define(eq=False)
class _Fetch:
    """The fetching half of one request. `targets` are in the order of the session, `turns` in that of this request."""

    broker: Broker
    request: ShareFetchRequest
    member: SessionKey
    committed: bool
    targets: Sequence[_Target]
    turns: Sequence[_Target]

    @classmethod
    def begun(
        cls, broker: Broker, request: ShareFetchRequest, context: Context, member: SessionKey, session: ShareContext
    ) -> _Fetch:
        """With the share partitions, of which new ones begin to be initialized."""
        find = finder(broker, context, Operation.READ)
        targets: list[_Target] = []
        for shared in [] if request.is_renew_ack else session.partitions:
            target = _Target(shared)
            try:
                target.led = broker.sharing.lead(member.group_id, find(*shared))
            except KafkaError as error:
                target.error = error
            targets.append(target)
        first = request.share_session_epoch % len(targets) if targets else 0
        committed = broker.sharing.settings(member.group_id).reads_committed
        return cls(broker, request, member, committed, targets, [*targets[first:], *targets[:first]])

    def answers(self) -> list[tuple[SharedPartition, PartitionData, KafkaError | None]]:
        return [
            (target.shared, target.data, None if target.data.acquired_records else target.failure)
            for target in self.targets
        ]

    async def run(self) -> None:
        """Returns when it has acquired something, or has waited long enough."""
        clock = self.broker.clock
        deadline_ms = clock.monotonic_ms() + self.request.max_wait_ms
        is_over = False
        while any(target.failure is None for target in self.targets):
            found, is_enough = self._read()
            left_ms = deadline_ms - clock.monotonic_ms()
            if is_enough or is_over or left_ms <= 0:
                self._acquire(found)
                return
            # Other members may have acquired something meanwhile, so it is read again in any case.
            is_over = not await self._change(left_ms / 1000)

    def _read(self) -> tuple[list[tuple[_Target, LedSharePartition, LogSlice]], bool]:
        """What may be acquired, and whether it is enough."""
        request = self.request
        waiting = [
            (target, target.led)
            for target in self.turns
            if target.error is None and target.led is not None and target.led.can_acquire()
        ]
        if not waiting:
            return [], False
        max_bytes = min(request.max_bytes, self.broker.config.fetch_max_bytes) // len(waiting)
        found: list[tuple[_Target, LedSharePartition, LogSlice]] = []
        size = 0
        for target, led in waiting:
            try:
                piece = led.read(max_bytes=max(max_bytes, 0), is_first=not size, committed=self.committed)
            except KafkaError as error:
                # Out of range: a leader that has lost the end of the log. It has to wait for more records.
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    target.error = error
                continue
            if piece.size:
                found.append((target, led, piece))
                size += piece.size
        return found, size >= request.min_bytes

    async def _change(self, timeout_s: float) -> bool:
        """Waits for a change of any share partition; False if there was none in time."""
        parked = ParkedFetch(timeout_s)
        watched = [target.led for target in self.targets if target.led is not None and target.failure is None]
        for led in watched:
            led.waiters[parked] = None
        try:
            return await parked
        finally:
            for led in watched:
                led.waiters.pop(parked, None)

    def _acquire(self, found: Sequence[tuple[_Target, LedSharePartition, LogSlice]]) -> None:
        request = self.request
        left = request.max_records
        for target, led, piece in found:
            if left <= 0:
                return
            offset = led.machine.next_fetch_offset
            try:
                read = led.batches(piece, offset, max_records=left, committed=self.committed)
            except KafkaError as error:
                target.error = error
                continue
            acquired = self.broker.sharing.acquire(
                led,
                self.member.member_id,
                read.fetched,
                max_records=left,
                batch_size=request.batch_size,
                mode=AcquireMode(request.share_acquire_mode),
            )
            if acquired:
                target.data.records = read.slice(acquired[0].first_offset, acquired[-1].last_offset)
                target.data.acquired_records = [AcquiredRecords(*it) for it in acquired]
                left -= sum(it.last_offset - it.first_offset + 1 for it in acquired)

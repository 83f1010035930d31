"""The client of share coordinators anywhere in the cluster, for this broker's own share-partitions and groups.

A share-partition's coordinator is found as by FindCoordinator. If it is this broker, it is called directly. Another one
gets a request (`remote_states.py`). Several share-partitions of a group share a request if they need one in the same
turn of the event loop, or while another is under way. While there is no coordinator, or it loads, or it cannot be
reached, the question is repeated, with growing pauses. Every request is idempotent: a write has the new state, not a
difference. Kafka's `DefaultStatePersister`.

Everything is bounded. A question is sent at most MAX_ATTEMPTS times and for PATIENCE_MS; each attempt ends with the
time-out of a request, or, on this broker, when its replicas answer or leave the ISR. A caller that is closed while it
waits sends no more, but requests already sent may be carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid

from kwire.backoff import Backoff
from kwire.peers.peers import Peers
from kwire.peers.sending import Sender
from kwire.replicas.roles import NO_LEADER
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future, begun, drive
from kwire.share.coordinator.kinds import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARIZE,
    WRITE,
    Kind,
    PartitionRequest,
    Result,
    error_of,
)
from kwire.share.coordinator.remote_states import Question, RemoteStates, StatesRequest
from kwire.share.coordinator.service import ShareStateService
from kwire.share.coordinator.state import SharePartitionKey, ShareState, ShareStateSummary, StateBatch

MAX_ATTEMPTS: Final = 30
PATIENCE_MS: Final = 60_000
PAUSES_S: Final = Backoff(first=0.02, longest=1.0)

MAX_WRITES_WAITING: Final = 1_000
"""The maximum number of writes to one share-partition that wait for an earlier one."""

_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The errors after which a question is repeated."""


class Persister(Protocol):
    """The client of share coordinators that leaders of share-partitions and coordinators of share groups need.

    The errors are those of the requests, and transient ones that did not pass in time. Each method is a coroutine that
    awaits futures (`kwire.runtime.futures`).
    """

    async def initialize(
        self, group_id: str, topics: Mapping[Uuid, Sequence[tuple[int, int, int]]]
    ) -> dict[tuple[Uuid, int], ErrorCode]:
        """Initializes states, each given as (partition, state epoch, start offset); -1: its leader chooses it."""

    async def read(self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int) -> ShareState:
        """The state, for a leader of that epoch: older ones are fenced from then on.

        Raises KafkaError: INVALID_REQUEST if it was not initialized, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """

    async def write(
        self,
        group_id: str,
        topic_id: Uuid,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Records a change; a start offset of -1 leaves that as it is. Returns when it is committed.

        Writes to one share-partition are done in the order of the calls. Raises KafkaError: as `read`, and
        FENCED_STATE_EPOCH.
        """

    async def delete(self, group_id: str, topics: Mapping[Uuid, Sequence[int]]) -> dict[tuple[Uuid, int], ErrorCode]:
        """Deletes states by partition. A state that does not exist counts as deleted."""

    async def read_summary(
        self, group_id: str, topics: Mapping[Uuid, Sequence[tuple[int, int]]]
    ) -> dict[tuple[Uuid, int], ShareStateSummary]:
        """Returns summaries. `topics` has (partition, leader epoch); the epoch is not checked."""


class CoordinatorPersister:
    """A `Persister` that sends requests to the coordinators of the cluster. `peers` is used for nothing else."""

    def __init__(self, service: ShareStateService, peers: Peers, clock: Clock) -> None:
        self._service = service
        self._peers = peers
        self._clock = clock
        self._machine = RemoteStates()
        self._sender = Sender(peers, self._next_request, self._answered)
        self._futures: dict[Question, Future[Result]] = {}
        self._writes: dict[SharePartitionKey, deque[tuple[PartitionRequest, Future[Result]]]] = {}
        """The share-partitions that are being written, and the writes that wait for their turn."""

    async def initialize(
        self, group_id: str, topics: Mapping[Uuid, Sequence[tuple[int, int, int]]]
    ) -> dict[tuple[Uuid, int], ErrorCode]:
        from kwire_protocol.messages.initialize_share_group_state import PartitionData

        return _codes(
            await self._send_all(
                INITIALIZE,
                group_id,
                {topic_id: [PartitionData(*each) for each in partitions] for topic_id, partitions in topics.items()},
            )
        )

    async def read(self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int) -> ShareState:
        from kwire_protocol.messages.read_share_group_state import PartitionData

        key = SharePartitionKey(group_id, topic_id, partition)
        result = await self._send(READ, key, PartitionData(partition, leader_epoch))
        _raise_error_of(result)
        return ShareState(
            result.state_epoch,
            result.start_offset,
            tuple(
                StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in result.state_batches
            ),
        )

    async def write(
        self,
        group_id: str,
        topic_id: Uuid,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        from kwire_protocol.messages import write_share_group_state as messages

        key = SharePartitionKey(group_id, topic_id, partition)
        requested = messages.PartitionData(
            partition,
            state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            [messages.StateBatch(*batch) for batch in batches],
        )
        _raise_error_of(await self._write_in_order(key, requested))

    async def delete(self, group_id: str, topics: Mapping[Uuid, Sequence[int]]) -> dict[tuple[Uuid, int], ErrorCode]:
        from kwire_protocol.messages.delete_share_group_state import PartitionData

        return _codes(
            await self._send_all(
                DELETE,
                group_id,
                {
                    topic_id: [PartitionData(partition) for partition in partitions]
                    for topic_id, partitions in topics.items()
                },
            )
        )

    async def read_summary(
        self, group_id: str, topics: Mapping[Uuid, Sequence[tuple[int, int]]]
    ) -> dict[tuple[Uuid, int], ShareStateSummary]:
        from kwire_protocol.messages.read_share_group_state_summary import PartitionData

        results = await self._send_all(
            SUMMARIZE,
            group_id,
            {topic_id: [PartitionData(*each) for each in partitions] for topic_id, partitions in topics.items()},
        )
        return {
            (key.topic_id, key.partition): ShareStateSummary(
                result.state_epoch,
                result.leader_epoch,
                result.start_offset,
                result.delivery_complete_count,
                _code(result),
            )
            for key, result in results
        }

    # One question

    async def _send_all(
        self, kind: Kind, group_id: str, topics: Mapping[Uuid, Iterable[PartitionRequest]]
    ) -> list[tuple[SharePartitionKey, Result]]:
        """Sends all questions before it awaits the first result, so that they share requests."""
        pending = [
            (key, begun(self._send(kind, key, each)))
            for topic_id, partitions in topics.items()
            for each in partitions
            for key in [SharePartitionKey(group_id, topic_id, each.partition)]
        ]
        return [(key, (await answer).unwrap()) for key, answer in pending]

    async def _send(self, kind: Kind, key: SharePartitionKey, requested: PartitionRequest) -> Result:
        until_ms = self._clock.monotonic_ms() + PATIENCE_MS
        for pause_s in islice(PAUSES_S, MAX_ATTEMPTS - 1):
            result = await self._send_once(kind, key, requested)
            if result.error_code not in _PASSING or self._clock.monotonic_ms() >= until_ms:
                return result
            await self._peers.pause(pause_s)
        return await self._send_once(kind, key, requested)

    async def _send_once(self, kind: Kind, key: SharePartitionKey, requested: PartitionRequest) -> Result:
        try:
            topic = self._service.runtime.topic
            await topic.ensure()
            if not topic.exists:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic.name} is not known here yet")
            leader_id = topic.role(await self._service.runtime.partition_of(key.text)).leader_id
            if leader_id == NO_LEADER:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic.name} has no leader for {key.text}")
            if leader_id == topic.partitions.node_id:
                return await self._service.answer_one(kind, key, requested)
            question = Question(kind, key, requested)
            self._machine.add(question, leader_id)
        except KafkaError as error:
            return kind.refused(key.partition, error)
        future: Future[Result] = Future()
        self._futures[question] = future
        self._sender.send_soon(leader_id)
        return await future

    def _next_request(self, node_id: int) -> StatesRequest | None:
        sent = self._machine.next_request(node_id)
        if sent is not None:
            # Another kind or group may wait as well.
            self._sender.send_soon(node_id)
        return sent

    def _answered(self, sent: StatesRequest, response: Any | None) -> None:
        for question, result in self._machine.answered(sent, response):
            self._futures.pop(question).set(result)

    # The order of writes

    async def _write_in_order(self, key: SharePartitionKey, requested: PartitionRequest) -> Result:
        """Returns the result of a write, which is sent when the earlier ones are done.

        Writes are sent one after the other, because a repeated one would otherwise reset the start offset of the next.
        """
        future: Future[Result] = Future()
        waiting = self._writes.get(key)
        if waiting is None:
            self._writes[key] = deque()
            drive(self._write_all(key, requested, future))
            return await future
        if len(waiting) >= MAX_WRITES_WAITING:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"too many writes wait for {key.text}")
        waiting.append((requested, future))
        try:
            return await future
        except GeneratorExit:  # the caller was closed
            if (requested, future) in waiting:
                waiting.remove((requested, future))
            raise

    async def _write_all(self, key: SharePartitionKey, requested: PartitionRequest, future: Future[Result]) -> None:
        """Sends the write, and all that wait for it, in its own coroutine: a closed caller does not block others.

        It has no effect either when a stopped broker is garbage-collected in the middle of it.
        """
        waiting = self._writes[key]
        while True:
            future.set(await self._send(WRITE, key, requested))
            if not waiting:
                break
            # Each write has its own turn of the event loop, since many in a row may complete at once.
            await self._peers.loop.next_turn()
            if not waiting:
                break
            requested, future = waiting.popleft()
        del self._writes[key]


def _codes(results: Iterable[tuple[SharePartitionKey, Result]]) -> dict[tuple[Uuid, int], ErrorCode]:
    return {(key.topic_id, key.partition): _code(result) for key, result in results}


def _code(result: Result) -> ErrorCode:
    error = error_of(result)
    return ErrorCode.NONE if error is None else error.code


def _raise_error_of(result: Result) -> None:
    error = error_of(result)
    if error is not None:
        raise error

"""Members of a share group (KIP-932): they fetch from leaders, each in a share session, and acknowledge their records
with the next fetch, or in a request of its own.

They accept most records; some they release or reject, renew, or keep until the lock ends. Their lives end gracefully or
not. Now and then one fetches from partitions that are not, or no longer, its own, so that several have the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import attrs
import trio
from kwire_protocol.messages import share_acknowledge, share_fetch
from kwire_protocol.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from kwire_protocol.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.records import Record, iter_headers, iter_records
from kwire_protocol.wire import ApiMessage

from kwire.client.async_connection import AsyncBrokerConnection
from kwire.groups.share.member import LEAVING_EPOCH
from kwire.share.leader.led import LedSharePartition
from kwire.share.leader.sessions import FINAL_EPOCH, INITIAL_EPOCH
from kwire.share.leader.states import AcknowledgeType, AcquireMode
from testkit.worlds.simulation.clients import GROUP, Again, Cluster
from testkit.worlds.simulation.deliveries import Deliveries, Hold
from testkit.worlds.simulation.eligibility import PartitionId
from testkit.worlds.simulation.history import BrokenPromise
from testkit.worlds.simulation.ledger import Ledger
from testkit.worlds.simulation.members import NO_MEMBER, SHARE_THAT_LEAVE, Life

LIFE_S: Final = 0.7
"""The average length of a life."""
HEARTBEAT_S: Final = 0.15
SHARE_OF_GREED: Final = 0.4
"""The share of the lives in which the member fetches from all partitions that are assigned to any member."""
SHARE_WITH_FETCH: Final = 0.5
"""The share of the acknowledgements that are sent with a fetch."""
SHARE_ALIKE: Final = 0.8
"""The share of the records that are acknowledged like the one before."""

UNACKNOWLEDGED: Final = 0
"""The member does not acknowledge the record until its lock has ended, and then perhaps too late."""
SHARE_TOO_LATE: Final = 0.3
SHARE_OF_REFRESHES: Final = 0.1
"""The share of the steps in which it refreshes the metadata without need."""
FATES: Final = {
    AcknowledgeType.ACCEPT: 20,
    AcknowledgeType.RELEASE: 2,
    AcknowledgeType.REJECT: 2,
    AcknowledgeType.RENEW: 1,
    UNACKNOWLEDGED: 1,
}
MOST_RECORDS: Final = (1, 5, 50)
"""The choices for the maximum number of records of a fetch."""

Plan = Mapping[int, Mapping[int, int]]
"""Partition -> offset -> what becomes of it."""


class Leaders(Protocol):
    """The actual leaders, independent of the nodes' metadata."""

    def leads(self, index: int, node_id: int) -> bool:
        """True if that node leads the partition, also in its own metadata."""

    def share_partition(self, index: int, node_id: int) -> LedSharePartition | None:
        """The group's, on that node."""


@attrs.define
class ShareSession:
    """A share session with a node."""

    connection: AsyncBrokerConnection | None = None
    epoch: int = INITIAL_EPOCH
    partitions: set[int] = attrs.field(factory=set)


@attrs.define(eq=False)
class _SentRequest:
    """A request to a leader, when it was sent."""

    sent_at: float
    current: set[int]
    """The partitions that the node leads according to its own metadata."""
    share_partitions: dict[int, LedSharePartition | None]
    plan: Plan
    holds: dict[tuple[int, int], Hold]


@attrs.define(eq=False, kw_only=True)
class ShareLife(Life):
    deliveries: Deliveries
    leaders: Leaders
    is_over: Callable[[], bool]
    """Returns True if all remaining records are to be accepted."""
    is_greedy: bool
    assigned: list[int] = attrs.field(factory=list)
    is_subscribed: bool = False
    """True if the coordinator has its subscription."""
    _next_heartbeat_at: float = 0.0
    _sessions: dict[int, ShareSession] = attrs.field(factory=dict)
    _holds: dict[tuple[int, int], tuple[int, Hold]] = attrs.field(factory=dict)
    """The locks of records that it has yet to acknowledge, by partition and offset, with the node."""
    _unacknowledged: dict[tuple[int, int], tuple[int, Hold]] = attrs.field(factory=dict)
    """The locks of records that it does not acknowledge any more."""

    async def take_part(self) -> None:
        """Raises Again."""
        if trio.current_time() >= self._next_heartbeat_at:
            await self._heartbeat()
        cluster, chance = self.cluster, self.cluster.random
        if chance.random() < SHARE_OF_REFRESHES:
            await cluster.refresh_metadata()
        wanted = sorted(self.deliveries.assigned) if self.is_greedy else self.assigned
        if not wanted:
            return
        node_id = cluster.leaders.get(chance.choice(wanted), -1)
        if node_id not in cluster.brokers:
            await cluster.refresh_metadata()
            raise Again("no leader is known")
        await self._fetch(node_id, [it for it in wanted if cluster.leaders.get(it) == node_id])
        if chance.random() > SHARE_WITH_FETCH and self._session(node_id).epoch:
            await self._acknowledge(node_id)

    async def _heartbeat(self) -> None:
        if self.cluster.topic_id == bytes(16):
            await self.cluster.refresh_metadata()
        request = ShareGroupHeartbeatRequest(self.group, self.member_id, self.epoch)
        if not self.is_subscribed:
            request.subscribed_topic_names = [self.cluster.topic]
        self.is_subscribed = False
        answer, _ = await self.heartbeat_and_check(request)
        if answer.error_code in NO_MEMBER:
            self.joins_again()
        if answer.error_code:
            raise Again(str(answer.error_code))
        self.epoch, self.is_subscribed = answer.member_epoch, True
        if answer.assignment is not None:
            self.assigned = [it for topic in answer.assignment.topic_partitions for it in topic.partitions]
            self.deliveries.assigned.update(self.assigned)
        self._next_heartbeat_at = trio.current_time() + HEARTBEAT_S

    # Requests to leaders

    def _key(self, index: int) -> PartitionId:
        return self.cluster.topic, index

    def _session(self, node_id: int) -> ShareSession:
        """Returns the share session of the present connection."""
        session = self._sessions.get(node_id)
        if session is None or session.connection is None or session.connection.is_closed:
            return ShareSession()
        return session if session.connection is self.cluster.connection(node_id) else ShareSession()

    def _begin(self, node_id: int, indexes: Iterable[int], plan: Plan) -> _SentRequest:
        """Nothing is awaited between this and the request."""
        holds = {(index, offset): self._holds[index, offset][1] for index, of in plan.items() for offset in of}
        for (index, offset), hold in holds.items():
            if plan[index][offset] != AcknowledgeType.RENEW:
                self.deliveries.given_up(self._key(index), offset, hold)
                del self._holds[index, offset]
        wanted = {*indexes, *plan}
        current = {it for it in wanted if self.leaders.leads(it, node_id)}
        known = {it: self.leaders.share_partition(it, node_id) for it in wanted}
        return _SentRequest(trio.current_time(), current, known, plan, holds)

    async def _call_leader(self, node_id: int, session: ShareSession, request: ApiMessage) -> Any:
        """Raises Again, with the session ended for this side."""
        losses = len(self.ledger.losses)
        self._sessions.pop(node_id, None)
        address = self.cluster.brokers.get(node_id)
        if address is None:
            raise Again(f"node {node_id} is not there")
        answer = await self.cluster.call(address, request)
        connection = self.cluster.connection(node_id)
        if len(self.ledger.losses) > losses:
            raise Again("something is lost")
        if answer.error_code:
            if session.epoch and connection is session.connection:
                raise BrokenPromise(f"{self.member_id}: the session of epoch {session.epoch} is refused: {answer}")
            raise Again(str(answer.error_code))
        if session.epoch != FINAL_EPOCH:
            self._sessions[node_id] = ShareSession(connection, session.epoch + 1, session.partitions)
        return answer

    async def _fetch(self, node_id: int, wanted: list[int]) -> None:
        chance, session = self.cluster.random, self._session(node_id)
        plan = self._plan(node_id) if session.epoch and chance.random() < SHARE_WITH_FETCH else {}
        forgotten = sorted(session.partitions.difference(wanted, plan))
        named = [
            FetchPartition(
                it,
                acknowledgement_batches=[
                    share_fetch.AcknowledgementBatch(*batch) for batch in self._batches(plan.get(it, {}))
                ],
            )
            for it in sorted({*plan, *wanted} - (session.partitions - {*plan}))
        ]
        session.partitions = {*session.partitions, *wanted, *plan}.difference(forgotten)
        topic_id, mode = self.cluster.topic_id, chance.choice([*AcquireMode])
        request = ShareFetchRequest(
            self.group,
            self.member_id,
            session.epoch,
            max_wait_ms=100 if self.is_over() else 20,
            min_bytes=1,
            max_bytes=20_000,
            max_records=chance.choice(MOST_RECORDS),
            batch_size=chance.choice(MOST_RECORDS),
            share_acquire_mode=mode,
            topics=[FetchTopic(topic_id, named)] if named else [],
            forgotten_topics_data=[ForgottenTopic(topic_id, forgotten)] if forgotten else [],
        )
        sent = self._begin(node_id, session.partitions, plan)
        try:
            answer = await self._call_leader(node_id, session, request)
        except Again:
            self.deliveries.unanswered.update(map(self._key, session.partitions))
            raise
        count, errors = 0, set()
        for data in (it for topic in answer.responses for it in topic.partitions):
            index = data.partition_index
            if index in plan:
                self._acknowledged(node_id, index, sent, data.acknowledge_error_code)
            if data.error_code:
                self.deliveries.failed(self._key(index), data.error_code)
                errors.add(data.error_code)
            count += self._take(node_id, sent, data)
        if mode is AcquireMode.RECORD_LIMIT and count > request.max_records:
            raise BrokenPromise(f"{self.member_id} wants {request.max_records} records and gets {count}")
        if errors:
            raise Again(str(errors))

    def _take(self, node_id: int, sent: _SentRequest, data: share_fetch.PartitionData) -> int:
        """Adds the acquired records. Returns their number."""
        index = data.partition_index
        assert isinstance(data.records, bytes | bytearray | memoryview)
        key, found = self._key(index), _records(bytes(data.records))
        share_partition = self._still(node_id, index, sent)
        connection = self.cluster.connection(node_id)
        count = 0
        for it in data.acquired_records:
            for offset in range(it.first_offset, it.last_offset + 1):
                # Each record has a lock of its own, which the member may renew by itself.
                hold = Hold.begun(self.member_id, share_partition, connection, sent.sent_at, it.delivery_count)
                record, is_current = found.get(offset), index in sent.current
                self.deliveries.delivered((key, offset), record, hold, sent.sent_at, current=is_current)
                self._holds[index, offset] = node_id, hold
                count += 1
        return count

    def _still(self, node_id: int, index: int, sent: _SentRequest) -> LedSharePartition | None:
        """The share partition, if it was the same all the time."""
        before = sent.share_partitions[index]
        return before if before is self.leaders.share_partition(index, node_id) else None

    # Acknowledging

    def _plan(self, node_id: int, *, renews: bool = False) -> Plan:
        """Chooses the next acknowledgements of records from this node."""
        chance, plan = self.cluster.random, dict[int, dict[int, int]]()
        fates = [it for it in FATES if renews or it != AcknowledgeType.RENEW]
        fate: int | None = None
        for record, held in [*self._unacknowledged.items()]:
            if not held[1].is_good:
                del self._unacknowledged[record]
                if chance.random() < SHARE_TOO_LATE:
                    self._holds.setdefault(record, held)
        for (index, offset), (source, hold) in sorted(self._holds.items(), key=lambda it: it[0]):
            if source != node_id:
                continue
            if not hold.is_good and chance.random() > SHARE_TOO_LATE:
                self._drop(index, offset)
                continue
            if self.is_over():
                fate = AcknowledgeType.ACCEPT
            elif fate is None or chance.random() > SHARE_ALIKE:
                fate = chance.choices(fates, [FATES[it] for it in fates])[0]
            if fate == UNACKNOWLEDGED:
                self._unacknowledged[index, offset] = self._holds.pop((index, offset))
            else:
                plan.setdefault(index, {})[offset] = fate
        return plan

    def _batches(self, fates: Mapping[int, int]) -> list[tuple[int, int, list[int]]]:
        """First offset, last offset, types."""
        batches: list[tuple[int, int, list[int]]] = []
        mixes = self.cluster.random.random() < 0.5
        for offset in fates:
            first, last, types = batches[-1] if batches else (0, -2, [])
            if offset == last + 1 and (mixes or types[-1] == fates[offset]):
                batches[-1] = first, offset, [*types, fates[offset]]
            else:
                batches.append((offset, offset, [fates[offset]]))
        return [(first, last, types if mixes else types[:1]) for first, last, types in batches]

    async def _acknowledge(self, node_id: int, *, is_last: bool = False) -> None:
        session = self._session(node_id)
        plan = self._plan(node_id, renews=not is_last)
        if not plan and not is_last:
            return
        partitions = [
            AcknowledgePartition(it, [share_acknowledge.AcknowledgementBatch(*batch) for batch in self._batches(of)])
            for it, of in plan.items()
        ]
        if is_last:
            session.epoch = FINAL_EPOCH
        request = ShareAcknowledgeRequest(
            self.group,
            self.member_id,
            session.epoch,
            is_renew_ack=any(AcknowledgeType.RENEW in of.values() for of in plan.values()),
            topics=[AcknowledgeTopic(self.cluster.topic_id, partitions)] if partitions else [],
        )
        sent = self._begin(node_id, (), plan)
        if is_last:
            self._drop_all(node_id)
        answer = await self._call_leader(node_id, session, request)
        errors = set()
        for data in (it for topic in answer.responses for it in topic.partitions):
            self._acknowledged(node_id, data.partition_index, sent, data.error_code)
            errors.add(data.error_code)
        if errors - {0}:
            raise Again(str(errors))

    def _acknowledged(self, node_id: int, index: int, sent: _SentRequest, error: int) -> None:
        share_partition = self._still(node_id, index, sent)
        holds = {offset: sent.holds[index, offset] for offset in sent.plan[index]}
        sure = {it for it, hold in holds.items() if hold.is_good and hold.share_partition is share_partition}
        key = self._key(index)
        if error:
            self.deliveries.refused(key, error, is_sure=len(sure) == len(holds))
            return
        for offset, hold in holds.items():
            kind = sent.plan[index][offset]
            self.deliveries.acknowledged(key, offset, kind, hold, sent.sent_at, is_sure=offset in sure)

    # The end of a life

    def _drop(self, index: int, offset: int) -> None:
        _, hold = self._holds.pop((index, offset))
        self.deliveries.given_up(self._key(index), offset, hold)

    def _drop_all(self, node_id: int | None = None) -> None:
        for held in (self._holds, self._unacknowledged):
            for (index, offset), (source, hold) in [*held.items()]:
                if node_id in (None, source):
                    del held[index, offset]
                    self.deliveries.given_up(self._key(index), offset, hold)

    async def leave(self) -> None:
        with suppress(Again):
            for node_id in [*self._sessions]:
                if self._session(node_id).epoch:
                    await self._acknowledge(node_id, is_last=True)
            leaving = ShareGroupHeartbeatRequest(self.group, self.member_id, LEAVING_EPOCH)
            await self.cluster.call_coordinator(GROUP, self.group, leaving)

    def fall_silent(self) -> None:
        """Its sessions last as long as their connections, or until another life begins one there."""
        self._drop_all()


def _records(data: bytes) -> dict[int, Record]:
    found: dict[int, Record] = {}
    for start, header in iter_headers(memoryview(data)):
        if not header.is_control:
            batch = data[start : start + header.size_in_bytes]
            found.update((it.offset, it) for it in iter_records(memoryview(batch)))
    return found


@attrs.define(eq=False)
class ShareMember:
    """A member of a share group, which lives one life after the other."""

    cluster: Cluster
    ledger: Ledger
    deliveries: Deliveries
    group: str
    leaders: Leaders
    coordinates: Callable[[int], bool]
    is_over: Callable[[], bool]
    stops: Callable[[], bool]

    async def run(self) -> None:
        chance = self.cluster.random
        while not self.stops():
            life = ShareLife(
                self.cluster,
                self.ledger,
                self.group,
                self.coordinates,
                member_id=f"{self.cluster.name}-{chance.randrange(1 << 32)}",
                deliveries=self.deliveries,
                leaders=self.leaders,
                is_over=self.is_over,
                is_greedy=chance.random() < SHARE_OF_GREED,
            )
            await self._live(life, trio.current_time() + chance.expovariate(1 / LIFE_S))

    async def _live(self, life: ShareLife, until: float) -> None:
        chance = self.cluster.random
        while not self.stops():
            try:
                await life.take_part()
                await trio.sleep(chance.uniform(0.02, 0.15) if not self.is_over() else 0.02)
            except Again:
                await self.cluster.rest()
            if trio.current_time() >= until and not self.is_over():
                break
        if chance.random() < SHARE_THAT_LEAVE:
            await life.leave()
        life.fall_silent()

"""Members of a group that own partitions, of the classic protocol and of the consumer protocol (KIP-848). They commit
higher and higher offsets for the partitions that they own. `streams_members.py` has another protocol of theirs.

A member lives once or several times. Each life has one of the protocols that the run has; in a run with several, a
member that turns to another protocol has the group migrate while others stay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeAlias

import attrs
import trio
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from kwire_protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kwire_protocol.wire import ApiMessage, Reader, Writer

from kwire.groups.consumer.member import JOINING_EPOCH, LEAVING_EPOCH
from testkit.worlds.simulation.clients import GROUP, Again, Cluster
from testkit.worlds.simulation.eligibility import PartitionId
from testkit.worlds.simulation.history import BrokenPromise
from testkit.worlds.simulation.ledger import Ledger

NO_MEMBER = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
"""It has to join again."""

SESSION_TIMEOUT_MS = 500
"""The session timeout of all protocols; a member also has as long to rejoin, or to give up partitions."""

LIFE_S = 0.7
"""The average length of lives that end."""
SHARE_THAT_LEAVE = 0.5
"""The share of graceful ends of lives; the others fall silent."""
SHARE_OF_FETCHES = 0.2
"""The share of the commits before which the member fetches the committed offset, although it has it."""

SHARE_OF_STALLS, STALL_S = 0.1, 2.0
"""The share of the lives in which a member of the consumer protocol stalls, and the maximum length of a stall."""

HeartbeatResponse: TypeAlias = (
    ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse
)

PROTOCOL_TYPE, ASSIGNOR, PROTOCOL_VERSION = "consumer", "range", 0


@attrs.define(eq=False)
class Life:
    """The common part of members of all groups. `epoch` is the member epoch, or the generation."""

    cluster: Cluster
    ledger: Ledger
    group: str
    coordinates: Callable[[int], bool]
    """Returns True if that node is the group's coordinator, by the metadata log. A node that has not read its
    replacement there yet answers from its old state, as Apache Kafka's does.
    """
    is_alone: bool = True
    """True if all members of the run have this protocol."""
    member_id: str = ""
    epoch: int = 0
    known_until: float = 0.0
    """The time before which the coordinator may not remove it, without further heartbeats: the end of its session, or
    of an earlier rebalance timeout.
    """

    async def call(self, request: ApiMessage, **versions: int) -> tuple[Any, float | None]:
        """Returns the answer, and the time of the request; None if its assignment may be outdated.

        Raises Again.
        """
        found = await self.cluster.find_coordinator(GROUP, self.group)
        losses = len(self.ledger.losses)
        # Whoever coordinates after this moment gives each member its whole session.
        is_coordinator, sent_at = self.coordinates(found.node_id), trio.current_time()
        answer = await self.cluster.call((found.host, found.port), request, **versions)
        if len(self.ledger.losses) > losses:
            raise Again("something is lost")
        return answer, sent_at if is_coordinator else None

    async def heartbeat_and_check(self, request: ApiMessage) -> tuple[Any, float | None]:
        """Sends a heartbeat. Raises BrokenPromise if the coordinator has lost a state that it has sent to a member."""
        highest = self.ledger.highest_epoch
        answer, sent_at = await self.call(request)
        if sent_at is not None:
            self.check_remembered(answer, sent_at, highest)
        return answer, sent_at

    def check_remembered(self, answer: HeartbeatResponse, sent_at: float, highest: int) -> None:
        """Checks the response to a heartbeat that was sent then. An epoch that a member has received is never lost, nor
        are members whose sessions last. A member that joins gets no earlier epoch than any member had received:
        `highest`, then.
        """
        if self.ledger.has_lost_groups:
            return
        joins, code = self.epoch == JOINING_EPOCH, answer.error_code
        is_behind = code == ErrorCode.FENCED_MEMBER_EPOCH and "greater" in (answer.error_message or "")
        # A group that was empty starts again with another protocol.
        is_gone = self.is_alone and not joins and code == ErrorCode.GROUP_ID_NOT_FOUND
        is_removed = self.is_alone and code == ErrorCode.UNKNOWN_MEMBER_ID and trio.current_time() < self.known_until
        least = self.epoch if not joins else highest if self.is_alone else 0
        if is_behind or is_gone or is_removed or (not code and answer.member_epoch < least):
            raise BrokenPromise(f"{self.member_id} was told epoch {self.epoch} of {highest}, and now {answer}")
        if not code:
            self.known_until = sent_at + SESSION_TIMEOUT_MS / 1000
            self.ledger.note_epoch(answer.member_epoch)

    def joins_again(self) -> None:
        """Resets the member, which is not in the group any more by its own view."""
        self.epoch, self.known_until = JOINING_EPOCH, 0.0


@attrs.define(eq=False)
class OwningLife(Life, ABC):
    """`take_part` once and again."""

    is_mortal: ClassVar[bool] = False
    """True if it ends although the run has no other protocol."""
    partitions: int = 0
    positions: dict[int, int | None] = attrs.field(factory=dict)
    """The next offset of each owned partition; None if it has to be fetched."""
    has_failed: bool = False
    """True if it has to start again, as another member."""
    _may_keep_until: float = 0.0
    """The earliest end of a rebalance timeout, which is as long as the session. The timeout begins with a response that
    takes partitions. That response may have been lost, but it came after the last one that took none.
    """

    @abstractmethod
    async def take_part(self) -> None:
        """Owns partitions, and commits for them once. Raises Again."""

    @abstractmethod
    def leaving(self) -> ApiMessage: ...

    async def leave(self) -> None:
        self.give_up(self.positions)
        if self.member_id:
            with suppress(Again):
                await self.cluster.call_coordinator(GROUP, self.group, self.leaving())

    # What it owns

    def _key(self, index: int) -> PartitionId:
        return self.group, index

    def note_owned(
        self, owned: Iterable[int], sent_at: float, *, loses_more: bool = False, is_renewed: bool = True
    ) -> None:
        """These are its partitions until the coordinator may remove it. `loses_more`: the response took others.
        `is_renewed`: the request has renewed its session.
        """
        owned = set(owned)
        until = sent_at + SESSION_TIMEOUT_MS / 1000
        if not is_renewed:
            until = min(until, trio.current_time())
        lost = [it for it in self.positions if it not in owned]
        if lost or loses_more:
            # If it does not give them up within the rebalance timeout, it is removed, and so loses what it keeps now.
            until = min(until, self._may_keep_until)
            self.known_until = min(self.known_until, until)
        else:
            self._may_keep_until = until
        self.give_up(lost)
        for index in sorted(owned):
            if index in self.positions:
                self.ledger.still_owned(self._key(index), self.member_id, sent_at, until)
            else:
                self.ledger.owned(self._key(index), self.member_id, sent_at, until)
                self.positions[index] = None

    def give_up(self, indexes: Iterable[int]) -> None:
        for index in list(indexes):
            self.ledger.given_up(self._key(index), self.member_id)
            del self.positions[index]

    # Offsets

    async def commit_all(self) -> None:
        """Sends one request after another, so that a commit that was answered came after the last offset it follows."""
        for index in sorted(self.positions):
            await self._commit_next(index)

    async def _commit_next(self, index: int) -> None:
        key = self._key(index)
        offset = self.positions[index]
        if offset is None or self.cluster.random.random() < SHARE_OF_FETCHES:
            offset = self.positions[index] = await self._committed(index)
        before, sent_at = self.ledger.commits.get(key), trio.current_time()
        self.ledger.processed(key, offset + 1)
        topic = OffsetCommitRequestTopic(
            topic_id=self.cluster.topic_id, partitions=[OffsetCommitRequestPartition(index, offset + 1)]
        )
        # Without an answer it may still be under way, and must not come after others of this member in this epoch.
        self.has_failed = True
        commit = OffsetCommitRequest(self.group, self.epoch, self.member_id, topics=[topic])
        answer, _ = await self.call(commit, at_least=10)
        self.has_failed = False
        error = answer.topics[0].partitions[0].error_code
        if error:
            raise Again(str(error))
        # A group that was empty starts again with the other protocol.
        generation = self.epoch if self.is_alone else 0
        self.ledger.committed(key, generation, offset + 1, before)
        self.ledger.check_owner(key, self.member_id, sent_at, "committed for it")
        self.positions[index] = offset + 1

    async def _committed(self, index: int) -> int:
        key = self._key(index)
        before = self.ledger.commits.get(key)
        answer, is_up_to_date = await self.call(
            OffsetFetchRequest(groups=[self.wanted(index)], require_stable=True), at_least=10
        )
        found = answer.groups[0]
        if found.error_code or found.topics[0].partitions[0].error_code:
            raise Again("offsets cannot be fetched")
        offset: int = found.topics[0].partitions[0].committed_offset
        if before is not None and offset < before[1] and is_up_to_date is None:
            raise Again("another node is the coordinator")
        self.ledger.fetched_commit(key, offset, before)
        return offset

    def wanted(self, index: int) -> OffsetFetchRequestGroup:
        topic = OffsetFetchRequestTopics(topic_id=self.cluster.topic_id, partition_indexes=[index])
        return OffsetFetchRequestGroup(self.group, self.member_id, self.epoch, topics=[topic])


@attrs.define(eq=False)
class ClassicLife(OwningLife):
    """It gives up everything before it rejoins."""

    is_joined: bool = False

    async def take_part(self) -> None:
        if not self.is_joined:
            await self._join()
        try:
            answer, sent_at = await self.call(HeartbeatRequest(self.group, self.epoch, self.member_id))
            if answer.error_code:
                raise Again(str(answer.error_code))
            if sent_at is not None:
                self.note_owned(self.positions, sent_at)
            await self.commit_all()
        except Again:
            self.is_joined = False
            raise

    async def _join(self) -> None:
        self.give_up(self.positions)
        protocols = [JoinGroupRequestProtocol(ASSIGNOR, self._subscription())]
        request = JoinGroupRequest(
            self.group, SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS, self.member_id, None, PROTOCOL_TYPE, protocols
        )
        joined = await self.cluster.call_coordinator(GROUP, self.group, request)
        if joined.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID):
            self.member_id = joined.member_id if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
            raise Again("another member id")
        if joined.error_code:
            raise Again(str(joined.error_code))
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == self.member_id:
            ids = [it.member_id for it in joined.members]
            assignments = [
                SyncGroupRequestAssignment(it, self._assignment(range(number, self.partitions, len(ids))))
                for number, it in enumerate(ids)
            ]
        sync = SyncGroupRequest(self.group, self.epoch, self.member_id, None, PROTOCOL_TYPE, ASSIGNOR, assignments)
        synced, sent_at = await self.call(sync)
        if synced.error_code:
            raise Again(str(synced.error_code))
        if sent_at is None:
            raise Again("another node is the coordinator")
        # The SyncGroup renews no session if the group was stable already (GroupMetadataManager.classicGroupSync). The
        # heartbeat that follows does.
        self.note_owned(_assigned(bytes(synced.assignment)), sent_at, is_renewed=False)
        self.is_joined = True

    def _subscription(self) -> bytes:
        return _written(ConsumerProtocolSubscription([self.cluster.topic]))

    def _assignment(self, indexes: Sequence[int]) -> bytes:
        topic = ConsumerProtocolAssignmentTopicPartition(self.cluster.topic, [*indexes])
        return _written(ConsumerProtocolAssignment([topic]))

    def leaving(self) -> LeaveGroupRequest:
        return LeaveGroupRequest(self.group, members=[MemberIdentity(self.member_id)])


def _written(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment) -> bytes:
    w = Writer()
    w.int16(PROTOCOL_VERSION)
    message.write(w, PROTOCOL_VERSION)
    return w.getvalue()


def _assigned(assignment: bytes) -> list[int]:
    if not assignment:
        return []
    reader = Reader(assignment)
    read = ConsumerProtocolAssignment.read(reader, reader.int16())
    return [index for topic in read.assigned_partitions for index in topic.partitions]


@attrs.define(eq=False)
class ConsumerLife(OwningLife):
    """A member that sends everything again after a failed request, and reports at once what it gave up, as Kafka's
    consumer does.
    """

    reported: list[int] | None = None
    """The owned partitions that the coordinator has from it; None if it may not have them."""

    def __attrs_post_init__(self) -> None:
        self.member_id = f"{self.cluster.name}-{self.cluster.random.randrange(1 << 32)}"

    async def take_part(self) -> None:
        if self.positions and self.cluster.random.random() < SHARE_OF_STALLS:
            # Others may have its partitions when it resumes, and no response has shown it that yet.
            await trio.sleep(STALL_S * self.cluster.random.random())
            await self.commit_all()
        await self._heartbeat()
        if sorted(self.positions) != self.reported:
            await self._heartbeat()
        await self.commit_all()

    async def _heartbeat(self) -> None:
        if self.cluster.topic_id == bytes(16):
            await self.cluster.refresh_metadata()
        owned, topic_id = sorted(self.positions), self.cluster.topic_id
        request = ConsumerGroupHeartbeatRequest(self.group, self.member_id, self.epoch)
        if self.reported is None:
            request.rebalance_timeout_ms = SESSION_TIMEOUT_MS
            request.subscribed_topic_names = [self.cluster.topic]
        if self.reported != owned:
            request.topic_partitions = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, owned)] if owned else []
        self.reported = None
        answer, sent_at = await self.heartbeat_and_check(request)
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND and self.epoch > JOINING_EPOCH:
            # It has become a classic group, or is lost. Kafka's consumer fails for good.
            self.has_failed = True
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.give_up(self.positions)
            self.joins_again()
        if answer.error_code:
            raise Again(str(answer.error_code))
        if sent_at is None:
            raise Again("another node is the coordinator")
        self.reported, self.epoch = owned, answer.member_epoch
        self.note_owned(owned if answer.assignment is None else _given(answer.assignment), sent_at)

    def leaving(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(self.group, self.member_id, LEAVING_EPOCH)


def _given(assignment: Assignment) -> list[int]:
    return [index for topic in assignment.topic_partitions for index in topic.partitions]


@attrs.define(eq=False)
class Member:
    cluster: Cluster
    ledger: Ledger
    group: str
    partitions: int
    protocols: Sequence[type[OwningLife]]
    stops: Callable[[], bool]
    coordinates: Callable[[int], bool]

    async def run(self) -> None:
        chance = self.cluster.random
        while not self.stops():
            is_alone = len(self.protocols) == 1
            kind = chance.choice(self.protocols)
            life = kind(
                self.cluster, self.ledger, self.group, self.coordinates, partitions=self.partitions, is_alone=is_alone
            )
            await self._live(life, trio.current_time() + chance.expovariate(1 / LIFE_S))

    async def _live(self, life: OwningLife, until: float) -> None:
        """Runs until then, if it is mortal or there is another protocol. One without known offsets starts again."""
        chance = self.cluster.random
        while not self.stops():
            try:
                await life.take_part()
                await trio.sleep(chance.uniform(0.05, 0.3))
            except Again:
                await self.cluster.rest()
            if life.has_failed:
                return
            if (life.is_mortal or not life.is_alone) and trio.current_time() >= until:
                if chance.random() < SHARE_THAT_LEAVE:
                    await life.leave()
                return

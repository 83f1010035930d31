"""Clients of consumer groups for tests of the machine: they do what KIP-848 requires, and no more.

A `Client` sends the changes since its last answer, and everything when it joins or when an answer was lost. It takes
over its assignment in two steps, as real ones do: first it gives up the lost partitions and reports that, then it takes
the new ones. A test may lose its answers, let it fall silent, or let it linger before it gives something up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from kwire_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from kwire_protocol.wire import Reader, Uuid, Writer

from kwire.groups.classic.subscription import subscribed_topics
from kwire.groups.group import MemberContext, sees_all
from testkit.groups.shard_driver import GROUP, ShardDriver, left_as_it_is, subscription

TopicIdPartition = tuple[Uuid, int]
"""A partition: the topic's id and the partition's number."""

JOINING, LEAVING, STATIC_LEAVING = 0, -1, -2
REBALANCE_TIMEOUT_MS = 30_000

FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


def heartbeat(
    driver: ShardDriver,
    request: ConsumerGroupHeartbeatRequest,
    *,
    client_id: str = "app",
    version: int = 1,
    sees_topic: Callable[[str], bool] = sees_all,
) -> ConsumerGroupHeartbeatResponse:
    """The answer to any heartbeat."""
    token = driver.token()
    context = MemberContext(client_id, "/127.0.0.1", version, sees_topic)
    with left_as_it_is(request, version=1):
        effects = driver.shard.consumer_heartbeat(request, context, token, member_id=request.member_id, now=driver.now)
    driver.run(effects)
    response = driver.replies[token]
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


def reported(owned: Iterable[TopicIdPartition]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(owned):
        topics.setdefault(topic_id, []).append(partition)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, partitions) for topic_id, partitions in topics.items()
    ]


@attrs.define(eq=False)
class Client:
    """One client of a group. `owned` are the partitions that it uses."""

    driver: ShardDriver
    member_id: str
    topics: frozenset[str] = frozenset({"t"})
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rack_id: str | None = None
    sees_topic: Callable[[str], bool] = sees_all
    group: str = GROUP
    epoch: int = JOINING
    owned: set[TopicIdPartition] = attrs.field(factory=set)
    assigned: set[TopicIdPartition] | None = None
    """The new assignment; None if it has taken all of that over."""
    is_in: bool = False
    """It was answered, and neither left nor was thrown out since."""
    _has_reported_owned: bool = False
    _has_reported_subscription: bool = False
    is_unsure: bool = True
    """The last answer did not arrive, so the next request has everything."""

    def subscribe(self, topics: Iterable[str], regex: str | None = None) -> None:
        self.topics, self.regex = frozenset(topics), regex
        self._has_reported_subscription = False

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """Returns the next request."""
        request = ConsumerGroupHeartbeatRequest(self.group, self.member_id, self.epoch, instance_id=self.instance_id)
        everything = self.is_unsure or self.epoch == JOINING
        if everything:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.server_assignor, request.rack_id = self.assignor, self.rack_id
        if everything or not self._has_reported_subscription:
            request.subscribed_topic_names = sorted(self.topics)
            request.subscribed_topic_regex = self.regex or ""
        if everything or not self._has_reported_owned:
            request.topic_partitions = reported(self.owned)
        return request

    def heartbeat(self, *, is_lost: bool = False) -> ErrorCode:
        """Sends a heartbeat and takes in the answer, unless that is lost."""
        response = heartbeat(self.driver, self.request(), sees_topic=self.sees_topic)
        if is_lost:
            self.is_unsure = True
            return ErrorCode.NONE
        return self.take_in(response)

    def take_in(self, response: ConsumerGroupHeartbeatResponse) -> ErrorCode:
        error = ErrorCode(response.error_code)
        if error is ErrorCode.NONE:
            assert response.member_id == self.member_id
            self.epoch, self.is_in, self.is_unsure = response.member_epoch, True, False
            self._has_reported_owned = self._has_reported_subscription = True
            if response.assignment is not None:
                self.assigned = {
                    (topic.topic_id, partition)
                    for topic in response.assignment.topic_partitions
                    for partition in topic.partitions
                }
        elif error in FENCED:
            self.be_out()
        else:
            self.is_unsure = True
        return error

    def be_out(self) -> None:
        """It is no member any more: it gives everything up, and joins with its next heartbeat."""
        self.epoch, self.assigned, self.is_in, self.is_unsure = JOINING, None, False, True
        self.owned.clear()

    def give_up(self) -> bool:
        """Gives up what it lost, or takes what is new. Returns whether it did something."""
        if self.assigned is None:
            return False
        retained = self.owned & self.assigned
        if retained != self.owned:
            self.owned = retained
        else:
            self.owned, self.assigned = self.assigned, None
        self._has_reported_owned = False
        return True

    def leave(self, epoch: int = LEAVING) -> ErrorCode:
        request = ConsumerGroupHeartbeatRequest(self.group, self.member_id, epoch, instance_id=self.instance_id)
        response = heartbeat(self.driver, request)
        self.be_out()
        return ErrorCode(response.error_code)


def settle(clients: Iterable[Client], *, rounds: int = 12) -> None:
    """Runs all clients until nothing changes any more."""
    clients = list(clients)
    for _ in range(rounds):
        for client in clients:
            client.heartbeat()
            while client.give_up():
                client.heartbeat()


CLASSIC_SESSION_MS = 45_000


@attrs.define(eq=False)
class ClassicClient:
    """A client of the classic protocol, with an eager assignor: it gives everything up before it joins again.

    `act` sends its next request, or takes the answer to the pending one. As a leader it assigns the partitions
    round-robin.
    """

    driver: ShardDriver
    name: str
    topics: frozenset[str] = frozenset({"t"})
    group: str = GROUP
    member_id: str = ""
    generation: int = -1
    owned: set[TopicIdPartition] = attrs.field(factory=set)
    is_in: bool = False
    """True if it has a generation, and its assignment in it."""
    _joining: object | None = None
    _syncing: object | None = None

    def act(self) -> bool:
        """Returns whether something happened."""
        self.driver.advance(0)
        if self._joining is not None:
            return self._take_join()
        if self._syncing is not None:
            return self._take_sync()
        if not self.is_in:
            self._join()
            return True
        error = self.driver.heartbeat(self.member_id, self.generation, group=self.group)
        if error is not ErrorCode.NONE:
            self._start_again(error)
        return error is not ErrorCode.NONE

    def be_out(self) -> None:
        """Resets the client as if it was killed: it has no state in its next life."""
        self._give_up()
        self.member_id, self._joining, self._syncing = "", None, None

    def leave(self) -> None:
        if self.member_id:
            self.driver.leave(self.member_id, group=self.group)
        self.be_out()

    def forget_requests(self) -> None:
        """Drops the pending requests, because another coordinator has taken over."""
        if self._joining is not None or self._syncing is not None:
            self._give_up()
        self._joining = self._syncing = None

    def _give_up(self) -> None:
        self.owned.clear()
        self.is_in = False

    def _start_again(self, error: ErrorCode) -> None:
        self._give_up()
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""

    def _join(self) -> None:
        self._joining = self.driver.join(
            self.member_id,
            group=self.group,
            session_timeout_ms=CLASSIC_SESSION_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocols={"range": subscription(*sorted(self.topics))},
            client_id=self.name,
        )

    def _take_join(self) -> bool:
        if not self.driver.is_answered(self._joining):
            return False
        response = self.driver.joined(self._joining)
        self._joining = None
        error = ErrorCode(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif error is not ErrorCode.NONE:
            self._start_again(error)
        else:
            self.member_id, self.generation = response.member_id, response.generation_id
            members = {member.member_id: member.metadata for member in response.members}
            self._syncing = self.driver.sync(
                self.member_id, self.generation, self._deal(members), group=self.group, protocol_name="range"
            )
        return True

    def _deal(self, members: dict[str, bytes]) -> dict[str, bytes]:
        dealt: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in members}
        for topic in self.driver.topics.names():
            readers = [it for it, metadata in members.items() if topic in (subscribed_topics([metadata]) or ())]
            found = self.driver.topics.find(topic)
            for partition in range(found.spec.partition_count if found is not None and readers else 0):
                dealt[readers[partition % len(readers)]].setdefault(topic, []).append(partition)
        return {member_id: _assignment(topics) for member_id, topics in dealt.items()}

    def _take_sync(self) -> bool:
        if not self.driver.is_answered(self._syncing):
            return False
        response = self.driver.synced(self._syncing)
        self._syncing = None
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            self._start_again(error)
            return True
        self.is_in = True
        self.owned = set()
        for topic, partitions in _assigned(response.assignment).items():
            found = self.driver.topics.find(topic)
            if found is not None:
                self.owned |= {(found.topic_id, partition) for partition in partitions}
        return True


def _assignment(topics: dict[str, list[int]]) -> bytes:
    w = Writer()
    w.int16(0)
    ConsumerProtocolAssignment(
        [ConsumerProtocolAssignmentTopicPartition(topic, partitions) for topic, partitions in topics.items()]
    ).write(w, 0)
    return w.getvalue()


def _assigned(assignment: bytes) -> dict[str, list[int]]:
    if not assignment:
        return {}
    reader = Reader(assignment)
    read = ConsumerProtocolAssignment.read(reader, reader.int16())
    return {topic.topic: topic.partitions for topic in read.assigned_partitions}

"""Members of a consumer group (KIP-848), many on each connection, so that thousands of them fit beside a broker.

They are honest: each sends a heartbeat at the coordinator's interval, and at once when it has something to report:
when it joins, and when it has given up or taken partitions. It reports its partitions only when they changed. The group
has settled when all members are in one epoch, each partition has an owner, and no member has two more than another.

A consumer has its connection to itself. What a broker keeps for a connection is no part of a member, though, and
`connections` measures it.
"""

from __future__ import annotations

import heapq
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from itertools import count, cycle
from typing import Any

import attrs
from kwire_protocol.conversation import Conversation
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from kwire_protocol.wire import Uuid

from benchmarks.load.answers import BadAnswer
from benchmarks.load.requests import CLIENT_ID, send

SETTLE_WITHIN_S = 180.0
RETRY_PAUSE_S = 0.05

_JOINING, _LEAVING = 0, -1
_REBALANCE_MS = 120_000
_NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_IN_FLIGHT = 10_000

Place = tuple[Uuid, int]
"""A partition: the topic's id and the partition's number."""


@attrs.frozen
class Subscription:
    """Topics by name, or by a regular expression. `partitions`: how many the topics have, all together."""

    partitions: int
    names: Sequence[str] = ()
    regex: str = ""


@attrs.define(eq=False)
class Member:
    member_id: str
    epoch: int = _JOINING
    owned: set[Place] = attrs.field(factory=set)
    has_news: bool = False  # it has not reported yet what it owns


@attrs.define(eq=False)
class _Lane:
    """One connection, and the members whose answers are to come on it, in that order."""

    socket: socket.socket
    conversation: Conversation = attrs.field(
        factory=lambda: Conversation(client_id=CLIENT_ID, max_in_flight=_IN_FLIGHT)
    )
    awaiting: deque[Member] = attrs.field(factory=deque)


def steady(group: str, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    """The heartbeat of a member to which nothing has happened."""
    return ConsumerGroupHeartbeatRequest(group, member_id, epoch)


class ConsumerGroup:
    """A group on sockets that are connected already (and do not block)."""

    def __init__(self, name: str, subscription: Subscription, sockets: Sequence[socket.socket]) -> None:
        self.name = name
        self.members: list[Member] = []
        self.heartbeats = 0
        self._subscription = subscription
        lanes = [_Lane(sock) for sock in sockets]
        self._lanes = {lane.socket.fileno(): lane for lane in lanes}
        self._next_lanes = cycle(lanes)
        self._epoll = select.epoll()
        for descriptor in self._lanes:
            self._epoll.register(descriptor, select.EPOLLIN)
        self._numbers = count()
        self._due: list[tuple[float, int, Member]] = []
        self._epochs: Counter[int] = Counter()
        self._owned = self._news = 0  # partitions that members own; members with news

    def __enter__(self) -> ConsumerGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()

    def join(self, members: int) -> float:
        """So many more join at once; the seconds until the group has settled."""
        for _ in range(members):
            member = Member(f"member-{next(self._numbers):05}-{self.name}")
            self.members.append(member)
            self._epochs[member.epoch] += 1
            self._at(0.0, member)
        return self.settle()

    def leave(self, members: int) -> float:
        """So many of those who await no answer leave at once; the seconds until the others have settled."""
        leaving = [member for _, _, member in sorted(self._due)[:members]]
        self.members = [member for member in self.members if member not in leaving]
        self._due = [entry for entry in self._due if entry[2] not in leaving]
        heapq.heapify(self._due)
        for member in leaving:
            self._count(member, -1)
            member.epoch = _LEAVING
            self._send_heartbeat(member)
        return self.settle()

    def settle(self) -> float:
        began_s = time.monotonic()
        self.run(self._has_settled, SETTLE_WITHIN_S)
        took_s = time.monotonic() - began_s
        if not self._has_settled():
            raise BadAnswer(
                f"the group had not settled after {took_s:.0f} s: {self._owned} of {self._subscription.partitions} "
                f"partitions, epochs {dict(self._epochs.most_common(5))}, {self._news} with news"
            )
        return took_s

    def run(self, done: Callable[[], bool], most_s: float) -> None:
        """Runs all members until `done`, or for that long."""
        end_s = time.monotonic() + most_s
        while not done() and (now_s := time.monotonic()) < end_s:
            while self._due and self._due[0][0] <= now_s:
                self._send_heartbeat(heapq.heappop(self._due)[2])
            next_s = min(self._due[0][0], end_s) if self._due else end_s
            for descriptor, _ in self._epoll.poll(max(next_s - time.monotonic(), 0.0)):
                self._receive(self._lanes[descriptor])

    def steady_requests(self) -> list[ConsumerGroupHeartbeatRequest]:
        """A heartbeat of each member, to be sent while nothing changes."""
        return [steady(self.name, member.member_id, member.epoch) for member in self.members]

    def _has_settled(self) -> bool:
        if self._news or self._owned != self._subscription.partitions or len(self._epochs) != 1:
            return False
        if any(member.epoch == _LEAVING for lane in self._lanes.values() for member in lane.awaiting):
            return False
        sizes = [len(member.owned) for member in self.members]
        return max(sizes) - min(sizes) <= 1 and len(set().union(*(it.owned for it in self.members))) == self._owned

    def _at(self, due_s: float, member: Member) -> None:
        heapq.heappush(self._due, (due_s, next(self._numbers), member))

    def _send_heartbeat(self, member: Member) -> None:
        request = steady(self.name, member.member_id, member.epoch)
        if member.epoch == _JOINING:
            request.rebalance_timeout_ms = _REBALANCE_MS
            if self._subscription.regex:
                request.subscribed_topic_regex = self._subscription.regex
            else:
                request.subscribed_topic_names = list(self._subscription.names)
        if member.epoch == _JOINING or (member.has_news and member.epoch != _LEAVING):
            request.topic_partitions = _reported(member.owned)
        self.heartbeats += 1
        lane = next(self._next_lanes)
        lane.awaiting.append(member)
        frame = memoryview(send(lane.conversation, request))
        while frame:
            try:
                frame = frame[lane.socket.send(frame) :]
            except BlockingIOError:  # thousands of names of topics
                select.select([], [lane.socket], [], SETTLE_WITHIN_S)

    def _receive(self, lane: _Lane) -> None:
        size = lane.socket.recv_into(lane.conversation.writable())
        if not size:
            raise BadAnswer("the broker hung up")
        lane.conversation.received(size)
        while (reply := lane.conversation.next_reply()) is not None:
            self._take(lane.awaiting.popleft(), reply.message)

    def _take(self, member: Member, answer: Any) -> None:
        if member.epoch == _LEAVING:
            if answer.error_code:
                raise BadAnswer(f"a member that leaves: {answer.error_code} {answer.error_message}")
            return
        if answer.error_code in _NOT_YET:
            self._at(time.monotonic() + RETRY_PAUSE_S, member)
            return
        if answer.error_code:
            raise BadAnswer(f"ConsumerGroupHeartbeat: {answer.error_code} {answer.error_message}")
        self._count(member, -1)
        member.epoch, member.has_news = answer.member_epoch, False
        if answer.assignment is not None:
            assigned = {(topic.topic_id, it) for topic in answer.assignment.topic_partitions for it in topic.partitions}
            if assigned != member.owned:
                member.owned, member.has_news = assigned, True
        self._count(member, 1)
        self._at(0.0 if member.has_news else time.monotonic() + answer.heartbeat_interval_ms / 1000, member)

    def _count(self, member: Member, by: int) -> None:
        self._owned += by * len(member.owned)
        self._news += by * member.has_news
        self._epochs[member.epoch] += by
        if not self._epochs[member.epoch]:
            del self._epochs[member.epoch]


def _reported(places: Collection[Place]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return [ConsumerGroupHeartbeatRequestTopicPartitions(*topic) for topic in topics.items()]

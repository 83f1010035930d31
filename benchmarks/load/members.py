"""Members of a consumer group as bare connections, so that a thousand of them fit beside a broker.

Each joins, syncs and then sends heartbeats; at REBALANCE_IN_PROGRESS it joins again, as every consumer does. The
member that the coordinator makes leader gives an assignment to each. The group has settled when all are stable in one
generation.

JoinGroup in version 3: the last in which a new member is let in without being sent back for an id, one request less
that does not matter for growth.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

import attrs
from kwire_protocol.conversation import Conversation
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kwire_protocol.wire import ApiMessage

from benchmarks.load.answers import BadAnswer
from benchmarks.load.connection import Connection
from benchmarks.load.requests import CLIENT_ID, send

SETTLE_WITHIN_S = 120.0
HEARTBEAT_EVERY_S = 0.5
RETRY_PAUSE_S = 0.05

_SESSION_MS, _REBALANCE_MS = 60_000, 120_000
_NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_REBALANCE = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
_ASSIGNMENT = b"\0\0\0\0\0\0\0\0\0\0"  # version 0, no topics, no user data


class _Stage(Enum):
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()


@attrs.define(eq=False)
class _Member:
    socket: socket.socket
    stage: _Stage = _Stage.JOINING
    member_id: str = ""
    generation: int = -1
    due_s: float = 0.0  # when to send next; never while an answer is awaited
    conversation: Conversation = attrs.field(factory=lambda: Conversation(client_id=CLIENT_ID))


@attrs.frozen
class Settled:
    seconds: float
    generations: int


def wait_for_coordinator(port: int, group: str) -> None:
    """Waits for a group's coordinator: Apache Kafka creates __consumer_offsets at the first search for one."""
    with Connection(port) as connection:
        connection.request_until_accepted(FindCoordinatorRequest(key=group))


class Group:
    """A group of so many members on sockets that are connected already (and do not block)."""

    def __init__(self, name: str, sockets: Sequence[socket.socket]) -> None:
        self.name = name
        self._members = {sock.fileno(): _Member(sock) for sock in sockets}
        self._epoll = select.epoll()
        for sock in sockets:
            self._epoll.register(sock, select.EPOLLIN)

    def settle(self) -> Settled:
        """All join at once; returns when they have settled."""
        began_s = time.monotonic()
        members = self._members.values()
        while not self._settled():
            now_s = time.monotonic()
            if now_s - began_s > SETTLE_WITHIN_S:
                raise BadAnswer(f"the group had not settled after {SETTLE_WITHIN_S:.0f} s")
            for member in members:
                if member.due_s <= now_s:
                    self._send_next(member)
            for descriptor, _ in self._epoll.poll(RETRY_PAUSE_S):
                self._receive(self._members[descriptor])
        return Settled(time.monotonic() - began_s, max(member.generation for member in members))

    def leave(self, port: int) -> None:
        """All leave with one request, so that no session ends while something else is measured."""
        self._epoll.close()
        with Connection(port) as connection:
            identities = [MemberIdentity(member.member_id) for member in self._members.values()]
            answer = connection.request(LeaveGroupRequest(self.name, members=identities))
            codes = {member.error_code for member in answer.members} | {answer.error_code}
            if codes != {0}:
                raise BadAnswer(f"LeaveGroup: {codes}")

    def _settled(self) -> bool:
        generations = {member.generation for member in self._members.values()}
        return len(generations) == 1 and all(member.stage is _Stage.STABLE for member in self._members.values())

    def _send_next(self, member: _Member) -> None:
        if member.stage is _Stage.JOINING:
            protocols = [JoinGroupRequestProtocol("range", b"")]
            request: ApiMessage = JoinGroupRequest(
                self.name, _SESSION_MS, _REBALANCE_MS, member.member_id, None, "consumer", protocols
            )
        else:
            request = HeartbeatRequest(self.name, member.generation, member.member_id)
        self._send(member, request)

    def _send(self, member: _Member, request: ApiMessage) -> None:
        member.due_s = math.inf
        frame = memoryview(send(member.conversation, request))
        while frame:
            try:
                frame = frame[member.socket.send(frame) :]
            except BlockingIOError:  # the leader's assignment of a thousand
                select.select([], [member.socket], [], SETTLE_WITHIN_S)

    def _receive(self, member: _Member) -> None:
        count = member.socket.recv_into(member.conversation.writable())
        if not count:
            raise BadAnswer("the broker hung up")
        member.conversation.received(count)
        if (reply := member.conversation.next_reply()) is not None:
            self._take(member, reply.message)

    def _take(self, member: _Member, answer: Any) -> None:
        code = answer.error_code
        if code in _NOT_YET:
            member.stage, member.due_s = _Stage.JOINING, time.monotonic() + RETRY_PAUSE_S
        elif code in _REBALANCE:
            member.stage, member.due_s = _Stage.JOINING, 0.0
        elif code:
            raise BadAnswer(f"{type(answer).__name__}: {code}")
        elif member.stage is _Stage.JOINING:
            member.stage, member.member_id, member.generation = _Stage.SYNCING, answer.member_id, answer.generation_id
            shares = [SyncGroupRequestAssignment(other.member_id, _ASSIGNMENT) for other in answer.members]
            self._send(member, SyncGroupRequest(self.name, member.generation, member.member_id, assignments=shares))
        else:
            member.stage, member.due_s = _Stage.STABLE, time.monotonic() + HEARTBEAT_EVERY_S

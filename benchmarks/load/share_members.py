"""Members of a share group (KIP-932), each on a connection of its own.

Each fetches, and accepts with its next fetch what came with the last one, as a share consumer that polls. A member
sends heartbeats only until the group has its partitions: in the scenarios sessions last an hour.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
from kwire_protocol.conversation import Conversation
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.share_acknowledge import AcknowledgementBatch as LastBatch
from kwire_protocol.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from kwire_protocol.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.wire import ApiMessage, Uuid

from benchmarks.load.answers import BadAnswer
from benchmarks.load.requests import CLIENT_ID, send

SETTLE_WITHIN_S = 60.0
STALL_S = 60.0
MAX_RECORDS = 500
WAIT_MS = 50

_ACCEPT = 1
_MAX_BYTES = 1 << 20
_RETRY_PAUSE_S = 0.02
_NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)

Ranges = list[tuple[int, int]]
"""First and last offsets."""


@attrs.define(eq=False)
class ShareMember:
    """`fetched` has, by partition, what it has acquired and not yet accepted."""

    member_id: str
    socket: socket.socket
    epoch: int = 0
    session_epoch: int = 0
    partitions: set[int] = attrs.field(factory=set)
    fetched: dict[int, Ranges] = attrs.field(factory=dict)
    conversation: Conversation = attrs.field(factory=lambda: Conversation(client_id=CLIENT_ID))

    def send(self, request: ApiMessage) -> None:
        frame = memoryview(send(self.conversation, request))
        while frame:
            frame = frame[self.socket.send(frame) :]

    def reply(self) -> Any | None:
        """The response, if all of it has come."""
        size = self.socket.recv_into(self.conversation.writable())
        if not size:
            raise BadAnswer("the broker hung up")
        self.conversation.received(size)
        reply = self.conversation.next_reply()
        return None if reply is None else reply.message

    def request(self, request: ApiMessage) -> Any:
        self.send(request)
        return self.await_reply()

    def await_reply(self) -> Any:
        while select.select([self.socket], [], [], STALL_S)[0]:
            if (answer := self.reply()) is not None:
                return answer
        raise BadAnswer(f"no answer within {STALL_S:.0f} s")


class ShareGroup:
    """A group with one topic, on sockets that are connected already (and do not block): one member on each."""

    def __init__(self, name: str, topic: str, topic_id: Uuid, sockets: Sequence[socket.socket]) -> None:
        self.name = name
        self.members = [ShareMember(f"member-{number:02}-{name}", sock) for number, sock in enumerate(sockets)]
        self.topic = topic
        self._topic_id = topic_id

    def join(self, partitions: int) -> None:
        """All join; returns when all have partitions, and no partition is left over. Each has fetched once then."""
        deadline_s = time.monotonic() + SETTLE_WITHIN_S
        while not self._has_settled(partitions):
            if time.monotonic() > deadline_s:
                raise BadAnswer(f"the share group had not settled after {SETTLE_WITHIN_S:.0f} s")
            for member in self.members:
                self._heartbeat(member)
            time.sleep(_RETRY_PAUSE_S)
        for member in self.members:
            self.fetch(member, wait_ms=0)

    def _has_settled(self, partitions: int) -> bool:
        assigned = [member.partitions for member in self.members]
        return all(assigned) and set().union(*assigned) == set(range(partitions))

    def _heartbeat(self, member: ShareMember) -> None:
        names = [self.topic] if member.epoch == 0 else None
        answer = member.request(ShareGroupHeartbeatRequest(self.name, member.member_id, member.epoch, None, names))
        if answer.error_code in _NOT_YET:
            return
        if answer.error_code:
            raise BadAnswer(f"ShareGroupHeartbeat: {answer.error_code} {answer.error_message}")
        member.epoch = answer.member_epoch
        if answer.assignment is not None:
            member.partitions = {it for topic in answer.assignment.topic_partitions for it in topic.partitions}

    def fetch(self, member: ShareMember, *, wait_ms: int = WAIT_MS, max_records: int = MAX_RECORDS) -> int:
        """Accepts what it has and fetches more; the number of records that came."""
        return self.take(member, member.request(self._fetch_request(member, wait_ms, max_records)))

    def begin_fetch(self, member: ShareMember, *, wait_ms: int, max_records: int) -> None:
        """`take` its `await_reply`."""
        member.send(self._fetch_request(member, wait_ms, max_records))

    def accept(self, member: ShareMember) -> None:
        batches = [
            AcknowledgePartition(index, [LastBatch(first, last, [_ACCEPT]) for first, last in ranges])
            for index, ranges in member.fetched.items()
        ]
        member.fetched = {}
        topics = [AcknowledgeTopic(self._topic_id, batches)]
        answer = member.request(
            ShareAcknowledgeRequest(self.name, member.member_id, member.session_epoch, False, topics)
        )
        member.session_epoch += 1
        errors = {it.error_code for topic in answer.responses for it in topic.partitions} | {answer.error_code}
        if errors != {0}:
            raise BadAnswer(f"ShareAcknowledge: {errors}")

    def consume(self, records: int) -> None:
        """All fetch and accept until there were so many records."""
        left = records
        waiting = {member.socket.fileno(): member for member in self.members}
        with select.epoll() as epoll:
            for descriptor, member in waiting.items():
                epoll.register(descriptor, select.EPOLLIN)
                member.send(self._fetch_request(member, WAIT_MS, MAX_RECORDS))
            while waiting:
                ready = epoll.poll(STALL_S)
                if not ready:
                    raise BadAnswer(f"no answer within {STALL_S:.0f} s, {left} records left")
                for descriptor, _ in ready:
                    member = waiting[descriptor]
                    if (answer := member.reply()) is None:
                        continue
                    left -= self.take(member, answer)
                    if left > 0:
                        member.send(self._fetch_request(member, WAIT_MS, MAX_RECORDS))
                    else:
                        epoll.unregister(descriptor)
                        del waiting[descriptor]
        for member in self.members:
            if member.fetched:
                self.accept(member)
        if left:
            raise BadAnswer(f"{-left} records came more than once")

    def _fetch_request(self, member: ShareMember, wait_ms: int, max_records: int) -> ShareFetchRequest:
        requested = sorted(member.partitions if member.session_epoch == 0 else member.fetched)
        partitions = [
            FetchPartition(
                index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first, last, [_ACCEPT]) for first, last in member.fetched.get(index, ())
                ],
            )
            for index in requested
        ]
        member.fetched = {}
        request = ShareFetchRequest(self.name, member.member_id, member.session_epoch, wait_ms, 1, _MAX_BYTES)
        request.max_records = request.batch_size = max_records
        request.topics = [FetchTopic(self._topic_id, partitions)] if partitions else []
        member.session_epoch += 1
        return request

    def take(self, member: ShareMember, answer: Any) -> int:
        """Notes what came; how many records it was."""
        if answer.error_code:
            raise BadAnswer(f"ShareFetch: {answer.error_code} {answer.error_message}")
        count = 0
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code or data.acknowledge_error_code:
                    raise BadAnswer(f"ShareFetch: {data.error_code}, acknowledgement: {data.acknowledge_error_code}")
                ranges = [(it.first_offset, it.last_offset) for it in data.acquired_records]
                if ranges:
                    member.fetched[data.partition_index] = ranges
                    count += sum(last - first + 1 for first, last in ranges)
        return count


def wait_until_served(request: Callable[[], int]) -> None:
    """Repeats a request until there is a coordinator, by its error code."""
    deadline_s = time.monotonic() + SETTLE_WITHIN_S
    while (code := request()) != 0:
        if code not in _NOT_YET and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise BadAnswer(f"the share coordinator: {code}")
        if time.monotonic() > deadline_s:
            raise BadAnswer(f"no share coordinator within {SETTLE_WITHIN_S:.0f} s: {code}")
        time.sleep(_RETRY_PAUSE_S)

"""Requests of a share group's coordinator to the share coordinators, on a broker."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kwire_protocol.wire import Uuid
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.groups.group import MemberContext
from kwire.groups.share_states import Outcome, ToDelete
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.node.broker import Broker
from kwire.runtime.futures import Future, at_once
from testkit.metadata.harness import FakeClock

RETRY_MS = 1000


@attrs.define(eq=False)
class SlowCoordinators:
    """Coordinators that answer when a test lets them."""

    requests: list[list[tuple[Uuid, int]]] = attrs.field(factory=list)
    answers: list[Future[ErrorCode]] = attrs.field(factory=list)

    async def initialize(self, group_id: str, topics: Mapping[Uuid, Sequence[tuple[int, int, int]]]) -> Outcome:
        self.requests.append([(topic_id, it) for topic_id, partitions in topics.items() for it, _, _ in partitions])
        answer: Future[ErrorCode] = Future()
        self.answers.append(answer)
        return dict.fromkeys(self.requests[-1], await answer)

    async def delete(self, group_id: str, topics: ToDelete) -> Outcome:
        raise AssertionError("nothing is deleted here")


def test_a_state_is_not_requested_again_while_the_request_is_under_way() -> None:
    """The second request would initialize it again, after members have accepted records."""
    clock = FakeClock()
    settings = [f"group.share.initialize.retry.interval.ms={RETRY_MS}", "group.share.assignment.interval.ms=0"]
    broker = Broker.open(load_config(settings=settings), MemoryDisk(), clock)
    at_once(broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 1, 1)])))
    at_once(broker.groups.runtime.topic.ensure())
    coordinators = broker.groups._persister = SlowCoordinators()
    epoch = 0

    def heartbeat() -> ShareGroupHeartbeatResponse:
        nonlocal epoch
        request = ShareGroupHeartbeatRequest("g", "m", epoch, subscribed_topic_names=["t"])
        answer = broker.groups.share_heartbeat(request, MemberContext("app", "/127.0.0.1", 1))
        found: ShareGroupHeartbeatResponse = at_once(answer) if isinstance(answer, Coroutine) else answer
        assert not found.error_code, found
        epoch = found.member_epoch
        return found

    def assigned() -> list[int]:
        assignment = heartbeat().assignment
        assert assignment is not None
        return [it for topic in assignment.topic_partitions for it in topic.partitions]

    heartbeat()
    for _ in range(3):
        clock.time_ms += RETRY_MS
        assert assigned() == []
    assert len(coordinators.requests) == 1

    # A request that has failed is sent again.
    coordinators.answers.pop().set(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert assigned() == []
    assert len(coordinators.requests) == 2
    coordinators.answers.pop().set(ErrorCode.NONE)
    assert assigned() == [0]
    broker.close()

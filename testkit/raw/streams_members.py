"""Members of streams groups (KIP-1071) that send their heartbeats when a test calls them, and the states of groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.streams_group_describe import Assignment, DescribedGroup, StreamsGroupDescribeRequest
from kwire_protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestEndpoint,
    StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)

from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient

JOINS, LEAVES = 0, -1
FIRST_EPOCH = 2
"""The epoch of the first member of a group."""
STALE, NO_SOURCE, WRONG_PARTITIONS, NO_INTERNAL, SHUTDOWN, DELAYED = range(6)
"""Codes of statuses in responses."""
VERSION = 0
"""The one that Apache Kafka 4.3.1 has."""

Tasks = dict[str, list[int]]
"""Partitions, by subtopology id."""


def subtopology(*source_topics: str, name: str = "0", **more: Any) -> Subtopology:
    return Subtopology(name, [*source_topics], **more)


def topology(*source_topics: str, epoch: int = 0, **more: Any) -> Topology:
    """Returns a topology with a single subtopology, whose id is "0"."""
    return Topology(epoch, [subtopology(*source_topics, **more)])


def internal(name: str, partitions: int = 0, replicas: int = 0, **configs: str) -> TopicInfo:
    """Configs have underscores for dots."""
    return TopicInfo(
        name, partitions, replicas, [KeyValue(key.replace("_", "."), value) for key, value in configs.items()]
    )


def copartitioned(sources: Iterable[int], repartition: Iterable[int] = ()) -> CopartitionGroup:
    """The copartition group, by positions in the lists of a subtopology."""
    return CopartitionGroup([*sources], [], [*repartition])


def endpoint(host: str, port: int) -> StreamsGroupHeartbeatRequestEndpoint:
    return StreamsGroupHeartbeatRequestEndpoint(host, port)


def sent(tasks: Mapping[str, Iterable[int]]) -> list[StreamsGroupHeartbeatRequestTaskIds]:
    return [StreamsGroupHeartbeatRequestTaskIds(name, [*partitions]) for name, partitions in tasks.items()]


def received(tasks: Iterable[Any]) -> Tasks:
    return {it.subtopology_id: sorted(it.partitions) for it in tasks}


@attrs.define(eq=False)
class Member:
    """`active` and `standby` are the tasks it has; `received_tasks` are those of the last response, None for none.

    `statuses` are those of the last response, code and detail. Each member is a process of its own.
    """

    client: RawClient
    group: str
    member_id: str
    topology: Topology
    epoch: int = JOINS
    active: Tasks = attrs.field(factory=dict)
    standby: Tasks = attrs.field(factory=dict)
    received_tasks: Tasks | None = None
    statuses: list[tuple[int, str]] = attrs.field(factory=list)
    version: int = VERSION
    is_solicited: bool = False
    """True if the last response requested a description of its topology."""

    def send_heartbeat(self, epoch: int, **more: Any) -> StreamsGroupHeartbeatResponse:
        """A heartbeat whose response changes nothing here."""
        request = StreamsGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=epoch)
        for name, value in more.items():
            setattr(request, name, value)
        answer: StreamsGroupHeartbeatResponse = self.client.call(request, self.version)
        return answer

    def send_join(self, **more: Any) -> StreamsGroupHeartbeatResponse:
        """Sends a heartbeat that joins. Its response changes nothing here."""
        wanted = {"rebalance_timeout_ms": 5_000, "topology": self.topology, "process_id": f"of-{self.member_id}"}
        return self.send_heartbeat(
            JOINS, **{**wanted, "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], **more}
        )

    def join(self, **more: Any) -> StreamsGroupHeartbeatResponse:
        return self._take(self.send_join(**more))

    def beat(self, **more: Any) -> StreamsGroupHeartbeatResponse:
        """Sends a heartbeat without tasks."""
        return self._take(self.send_heartbeat(self.epoch, **more))

    def confirm(self, **more: Any) -> StreamsGroupHeartbeatResponse:
        """Sends a heartbeat with its assigned tasks, and no others."""
        tasks = {"active_tasks": sent(self.active), "standby_tasks": sent(self.standby), "warmup_tasks": []}
        return self.beat(**tasks, **more)

    def leave(self, **more: Any) -> StreamsGroupHeartbeatResponse:
        answer = self._take(self.send_heartbeat(LEAVES, **more))
        self.active, self.standby = {}, {}
        return answer

    def settle(self, active: int, standby: int = 0, *, others: Iterable[Member] = ()) -> None:
        """Sends heartbeats of this member, and of the others, until it has so many tasks and no status."""

        def has_them() -> bool:
            for member in (*others, self):
                member.confirm()
            return not self.statuses and (count(self.active), count(self.standby)) == (active, standby)

        eventually(has_them, f"{active} active tasks and {standby} standby tasks")

    def _take(self, answer: StreamsGroupHeartbeatResponse) -> StreamsGroupHeartbeatResponse:
        assert answer.error_code == ErrorCode.NONE, answer
        assert answer.member_id == self.member_id
        self.epoch = answer.member_epoch
        self.is_solicited = answer.topology_description_required
        self.received_tasks = None
        self.statuses = [(it.status_code, it.status_detail) for it in answer.status or []]
        if answer.active_tasks is not None:
            # Kafka sends all kinds of tasks or none, and has no warm-up tasks yet.
            self.active, self.standby = received(answer.active_tasks), received(answer.standby_tasks or [])
            assert (answer.standby_tasks is None, answer.warmup_tasks) == (False, [])
            self.received_tasks = self.active
        return answer


def count(tasks: Tasks) -> int:
    return sum(map(len, tasks.values()))


def error(answer: StreamsGroupHeartbeatResponse) -> tuple[ErrorCode, str]:
    """Its code and its message."""
    if answer.error_code:
        assert (answer.member_id, answer.member_epoch, answer.active_tasks) == ("", 0, None)
    return ErrorCode(answer.error_code), answer.error_message or ""


def described(client: RawClient, group: str) -> DescribedGroup:
    (answer,) = client.call(StreamsGroupDescribeRequest([group]), VERSION).groups
    assert isinstance(answer, DescribedGroup)
    return answer


def all_tasks(assignment: Assignment) -> tuple[Tasks, Tasks, Tasks]:
    """Active, standby and warm-up."""
    return received(assignment.active_tasks), received(assignment.standby_tasks), received(assignment.warmup_tasks)


@contextmanager
def coordinator(bootstrap: str, group: str) -> Iterator[RawClient]:
    """A connection to the broker that coordinates the group, when it answers."""

    def found() -> RawClient | None:
        with RawClient(bootstrap) as client:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            (its,) = client.call(request, 4).coordinators
        if its.error_code:
            return None
        there = RawClient(f"{its.host}:{its.port}")
        if described(there, group).error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return there
        there.close()
        return None

    there = eventually(found, f"{group} has a coordinator")
    assert there is not None
    with there:
        yield there


def wait_until_coordinators_have(client: RawClient, topic: str, partitions: int) -> None:
    """Waits until a member that joins on node 1 gets a task for each partition.

    In Apache Kafka, a coordinator gets a new topic a little later than its broker.
    """

    def is_known(group: str) -> bool:
        member = Member(client, group, "m", topology(topic))
        answer = member.send_join()
        if answer.error_code == ErrorCode.NOT_COORDINATOR:
            return True
        assert answer.error_code == ErrorCode.NONE, answer
        member.leave()
        return count(received(answer.active_tasks or [])) == partitions

    for number in range(8):  # enough that each partition of the offsets topic has one
        eventually(partial(is_known, f"knows-{topic}-{number}"), f"the coordinators know {topic}")

"""Clients of streams groups for tests of the machine: threads of an application, as in KIP-1071.

A `Client` sends its topology when it joins, and its tasks when they have changed or when an answer was lost. It runs
its assigned tasks, and gives up the others when a test lets it. A test may lose its answers, or let it fall silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages import streams_group_heartbeat as wire
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from kwire_protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from kwire_protocol.wire import Writer

from kwire.groups.group import MemberContext
from kwire.groups.streams.descriptions import NodeType
from kwire.groups.streams_topics import Answer
from testkit.groups.shard_driver import GROUP, ShardDriver, left_as_it_is

Task = tuple[str, int]

JOINING, LEAVING = 0, -1
STATEFUL: Final = "1"
"""The subtopology with state."""
REBALANCE_TIMEOUT_MS: Final = 60_000
NO_ENDPOINTS: Final = -1
"""The endpoint epoch of a member that has not received endpoints yet."""

END: Final = 100_000
"""The end offset of each changelog topic."""

FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


def topology(epoch: int = 0) -> wire.Topology:
    """Subtopology 0 reads t and writes r, which subtopology 1 reads; 1 has state in c."""
    return wire.Topology(
        epoch,
        [
            wire.Subtopology("0", source_topics=["t"], repartition_sink_topics=["r"]),
            wire.Subtopology(
                "1", repartition_source_topics=[wire.TopicInfo("r")], state_changelog_topics=[wire.TopicInfo("c")]
            ),
        ],
    )


def description(source: str = "t", more: int = 0) -> TopologyDescription:
    """Returns a description of a source and a sink, with about `more` bytes of names of stores."""
    stores = ["c", *("c" * 1_000 for _ in range(more // 1_000))]
    nodes = [
        TopologyDescriptionNode("in", NodeType.SOURCE, source_topics=[source], successors=["count"]),
        TopologyDescriptionNode("count", NodeType.PROCESSOR, stores=stores, successors=["out"]),
        TopologyDescriptionNode("out", NodeType.SINK, sink_topic="r"),
    ]
    return TopologyDescription([TopologyDescriptionSubtopology("0", nodes)])


def update(driver: ShardDriver, request: StreamsGroupTopologyDescriptionUpdateRequest) -> ErrorCode:
    """Describes a topology."""
    token = driver.token()
    driver.run(driver.shard.update_topology_description(request, token, now=driver.now))
    refused = driver.replies[token]
    assert refused is None or isinstance(refused, KafkaError)
    return ErrorCode.NONE if refused is None else refused.code


def heartbeat(driver: ShardDriver, request: StreamsGroupHeartbeatRequest, version: int = 0) -> Answer:
    """The answer to any heartbeat."""
    token = driver.token()
    context = MemberContext("app", "/127.0.0.1", version)
    with left_as_it_is(request, version):
        effects = driver.shard.streams_heartbeat(request, context, token, now=driver.now)
    driver.run(effects)
    answer = driver.replies[token]
    assert isinstance(answer, Answer)
    answer.response.write(Writer(), version)
    return answer


@attrs.define(eq=False)
class Disk:
    """The offsets of tasks with state on the disk of a process, and those that its threads have reported."""

    offsets: dict[Task, int] = attrs.field(factory=dict)
    reported: dict[Task, int] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Client:
    """One thread. `process` is that of its application instance."""

    driver: ShardDriver
    member_id: str
    process: str
    group: str = GROUP
    epoch: int = JOINING
    active: set[Task] = attrs.field(factory=set)
    standby: set[Task] = attrs.field(factory=set)
    warmup: set[Task] = attrs.field(factory=set)
    is_in: bool = False
    """It was answered, and neither left nor was thrown out since."""
    reports: bool = True
    """The next heartbeat has the tasks."""
    revokes: bool = True
    """True if it gives up tasks that are no longer assigned. Otherwise it continues to run and report them."""
    endpoint: wire.StreamsGroupHeartbeatRequestEndpoint | None = None
    endpoints_epoch: int = NO_ENDPOINTS
    endpoints: dict[tuple[str, int], wire.EndpointToPartitions] = attrs.field(factory=dict)
    statuses: dict[int, str] = attrs.field(factory=dict)
    version: int = 1
    disk: Disk = attrs.field(factory=Disk)
    reports_progress: bool = False
    """True if it reports the offsets of its tasks when it joins and when they have changed, as Kafka Streams 4.4 does.
    """
    has_progress: bool = False
    is_solicited: bool = False
    """True if the last response requested a description of its topology."""

    def request(self, **fields: Any) -> StreamsGroupHeartbeatRequest:
        request = StreamsGroupHeartbeatRequest(
            self.group, self.member_id, self.epoch, endpoint_information_epoch=self.endpoints_epoch, **fields
        )
        if self.epoch == JOINING:
            request.topology = topology()
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.process_id, request.user_endpoint = self.process, self.endpoint
        if self.epoch == JOINING or self.reports:
            request.active_tasks, request.standby_tasks = _task_ids(self.active), _task_ids(self.standby)
            request.warmup_tasks = _task_ids(self.warmup)
        if self.reports_progress and (self.epoch == JOINING or self.has_progress):
            request.task_offsets = [
                wire.TaskOffset(*task, offset) for task, offset in self.disk.offsets.items() if task not in self.active
            ]
            request.task_end_offsets = [wire.TaskOffset(*task, END) for task in sorted(self.standby | self.warmup)]
            self.disk.reported |= self.disk.offsets
        return request

    def heartbeat(self, *, is_lost: bool = False, **fields: Any) -> ErrorCode:
        """Sends a heartbeat and takes in the answer, unless that is lost."""
        answer = heartbeat(self.driver, self.request(**fields), self.version)
        response = answer.response
        if is_lost:
            self.reports = True
            return ErrorCode.NONE
        error = ErrorCode(response.error_code)
        if error is ErrorCode.NONE:
            self._take(response)
        elif error in FENCED:
            self.be_out()
        else:
            self.reports = True
        return error

    def _take(self, response: StreamsGroupHeartbeatResponse) -> None:
        assert response.member_id == self.member_id
        self.reports = self.has_progress = False
        self.is_solicited = response.topology_description_required
        self.epoch, self.is_in = response.member_epoch, True
        self.statuses = {it.status_code: it.status_detail for it in response.status or ()}
        if response.active_tasks is not None:
            assert response.standby_tasks is not None
            assert response.warmup_tasks is not None
            active, standby = _tasks(response.active_tasks), _tasks(response.standby_tasks)
            warmup = _tasks(response.warmup_tasks)
            if not self.revokes:
                active |= self.active - standby - warmup
                standby |= self.standby - active - warmup
                warmup |= self.warmup - active - standby
            self.active, self.standby, self.warmup = active, standby, warmup
            self.reports = self.has_progress = True
            self.disk.offsets |= {task: END for task in active if task[0] == STATEFUL}
            self.disk.offsets = dict.fromkeys(standby | warmup, 0) | self.disk.offsets
        if response.partitions_by_user_endpoint is not None:
            self.endpoints = {
                (it.user_endpoint.host, it.user_endpoint.port): it for it in response.partitions_by_user_endpoint
            }
        self.endpoints_epoch = response.endpoint_information_epoch

    def describe(self, sent: TopologyDescription | None = None, *, topology_epoch: int = 0) -> ErrorCode:
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            self.group, self.member_id, topology_epoch, sent or description()
        )
        return update(self.driver, request)

    def give_up(self, tasks: set[Task], standbys: set[Task], warmups: Iterable[Task] = ()) -> None:
        self.active &= tasks
        self.standby &= standbys
        self.warmup &= set(warmups)
        self.reports = True

    def meet_another_coordinator(self) -> None:
        """Sends everything again, because there is another coordinator."""
        self.reports = self.has_progress = True

    def follow_changelogs(self) -> None:
        """It reads what it lacks of its tasks."""
        for task in self.standby | self.warmup:
            self.disk.offsets[task] = END
            self.has_progress = True

    def be_out(self) -> None:
        """It is no member any more: it joins with its next heartbeat."""
        self.epoch, self.is_in, self.reports = JOINING, False, True
        self.active.clear()
        self.standby.clear()
        self.warmup.clear()
        self.endpoints_epoch = NO_ENDPOINTS

    def leave(self, **fields: Any) -> ErrorCode:
        request = StreamsGroupHeartbeatRequest(self.group, self.member_id, LEAVING, **fields)
        error = ErrorCode(heartbeat(self.driver, request).response.error_code)
        self.be_out()
        return error


def _task_ids(tasks: set[Task]) -> list[wire.StreamsGroupHeartbeatRequestTaskIds]:
    by_subtopology: dict[str, list[int]] = {}
    for name, partition in sorted(tasks):
        by_subtopology.setdefault(name, []).append(partition)
    return [wire.StreamsGroupHeartbeatRequestTaskIds(*it) for it in by_subtopology.items()]


def _tasks(tasks: list[wire.StreamsGroupHeartbeatResponseTaskIds]) -> set[Task]:
    return {(it.subtopology_id, partition) for it in tasks for partition in it.partitions}

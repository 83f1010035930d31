"""The state of one streams group: its records, and the state derived from them.

Empty        no members
NotReady     topics of the topology are missing, or have a wrong number of partitions
Assigning    the target is older than the group epoch
Reconciling  some members have not reached the target
Stable       all have
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from functools import partial
from typing import Any, ClassVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.streams_group_heartbeat import EndpointToPartitions
from kwire_protocol.wire import Uuid

from kwire.coordinators.deadlines import Deadline
from kwire.groups.draft import Draft
from kwire.groups.group import CheckPartition, Committer, GroupType, accept_all
from kwire.groups.modern.changes import Change, GroupEpoch
from kwire.groups.modern.group import MemberTimers as ModernTimers
from kwire.groups.modern.group import ModernGroup, put
from kwire.groups.streams.changes import CHANGES, NOT_DESCRIBED, NOT_VALIDATED, StreamsEpoch, TopologyChange
from kwire.groups.streams.internal_topics import ConfiguredTopology
from kwire.groups.streams.member import NEW_MEMBER, CurrentTasks, StreamsMember
from kwire.groups.streams.tasks import NO_TASKS, TaskId, Tasks
from kwire.groups.streams.topology import Topology
from kwire.groups.streams.warmups import Crew, Progress, Refined

FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH = 9


class GroupState(Enum):
    """The values are the names in ListGroups and StreamsGroupDescribe."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@attrs.define(eq=False)
class MemberTimers(ModernTimers):
    rebalance: Deadline

    def __iter__(self) -> Iterator[Deadline]:
        return iter((self.session, self.rebalance))


@attrs.frozen
class Solicitation:
    """The requests for a description of the topology: their number, and the monotonic time of the next one."""

    attempts: int
    until_ms: int


@attrs.define(eq=False)
class StreamsGroup(ModernGroup[StreamsMember, CurrentTasks, Tasks, MemberTimers]):
    """A `kwire.groups.group.Group`."""

    type: ClassVar = GroupType.STREAMS
    protocol_type: ClassVar = "streams"
    changes: ClassVar = CHANGES

    validated_topology_epoch: int = NOT_VALIDATED
    assignment_configs: dict[str, str] = attrs.field(factory=dict)
    """The assignor's settings with which the epoch began."""
    stored_description_topology_epoch: int = NOT_DESCRIBED
    failed_description_topology_epoch: int = NOT_DESCRIBED
    topology: Topology | None = None

    active_holders: dict[TaskId, set[str]] = attrs.field(factory=dict)
    """The members that have the task as active, or have not yet given it up: at most one, if the log is sound."""
    replica_holders: dict[TaskId, set[str]] = attrs.field(factory=dict)
    """The same for standby and warm-up tasks."""

    # The state below is not in the log: it is empty when the group is loaded.
    configured: ConfiguredTopology | None = None
    """The topology, configured with the topics as of `topics_version`."""
    initial_delay: Deadline = attrs.field(factory=Deadline)
    """While it is set, the group waits for more members before its first assignment."""
    shutdown_requested_by: str | None = None
    """The member that requested the shutdown of the whole application."""
    endpoints_epoch: int = 0
    """The epoch of the endpoints, which grows when their tasks change; members report the one that they have."""
    endpoints: dict[str, EndpointToPartitions] = attrs.field(factory=dict)
    """The partitions of endpoints by member id, as far as they are computed."""
    progress: dict[str, Progress] = attrs.field(factory=dict)
    """The members' progress by member id, if it is known."""
    silent: set[str] = attrs.field(factory=set)
    """The members that do not report their progress. Those that sent no request yet are not among them."""
    refined: Refined | None = None
    """The differences between members' parts and their targets; None if not computed since the group was loaded."""
    has_news: bool = False
    """True if members' reports since then may allow tasks to move."""
    solicitation: Solicitation | None = None
    """None if no description of the topology was requested since one was last stored."""

    # State

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return GroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(self.assignment_of(member_id).is_reconciled_to(self.assignment_epoch) for member_id in self.members):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def state_name(self) -> str:
        return self.state.value

    def assignment_of(self, member_id: str) -> CurrentTasks:
        return self.current.get(member_id, NEW_MEMBER)

    def is_active(self, task: TaskId) -> bool:
        """True if a member has the task as active, or has not yet given it up."""
        return task in self.active_holders

    def is_in_process(self, task: TaskId, process_id: str) -> bool:
        """True if a member of the process has the task in any role, or has not yet given it up."""
        return any(
            (member := self.members.get(member_id)) is not None and member.process_id == process_id
            for holders in (self.active_holders, self.replica_holders)
            for member_id in holders.get(task, ())
        )

    def part_of(self, member_id: str) -> Tasks:
        """Returns the tasks that the member gets: its target, with some tasks fewer or more while tasks warm up."""
        target = self.targets.get(member_id)
        if target is None:
            return NO_TASKS
        return target if self.refined is None else self.refined.parts.get(member_id, target)

    def crew(self) -> Crew:
        process_ids = {member_id: member.process_id for member_id, member in self.members.items()}
        return Crew(process_ids, self.current, self.progress, self.silent)

    def own_removals(self) -> list[Change[Any]]:
        return [TopologyChange(self.group_id, None)]

    # Offsets

    def reads(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.readers

    def check_commit(self, committer: Committer) -> CheckPartition:
        """Returns the check of a commit. With an earlier epoch a member may commit for its tasks of then (KIP-1251)."""
        if committer.generation_or_epoch < 0 and not self.members:
            return accept_all
        self.member(committer.member_id)
        if committer.api_version < FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the streams group protocol",
            )
        return self._check_epoch(committer, ErrorCode.STALE_MEMBER_EPOCH)

    def check_transactional_commit(self, committer: Committer) -> CheckPartition:
        """Producers do not support STALE_MEMBER_EPOCH: groups of every kind return ILLEGAL_GENERATION instead."""
        if not committer.names_a_member or (committer.generation_or_epoch < 0 and not self.members):
            return accept_all
        self.member(committer.member_id)
        return self._check_epoch(committer, ErrorCode.ILLEGAL_GENERATION)

    def _check_epoch(self, committer: Committer, stale: ErrorCode) -> CheckPartition:
        current, epoch = self.assignment_of(committer.member_id), committer.generation_or_epoch
        if epoch == current.epoch:
            return accept_all
        if epoch > current.epoch or self.topology is None:
            raise KafkaError(stale)
        readers = self.topology.readers

        def check(topic: str, _topic_id: Uuid, partition: int) -> ErrorCode:
            subtopology_id = readers.get(topic)
            assigned_in = None if subtopology_id is None else current.assignment_epoch(subtopology_id, partition)
            return stale if assigned_in is None or epoch < assigned_in else ErrorCode.NONE

        return check

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        self.member(member_id or "")
        if member_epoch != self.assignment_of(member_id or "").epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def check_offset_delete(self) -> None:
        """Offsets may be deleted only for topics that the group does not read."""

    # Changes

    def note_progress(self, draft: Draft, member_id: str, progress: Progress | None) -> None:
        """Sets the member's progress. `progress` is None if the member does not report it."""
        known, was_silent = self.progress.get(member_id), member_id in self.silent
        if (progress is None) == was_silent and progress == known:
            return
        draft.did(None, partial(self._set_progress, member_id, known, is_silent=was_silent))
        self._set_progress(member_id, progress, is_silent=progress is None)

    def _set_progress(self, member_id: str, progress: Progress | None, *, is_silent: bool) -> None:
        put(self.progress, member_id, progress)
        if is_silent:
            self.silent.add(member_id)
        else:
            self.silent.discard(member_id)
        self.has_news |= self.refined is None or bool(self.refined.parts)

    def set_epoch(self, epoch: GroupEpoch | None) -> GroupEpoch:
        before = self.epoch_value()
        after = epoch or StreamsEpoch(0, 0)
        assert isinstance(after, StreamsEpoch)
        super().set_epoch(after)
        self.validated_topology_epoch = after.validated_topology_epoch
        self.assignment_configs = dict(after.assignment_configs)
        self.stored_description_topology_epoch = after.stored_description_topology_epoch
        self.failed_description_topology_epoch = after.failed_description_topology_epoch
        return before

    def epoch_value(self) -> StreamsEpoch:
        return StreamsEpoch(
            self.epoch,
            self.metadata_hash,
            self.validated_topology_epoch,
            dict(self.assignment_configs),
            self.stored_description_topology_epoch,
            self.failed_description_topology_epoch,
        )

    def set_member(self, member_id: str, member: StreamsMember | None) -> StreamsMember | None:
        before = super().set_member(member_id, member)
        self.endpoints.pop(member_id, None)
        if member is None:
            self.progress.pop(member_id, None)
            self.silent.discard(member_id)
        if not self.members:
            self.shutdown_requested_by = None
        return before

    def set_current(self, member_id: str, current: CurrentTasks | None) -> CurrentTasks | None:
        before = super().set_current(member_id, current)
        self.endpoints.pop(member_id, None)
        if before is not None:
            for holders, tasks in self._task_holders(before):
                for task in tasks:
                    of_task = holders.get(task, set())
                    of_task.discard(member_id)
                    if not of_task:
                        holders.pop(task, None)
        if current is not None:
            for holders, tasks in self._task_holders(current):
                for task in tasks:
                    holders.setdefault(task, set()).add(member_id)
        return before

    def _task_holders(self, current: CurrentTasks) -> Iterator[tuple[dict[TaskId, set[str]], Collection[TaskId]]]:
        for held in (current.assigned, current.pending_revocation):
            yield self.active_holders, [(name, it) for name, partitions in held.active.items() for it in partitions]
            yield self.replica_holders, list(held.replicas())

    def set_own(self, change: Change[Any]) -> Topology | None:
        assert isinstance(change, TopologyChange)
        before, self.topology = self.topology, change.value
        self.configured = None
        self.topics_version = -1
        self.endpoints.clear()
        return before

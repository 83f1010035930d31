"""StreamsGroupHeartbeat: how members join, stay, report their tasks, end the application, and leave.

A member sends its topology when it joins, and its tasks when they have changed. The response has its epoch, its tasks
when they have changed, and statuses of the group. Kafka's `GroupMetadataManager.streamsGroupHeartbeat`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages import streams_group_heartbeat as wire
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

from kwire.coordinators.effects import Step, Token
from kwire.groups.config import GroupConfig, StreamsGroupSettings
from kwire.groups.draft import Draft
from kwire.groups.group import MemberContext
from kwire.groups.migration import Migration
from kwire.groups.modern.groups import Groups
from kwire.groups.streams.assigning import Assigning
from kwire.groups.streams.changes import MemberChange, TopologyChange
from kwire.groups.streams.descriptions import Descriptions
from kwire.groups.streams.endpoints import endpoint_to_partitions
from kwire.groups.streams.group import StreamsGroup
from kwire.groups.streams.internal_topics import ConfiguredTopology
from kwire.groups.streams.member import JOINING_EPOCH, CurrentTasks, Endpoint, StreamsMember
from kwire.groups.streams.membership import Membership
from kwire.groups.streams.tasks import TaskId, TaskIds, Tasks
from kwire.groups.streams.topology import (
    Status,
    StatusCode,
    Topology,
    stale_status,
    topology_after_join,
    topology_of,
)
from kwire.groups.streams.warmups import NO_PROGRESS, Offsets, Progress
from kwire.groups.streams_topics import Answer

log = logging.getLogger(__name__)

UNCHANGED_MS = -1
"""The rebalance timeout in a request that does not change it."""
FIRST_VERSION_WITH_DESCRIPTIONS = 1
FIRST_VERSION_WITH_WARMUPS = 1
UNKNOWN_OFFSET = 2**63 - 1
"""Kafka Streams sends it if it does not know the sum of a task's offsets."""


@attrs.define(eq=False)
class Heartbeats:
    config: GroupConfig
    groups: Groups[StreamsGroup]
    settings: Callable[[str], StreamsGroupSettings]
    assigning: Assigning
    membership: Membership
    migration: Migration
    descriptions: Descriptions

    def heartbeat(
        self, step: Step, request: StreamsGroupHeartbeatRequest, context: MemberContext, token: Token
    ) -> None:
        """Replies with an `Answer`."""
        draft = Draft()
        try:
            if request.member_epoch < JOINING_EPOCH:
                answer = Answer(self._leave(draft, request))
            else:
                answer = self._stay(step, draft, request, context)
        except KafkaError as refused:
            draft.undo()
            step.reply(token, _refusal(refused.code, refused.message))
            return
        draft.answer(step, token, answer, _refusal)

    def _stay(self, step: Step, draft: Draft, request: StreamsGroupHeartbeatRequest, context: MemberContext) -> Answer:
        joins, member_id = request.member_epoch == JOINING_EPOCH, request.member_id
        group = self._group(draft, request.group_id, joins=joins)
        self._check_room(group, member_id)
        before = group.members.get(member_id) if joins else group.member(member_id)
        had, owned = group.assignment_of(member_id), _owned(request)
        _check_epoch(had, request.member_epoch, owned)
        if joins:
            draft.say(log, "group %a: member %a joins", group.group_id, member_id)
            if group.is_empty:
                self.membership.delay_first_assignment(step, draft, group)
        after = _updated(before or StreamsMember(member_id), request, context)
        member_changed = after is not before and after != before
        if member_changed:
            draft.change(group, MemberChange(group.group_id, member_id, after))
        topology = self._topology(draft, group, request)
        known = group.configured
        configured = self.assigning.configure(draft, group, topology)
        _check_tasks(configured, owned)
        self._note_progress(draft, group, configured, request)
        self.assigning.begin_epoch(
            draft, group, configured, member_changed=member_changed, topics_changed=configured is not known
        )
        delayed = self.assigning.assign(draft, group, configured, step.now)
        self.assigning.refine(draft, group, configured)
        has = self.assigning.reconcile(draft, group, member_id, owned)
        if has is not had:
            draft.then(partial(self.membership.follow_revocation, group=group, member_id=member_id, current=has))
        if member_id in group.timers:
            self.membership.start_session(step, group, member_id)
        else:
            draft.then(partial(self.membership.start_session, group=group, member_id=member_id))
        if request.shutdown_application:
            draft.did(None, partial(setattr, group, "shutdown_requested_by", group.shutdown_requested_by))
            self._request_shutdown(group, member_id)
        settings = self.settings(group.group_id)
        statuses = (stale_status(after.topology_epoch, topology.epoch), delayed, configured.status, _shutdown(group))
        response = StreamsGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=has.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            status=[wire.Status(it.code, it.detail) for it in statuses if it is not None],
        )
        is_changed = joins or (has is not had and has.assigned != had.assigned)
        if is_changed and after.user_endpoint is not None:
            draft.did(None, partial(setattr, group, "endpoints_epoch", group.endpoints_epoch))
            group.endpoints_epoch += 1
        if is_changed or (owned is not None and not has.assigned.are(owned)):
            # The response with the member's tasks may have been lost. Apache Kafka does not send them again.
            _set_tasks(response, has)
        response.endpoint_information_epoch = group.endpoints_epoch
        if group.endpoints_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = self._endpoints(group, topology)
        if context.api_version >= FIRST_VERSION_WITH_WARMUPS:
            response.task_offset_interval_ms = settings.task_offset_interval_ms
            response.acceptable_recovery_lag = settings.warmups.acceptable_recovery_lag
        if (
            context.api_version >= FIRST_VERSION_WITH_DESCRIPTIONS
            and after.topology_epoch >= topology.epoch
            and self.descriptions.are_wanted(group)
        ):
            draft.then(partial(self.descriptions.solicit, group=group, response=response))
        return Answer(response, configured.to_create)

    def _group(self, draft: Draft, group_id: str, *, joins: bool) -> StreamsGroup:
        if joins:
            return self.migration.streams_group(draft, group_id)
        if group_id not in self.groups.by_id:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {quoted(group_id)} not found.")
        return self.groups.get(group_id)

    def _check_room(self, group: StreamsGroup, member_id: str) -> None:
        """Raises KafkaError(GROUP_MAX_SIZE_REACHED) if the group is full and this is not one of its members."""
        if len(group.members) >= self.config.streams_max_size and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {self.config.streams_max_size} members.",
            )

    def _topology(self, draft: Draft, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> Topology:
        """The group's topology, which is the first member's."""
        if request.topology is not None:
            topology = topology_after_join(group.topology, topology_of(request.topology))
            if group.topology is None:
                draft.say(log, "group %a: topology epoch %d", group.group_id, topology.epoch)
                draft.change(group, TopologyChange(group.group_id, topology))
        if group.topology is None:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The group has no topology. The member must abandon all its tasks and rejoin with its topology.",
            )
        return group.topology

    def _note_progress(
        self,
        draft: Draft,
        group: StreamsGroup,
        configured: ConfiguredTopology,
        request: StreamsGroupHeartbeatRequest,
    ) -> None:
        """Stores the member's report on its tasks, or that it never reports.

        A member that does report has a full report when it joins, and with its first request to another coordinator.
        """
        member_id, offsets, ends = request.member_id, request.task_offsets, request.task_end_offsets
        if offsets is None and ends is None:
            if request.member_epoch == JOINING_EPOCH or member_id not in group.progress:
                group.note_progress(draft, member_id, None)
            return
        known = group.progress.get(member_id, NO_PROGRESS)
        progress = Progress(
            known.offsets if offsets is None else _reported_offsets(offsets, configured),
            known.end_offsets if ends is None else _reported_offsets(ends, configured),
        )
        group.note_progress(draft, member_id, progress)

    def _request_shutdown(self, group: StreamsGroup, member_id: str) -> None:
        """Marks the application for shutdown. Responses to all members have this status until the last one has left."""
        if group.shutdown_requested_by is None:
            log.info("group %a: member %a requests the shutdown of the application", group.group_id, member_id)
            group.shutdown_requested_by = member_id

    def _endpoints(self, group: StreamsGroup, topology: Topology) -> list[wire.EndpointToPartitions]:
        found = []
        for member_id, member in group.members.items():
            if member.user_endpoint is None:
                continue
            known = group.endpoints.get(member_id)
            if known is None:
                current = group.assignment_of(member_id)
                known = endpoint_to_partitions(member, current, topology, self.assigning.partition_count)
                assert known is not None
                group.endpoints[member_id] = known
            found.append(known)
        return found

    def _leave(self, draft: Draft, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        group, member_id = self.groups.get(request.group_id), request.member_id
        if request.shutdown_application and group.members:
            # As in Apache Kafka, even if it is no member any more; but not for members that join an empty group later.
            self._request_shutdown(group, member_id)
        group.member(member_id)
        draft.say(log, "group %a: member %a left", group.group_id, member_id)
        self.membership.remove(draft, group, [member_id])
        return StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)


def _refusal(code: ErrorCode, message: str | None = None) -> Answer:
    return Answer(StreamsGroupHeartbeatResponse(error_code=code, error_message=message))


def _shutdown(group: StreamsGroup) -> Status | None:
    member_id = group.shutdown_requested_by
    if member_id is None:
        return None
    return Status(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown "
        "for the entire application.",
    )


def _updated(before: StreamsMember, request: StreamsGroupHeartbeatRequest, context: MemberContext) -> StreamsMember:
    """Returns the metadata that the member requests: an absent field stays as it was.

    The same object as `before` if all are absent, as in most heartbeats.
    """
    timeout_ms, topology, endpoint = request.rebalance_timeout_ms, request.topology, request.user_endpoint
    if (
        timeout_ms == UNCHANGED_MS
        and topology is None
        and endpoint is None
        and request.rack_id is None
        and request.process_id is None
        and request.client_tags is None
        and context.client_id == before.client_id
        and context.client_host == before.client_host
    ):
        return before
    tags = request.client_tags
    return StreamsMember(
        member_id=before.member_id,
        instance_id=before.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=context.client_id,
        client_host=context.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == UNCHANGED_MS else timeout_ms,
        topology_epoch=before.topology_epoch if topology is None else topology.epoch,
        process_id=before.process_id if request.process_id is None else request.process_id,
        user_endpoint=before.user_endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=before.client_tags if tags is None else {tag.key: tag.value for tag in tags},
    )


# Tasks


def _owned(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """Returns the tasks that the member reports; None if it does not."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return Tasks(_reported(active), _reported(standby), _reported(warmup))


def _reported(tasks: Iterable[wire.StreamsGroupHeartbeatRequestTaskIds]) -> TaskIds:
    found: dict[str, frozenset[int]] = {}
    for it in tasks:
        if it.partitions:
            found[it.subtopology_id] = found.get(it.subtopology_id, frozenset()) | frozenset(it.partitions)
    return found


def _check_tasks(configured: ConfiguredTopology, owned: Tasks | None) -> None:
    """Raises KafkaError(INVALID_REQUEST) for tasks that do not exist. Skipped while topics are missing."""
    if owned is None or not configured.is_ready:
        return
    for tasks in (owned.active, owned.standby, owned.warmup):
        for name, partitions in tasks.items():
            subtopology = configured.subtopologies.get(name)
            if subtopology is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Subtopology {name} does not exist in the topology.")
            for partition in partitions:
                if not 0 <= partition < subtopology.task_count:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {partition} for subtopology {name} is invalid. "
                        f"Number of tasks for this subtopology: {subtopology.task_count}",
                    )


def _check_epoch(has: CurrentTasks, epoch: int, owned: Tasks | None) -> None:
    """Raises KafkaError(FENCED_MEMBER_EPOCH) unless the member joins, or is in its epoch.

    It may be in the previous one, because its last response was lost, as long as it has nothing that it should not.
    """
    if epoch in (JOINING_EPOCH, has.epoch):
        return
    if epoch == has.previous_epoch < has.epoch and owned is not None and has.assigned.have_all_of(owned):
        return
    size = "greater" if epoch > has.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({has.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _reported_offsets(reported: Iterable[wire.TaskOffset], configured: ConfiguredTopology) -> Offsets:
    """Returns the offsets of existing tasks. Raises KafkaError(INVALID_REQUEST) for duplicates."""
    found: dict[TaskId, int] = {}
    for it in reported:
        task = it.subtopology_id, it.partition
        if task in found:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {it.subtopology_id} and partition "
                f"{it.partition}.",
            )
        found[task] = it.offset
    return {
        task: offset
        for task, offset in found.items()
        if offset != UNKNOWN_OFFSET
        and (subtopology := configured.subtopologies.get(task[0])) is not None
        and 0 <= task[1] < subtopology.task_count
    }


def _set_tasks(response: StreamsGroupHeartbeatResponse, has: CurrentTasks) -> None:
    response.active_tasks = _wire_tasks(has.assigned.active)
    response.standby_tasks = _wire_tasks(has.assigned.standby)
    response.warmup_tasks = _wire_tasks(has.assigned.warmup)


def _wire_tasks(
    tasks: TaskIds | Mapping[str, Mapping[int, int]],
) -> list[wire.StreamsGroupHeartbeatResponseTaskIds]:
    return [wire.StreamsGroupHeartbeatResponseTaskIds(name, sorted(tasks[name])) for name in sorted(tasks)]

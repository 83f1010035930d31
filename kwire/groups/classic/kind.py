"""The classic kind of group: its records, its APIs, and its members' deadlines in a shard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.join_group import JoinGroupResponse
from kwire_protocol.messages.leave_group import LeaveGroupRequest
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from kwire.coordinators.deadlines import Deadlines
from kwire.coordinators.effects import KeyedRecord, Now, Step, Token
from kwire.groups.classic.group import ClassicGroup, GroupState
from kwire.groups.classic.groups import ClassicGroups
from kwire.groups.classic.joining import Join, Joining
from kwire.groups.classic.membership import Membership
from kwire.groups.classic.rebalance import Rebalancing
from kwire.groups.classic.records import RECORD_TYPE, GroupChange, load_group, read_group
from kwire.groups.config import GroupConfig
from kwire.groups.counts import GroupCounts
from kwire.groups.group import Group, GroupType

FIRST_VERSION_DESCRIBING_MISSING_AS_ERROR = 6


class ClassicKind:
    """A `GroupKind`. `groups` are all groups of the shard."""

    type: Final = GroupType.CLASSIC
    record_types: Final = (RECORD_TYPE,)

    def __init__(self, config: GroupConfig, groups: dict[str, Group], timers: Deadlines, counts: GroupCounts) -> None:
        self._config = config
        self._groups = ClassicGroups(groups)
        self._rebalancing = Rebalancing(config, timers, counts)
        self._joining = Joining(config, self._groups, self._rebalancing)
        self._membership = Membership(self._groups, self._rebalancing)

    # Records

    def apply(self, key: bytes, value: bytes | None) -> None:
        change = read_group(key, value)
        if change.value is not None:
            self._groups.add(load_group(change.group_id, change.value))
            return
        group = self._groups.remove(change.group_id)
        if group is not None:
            self._rebalancing.retire(group)

    def tombstones(self, group_id: str) -> list[KeyedRecord]:
        return [GroupChange(group_id, None).record()]

    def make_simple_group(self, group_id: str, *, commit_timestamp_ms: int) -> None:
        """Creates an empty group without a protocol, for an offset commit with an unknown group id."""
        self._groups.add(ClassicGroup(group_id, state_timestamp_ms=commit_timestamp_ms))

    # Start and end

    def loaded(self, step: Step) -> None:
        """Every member gets its full session timeout."""
        for group in self._groups:
            for member in group.members.values():
                self._rebalancing.start_session(step, group, member)
            if len(group.members) > self._config.max_size:
                self._rebalancing.prepare(step, group, "group.max.size is lower than the group is large")

    def unload(self, step: Step) -> None:
        for group in self._groups:
            self._answer_all(step, group, ErrorCode.NOT_COORDINATOR)
            self._rebalancing.retire(group)

    def _answer_all(self, step: Step, group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members.values():
            refused = JoinGroupResponse(error_code=error, member_id=member.member_id)
            self._rebalancing.answer_join(step, group, member, refused)
            self._rebalancing.answer_sync(step, member, SyncGroupResponse(error_code=error))

    # Groups that change their kind

    def give_up(self, step: Step, group: ClassicGroup) -> None:
        """A group of another kind has taken the group's place: parked requests are answered so that clients retry."""
        self._answer_all(step, group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalancing.retire(group)

    def take_up(self, step: Step, group: ClassicGroup, reason: str | None) -> None:
        """The group has taken the place of one of another kind. With a reason, its members have to rejoin."""
        for member in group.members.values():
            self._rebalancing.start_session(step, group, member)
        if reason is not None:
            self._rebalancing.prepare(step, group, reason)

    # Members

    def join(self, step: Step, join: Join) -> None:
        self._joining.join(step, join)

    def sync(self, step: Step, request: SyncGroupRequest, token: Token) -> None:
        self._membership.sync(step, request, token)

    def heartbeat(self, request: HeartbeatRequest, *, now: Now) -> HeartbeatResponse:
        return self._membership.heartbeat(request, now=now)

    def leave(self, step: Step, request: LeaveGroupRequest, token: Token) -> None:
        self._membership.leave(step, request, token)

    def committed_by(self, step: Step, group_id: str, member_id: str) -> None:
        """Counts a commit as a heartbeat, as Kafka does, unless the member does not have its assignment yet."""
        group = self._groups.find(group_id)
        if group is None or group.state not in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            return
        self._rebalancing.start_session(step, group, group.members[member_id])

    # Administration

    def describe(self, group_ids: Iterable[str], *, api_version: int) -> list[DescribedGroup]:
        return [self._describe(group_id, api_version) for group_id in group_ids]

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        group = self._groups.find(group_id)
        if group is None:
            missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
            if api_version >= FIRST_VERSION_DESCRIBING_MISSING_AS_ERROR:
                missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                why = "is not a classic group" if self._groups.is_of_other_kind(group_id) else "not found"
                missing.error_message = f"Group {quoted(group_id)} {why}."
            return missing
        # Until the group is stable the choice of the protocol, and with it the metadata, is still open.
        protocol = group.protocol_name if group.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol is None else member.protocols[protocol],
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

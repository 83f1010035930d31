"""The group machine: every group that lives in one partition of `__consumer_offsets`.

It is fed requests, the outcome of appends and the time, and answers with effects (`effects.py`): records to append and
replies to send. It neither waits nor reads a clock nor draws ids, so a test of it is a list of calls with numbers.

    start:   apply(key, value) for every record of the partition, end_transaction for every marker, then loaded(now)
    running: join / sync / heartbeat / leave / commit / ...    and expire(now) whenever next_deadline_ms() has come;
             end_transaction whenever a marker was appended
    end:     unload(now), and no call after it

What outlives a restart is what the records say: offsets, and each group as of its last complete generation. Groups
also have a life that is not recorded (who is parked in JoinGroup, who has synced): it ends with the process, and the
members find their way back by rejoining.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import islice

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError, quoted
from kwire_protocol.messages.delete_groups import DeletableGroupResult
from kwire_protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire_protocol.messages.leave_group import LeaveGroupRequest
from kwire_protocol.messages.list_groups import ListedGroup
from kwire_protocol.messages.offset_commit import OffsetCommitRequest
from kwire_protocol.messages.offset_delete import OffsetDeleteRequest
from kwire_protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kwire_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kwire_protocol.records import NO_PRODUCER_ID
from kwire_protocol.wire import Uuid

from kwire.coordinators.effects import Effect, Token, Turn
from kwire.coordinators.timers import Timer, Timers
from kwire.groups.classic.group import ClassicGroup, GroupState
from kwire.groups.classic.joining import Join, Joining, MemberContext
from kwire.groups.classic.membership import Membership
from kwire.groups.classic.rebalance import Rebalancing
from kwire.groups.config import GroupConfig
from kwire.groups.offsets.committing import Committing
from kwire.groups.offsets.store import Offsets
from kwire.groups.records import Change, GroupChange, OffsetChange, load_group, read_record

log = logging.getLogger(__name__)

FIRST_VERSION_DESCRIBING_MISSING_AS_ERROR = 6
GROUP_TYPE = "classic"
MAX_RECORDS_PER_CLEANUP_BATCH = 1_000


class GroupShard:
    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.groups: dict[str, ClassicGroup] = {}
        self._timers = Timers()
        self._cleanup = Timer(self._clean_up)
        self._rebalancing = Rebalancing(config, self._timers)
        self._joining = Joining(config, self.groups, self._rebalancing)
        self._membership = Membership(self.groups, self._rebalancing)
        self._offsets = Offsets(config, self.groups)
        self._committing = Committing(config, self.groups, self._rebalancing, self._offsets)

    # Start, time, end

    def apply(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Replays one record, of that producer's transaction if it is given.

        Raises ProtocolError or UnsupportedVersion on bytes we cannot read.
        """
        change = read_record(key, value)
        if change is not None:
            self._apply(change, producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker that ends the producer's transaction is in the partition, at the replay or now."""
        self._offsets.end_transaction(producer_id, committed=committed)

    def _apply(self, change: Change, producer_id: int = NO_PRODUCER_ID) -> None:
        if isinstance(change, OffsetChange):
            self._offsets.apply(change, producer_id)
        elif change.value is not None:
            self.groups[change.group_id] = load_group(change.group_id, change.value)
        else:
            group = self.groups.pop(change.group_id, None)
            if group is not None:
                self._rebalancing.retire(group)

    def loaded(self, *, now_ms: int) -> list[Effect]:
        """After the replay: every member has its whole session timeout to be heard of."""
        turn = Turn(now_ms)
        for group in list(self.groups.values()):
            for member in group.members.values():
                self._rebalancing.start_session(turn, group, member)
            if len(group.members) > self.config.max_size:
                self._rebalancing.prepare(turn, group, "group.max.size is lower than the group is large")
        self._schedule_cleanup(turn)
        return turn.effects

    def next_deadline_ms(self) -> int | None:
        """Nothing is due before it; it may turn out that nothing is due then either."""
        return self._timers.next_deadline_ms()

    def expire(self, *, now_ms: int) -> list[Effect]:
        """Does what is due, up to the first append; call again while `next_deadline_ms()` is not after `now_ms`."""
        turn = Turn(now_ms)
        self._timers.expire(turn)
        return turn.effects

    def unload(self, *, now_ms: int) -> list[Effect]:
        """This broker coordinates these groups no longer: whoever waits is sent elsewhere."""
        turn = Turn(now_ms)
        for group in self.groups.values():
            for member in group.members.values():
                self._rebalancing.answer_join(
                    turn,
                    group,
                    member,
                    JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, member_id=member.member_id),
                )
                self._rebalancing.answer_sync(turn, member, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
            self._rebalancing.retire(group)
        self.groups.clear()
        self._timers.cancel(self._cleanup)
        return turn.effects

    # Members

    def join(
        self, request: JoinGroupRequest, context: MemberContext, token: Token, *, member_uuid: str, now_ms: int
    ) -> list[Effect]:
        """`member_uuid` is a fresh UUID as text; it ends the member id if one has to be made."""
        turn = Turn(now_ms)
        self._joining.join(turn, Join.of(request, context, token, member_uuid))
        return turn.effects

    def sync(self, request: SyncGroupRequest, token: Token, *, now_ms: int) -> list[Effect]:
        turn = Turn(now_ms)
        self._membership.sync(turn, request, token)
        return turn.effects

    def heartbeat(self, request: HeartbeatRequest, *, now_ms: int) -> HeartbeatResponse:
        return self._membership.heartbeat(request, now_ms=now_ms)

    def leave(self, request: LeaveGroupRequest, token: Token, *, now_ms: int) -> list[Effect]:
        """`request.members` names who leaves, in every version."""
        turn = Turn(now_ms)
        self._membership.leave(turn, request, token)
        return turn.effects

    # Offsets

    def commit(self, request: OffsetCommitRequest, token: Token, *, api_version: int, now_ms: int) -> list[Effect]:
        """The topics are known to exist, and have their names."""
        turn = Turn(now_ms)
        self._committing.commit(turn, request, api_version, token)
        return turn.effects

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, token: Token, *, api_version: int, now_ms: int
    ) -> list[Effect]:
        """The topics are known to exist, and have their names; the partition is part of the transaction."""
        turn = Turn(now_ms)
        self._committing.commit_transactional(turn, request, api_version, token)
        return turn.effects

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        return self._offsets.fetch(request, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest, token: Token, *, now_ms: int) -> list[Effect]:
        turn = Turn(now_ms)
        self._offsets.delete(turn, request, token)
        return turn.effects

    def topics_deleted(self, topics: dict[str, Uuid], *, now_ms: int) -> list[Effect]:
        """Forgets the offsets of topics (name -> id) that are no more."""
        turn = Turn(now_ms)
        self._append_in_batches(turn, self._offsets.removals_of_topics(topics))
        return turn.effects

    # Administration

    def describe(self, group_ids: Iterable[str], *, api_version: int) -> list[DescribedGroup]:
        return [self._describe(group_id, api_version) for group_id in group_ids]

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is None:
            missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
            if api_version >= FIRST_VERSION_DESCRIBING_MISSING_AS_ERROR:
                missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                missing.error_message = f"Group {quoted(group_id)} not found."
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

    def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """All groups, or those in one of the states and of one of the types; both are compared without case."""
        wanted_states = {state.strip().lower() for state in states}
        if types and GROUP_TYPE not in {kind.lower() for kind in types}:
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )
            for group in self.groups.values()
            if not wanted_states or group.state.value.lower() in wanted_states
        ]

    def delete_groups(self, group_ids: Iterable[str], token: Token, *, now_ms: int) -> list[Effect]:
        """Replies with a list of DeletableGroupResult, one for each id."""
        turn = Turn(now_ms)
        results: list[DeletableGroupResult] = []
        changes: list[Change] = []
        for group_id in group_ids:
            error = ErrorCode.NONE
            try:
                self._check_delete(group_id)
            except KafkaError as refused:
                error = refused.code
            else:
                changes += self._offsets.removals_of_group(group_id)
                changes.append(GroupChange(group_id, None))
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        if changes:
            self._append(turn, changes)
        turn.reply_when_appended(
            token,
            results,
            lambda error: [DeletableGroupResult(group_id=each.group_id, error_code=error) for each in results],
        )
        return turn.effects

    def _check_delete(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_delete()

    # Forgetting

    def _clean_up(self, turn: Turn) -> None:
        """Removes expired offsets, and empty groups that have none left."""
        changes: list[Change] = []
        for group in self.groups.values():
            expired, nothing_left = self._offsets.expired(group, turn.now_ms)
            changes += expired
            if nothing_left and group.state is GroupState.EMPTY:
                changes.append(GroupChange(group.group_id, None))
        if changes:
            log.info("%d expired offsets and groups are forgotten", len(changes))
            self._append_in_batches(turn, changes)
        self._schedule_cleanup(turn)

    def _schedule_cleanup(self, turn: Turn) -> None:
        self._timers.schedule(self._cleanup, turn.now_ms + self.config.offsets_retention_check_interval_ms)

    def _append_in_batches(self, turn: Turn, changes: Sequence[Change]) -> None:
        rest = iter(changes)
        while batch := list(islice(rest, MAX_RECORDS_PER_CLEANUP_BATCH)):
            self._append(turn, batch)

    def _append(self, turn: Turn, changes: list[Change]) -> None:
        def appended(_: Turn, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for change in changes:
                    self._apply(change)

        turn.append([change.record() for change in changes], appended)

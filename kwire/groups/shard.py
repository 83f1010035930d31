"""The group machine: all groups of one partition of `__consumer_offsets`.

Its inputs are requests, the outcome of appends, and the time. Its outputs are effects (`effects.py`): records to append
and replies to send. It does not wait, read a clock or draw ids, so a test of it is a list of calls with numbers.

    start:   apply(key, value) for every record of the partition, end_transaction for every marker, then loaded(now)
    running: join / sync / heartbeat / leave / commit / ...    and expire(now) whenever next_deadline_ms() has come;
             end_transaction whenever a marker was appended
    end:     unload(now), and no call after it

What the records contain survives a restart: offsets, and each group as of its last complete generation. Other state of
groups (which members are parked in JoinGroup, which have synced) is lost with the process; the members rejoin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kwire_protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire_protocol.messages.delete_groups import DeletableGroupResult
from kwire_protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kwire_protocol.messages.describe_groups import DescribedGroup
from kwire_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire_protocol.messages.join_group import JoinGroupRequest
from kwire_protocol.messages.leave_group import LeaveGroupRequest
from kwire_protocol.messages.list_groups import ListedGroup
from kwire_protocol.messages.offset_commit import OffsetCommitRequest
from kwire_protocol.messages.offset_delete import OffsetDeleteRequest
from kwire_protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kwire_protocol.messages.share_group_describe import DescribedGroup as DescribedShareGroup
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.messages.streams_group_describe import DescribedGroup as DescribedStreamsGroup
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from kwire_protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from kwire_protocol.messages.sync_group import SyncGroupRequest
from kwire_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kwire_protocol.records import NO_PRODUCER_ID
from kwire_protocol.wire import Uuid

from kwire.coordinators.deadlines import Deadline, Deadlines
from kwire.coordinators.effects import Effect, KeyedRecord, Now, Step, Token, response_error
from kwire.groups.classic.joining import Join
from kwire.groups.classic.kind import ClassicKind
from kwire.groups.config import ConsumerGroupSettings, GroupConfig, ShareGroupSettings, StreamsGroupSettings
from kwire.groups.consumer.kind import ConsumerKind
from kwire.groups.counts import GroupCounts
from kwire.groups.draft import Draft
from kwire.groups.group import Group, GroupKind, MemberContext
from kwire.groups.migration import Migration
from kwire.groups.offsets.committing import Committing
from kwire.groups.offsets.records import RECORD_TYPES as OFFSET_RECORD_TYPES
from kwire.groups.offsets.records import read_offset
from kwire.groups.offsets.store import Offsets
from kwire.groups.records import read_head
from kwire.groups.share.kind import ShareKind
from kwire.groups.share_states import Outcome
from kwire.groups.streams.group import StreamsGroup
from kwire.groups.streams.kind import StreamsKind
from kwire.groups.topics import Topics
from kwire.groups.topology_descriptions import DescriptionStore

log = logging.getLogger(__name__)

MAX_RECORDS_PER_CLEANUP_BATCH = 1_000


class GroupShard:
    """`settings` returns the settings of a consumer group by its id, `share_settings` those of a share group, and
    `streams_settings` those of a streams group.

    `counts` and `descriptions` are shared by all shards of a broker. Without the latter, streams groups do not describe
    their topologies.
    """

    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        settings: Callable[[str], ConsumerGroupSettings],
        share_settings: Callable[[str], ShareGroupSettings],
        streams_settings: Callable[[str], StreamsGroupSettings],
        counts: GroupCounts | None = None,
        descriptions: DescriptionStore | None = None,
    ) -> None:
        self.config = config
        self._counts = counts = GroupCounts() if counts is None else counts
        self.groups: dict[str, Group] = {}
        self._timers = Deadlines()
        self.next_deadline_ms = self._timers.next_deadline_ms
        """The earliest time at which something may be due."""
        self._cleanup = Deadline(self._clean_up)
        self._classic = ClassicKind(config, self.groups, self._timers, counts)
        self._migration = Migration(config, self.groups, topics, self._classic)
        self._consumer = ConsumerKind(config, self.groups, self._timers, topics, settings, self._migration, counts)
        self._share = ShareKind(config, self.groups, self._timers, topics, share_settings, counts)
        self._streams = StreamsKind(
            config, self.groups, self._timers, topics, streams_settings, self._migration, counts, descriptions
        )
        kinds: tuple[GroupKind, ...] = (self._classic, self._consumer, self._share, self._streams)
        self._kinds = {kind.type: kind for kind in kinds}
        self._kind_of_records = {record_type: kind for kind in kinds for record_type in kind.record_types}
        self._offsets = Offsets(config, self.groups, self._classic.make_simple_group, counts)
        self._committing = Committing(config, self.groups, self._offsets, self._committed_by, counts)

    # Start, time, end

    def apply(
        self,
        key: bytes,
        value: bytes | None,
        producer_id: int = NO_PRODUCER_ID,
        *,
        offset: int = -1,  # noqa: ARG002
    ) -> None:
        """Replays one record, which is part of a transaction if `producer_id` is given.

        Raises ProtocolError or UnsupportedVersion if the bytes cannot be decoded.
        """
        record_type, _ = read_head(key)
        if record_type in OFFSET_RECORD_TYPES:
            change = read_offset(key, value)
            assert change is not None
            self._offsets.apply(change, producer_id)
        elif (kind := self._kind_of_records.get(record_type)) is not None:
            kind.apply(key, value)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker that ends the producer's transaction was replayed or appended."""
        self._offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, *, now: Now) -> list[Effect]:
        """The replay is complete."""
        step = Step(now)
        for kind in self._kinds.values():
            kind.loaded(step)
        self._schedule_cleanup(step)
        return step.effects

    def expire(self, *, now: Now) -> list[Effect]:
        """Handles what is due, up to the first append; call again while `next_deadline_ms()` is not after `now`."""
        step = Step(now)
        self._timers.expire(step)
        return step.effects

    def appends_succeed(self) -> None:
        """Appends succeed again after failures: the work that waits for that is now due."""
        self._timers.appends_succeed()

    def unload(self, *, now: Now) -> list[Effect]:
        """This broker no longer coordinates these groups: pending requests are answered with NOT_COORDINATOR."""
        step = Step(now)
        for kind in self._kinds.values():
            kind.unload(step)
        self.groups.clear()
        self._timers.cancel(self._cleanup)
        return step.effects

    # Members of consumer groups

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: MemberContext, token: Token, *, member_id: str, now: Now
    ) -> list[Effect]:
        """`member_id` is the request's, or a new one for a member of version 0 that joins."""
        step = Step(now)
        self._consumer.heartbeats.heartbeat(step, request, context, token, member_id=member_id)
        return step.effects

    def confirm_consumer(
        self, group_id: str, member_id: str, member_epoch: int, client_id: str, client_host: str, *, now: Now
    ) -> int | None:
        """See `kwire.groups.consumer.heartbeats.Heartbeats.confirm`."""
        return self._consumer.heartbeats.confirm(group_id, member_id, member_epoch, client_id, client_host, now=now)

    # Share groups

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, context: MemberContext, token: Token, *, now: Now
    ) -> list[Effect]:
        step = Step(now)
        self._share.heartbeats.heartbeat(step, request, context, token)
        return step.effects

    def share_states_initialized(self, group_id: str, outcome: Outcome, *, now: Now) -> list[Effect]:
        """The share coordinators have answered an `Initialize`."""
        step = Step(now)
        self._share.states_initialized(step, group_id, outcome)
        return step.effects

    def begin_share_deletion(self, group_id: str, token: Token, *, now: Now) -> list[Effect]:
        """Must precede `delete_groups`. Replies with the states to delete, see `share/deleting.py`."""
        step = Step(now)
        self._share.begin_deletion(step, group_id, token)
        return step.effects

    def begin_share_alteration(self, request: AlterShareGroupOffsetsRequest, token: Token, *, now: Now) -> list[Effect]:
        """Replies with an `AlterationBegun` or a KafkaError; then call `share_states_initialized`."""
        step = Step(now)
        self._share.begin_alteration(step, request, token)
        return step.effects

    def begin_share_offset_deletion(
        self, request: DeleteShareGroupOffsetsRequest, token: Token, *, now: Now
    ) -> list[Effect]:
        """Replies with an `OffsetDeletionBegun` or a KafkaError; then call `share_states_deleted`."""
        step = Step(now)
        self._share.begin_offset_deletion(step, request, token)
        return step.effects

    def share_states_deleted(self, group_id: str, topic_ids: Iterable[Uuid], token: Token, *, now: Now) -> list[Effect]:
        """The share coordinators have deleted all states of these topics. Replies with None or a KafkaError."""
        step = Step(now)
        self._share.states_deleted(step, group_id, topic_ids, token)
        return step.effects

    def initialized_share_partitions(self, group_id: str) -> Mapping[Uuid, frozenset[int]]:
        """The partitions of a share group that have an initialized state."""
        return self._share.initialized(group_id)

    # Streams groups

    def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, context: MemberContext, token: Token, *, now: Now
    ) -> list[Effect]:
        """Replies with an `Answer` of `streams_topics.py`."""
        step = Step(now)
        self._streams.heartbeats.heartbeat(step, request, context, token)
        return step.effects

    def update_topology_description(
        self, request: StreamsGroupTopologyDescriptionUpdateRequest, token: Token, *, now: Now
    ) -> list[Effect]:
        """Replies like `Descriptions.update`. Call it only if this broker stores descriptions."""
        step = Step(now)
        self._streams.update_topology_description(step, request, token)
        return step.effects

    # Members that use the classic protocol, of classic groups or of consumer groups

    def join(
        self, request: JoinGroupRequest, context: MemberContext, token: Token, *, member_uuid: str, now: Now
    ) -> list[Effect]:
        """`member_uuid` is a fresh UUID as text; a new member id ends with it."""
        step = Step(now)
        join = Join.of(request, context, token, member_uuid)
        empty = self._migration.replaceable_by_classic(request.group_id)
        group = self._consumer.find(request.group_id)
        if group is None and empty is None:
            self._classic.join(step, join)
        elif not join.has_valid_session_timeout(self.config):
            join.refuse(step, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        elif empty is not None and request.member_id:
            join.refuse(step, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        elif empty is not None:
            draft = Draft()
            self._migration.make_room_for_classic(draft, empty)
            if isinstance(empty, StreamsGroup):
                draft.then(lambda _: self._streams.retire(empty))
            draft.then(lambda later: self._classic.join(later, join))
            draft.append(step, lambda later, error: join.refuse(later, response_error(error), request.member_id))
        elif group is not None:
            self._consumer.join_classic(step, group, join)
        return step.effects

    def sync(self, request: SyncGroupRequest, token: Token, *, now: Now) -> list[Effect]:
        step = Step(now)
        group = self._consumer.find(request.group_id)
        if group is None:
            self._classic.sync(step, request, token)
        else:
            self._consumer.sync_classic(step, group, request, token)
        return step.effects

    def heartbeat(self, request: HeartbeatRequest, *, now: Now) -> HeartbeatResponse:
        group = self._consumer.find(request.group_id)
        if group is None:
            return self._classic.heartbeat(request, now=now)
        return self._consumer.heartbeat_classic(Step(now), group, request)

    def leave(self, request: LeaveGroupRequest, token: Token, *, now: Now) -> list[Effect]:
        """`request.members` names the members that leave, in every version."""
        step = Step(now)
        group = self._consumer.find(request.group_id)
        if group is None:
            self._classic.leave(step, request, token)
        else:
            self._consumer.leave_classic(step, group, request, token)
        return step.effects

    # Offsets

    def _committed_by(self, step: Step, group: Group, member_id: str) -> None:
        self._kinds[group.type].committed_by(step, group.group_id, member_id)

    def commit(self, request: OffsetCommitRequest, token: Token, *, api_version: int, now: Now) -> list[Effect]:
        """The topics must exist, and have their names set."""
        step = Step(now)
        self._committing.commit(step, request, api_version, token)
        return step.effects

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, token: Token, *, api_version: int, now: Now
    ) -> list[Effect]:
        """The topics must exist, and have their names set. The partition is part of the transaction."""
        step = Step(now)
        self._committing.commit_transactional(step, request, api_version, token)
        return step.effects

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        return self._offsets.fetch(request, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest, token: Token, *, now: Now) -> list[Effect]:
        step = Step(now)
        self._offsets.delete(step, request, token)
        return step.effects

    def topics_deleted(self, topics: dict[str, Uuid], *, now: Now) -> list[Effect]:
        """Removes the offsets of deleted topics (name -> id), and their states in share groups."""
        step = Step(now)
        self._share.topics_deleted(step, set(topics.values()))
        self._append_in_batches(step, [change.record() for change in self._offsets.removals_of_topics(topics)])
        return step.effects

    # Administration

    @property
    def offset_count(self) -> int:
        """The number of committed offsets in all groups."""
        return self._offsets.store.count

    def describe(self, group_ids: Iterable[str], *, api_version: int) -> list[DescribedGroup]:
        """DescribeGroups, an API for classic groups only."""
        return self._classic.describe(group_ids, api_version=api_version)

    def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe."""
        return self._consumer.describe(group_id)

    def describe_share(self, group_id: str) -> DescribedShareGroup:
        """ShareGroupDescribe."""
        return self._share.describe(group_id)

    def describe_streams(self, group_id: str, *, with_description: bool = False) -> DescribedStreamsGroup:
        """StreamsGroupDescribe."""
        return self._streams.describe(group_id, with_description=with_description)

    def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """All groups, or those in one of the states and of one of the types, ignoring case."""
        # Kafka's streams groups are listed as NotReady, and found as not_ready.
        wanted_states = {state.strip().lower().replace("_", "") for state in states}
        wanted_types = {type_name.lower() for type_name in types}
        return [
            listed
            for group in self.groups.values()
            if not wanted_types or group.type.value in wanted_types
            if (listed := group.listed()) and (not wanted_states or listed.group_state.lower() in wanted_states)
        ]

    def delete_groups(self, group_ids: Iterable[str], token: Token, *, now: Now) -> list[Effect]:
        """Replies with a list of DeletableGroupResult, one for each id."""
        step = Step(now)
        results: list[DeletableGroupResult] = []
        records: list[KeyedRecord] = []
        for group_id in group_ids:
            error = ErrorCode.NONE
            try:
                group = self._check_delete(group_id)
            except KafkaError as refused:
                error = refused.code
            else:
                records += [change.record() for change in self._offsets.removals_of_group(group_id)]
                records += self._tombstones(group)
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        if records:
            self._append(step, records)
        step.reply_when_appended(
            token,
            results,
            lambda error: [DeletableGroupResult(group_id=each.group_id, error_code=error) for each in results],
        )
        return step.effects

    def _check_delete(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_delete()
        return group

    def _tombstones(self, group: Group) -> list[KeyedRecord]:
        return self._kinds[group.type].tombstones(group.group_id)

    # Removal

    def _clean_up(self, step: Step) -> None:
        """Removes expired offsets, and empty groups that have none left."""
        records: list[KeyedRecord] = []
        for group in self.groups.values():
            expired, nothing_left = self._offsets.expired(group, step.now.wall_ms)
            records += [change.record() for change in expired]
            if nothing_left and group.is_empty and group.type.expires:
                records += self._tombstones(group)
        self._append_in_batches(step, records, self._forgotten)
        self._schedule_cleanup(step)

    def _forgotten(self, records: list[KeyedRecord]) -> None:
        log.info("%d expired offsets and groups are forgotten", len(records))
        self._counts.offset_expirations += sum(read_head(key)[0] in OFFSET_RECORD_TYPES for key, _ in records)

    def _schedule_cleanup(self, step: Step) -> None:
        self._timers.schedule(self._cleanup, step.now.monotonic_ms + self.config.offsets_retention_check_interval_ms)

    def _append_in_batches(
        self, step: Step, records: Iterable[KeyedRecord], done: Callable[[list[KeyedRecord]], None] | None = None
    ) -> None:
        rest = iter(records)
        while batch := list(islice(rest, MAX_RECORDS_PER_CLEANUP_BATCH)):
            self._append(step, batch, done)

    def _append(
        self, step: Step, records: list[KeyedRecord], done: Callable[[list[KeyedRecord]], None] | None = None
    ) -> None:
        """Appends removals, then applies them as in a replay, and calls `done` with them."""

        def appended(_: Step, error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for key, value in records:
                    self.apply(key, value)
                if done is not None:
                    done(records)

        step.append(records, appended)

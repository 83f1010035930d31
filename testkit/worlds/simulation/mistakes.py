"""Deliberate mistakes in what a cluster rests on. The simulation finds each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.consumer_group import ConsumerGroupCurrentMemberAssignmentKey
from kwire_protocol.internal.share_group import ShareGroupStatePartitionMetadataKey
from kwire_protocol.internal.streams_group import StreamsGroupCurrentMemberAssignmentKey

from kwire.groups.group import accept_all
from kwire.metadata.controller.partitions.elections import Elected
from kwire.replicas.roles import Follower
from kwire.share.leader.states import ACQUIRED, ARCHIVED, AVAILABLE
from testkit.mutants.changes import Change, Function, always, instead, without

PARTITION = "kwire.replicas.partition:Partition"
LEADER = "kwire.replicas.roles:Leader"
FETCHER = "kwire.replication.fetching:Fetcher"
FOLLOWED = "kwire.replication.followers:FollowedPartition"
IN_SYNC = "kwire.replication.in_sync:InSyncReplicas"
MEMBER = "kwire.cluster.member:ClusterMember"
CONSUMER_GROUP = "kwire.groups.consumer.group:ConsumerGroup"
STREAMS_GROUP = "kwire.groups.streams.group:StreamsGroup"
SHARE_PARTITION = "kwire.share.leader.share_partition:SharePartition"
SHARE_STATES = "kwire.share.coordinator.shard"
RUNTIME = "kwire.coordinators.runtime:CoordinatorRuntime"


def of_the_leader_alone(_committed_end: Function) -> Function:
    return lambda _role, own_end: own_end


def one_too_many(committed_end: Function) -> Function:
    return lambda role, own_end: min(committed_end(role, own_end) + 1, own_end)


def of_the_fastest(_committed_end: Function) -> Function:
    def mistaken(role: Any, own_end: int) -> int:
        ends = sorted(it.log_end_offset for it in role.followers.values())
        return max(min(own_end, ends[-1]), 0) if ends else own_end

    return mistaken


def to_the_high_watermark(follow: Function) -> Function:
    """Before KIP-101 a follower began like this."""

    def mistaken(fetcher: Any, key: Any, topic: str, leader_epoch: int, log: Any, *more: Any) -> None:
        log.truncate(log.partition.high_watermark, leader_epoch=leader_epoch)
        follow(fetcher, key, topic, leader_epoch, log, *more)

    return mistaken


def one_record_less(cut: Function) -> Function:
    """Leaves one record of two that diverge."""

    def mistaken(fetcher: Any, followed: Any, diverging: Any) -> None:
        followed.log.truncate(
            min(diverging.end_offset + 1, followed.log.log_end_offset), leader_epoch=followed.leader_epoch
        )
        fetcher._mark_changed(followed)

    return mistaken


def anyone_may_join(_may_join: Function) -> Function:
    return lambda role, replica_id, high_watermark: replica_id not in role.isr


def anyone_who_lives(elect: Function) -> Function:
    def mistaken(
        current: int, replicas: Any, isr: Any, may_lead: Callable[[int], bool], *more: Any, **others: Any
    ) -> Any:
        found = next(filter(may_lead, reversed(replicas)), None)
        return elect(current, replicas, isr, may_lead, *more, **others) if found is None else Elected(found)

    return mistaken


def the_last_leader_at_once(elect: Function) -> Function:
    """It does not wait for those that are eligible."""

    def mistaken(
        current: int, replicas: Any, isr: Any, may_lead: Callable[[int], bool], *more: Any, **others: Any
    ) -> Any:
        found = elect(current, replicas, isr, may_lead, *more, **others)
        return found if found.leader >= 0 else elect(current, replicas, isr, may_lead, *more, **{**others, "elr": ()})

    return mistaken


def no_last_leader(elect: Function) -> Function:
    return lambda *args, **others: elect(*args, **{**others, "last_leader": -1})


def who_has_lost_records_too(eligible: Function) -> Function:
    return lambda before, replicas, isr, _unclean: eligible(before, replicas, isr, ())


def always_in_good_order(register: Function) -> Function:
    def mistaken(state: Any, registration: Any, **_how: Any) -> Any:
        known = state.image.brokers.get(registration.broker_id)
        return register(state, registration, stopped_epoch=-1 if known is None else known.broker_epoch)

    return mistaken


def of_the_present_isr(_count: Function) -> Function:
    def mistaken(role: Any) -> None:
        role.followers_in_sync = tuple(it for it in role.isr if it != role.leader_id)
        role.counts_others = True

    return mistaken


def ahead_of_the_leaders(follow: Function) -> Function:
    def mistaken(partition: Any, **how: Any) -> None:
        follow(partition, **{**how, "high_watermark": partition.log_end_offset})

    return mistaken


def back_with_the_leaders(follow: Function) -> Function:
    def mistaken(partition: Any, **how: Any) -> None:
        partition.high_watermark = max(min(how["high_watermark"], partition.log_end_offset), partition.log_start_offset)
        follow(partition, **how)

    return mistaken


def whatever_is_there(_read_bound: Function) -> Function:
    return lambda _replica_id, _isolation_level: lambda partition: partition.log_end_offset


def whatever_a_follower_has(read_bound: Function) -> Function:
    def mistaken(replica_id: int, isolation_level: int) -> Function:
        bound = read_bound(replica_id, isolation_level)
        return lambda partition: partition.log_end_offset if type(partition.role) is Follower else bound(partition)

    return mistaken


def committed_or_not(read_bound: Function) -> Function:
    return lambda replica_id, _isolation_level: read_bound(replica_id, 0)


def of_any_epoch(_check: Function) -> Function:
    return lambda *_args: None


def without_waiting(_when_committed: Function) -> Function:
    return lambda *_args: None


def unchecked(_check_commit: Function) -> Function:
    return lambda *_args: accept_all


def without_records(kind: int) -> Callable[[Function], Function]:
    """Drops records of this kind, with which their keys begin."""
    beginning = bytes([0, kind])

    def make(append: Function) -> Function:
        def mistaken(draft: Any, *more: Any) -> None:
            draft.records = [it for it in draft.records if it[0][:2] != beginning]
            append(draft, *more)

        return mistaken

    return make


def without_their_count(add: Function) -> Function:
    def mistaken(write: Any, first: int, last: int, state: Any, delivery_count: int) -> None:
        add(write, first, last, state, delivery_count - 1 if state is AVAILABLE else delivery_count)

    return mistaken


def without_batches(applied_to: Function) -> Function:
    return lambda update, state: attrs.evolve(applied_to(update, state), batches=())


def of_the_latest(_needed_from: Function) -> Function:
    return lambda shard: max((it.snapshot_offset for it in shard._entries.values()), default=None)


def of_others_too(_may_be_acquired: Function) -> Function:
    return lambda run: run.state in (AVAILABLE, ACQUIRED) and run.write is None


IN_CLUSTERS: dict[str, Change] = {
    "a leader acknowledges what only it has": instead(f"{LEADER}.committed_end", of_the_leader_alone),
    "a leader acknowledges what one of its followers has": instead(f"{LEADER}.committed_end", of_the_fastest),
    "a leader commits one record too many": instead(f"{LEADER}.committed_end", one_too_many),
    "a leader acknowledges before anything is committed": instead(f"{PARTITION}.when_committed", without_waiting),
    "a leader accepts records with fewer replicas than it must have": instead(
        f"{LEADER}.lacks_replicas", always(False)
    ),
    "a leader does not count who joins": instead(f"{LEADER}._count_followers", of_the_present_isr),
    "a leader does not note where its epoch begins": instead(f"{PARTITION}._begin_epoch", always(None)),
    "a leader does not fail what waits when it follows": without(
        f"{PARTITION}.take_role", "kwire.replicas.acknowledging:Acknowledgements.fail"
    ),
    "a new leader tells an end at once": instead(f"{LEADER}.epoch_start_offset", always(0)),
    "a follower joins that lacks committed records": instead(f"{LEADER}.may_join", anyone_may_join),
    "a follower begins by a cut to its high watermark": instead(f"{FETCHER}.follow", to_the_high_watermark),
    "a follower does not tell the epoch of its last record": instead(f"{FOLLOWED}.latest_epoch", always(-1)),
    "a follower does not cut": without(f"{FETCHER}._take_partition", f"{FETCHER}._cut"),
    "a follower keeps one record that diverges": instead(f"{FETCHER}._cut", one_record_less),
    "a follower believes that all it has is committed": instead(f"{PARTITION}.follow_leader", ahead_of_the_leaders),
    "a high watermark goes back with the leader's": instead(f"{PARTITION}.follow_leader", back_with_the_leaders),
    "a follower does not follow a new leader": without(
        "kwire.replication.followers:ReplicaFollowers._follow",
        "kwire.replication.followers:ReplicaFollowers._reconcile_topic",
    ),
    "nobody joins": without(f"{IN_SYNC}.fetched", f"{IN_SYNC}._propose"),
    "a change of the ISR is never settled": without(f"{IN_SYNC}._decide_on", f"{PARTITION}.settle_isr"),
    "anyone who lives is elected": instead("kwire.metadata.controller.partitions.elections:elect", anyone_who_lives),
    "an eligible replica stays one after an unclean stop": instead(
        "kwire.metadata.controller.partitions.eligible_replicas:eligible", who_has_lost_records_too
    ),
    "the last leader leads although one with everything may come": instead(
        "kwire.metadata.controller.partitions.elections:elect", the_last_leader_at_once
    ),
    "the last leader does not lead again": instead(
        "kwire.metadata.controller.partitions.elections:elect", no_last_leader
    ),
    "eligible replicas stay ones when more is committed": instead(
        "kwire.metadata.controller.partitions.partition_changes:_lacks_replicas", always(True)
    ),
    "an unclean stop passes for a clean one": instead(
        "kwire.metadata.controller.brokers:register", always_in_good_order
    ),
    "a clean stop passes for an unclean one": instead("kwire_storage.checkpoints:decode_clean_shutdown", always(-1)),
    "a controller fences nobody": instead(f"{MEMBER}._ended", always([])),
    "a node that starts again stays fenced": instead("kwire.metadata.controller.brokers:unfence", always([])),
    "a proposal of an earlier epoch is accepted": instead(
        "kwire.metadata.controller.partitions.isr_changes:_refusal", always(ErrorCode.NONE)
    ),
    "a reader gets what is not committed": instead("kwire.replicas.partition:read_bound", whatever_is_there),
    "a follower serves readers what is not committed": instead(
        "kwire.replicas.partition:read_bound", whatever_a_follower_has
    ),
    "what rests in a session is not woken": instead("kwire.replicas.fetch_sessions:CachedPartition.wake", always(None)),
    "a reader of committed records gets open transactions": instead(
        "kwire.replicas.partition:read_bound", committed_or_not
    ),
    "a reader is not told of aborted transactions": instead(f"{PARTITION}.aborted_transactions", always([])),
    "the epoch of a request is not checked": instead("kwire.replicas.roles:check_epoch", of_any_epoch),
    "a coordinator stays when another node leads": instead(f"{RUNTIME}.follow_leader", always(None)),
    "a coordinator answers before its records are committed": instead(
        "kwire.coordinators.internal_topic:InternalTopic.committed", lambda _: _at_once
    ),
    "producers are forgotten by a new leader": instead(
        "kwire_storage.producers.states:ProducerStates.apply", always(None)
    ),
}

IN_GROUPS: dict[str, dict[str, Change]] = {
    "classic": {
        "a group commits for members of earlier generations": instead(
            "kwire.groups.classic.group:ClassicGroup.check_commit", always(None)
        ),
    },
    "consumer": {
        "a partition of a consumer group is free before its owner gave it up": instead(
            f"{CONSUMER_GROUP}.is_free", always(True)
        ),
        "a consumer group commits for members of earlier epochs": instead(f"{CONSUMER_GROUP}.check_commit", unchecked),
        "members of a consumer group have no sessions after a change of the coordinator": instead(
            "kwire.groups.modern.membership:Membership.start_all", always(None)
        ),
        "a consumer group's change of an assignment is not written": instead(
            "kwire.groups.draft:Draft.append", without_records(ConsumerGroupCurrentMemberAssignmentKey.api_key)
        ),
    },
    "share": {
        "a record is acquired that another member holds": instead(
            "kwire.share.leader.in_flight:Run.may_be_acquired",
            of_others_too,
        ),
        "a lock does not end": without(f"{SHARE_PARTITION}.expire", f"{SHARE_PARTITION}._time_out"),
        "a new leader forgets what was acknowledged": instead("kwire.share.leader.service:_known", always([])),
        "a release counts as no delivery": instead("kwire.share.leader.effects:Write.add", without_their_count),
        "a share coordinator answers before its records are committed": instead(
            "kwire.share.coordinator.service:ShareStateService._when_committed", always(None)
        ),
        "a snapshot of a share state lacks its batches": instead(
            "kwire.share.coordinator.records:Update.applied_to",
            without_batches,
            seen_by=f"{SHARE_STATES}:ShareStateShard._changed",
        ),
        "a share coordinator prunes records that it needs": instead(
            f"{SHARE_STATES}:ShareStateShard._needed_from", of_the_latest
        ),
        "a rejected record is archived and not copied": instead(f"{SHARE_PARTITION}._failed", always(ARCHIVED)),
        "a share group forgets what is initialized": instead(
            "kwire.groups.draft:Draft.append", without_records(ShareGroupStatePartitionMetadataKey.api_key)
        ),
    },
    "streams": {
        "a task is active before its member gave it up": instead(f"{STREAMS_GROUP}.is_active", always(False)),
        "a streams group commits for members of earlier epochs": instead(f"{STREAMS_GROUP}.check_commit", unchecked),
        "a streams group's change of an assignment is not written": instead(
            "kwire.groups.draft:Draft.append", without_records(StreamsGroupCurrentMemberAssignmentKey.api_key)
        ),
        "members of a streams group have no sessions": instead(
            "kwire.groups.modern.membership:Membership.start_session", always(None)
        ),
    },
}
"""The mistakes by the kind of the group that makes them."""

MISTAKES: dict[str, Change] = {**IN_CLUSTERS, **{name: it for of in IN_GROUPS.values() for name, it in of.items()}}


def kind_of(name: str) -> str | None:
    """Returns the kind of the group that makes this mistake; None if it does not matter."""
    return next((kind for kind, mistakes in IN_GROUPS.items() if name in mistakes), None)


async def _at_once(*_args: object) -> None: ...

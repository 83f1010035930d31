"""This node's role for a partition: leader, follower, or neither. Pure; `partition.py` acts on it.

The role follows from the metadata log (PartitionRecord); `role_of` reads it. Only a leader accepts appends and serves
clients, except that a consumer may read from a follower, too (KIP-392). Its high watermark is the minimum over the
in-sync replicas: a follower that fetches from an offset has everything below it. With a single replica, it is the end
of the leader's own log. As in Kafka's `Partition` and `Replica`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

NO_EPOCH = -1
NO_LEADER = -1
_NOTHING_FETCHED = -1


class NotLeaderError(KafkaError):
    """The client must find the leader again. Has the leader, if this node's metadata name one (KIP-951)."""

    def __init__(self, code: ErrorCode, leader_id: int, leader_epoch: int) -> None:
        super().__init__(code)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


def check_epoch(wanted: int, leader_id: int, leader_epoch: int) -> None:
    """Raises FENCED_LEADER_EPOCH if the client is behind this node, UNKNOWN_LEADER_EPOCH if it is ahead (KIP-320)."""
    if wanted != NO_EPOCH and wanted != leader_epoch:
        if wanted < leader_epoch:
            raise NotLeaderError(ErrorCode.FENCED_LEADER_EPOCH, leader_id, leader_epoch)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)


@attrs.define(eq=False)
class LastFetch:
    """The time of a follower's last fetch with a session, in ms. All partitions that rest in the session share it."""

    time_ms: int = 0


@attrs.define(eq=False)
class FollowerState:
    """The leader's state of a follower, by its fetches in this leader epoch; times in ms (Kafka's ReplicaState)."""

    log_end_offset: int = _NOTHING_FETCHED
    log_start_offset: int = _NOTHING_FETCHED
    broker_epoch: int = NO_EPOCH
    """The epoch of the broker's registration under which it fetches (KIP-903)."""
    _last_caught_up_ms: int | None = None
    _last_fetch_ms: int = 0
    _end_at_last_fetch: int = _NOTHING_FETCHED
    _resting: LastFetch | None = None

    @property
    def last_caught_up_ms(self) -> int | None:
        """The time when it last had the leader's whole log; None until that is known, or its time begins to count."""
        if self._resting is not None:
            return max(self._resting.time_ms, self._last_caught_up_ms or 0)
        return self._last_caught_up_ms

    def begin_time(self, now_ms: int) -> None:
        """Begins to count its time now, unless it counts already."""
        if self.last_caught_up_ms is None:
            self._last_caught_up_ms = now_ms

    def rest(self, session: LastFetch) -> None:
        """Notes that it has everything. Until `stir`, each fetch of its session confirms that, without naming it."""
        self._resting = session

    def stir(self, session: LastFetch | None) -> None:
        """Ends the rest after a possible change: later fetches of this session confirm nothing about the partition.

        Does nothing if it rests in another session.
        """
        if session is not None and self._resting is session:
            self._last_caught_up_ms = self.last_caught_up_ms
            self._last_fetch_ms = max(session.time_ms, self._last_fetch_ms)
            self._resting = None

    def fetched(self, offset: int, start_offset: int, leader_end: int, now_ms: int) -> None:
        """Notes that it has everything from `start_offset` to `offset`. If it has reached the log end of its previous
        fetch, it was caught up then."""
        self.stir(self._resting)
        caught_up_ms = None
        if offset >= leader_end:
            caught_up_ms = now_ms
        elif offset >= self._end_at_last_fetch >= 0:
            caught_up_ms = self._last_fetch_ms
        if caught_up_ms is not None:
            self._last_caught_up_ms = max(caught_up_ms, self._last_caught_up_ms or 0)
        self.log_end_offset = offset
        self.log_start_offset = start_offset
        self._end_at_last_fetch = max(leader_end, self._end_at_last_fetch)
        self._last_fetch_ms = now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, max_lag_ms: int) -> bool:
        """True if it has everything, or had everything within that time."""
        if self.log_end_offset == leader_end:
            return True
        caught_up_ms = self.last_caught_up_ms
        return caught_up_ms is not None and now_ms - caught_up_ms <= max_lag_ms


@final
@attrs.define(eq=False)
class Leader:
    """This node leads. `replicas` and `isr` are node ids, including this node's.

    Three kinds of followers count for the high watermark: those in the ISR; those in the ISR that was proposed, as long
    as it is unknown whether the proposal has taken effect (KIP-497); and those that are about to join, which would
    otherwise never reach a high watermark that moves with every append.
    """

    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    epoch_start_offset: int = 0
    """The log end offset when this node began to lead."""
    proposed: tuple[int, ...] | None = attrs.field(default=None, init=False)
    """The proposed ISR, until the outcome of the proposal is known."""
    joining: frozenset[int] = attrs.field(default=frozenset(), init=False)
    followers: dict[int, FollowerState] = attrs.field(init=False)
    followers_in_sync: tuple[int, ...] = attrs.field(init=False)
    """The followers that count for the high watermark."""
    counts_others: bool = attrs.field(init=False)
    """True if the high watermark depends on other replicas than the leader."""
    all_in_sync: bool = attrs.field(init=False)
    """True if no replica lags: then no setting can require more replicas in sync."""

    def __attrs_post_init__(self) -> None:
        self.all_in_sync = len(self.isr) == len(self.replicas)
        self.followers = {it: FollowerState() for it in self.replicas if it != self.leader_id}
        self._count_followers()

    def _count_followers(self) -> None:
        held = {*self.isr, *(self.proposed or ()), *self.joining}
        self.followers_in_sync = tuple(it for it in self.replicas if it in held and it != self.leader_id)
        self.counts_others = bool(self.followers_in_sync) or not self.all_in_sync

    @property
    def is_alone(self) -> bool:
        """True if there is no other replica."""
        return len(self.replicas) == 1

    def follows(self, replica_id: int) -> bool:
        """True if that node is a follower of this one."""
        return replica_id in self.followers

    def fetched(
        self, replica_id: int, offset: int, *, start_offset: int, leader_end: int, now_ms: int, broker_epoch: int
    ) -> None:
        """Notes that the follower has all from `start_offset` to `offset`. Refuses a fetch from before its restart."""
        follower = self.followers[replica_id]
        if broker_epoch < follower.broker_epoch:
            raise NotLeaderError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.leader_id, self.leader_epoch)
        follower.broker_epoch = broker_epoch
        follower.fetched(offset, start_offset, leader_end, now_ms)

    def all_have(self, end_offset: int) -> bool:
        """True if every follower has everything below the offset, in the ISR or not."""
        return all(follower.log_end_offset == end_offset for follower in self.followers.values())

    def may_join(self, replica_id: int, high_watermark: int) -> bool:
        """True if a follower outside the ISR has everything that it needs: all that is committed, and a part, or the
        beginning, of this leader epoch (Kafka's `isFollowerInSync`)."""
        end_offset = self.followers[replica_id].log_end_offset
        return replica_id not in self.isr and end_offset >= high_watermark and end_offset >= self.epoch_start_offset

    def propose(self, isr: tuple[int, ...]) -> None:
        """Notes a proposed ISR: from now on either this or the present one may be in force."""
        self.proposed = isr
        self._count_followers()

    def settle(self) -> None:
        """Ends the proposal, which has taken effect, or never will."""
        self.proposed = None
        self._count_followers()

    def set_joining(self, joining: frozenset[int]) -> None:
        """Sets the followers that are about to join."""
        self.joining = joining
        self._count_followers()

    def committed_end(self, own_end: int) -> int:
        """The first offset that a counted replica lacks; -1 until each has fetched. The leader has `own_end`."""
        end = own_end
        for follower in self.followers_in_sync:
            end = min(end, self.followers[follower].log_end_offset)
        return end

    def lacks_replicas(self, min_insync_replicas: int) -> bool:
        """True if too few are in sync. As in Kafka, all replicas are always enough (Partition.effectiveMinIsr)."""
        return len(self.isr) < min(min_insync_replicas, len(self.replicas))

    def succeeds(self, role: object) -> bool:
        """Copies the followers' states if this is the same leader epoch with another ISR.

        Returns True if it is.
        """
        if not isinstance(role, Leader) or role.leader_epoch != self.leader_epoch:
            return False
        self.epoch_start_offset = role.epoch_start_offset
        self.followers.update({it: known for it, known in role.followers.items() if it in self.followers})
        self.proposed = role.proposed
        self.joining = role.joining - set(self.isr)
        self._count_followers()
        return True


@final
@attrs.frozen
class Follower:
    """Another node leads, and this node has a replica. `leader_id` is -1 while no node leads."""

    leader_id: int
    leader_epoch: int
    is_alone: ClassVar[bool] = False
    epoch_start_offset: ClassVar[int] = 0
    """Only a leader must wait until its high watermark has reached the start of its epoch (KIP-207)."""

    def refusal(self, current_leader_epoch: int = NO_EPOCH) -> KafkaError:
        """The error for a client."""
        try:
            check_epoch(current_leader_epoch, self.leader_id, self.leader_epoch)
        except KafkaError as error:
            return error
        return NotLeaderError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.leader_id, self.leader_epoch)


@final
@attrs.frozen
class Absent:
    """This node has no replica, or none that it can use.

    `error` is NOT_LEADER_OR_FOLLOWER if the metadata names other nodes or the topic was deleted, and
    KAFKA_STORAGE_ERROR if the log dir of the replica is out of service.
    """

    leader_id: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
    is_alone: ClassVar[bool] = False

    def refusal(self, current_leader_epoch: int = NO_EPOCH) -> KafkaError:  # noqa: ARG002
        """The error for a client, with any epoch."""
        if self.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return NotLeaderError(self.error, self.leader_id, self.leader_epoch)
        return KafkaError(self.error)


Role = Leader | Follower | Absent


def role_of(
    node_id: int,
    *,
    leader_id: int,
    leader_epoch: int,
    replicas: Collection[int],
    isr: Collection[int],
    partition_epoch: int = 0,
) -> Role:
    """The role of `node_id` in a partition with this registration."""
    if node_id not in replicas:
        return Absent(leader_id, leader_epoch)
    if leader_id != node_id:
        return Follower(leader_id, leader_epoch)
    return Leader(leader_id, leader_epoch, tuple(replicas), tuple(isr), partition_epoch)

"""This node's role for a partition: leader, follower, or neither. Pure; `partition.py` acts on it.

The role follows from the metadata log (PartitionRecord); `role_of` reads it. Only a leader accepts appends and serves
clients. Its high watermark is the minimum over the in-sync replicas: a follower that fetches from an offset has
everything below it. With a single replica, it is the end of the leader's own log. As in Kafka's `Partition` and
`Replica`.
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
    """The client must find the leader again. Carries the leader as far as this node knows it (KIP-951)."""

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


@final
@attrs.define(eq=False)
class Leader:
    """This node leads. `replicas` and `isr` are node ids, including this node's."""

    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    _fetched: dict[int, int] = attrs.field(factory=dict)
    """The end of each follower's log, as its latest fetch in this leader epoch has shown it."""
    followers_in_sync: tuple[int, ...] = attrs.field(init=False)
    all_in_sync: bool = attrs.field(init=False)
    """Whether no replica lags: then no setting can ask for more replicas in sync."""

    def __attrs_post_init__(self) -> None:
        self.all_in_sync = len(self.isr) == len(self.replicas)
        self.followers_in_sync = tuple(it for it in self.isr if it != self.leader_id)

    @property
    def is_alone(self) -> bool:
        """Whether there is no other replica."""
        return len(self.replicas) == 1

    def follows(self, replica_id: int) -> bool:
        """Whether that node is a follower of this one."""
        return replica_id in self.replicas and replica_id != self.leader_id

    def fetched(self, replica_id: int, offset: int) -> None:
        """The follower has everything below `offset`."""
        self._fetched[replica_id] = offset

    def committed_end(self, own_end: int) -> int:
        """The first offset that some in-sync replica lacks; -1 until each has fetched. The leader has `own_end`."""
        end = own_end
        for follower in self.followers_in_sync:
            end = min(end, self._fetched.get(follower, _NOTHING_FETCHED))
        return end

    def lacks_replicas(self, min_insync_replicas: int) -> bool:
        """Kafka never asks for more than the partition has (Partition.effectiveMinIsr)."""
        return len(self.isr) < min(min_insync_replicas, len(self.replicas))

    def succeeds(self, role: object) -> None:
        """Keeps what was known about the followers if this is the same leader epoch with another ISR."""
        if isinstance(role, Leader) and role.leader_epoch == self.leader_epoch:
            self._fetched = role._fetched


@final
@attrs.frozen
class Follower:
    """Another node leads, and this node has a replica. `leader_id` is -1 while no node leads."""

    leader_id: int
    leader_epoch: int
    is_alone: ClassVar[bool] = False

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
        """The error for a client, whichever epoch it knows."""
        if self.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return NotLeaderError(self.error, self.leader_id, self.leader_epoch)
        return KafkaError(self.error)


Role = Leader | Follower | Absent


def role_of(
    node_id: int, *, leader_id: int, leader_epoch: int, replicas: Collection[int], isr: Collection[int]
) -> Role:
    """The role of `node_id` in a partition with this registration."""
    if node_id not in replicas:
        return Absent(leader_id, leader_epoch)
    if leader_id != node_id:
        return Follower(leader_id, leader_epoch)
    return Leader(leader_id, leader_epoch, tuple(replicas), tuple(isr))

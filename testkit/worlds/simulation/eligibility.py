"""The replicas that have the committed records, by the real events: the metadata log and the ends of nodes.

KIP-966 promises that no committed record is lost as long as one replica that had it has not stopped uncleanly, either
because it was in sync, or because it was when the high watermark stopped. The cluster cannot distinguish a kill from a
power cut, so both count. Only if no such replica is left may the last leader be elected. Then, and only if that one has
lost its power since it was in sync, the records that its log lacks are lost: that is a `Loss`, and the only one that is
forgiven.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto

import attrs
from kwire_protocol.internal.metadata_brokers import RegisterBrokerRecord
from kwire_protocol.internal.metadata_topics import PartitionChangeRecord, PartitionRecord

from kwire.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration
from kwire.metadata.records import MetadataRecord, decode_record

PartitionId = tuple[str, int]

MIN_INSYNC_REPLICAS = 2
"""The min.insync.replicas of all topics."""

CHECKS_CLOSELY_FOR_S, CLOSE_CHECK_INTERVAL_S = 0.1, 0.002
"""The duration and the interval of checks after an ISR has grown: its leader commits more before it notices that."""


class End(Enum):
    """The way in which a node's last process ended."""

    CLEAN = auto()
    KILLED = auto()
    WITHOUT_POWER = auto()


@attrs.frozen
class Loss:
    """Records that were written before this time, from this offset on, may be lost."""

    key: PartitionId
    offset: int
    at: float
    leader_epoch: int
    """The epoch in which the partition continues without them."""


@attrs.define(eq=False)
class Eligibility:
    ended: Callable[[int], End]
    log_end: Callable[[int, PartitionId], int | None]
    """Returns the log end of a node that runs."""
    committed: Callable[[PartitionId], int]
    """The highest of all high watermarks, so far."""
    now: Callable[[], float]
    after: Callable[[float, Callable[[], None]], None]
    """Calls something that many seconds later."""
    on_loss: Callable[[Loss], None]
    broken: str | None = None
    """The first promise that was not kept."""
    losses: list[Loss] = attrs.field(factory=list)
    unclean_elections: int = 0
    _image: MetadataImage = attrs.field(factory=MetadataImage)
    _have: dict[PartitionId, set[int]] = attrs.field(factory=dict)
    """The nodes that have everything that was committed, and can show it."""
    _forgetful: dict[PartitionId, set[int]] = attrs.field(factory=dict)
    """The nodes that have lost their power since they had everything."""

    def appended(self, values: Sequence[bytes]) -> None:
        """Notes records that were appended to the metadata log, in one decision."""
        for value in values:
            self._apply(decode_record(value))
        for topic in self._image.topics.values():
            for index, it in enumerate(topic.partitions):
                self._check((topic.name, index), it)

    def leads(self, key: PartitionId, node_id: int) -> bool:
        """True if the node is the leader in the metadata log, even if neither of them has read that yet."""
        found = self.leader(key)
        return found is not None and found[0] == node_id

    def leader(self, key: PartitionId) -> tuple[int, int] | None:
        """The node, and the leader epoch."""
        topic = self._image.topics.get(key[0])
        if topic is None:
            return None
        it = topic.partitions[key[1]]
        return it.leader, it.leader_epoch

    def check(self) -> None:
        """Checks that each replica in sync has the committed records, at any time: it may be elected at any time."""
        for topic in self._image.topics.values():
            for index, it in enumerate(topic.partitions):
                self._check_in_sync((topic.name, index), it)

    def _check_closely(self, key: PartitionId, until: float) -> None:
        self._check_in_sync(key, self._image.topics[key[0]].partitions[key[1]])
        if self.now() < until:
            self.after(CLOSE_CHECK_INTERVAL_S, lambda: self._check_closely(key, until))

    def _check_in_sync(self, key: PartitionId, it: PartitionRegistration) -> None:
        end = self.committed(key)
        for node_id in it.isr:
            own_end = self.log_end(node_id, key)
            if own_end is not None and own_end < end:
                self._break(f"{it.isr} are in sync in {key}; node {node_id} has {own_end} of {end} committed")

    def _apply(self, record: MetadataRecord) -> None:
        before = self._registered(record)
        self._image.apply(record, offset=self._image.offset + 1)
        after = self._registered(record)
        if isinstance(record, RegisterBrokerRecord):
            self._started(record.broker_id)
        if after is not None:
            key, registration = after
            if before is None:
                self._have[key], self._forgetful[key] = set(), set()
            elif registration.leader_epoch != before[1].leader_epoch:
                if before[1].removing_replicas and not registration.removing_replicas:
                    # The leader's proposal has ended a reassignment, so a newcomer may lead from the same record on.
                    self._have[key] |= {*registration.isr}
                self._elected(key, registration)
            self._commit(key, registration)
            if before is not None and not {*registration.isr} <= {*before[1].isr}:
                self._check_closely(key, self.now() + CHECKS_CLOSELY_FOR_S)
            else:
                self._check_in_sync(key, registration)

    def _registered(self, record: MetadataRecord) -> tuple[PartitionId, PartitionRegistration] | None:
        if isinstance(record, (PartitionRecord, PartitionChangeRecord)):
            topic = self._image.topics_by_id[record.topic_id]
            if record.partition_id < len(topic.partitions):
                return (topic.name, record.partition_id), topic.partitions[record.partition_id]
        return None

    def _started(self, node_id: int) -> None:
        end = self.ended(node_id)
        if end is End.CLEAN:
            return
        for key, have in self._have.items():
            if end is End.WITHOUT_POWER:
                self._forgetful[key].add(node_id)
            have.discard(node_id)

    def _elected(self, key: PartitionId, it: PartitionRegistration) -> None:
        have = self._have[key]
        if it.leader in (NO_LEADER, *have):
            return
        if have:
            self._break(f"node {it.leader} leads {key}, but {sorted(have)} have what was committed")
        self.unclean_elections += 1
        if it.leader in self._forgetful[key]:
            loss = Loss(key, self.log_end(it.leader, key) or 0, self.now(), it.leader_epoch)
            self.losses.append(loss)
            self.on_loss(loss)

    def _commit(self, key: PartitionId, it: PartitionRegistration) -> None:
        """Notes the replicas that have all committed records, if as many as possible are committed."""
        if len(it.isr) >= min(MIN_INSYNC_REPLICAS, len(it.replicas)):
            self._have[key] = {*it.isr}
        else:
            self._have[key] = (self._have[key] | {*it.isr}) & {*it.replicas}  # an operator may remove who has it
        self._forgetful[key] -= {*it.isr}

    def _check(self, key: PartitionId, it: PartitionRegistration) -> None:
        lacking = {*it.isr, *it.eligible_leader_replicas} - self._have[key]
        if lacking:
            self._break(f"{sorted(lacking)} may lead {key}, and may lack what was committed: {it}")

    def _break(self, what: str) -> None:
        self.broken = self.broken or what

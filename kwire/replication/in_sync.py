"""The leader's side of replication: the followers that are in sync, and the changes of the ISR.

    joins     a follower outside the ISR has fetched everything committed, in this leader epoch
    leaves    a member has not had everything for replica.lag.time.max.ms; checked twice in that time

A change is proposed (`metadata/controller/partitions/isr_changes.py`), one at a time for each partition, and several
partitions share a decision. From the proposal until its outcome is known, the high watermark counts every replica that
may be in the ISR (KIP-497): one that joins counts at once, and one that leaves counts until that is in the log. If the
proposal is refused, the partition is checked again. As in Kafka's `Partition` and `AlterPartitionManager`.

This module reads no clock: times are monotonic and in ms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.controller.partitions.isr_changes import IsrProposal, change_isrs, is_eligible
from kwire.metadata.service import MetadataService
from kwire.replicas.partition import Partition
from kwire.replicas.roles import Leader
from kwire.runtime.futures import drive

log = logging.getLogger(__name__)

MOST_PROPOSALS = 1000
"""The maximum number of proposals in one decision; the others are in the next ones."""


@attrs.define(eq=False)
class InSyncReplicas:
    """Maintains the ISR of every partition that this node leads; an `IsrDriver`. `max_lag_ms` returns the current
    replica.lag.time.max.ms."""

    metadata: MetadataService
    max_lag_ms: Callable[[], int]
    _proposed: dict[Partition, IsrProposal] = attrs.field(factory=dict)
    """The proposals to be decided next."""
    _is_deciding: bool = False
    _is_reconciling: bool = False
    """True during `reconcile`, whose proposals are decided together."""

    def fetched(self, partition: Partition, role: Leader, replica_id: int, now_ms: int) -> None:
        """Lets a follower outside the ISR, which has fetched, join if it has everything committed."""
        follower = role.followers[replica_id]
        if not self._is_eligible(replica_id, follower.broker_epoch):
            return
        if follower.is_caught_up(partition.log_end_offset, now_ms, self.max_lag_ms()):
            partition.set_joining(role.joining | {replica_id})
        if role.proposed is None and role.may_join(replica_id, partition.high_watermark):
            self._propose(partition, role, (*role.isr, replica_id))

    def is_alive(self, node_id: int) -> bool:
        broker = self.metadata.image.brokers.get(node_id)
        return broker is not None and not broker.fenced

    def reconcile(self, partitions: Iterable[Partition], now_ms: int) -> None:
        """Removes followers that have been behind for too long. Called every replica.lag.time.max.ms / 2."""
        self._is_reconciling = True
        for partition in partitions:
            role = partition.role
            if type(role) is not Leader or role.is_alone:
                continue
            if role.joining or not role.all_have(partition.log_end_offset):  # or else no follower is behind
                self._reconcile(partition, role, now_ms)
        self._is_reconciling = False
        self._begin_to_decide()

    def _reconcile(self, partition: Partition, role: Leader, now_ms: int) -> None:
        end_offset, max_lag_ms = partition.log_end_offset, self.max_lag_ms()

        def is_in_time(replica_id: int) -> bool:
            return role.followers[replica_id].is_caught_up(end_offset, now_ms, max_lag_ms)

        for follower in role.followers.values():
            follower.begin_time(now_ms)  # if it has not fetched yet in this leader epoch
        if role.joining:
            partition.set_joining(
                frozenset(
                    it
                    for it in role.joining
                    if is_in_time(it) and self._is_eligible(it, role.followers[it].broker_epoch)
                )
            )
        if role.proposed is not None:
            return
        isr = tuple(it for it in role.isr if it == role.leader_id or is_in_time(it))
        if len(isr) < len(role.isr):
            behind = {it: role.followers[it].log_end_offset for it in role.isr if it not in isr}
            log.info(
                "%s-%d: nodes %s are behind, where the log ends at %d: they leave the ISR",
                partition.topic,
                partition.index,
                ", ".join(f"{it} (at offset {offset})" for it, offset in behind.items()),
                end_offset,
            )
            self._propose(partition, role, isr)

    def _is_eligible(self, node_id: int, broker_epoch: int) -> bool:
        return is_eligible(self.metadata.image.brokers.get(node_id), broker_epoch)

    def _propose(self, partition: Partition, role: Leader, isr: tuple[int, ...]) -> None:
        followers = role.followers
        epochs = {it: followers[it].broker_epoch if it in followers else -1 for it in isr}
        self._proposed[partition] = IsrProposal(
            partition.topic_id, partition.index, role.leader_epoch, role.partition_epoch, epochs
        )
        partition.propose_isr(isr)
        if not self._is_reconciling:
            self._begin_to_decide()

    def _begin_to_decide(self) -> None:
        if self._proposed and not self._is_deciding:
            self._is_deciding = True
            drive(self._decide())

    async def _decide(self) -> None:
        try:
            while self._proposed:
                taken = list(self._proposed.items())[:MOST_PROPOSALS]
                for partition, _ in taken:
                    del self._proposed[partition]
                if not await self._decide_on(taken):
                    return
        finally:
            self._is_deciding = False

    async def _decide_on(self, taken: list[tuple[Partition, IsrProposal]]) -> bool:
        """Returns False if the outcome of the proposals is unknown; the next `reconcile` proposes them again."""
        proposals = [proposal for _, proposal in taken]
        try:
            errors = await self.metadata.change(change_isrs, self.metadata.node_id, proposals)
        except KafkaError as error:
            # It may have been recorded nevertheless, so they count for the high watermark until it is known.
            log.error("changes of the ISR of %d partitions cannot be recorded: %s", len(taken), error)
            for partition, proposal in taken:
                self._proposed.setdefault(partition, proposal)
            return False
        for (partition, proposal), code in zip(taken, errors, strict=True):
            if code is not ErrorCode.NONE:
                log.debug("%s-%d: the ISR %s is refused: %s", partition.topic, partition.index, [*proposal.isr], code)
            if partition not in self._proposed:  # or else there is one of a later leader epoch
                partition.settle_isr()
        return True

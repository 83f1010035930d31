"""The records that brokers have reported as committed: they are the same on all of them, for ever."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from kwire_protocol.records import read_header

from kwire.replicas.partition import Partition
from kwire.replicas.roles import Absent, Leader
from testkit.worlds.simulation.eligibility import MIN_INSYNC_REPLICAS, Loss, PartitionId
from testkit.worlds.simulation.node import Process


class BrokenPromise(AssertionError):
    """A violation of a cluster's promises."""


@attrs.define(eq=False)
class History:
    """Call `check` often. It reads only what is new."""

    committed: dict[PartitionId, dict[int, bytes]] = attrs.field(factory=dict)
    """Batches by their base offsets."""
    ends: dict[PartitionId, int] = attrs.field(factory=dict)
    _leaders: dict[tuple[PartitionId, int], int] = attrs.field(factory=dict)
    """The leader of each leader epoch."""
    _lacking: dict[PartitionId, tuple[int, int, int]] = attrs.field(factory=dict)
    """The partitions whose leader had too few replicas in sync at the last check: its epoch, the partition's, high
    watermark.
    """
    _losses: dict[PartitionId, list[Loss]] = attrs.field(factory=dict)
    _seen: dict[tuple[Process, PartitionId], tuple[Partition, int]] = attrs.field(factory=dict)
    """Up to where a process's log was compared."""

    def lose(self, loss: Loss) -> None:
        """Notes a loss: records from its offset on are not committed any more."""
        key, offset = loss.key, loss.offset
        self._losses.setdefault(key, []).append(loss)
        self._lacking.pop(key, None)
        committed = self.committed.get(key, {})
        last = max((base for base in committed if base < offset), default=offset)
        if last < offset < read_header(committed[last]).next_offset:
            # The new leader's log begins within this batch. A follower is cut in front of the whole batch.
            offset = last
        self.committed[key] = {base: it for base, it in committed.items() if base < offset}
        self.ends[key] = min(self.ends.get(key, 0), offset)
        for seen, (partition, seen_to) in self._seen.items():
            if seen[1] == key:
                self._seen[seen] = partition, min(seen_to, offset)

    def has_lost(self, key: PartitionId, partition: Partition) -> bool:
        """True if this replica has continued without the lost records, if there are any."""
        return all(_has_lost(loss, partition) for loss in self._losses.get(key, ()))

    def check(self, processes: Iterable[Process]) -> None:
        for process in processes:
            for partition in process.broker.partitions:
                self._check_partition(process, partition)

    def _check_partition(self, process: Process, partition: Partition) -> None:
        node_id, key, role = process.node.node_id, (partition.topic, partition.index), partition.role
        if not self.has_lost(key, partition):
            return
        if type(role) is Leader:
            known = self._leaders.setdefault((key, role.leader_epoch), node_id)
            if known != node_id:
                raise BrokenPromise(f"nodes {known} and {node_id} both lead {key} in epoch {role.leader_epoch}")
            self._check_isr(key, role, partition.high_watermark)
        elif any(not acknowledgement.is_set for _, _, acknowledgement in partition._acknowledgements.waiting):
            raise BrokenPromise(f"node {node_id} does not lead {key}, and lets those wait who wrote when it did")
        high_watermark, end = partition.high_watermark, partition.log_end_offset
        if not partition.log_start_offset <= high_watermark <= end:
            raise BrokenPromise(
                f"node {node_id}: the high watermark of {key} is {high_watermark}, its log ends at {end}"
            )
        if partition.last_stable_offset > high_watermark:
            raise BrokenPromise(f"node {node_id}: {key} is stable above the high watermark")
        seen = self._seen.get((process, key))
        seen_to = seen[1] if seen is not None and seen[0] is partition else 0
        if high_watermark < seen_to:
            raise BrokenPromise(f"node {node_id}: the high watermark of {key} went from {seen_to} to {high_watermark}")
        if end < seen_to:
            raise BrokenPromise(f"node {node_id}: {key} ends at {end}, and was committed up to {seen_to}")
        if seen_to < high_watermark:
            self._compare(node_id, key, partition, seen_to, high_watermark)
            self._seen[process, key] = partition, high_watermark

    def _check_isr(self, key: PartitionId, role: Leader, high_watermark: int) -> None:
        before = self._lacking.pop(key, None)
        if len(role.isr) < MIN_INSYNC_REPLICAS:
            # With another partition epoch there was another ISR in between.
            self._lacking[key] = role.leader_epoch, role.partition_epoch, high_watermark
            if before is not None and before[:2] == self._lacking[key][:2] and before[2] < high_watermark:
                raise BrokenPromise(f"{key} committed up to {high_watermark} with {role.isr} in sync")

    def _compare(self, node_id: int, key: PartitionId, partition: Partition, start: int, end: int) -> None:
        committed = self.committed.setdefault(key, {})
        known_end = self.ends.get(key, 0)
        for header, piece in partition.log.batches(start):
            base = header.base_offset
            if base >= end:
                break
            batch = piece.read()
            if base >= known_end:
                committed[base] = batch
            elif committed.get(base) != batch:
                raise BrokenPromise(
                    f"node {node_id}: {key} has another batch at offset {base} than what was committed there "
                    f"({len(batch)} bytes of epoch {header.partition_leader_epoch})"
                )
        self.ends[key] = max(known_end, end)

    def check_whole(self, process: Process) -> None:
        """Checks from the beginning that records below a high watermark have not changed, and that none is lost."""
        for partition in process.broker.partitions:
            key = partition.topic, partition.index
            self._seen.pop((process, key), None)
            self._check_partition(process, partition)
            if partition.high_watermark < self.ends.get(key, 0):
                raise BrokenPromise(
                    f"node {process.node.node_id}: {key} is committed up to {partition.high_watermark}, "
                    f"and was up to {self.ends[key]}"
                )


def _has_lost(loss: Loss, partition: Partition) -> bool:
    role = partition.role
    if isinstance(role, Absent) or role.leader_epoch < loss.leader_epoch:
        return False
    epochs = partition.log.leader_epochs.entries
    return partition.log_end_offset <= loss.offset or bool(epochs and epochs[-1][0] >= loss.leader_epoch)

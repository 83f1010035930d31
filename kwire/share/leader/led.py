"""A share partition together with the log that it delivers, and the ShareFetches that wait for it.

It lives as long as this broker leads the partition in one leader epoch. Every event that can end that, or that allows
to fetch more, wakes the waiters of the partition, and this is one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_storage.log.slices import LogSlice

from kwire.replicas.roles import Leader, NotLeaderError
from kwire.runtime.futures import Waiter
from kwire.share.coordinator.state import SharePartitionKey
from kwire.share.leader.reading import ReadBatches, read_batches
from kwire.share.leader.share_partition import SharePartition
from kwire.share.leader.states import ARCHIVING

if TYPE_CHECKING:
    from kwire.replicas.partition import Partition
    from kwire.replicas.partition_log import LogRead


@attrs.define(eq=False)
class LedSharePartition:
    """A share partition at its leader. `on_change` is called with it when its partition has changed."""

    key: SharePartitionKey
    partition: Partition
    machine: SharePartition
    on_change: Callable[[LedSharePartition], None]
    waiters: dict[Waiter, None] = attrs.field(factory=dict)
    """The ShareFetches that wait for more records, or for the end of the share partition."""
    ended: KafkaError | None = None
    """The error once nothing can be fetched from it any more."""
    writes: int = 0
    """The number of writes under way to the share coordinator."""
    failed_copies: int = 0
    """The number of consecutive failed copies of dead letters."""
    is_unused: bool = False
    """True if the group has no session here any more."""

    def wake(self) -> None:
        """Called by the partition."""
        self.on_change(self)

    def wake_fetches(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.wake()

    @property
    def leads(self) -> bool:
        """True if this broker still leads the partition, in the same leader epoch."""
        role = self.partition.role
        return type(role) is Leader and role.leader_epoch == self.machine.leader_epoch

    def not_leader(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> KafkaError:
        """Returns the error with the current leader, if this broker has it in its metadata (KIP-951)."""
        role = self.partition.role
        return NotLeaderError(code, role.leader_id, role.leader_epoch)

    @property
    def has_dead_letters(self) -> bool:
        """True if records are still to be copied to the dead-letter topic."""
        return any(run.state is ARCHIVING for batch in self.machine.in_flight.batches for run in batch.runs)

    def can_acquire(self) -> bool:
        return self.ended is None and self.machine.can_acquire()

    def read(self, *, max_bytes: int, is_first: bool, committed: bool) -> LogRead:
        """Returns the records that can be fetched now; of size 0 if there are none. Raises KafkaError."""
        partition = self.partition
        partition.leader()
        return partition.read(
            self.machine.next_fetch_offset,
            max_bytes=max_bytes,
            max_offset=partition.last_stable_offset if committed else partition.high_watermark,
            min_one_batch=is_first,
        )

    def batches(self, piece: LogSlice, offset: int, *, max_records: int, committed: bool) -> ReadBatches:
        """Returns the batches of a piece that was read at `offset`, up to `max_records` that could be acquired."""
        machine = self.machine
        beyond = min(max_records, machine.limits.max_in_flight_records)
        until = max(machine.end_offset, offset - 1) + beyond
        return read_batches(self.partition, piece, offset, until, committed=committed)

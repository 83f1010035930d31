"""The fetch of one share session: reads what its member may acquire, and waits until that is enough (KIP-932).

A fetch that finds less than min_bytes, or nothing that the member may acquire, waits for a change of its share
partitions, for its deadline, or for input on its connection. max_bytes are divided equally among the partitions that
have something to acquire (Kafka's PartitionMaxBytesStrategy).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.wire import Uuid
from kwire_storage.log.slices import LogSlice

from kwire.runtime.futures import ParkedFetch
from kwire.share.leader.acquiring import AcquiredRange
from kwire.share.leader.led import LedSharePartition
from kwire.share.leader.sessions import SessionKey, SharedPartition
from kwire.share.leader.states import AcquireMode

if TYPE_CHECKING:
    from kwire.replicas.partition import Partition
    from kwire.runtime.clock import Clock
    from kwire.share.leader.service import SharingService

Find = Callable[[Uuid, int], "Partition"]
"""Returns a partition. Raises KafkaError if the client may not read it, or if it does not exist."""


@attrs.frozen
class FetchLimits:
    """The limits and minimums in a request. `batch_size` is the size of the acquired ranges."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode


class _Found(NamedTuple):
    fetch: SharedFetch
    led: LedSharePartition
    offset: int
    piece: LogSlice


@attrs.define(eq=False)
class SharedFetch:
    """One partition of a fetch: its share partition, or the error; and the acquired records."""

    shared: SharedPartition
    led: LedSharePartition | None = None
    error: KafkaError | None = None
    acquired: Sequence[AcquiredRange] = ()
    records: LogSlice | None = None
    """Whole batches with the acquired records."""

    @property
    def failure(self) -> KafkaError | None:
        """The error of the partition, unless something was acquired."""
        if self.acquired:
            return None
        return self._why_not

    @property
    def _why_not(self) -> KafkaError | None:
        if self.error is None and self.led is not None:
            return self.led.ended
        return self.error

    @property
    def is_possible(self) -> bool:
        return self._why_not is None


@attrs.define(eq=False)
class ShareFetching:
    """The fetch of one request. `partitions` are in the order of the session, `_rotated` in that of this request."""

    _sharing: SharingService
    _clock: Clock
    _member: SessionKey
    _limits: FetchLimits
    _committed: bool
    partitions: Sequence[SharedFetch]
    _rotated: Sequence[SharedFetch]

    @classmethod
    def begin(
        cls,
        sharing: SharingService,
        clock: Clock,
        member: SessionKey,
        shared: Iterable[SharedPartition],
        find: Find,
        limits: FetchLimits,
        *,
        rotation: int,
    ) -> ShareFetching:
        """Finds the share partitions, and begins to initialize new ones.

        `rotation` counts the requests of the session: each begins with the next partition (Kafka's
        PartitionRotateStrategy).
        """
        partitions: list[SharedFetch] = []
        for it in shared:
            fetch = SharedFetch(it)
            try:
                fetch.led = sharing.lead(member.group_id, find(*it))
            except KafkaError as error:
                fetch.error = error
            partitions.append(fetch)
        first = rotation % len(partitions) if partitions else 0
        rotated = [*partitions[first:], *partitions[:first]]
        committed = sharing.settings(member.group_id).reads_committed
        return cls(sharing, clock, member, limits, committed, partitions, rotated)

    async def run(self) -> None:
        """Returns when it has acquired records, or when its wait is over."""
        monotonic_ms = self._clock.monotonic_ms
        deadline_ms = monotonic_ms() + self._limits.max_wait_ms
        is_over = False
        while any(it.is_possible for it in self.partitions):
            found, is_enough = await self._read()
            left_ms = deadline_ms - monotonic_ms()
            if is_enough or is_over or left_ms <= 0:
                self._acquire(found)
                return
            # Other members may have acquired records meanwhile, so the partitions are read again in any case.
            is_over = not await self._change(left_ms / 1000)

    async def _read(self) -> tuple[list[_Found], bool]:
        """Returns the records that may be acquired, and True if they are enough."""
        waiting = [
            (it, it.led) for it in self._rotated if it.error is None and it.led is not None and it.led.can_acquire()
        ]
        if not waiting:
            return [], False
        max_bytes = max(self._limits.max_bytes // len(waiting), 0)
        found: list[_Found] = []
        size = 0
        for it, led in waiting:
            try:
                offset = led.machine.next_fetch_offset
                read = led.read(max_bytes=max_bytes, is_first=not size, committed=self._committed)
                piece = await led.partition.arrived(read)
            except KafkaError as error:
                # Out of range: a leader that has lost the end of the log. It has to wait for more records.
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    it.error = error
                continue
            if piece.size:
                found.append(_Found(it, led, offset, piece))
                size += piece.size
        return found, size >= self._limits.min_bytes

    async def _change(self, timeout_s: float) -> bool:
        """Waits for a change of any share partition. Returns False if there was none in time."""
        parked = ParkedFetch(timeout_s)
        watched = [it.led for it in self.partitions if it.led is not None and it.is_possible]
        for led in watched:
            led.waiters[parked] = None
        try:
            return await parked
        finally:
            for led in watched:
                led.waiters.pop(parked, None)

    def _acquire(self, found: Sequence[_Found]) -> None:
        limits = self._limits
        left = limits.max_records
        for it, led, offset, piece in found:
            if left <= 0:
                return
            if led.machine.next_fetch_offset != offset or not led.can_acquire():
                continue  # another fetch has acquired them, while this one waited for a log
            try:
                read = led.batches(piece, offset, max_records=left, committed=self._committed)
            except KafkaError as error:
                it.error = error
                continue
            acquired = self._sharing.acquire(
                led,
                self._member.member_id,
                read.fetched,
                max_records=left,
                batch_size=limits.batch_size,
                mode=limits.mode,
            )
            if acquired:
                it.records = read.slice(acquired[0].first_offset, acquired[-1].last_offset)
                it.acquired = acquired
                left -= sum(it.last_offset - it.first_offset + 1 for it in acquired)

"""A topic that the broker writes for itself (`__consumer_offsets`) as keyed records: append, and replay at start.

The bytes are ordinary record batches in an ordinary partition, so that consumers and Kafka's dump tool can read them.
The topic is created by the first append or `ensure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import Record, build_batch, iter_records, read_header

from kwire.clock import Clock
from kwire.produce_validation import MAX_DECOMPRESSED_BATCH_BYTES

if TYPE_CHECKING:
    from kwire.partition import Partition
    from kwire.partitions import PartitionTable

KeyedRecord = tuple[bytes, bytes | None]
"""Key and value; a value of None is a tombstone."""


@attrs.define(eq=False)
class InternalTopic:
    """`create(name)` makes the topic through the metadata log and returns when its partitions are there."""

    name: str
    partitions: PartitionTable
    clock: Clock
    create: Callable[[str], object]

    @property
    def exists(self) -> bool:
        return self.name in self.partitions.by_name

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; it is created if need be. Raises KafkaError(COORDINATOR_NOT_AVAILABLE)."""
        self.ensure()
        return len(self.partitions.by_name[self.name])

    def ensure(self) -> None:
        """Creates the topic unless it is there. Raises KafkaError(COORDINATOR_NOT_AVAILABLE)."""
        if not self.exists:
            try:
                self.create(self.name)
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error

    def is_offline(self, index: int) -> bool:
        """Whether the log folder of partition `index` is out of service."""
        return self._partition(index).closed

    def append(self, index: int, records: Sequence[KeyedRecord]) -> int:
        """Appends `records` as one batch to partition `index`; returns its base offset.

        Tombstones alone are taken on a full disk too: they belong to a deletion. Raises KafkaError as
        `Partition.append_checked` does.
        """
        self.ensure()
        now_ms = self.clock.now_ms()
        batch = memoryview(
            bytearray(
                build_batch([Record(delta, now_ms, key, value, []) for delta, (key, value) in enumerate(records)])
            )
        )
        only_tombstones = records[0][1] is None and all(value is None for _, value in records)
        result = self._partition(index).append_checked(
            batch, read_header(batch), now_ms=now_ms, necessary=only_tombstones
        )
        return result.base_offset

    async def flushed(self, index: int) -> None:
        """Returns when what was appended to partition `index` is as durable as the topic's configuration asks.

        Raises KafkaError(KAFKA_STORAGE_ERROR) when that cannot be had.
        """
        partition = self._partition(index)
        if partition.log_end_offset > partition.flush_gate.held_from:
            error = await partition.flush_gate.when_flushed(partition.log_end_offset - 1)
            if error is not None:
                raise error

    def replay(self, index: int) -> Iterator[Record]:
        """Every data record of partition `index`, oldest first; none where the topic is not there yet.

        Raises CorruptLogError when it is not all there.
        """
        if not self.exists:
            return
        for header, piece in self._partition(index).log.batches():
            if not header.is_control:
                yield from iter_records(memoryview(piece.read()), max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES)

    def _partition(self, index: int) -> Partition:
        return self.partitions.find(self.name, index)

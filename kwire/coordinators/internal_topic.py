"""A topic that the broker writes for itself (such as `__consumer_offsets`), as keyed records: appends and replay.

The bytes are ordinary record batches in an ordinary partition, so consumers and Kafka's dump tool can read them.
Records appended for a producer are part of its transaction: they take effect with its commit marker. A replay returns
records and markers in log order. `ensure` creates the topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.records import (
    NO_PRODUCER_ID,
    BatchHeader,
    InvalidBatch,
    Record,
    build_batch,
    iter_records,
    read_header,
)
from kwire_storage.errors import CorruptLogError
from kwire_storage.producers.markers import decode_marker

from kwire.coordinators.effects import KeyedRecord
from kwire.replicas.acknowledging import ALL_IN_SYNC, Acknowledgement
from kwire.replicas.roles import NO_EPOCH, Absent, Leader, Role
from kwire.replicas.validation import MAX_DECOMPRESSED_BATCH_BYTES
from kwire.runtime.clock import Clock
from kwire.runtime.futures import Future

if TYPE_CHECKING:
    from kwire.replicas.partition import Partition
    from kwire.replicas.table import PartitionTable

log = logging.getLogger(__name__)

Producer = tuple[int, int]
"""Producer id and epoch."""


_ANY_RECORD = Record(0, 0, None, None, [])


class LoggedRecord(NamedTuple):
    """One data record; `producer_id` is -1 unless it belongs to a transaction."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int


class EndedTransaction(NamedTuple):
    """The producer's transaction ended here."""

    producer_id: int
    committed: bool


@attrs.define(eq=False)
class InternalTopic:
    """`create(name)` creates the topic through the metadata log and returns when its partitions exist."""

    name: str
    partitions: PartitionTable
    clock: Clock
    create: Callable[[str], Coroutine[Future[Any], None, None]]
    _refused: str | None = attrs.field(default=None, init=False)
    """The error of the last failed creation, which has been logged."""

    @property
    def exists(self) -> bool:
        return self.name in self.partitions.by_name

    @property
    def partition_count(self) -> int:
        """The topic's number of partitions. The topic must exist."""
        return len(self.partitions.by_name[self.name])

    async def ensure(self) -> None:
        """Creates the topic if it does not exist. Raises KafkaError(COORDINATOR_NOT_AVAILABLE)."""
        if not self.exists:
            try:
                await self.create(self.name)
            except KafkaError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return  # another caller has created it at the same time
                if error.message != self._refused:  # clients send FindCoordinator again and again
                    self._refused = error.message
                    log.warning(
                        "%s cannot be created, and without it there is no coordinator: %s", self.name, error.message
                    )
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
            self._refused = None

    def role(self, index: int) -> Role:
        """This node's role for partition `index`."""
        partition = self.partitions.by_name[self.name][index]
        return partition if isinstance(partition, Absent) else partition.role

    def leader_epoch(self, index: int) -> int | None:
        """The epoch in which this node leads partition `index`; None if it does not lead."""
        role = self.role(index)
        return role.leader_epoch if isinstance(role, Leader) else None

    def is_offline(self, index: int) -> bool:
        """True if the log dir of partition `index` is out of service."""
        role = self.role(index)
        return isinstance(role, Absent) and role.error is ErrorCode.KAFKA_STORAGE_ERROR

    def append(
        self,
        index: int,
        records: Sequence[KeyedRecord],
        *,
        producer: Producer | None = None,
        leader_epoch: int = NO_EPOCH,
    ) -> int:
        """Appends `records` as one batch to partition `index`, if led in that epoch; returns the base offset.

        With a `producer` they are part of its transaction. A batch of only tombstones is accepted on a full disk too,
        since it belongs to a deletion. Raises KafkaError as `Partition.leader` and `Partition.append` do.
        """
        now_ms = self.clock.now_ms()
        logged = [Record(delta, now_ms, key, value, []) for delta, (key, value) in enumerate(records)]
        partition = self._partition(index)
        if leader_epoch not in (NO_EPOCH, partition.role.leader_epoch):
            partition.leader(leader_epoch)  # raises
        if producer is not None:
            producer_id, epoch = producer
            batch = memoryview(
                bytearray(build_batch(logged, producer_id=producer_id, producer_epoch=epoch, transactional=True))
            )
            return partition.append(batch, read_header(batch), acks=-1, now_ms=now_ms).base_offset
        batch = memoryview(bytearray(build_batch(logged)))
        only_tombstones = records[0][1] is None and all(value is None for _, value in records)
        return partition.append_own(batch, read_header(batch), now_ms=now_ms, necessary=only_tombstones).base_offset

    async def committed(self, index: int) -> None:
        """Returns when the records appended to partition `index` are committed: see `Partition.when_committed`.

        Raises KafkaError if that cannot happen.
        """
        future = self.when_committed(index)
        error = None if future is None else await future
        if error is not None:
            raise error

    def is_committed(self, index: int) -> bool:
        """True if all records of partition `index` are committed. Raises KafkaError as `PartitionTable.find`."""
        partition = self.partitions.find(self.name, index)
        return partition.high_watermark >= partition.log.log_end_offset

    def when_committed(self, index: int) -> Acknowledgement | None:
        """Returns a future for None or the error that `committed` would raise; None if there is nothing to wait for."""
        partition = self.partitions.find(self.name, index)
        return partition.when_committed(partition.log_end_offset - 1, ALL_IN_SYNC)

    def unreadable(self, index: int, error: OSError) -> KafkaError:
        """Partition `index` could not be read. If the disk has failed, its log dir goes out of service."""
        return self._partition(index).storage_error(error)

    def begin_verification(self, index: int, producer: Producer, *, adds: bool) -> Callable[[], bool]:
        """Called before a request about partition `index` to the transaction's coordinator on another node.

        Returns a function that returns True if no marker of the producer was appended since: otherwise the
        coordinator's answer is void. Raises KafkaError as `Partition.begin_verification`.
        """
        partition = self._partition(index)
        header = read_header(
            build_batch([_ANY_RECORD], producer_id=producer[0], producer_epoch=producer[1], transactional=True)
        )
        begun = partition.begin_verification(header, adds=adds, now_ms=self.clock.now_ms())
        return lambda: partition.verifies(begun)

    def watch_markers(self, index: int, on_marker: Callable[[int, bool], None]) -> None:
        """Calls `on_marker` for each marker appended from now on, with the producer id and whether it is a commit."""
        self._partition(index).on_marker = on_marker

    def replay(
        self, index: int, start_offset: int = 0
    ) -> Iterator[tuple[int, Iterator[LoggedRecord | EndedTransaction]]]:
        """Yields each batch of partition `index` from that offset on: the offset after it, and its contents.

        The contents may be read later, when the log has changed. Raises CorruptLogError if a part is missing, then too;
        OSError.
        """
        for header, piece in self._partition(index).log.batches(start_offset):
            batch = memoryview(piece.read())
            content: Iterator[LoggedRecord | EndedTransaction]
            if header.is_control:
                marker = decode_marker(batch, 0, header)
                content = iter([] if marker is None else [EndedTransaction(header.producer_id, marker.committed)])
            else:
                content = _records(header, batch)
            yield header.last_offset + 1, content

    def _partition(self, index: int) -> Partition:
        return self.partitions.find(self.name, index)


def _records(header: BatchHeader, batch: memoryview) -> Iterator[LoggedRecord]:
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    try:
        for record in iter_records(batch, max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES):
            value = None if record.value is None else bytes(record.value)
            yield LoggedRecord(record.offset, bytes(record.key or b""), value, producer_id)
    except InvalidBatch as error:
        raise CorruptLogError(f"the batch at offset {header.base_offset}: {error}") from error

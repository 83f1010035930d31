"""Records of one partition, from one offset to another, as fast as they can be decoded.

While the caller processes one response, the next fetch is already in flight. The reader has its own connection, because
a fetch may wait at the broker for more records, and requests behind it would wait too.

Batches are slices of the response, with the bytes that are on the broker's disk. The response stays in memory as long
as any of its batches is referenced. Records are decoded on demand, and are copies.

Offsets between two batches, or two records, may be missing: compaction removed them, or they were markers. The caller
does not notice leaders that move or brokers that restart, unless it takes longer than the cluster's timeout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import attrs
from kwire_protocol.conversation import Ticket
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import quoted
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kwire_protocol.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    InvalidBatch,
    Record,
    check_batch,
    iter_records,
)
from kwire_protocol.wire import NULL_UUID, Uuid

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.committed import visible_batches
from kwire.client.connection import BrokerConnection
from kwire.client.errors import ClientError, Refused, UnknownTopic, refused
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets

DEFAULT_FETCH_BYTES: Final = 4 << 20
DEFAULT_MAX_WAIT_MS: Final = 500
_LAST_WITH_TOPIC_NAMES: Final = 12


class OffsetOutOfRange(Refused):
    """The partition does not have the offset, or no longer: it has `earliest` up to, but not including, `latest`."""

    def __init__(self, at: TopicPartition, offset: int, earliest: int, latest: int) -> None:
        super().__init__(
            f"offset {offset} of {at} is out of range: it has {earliest} up to, and without, {latest}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
        self.offset = offset
        self.earliest = earliest
        self.latest = latest
        self.may_pass = False


class EndNotReached(ClientError):
    """No more records came within the cluster's timeout, before the requested end."""


class CorruptRecords(ClientError):
    """The records that the broker sent are invalid or cannot be decoded."""


class TopicReplaced(UnknownTopic):
    """The topic was deleted; another topic has its name now."""


@attrs.frozen(eq=False)
class Batch:
    """A batch of records: `data` are its bytes, header included. Only the offsets from `start` to `stop` count."""

    at: TopicPartition
    header: BatchHeader
    data: memoryview
    start: int
    stop: int
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES

    @property
    def is_whole(self) -> bool:
        """True if all of its records count."""
        return self.start <= self.header.base_offset and self.header.next_offset <= self.stop

    def records(self) -> Iterator[Record]:
        """The records that count. Raises CorruptRecords."""
        try:
            found = iter_records(self.data, max_decompressed_bytes=self.max_decompressed_bytes)
            if self.is_whole:
                yield from found
            else:
                yield from (it for it in found if self.start <= it.offset < self.stop)
        except InvalidBatch as error:
            raise _corrupt(self.at, self.header.base_offset, error) from None


class PartitionReader:
    """Reads a partition from offset `start` up to, but not including, `stop`, once, batch by batch. A context manager.

    isolation_level: READ_COMMITTED omits records of aborted transactions, and waits for open transactions. topic_id:
    the id of the topic to read; by default, of the topic that has the name now. fetch_bytes: the size that one fetch
    requests; a larger batch is still returned. Twice that may be in memory. max_wait_ms: the time for which the broker
    waits for records if there are none. check_crcs: True to verify each batch's checksum.

    Raises, from its iterators: OffsetOutOfRange, EndNotReached, CorruptRecords, TopicReplaced, UnknownTopic, and other
    ClientErrors.
    """

    def __init__(
        self,
        cluster: Cluster,
        at: TopicPartition,
        start: int,
        stop: int,
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        topic_id: Uuid | None = None,
        fetch_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int = DEFAULT_MAX_WAIT_MS,
        check_crcs: bool = True,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.at = at
        self.stop = stop
        self.position = start
        """The offset below which all records were returned, or are not visible."""
        self._start = start
        self._cluster = cluster
        self._isolation_level = isolation_level
        self._topic_id = topic_id
        self._fetch_bytes = fetch_bytes
        self._max_wait_ms = max_wait_ms
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self._connection: BrokerConnection | None = None
        self._ticket: Ticket | None = None
        """The fetch in flight, from offset `_requested_offset`."""
        self._requested_offset = start

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._ticket = None

    def records(self) -> Iterator[Record]:
        for batch in self.batches():
            yield from batch.records()

    def batches(self) -> Iterator[Batch]:
        """Batches with visible records, in order. A new iterator continues from `position`."""
        progress_s = self._cluster.clock.monotonic()
        while self.position < self.stop:
            partition = self._cluster.until_done(self._fetch, self._reconnect)
            batches, following = self._read(partition)
            if following > self.position:
                progress_s = self._cluster.clock.monotonic()
            elif self._cluster.clock.monotonic() - progress_s >= self._cluster.timeout_s:
                raise self._end_not_reached(partition)
            if following < self.stop:
                with suppress(ClientError):  # these batches are returned first; then the fetch is retried
                    self._request(following)
            for batch in batches:
                yield batch
                self.position = min(batch.header.next_offset, self.stop)
            self.position = min(following, self.stop)

    def _fetch(self) -> PartitionData:
        """Returns the response to the fetch from `position`, which is usually in flight. Raises ClientError."""
        if self._requested_offset != self.position:
            self.close()  # a new iterator began in the middle of a response: the fetch in flight cannot be used
        if self._ticket is None:
            self._request(self.position)
        connection, ticket = self._connection, self._ticket
        assert connection is not None
        assert ticket is not None
        self._ticket = None
        response = connection.receive(ticket, timeout_s=self._cluster.timeout_s + self._max_wait_ms / 1000)
        if response.error_code:
            raise refused(f"{self.at} cannot be fetched", response.error_code)
        for it in (it for topic in response.responses for it in topic.partitions):
            if it.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise self._out_of_range()
            if it.error_code:
                raise refused(f"{self.at} cannot be fetched from offset {self.position}", it.error_code)
            partition: PartitionData = it
            return partition
        raise Refused(f"the broker at {connection.name} returns nothing for {self.at}", ErrorCode.UNKNOWN_SERVER_ERROR)

    def _request(self, offset: int) -> None:
        if self._connection is None:
            topic_id = self._cluster.topic(self.at.topic).topic_id
            if self._topic_id is not None and topic_id != self._topic_id:
                raise TopicReplaced(f"the topic {quoted(self.at.topic)} that was read is deleted; this is another")
            self._topic_id = topic_id
            self._connection = self._cluster.open_connection(self._cluster.leader(self.at))
        topic_id = self._topic_id or NULL_UUID
        wanted = FetchPartition(self.at.partition, fetch_offset=offset, partition_max_bytes=self._fetch_bytes)
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=self._isolation_level,
            topics=[FetchTopic(self.at.topic, topic_id, [wanted])],
        )
        self._ticket = self._connection.send(request, at_most=None if any(topic_id) else _LAST_WITH_TOPIC_NAMES)
        self._requested_offset = offset

    def _reconnect(self, _: ClientError) -> None:
        """Restarts over a new connection, to the current leader of the partition."""
        self.close()
        self._cluster.forget_topic(self.at.topic)

    def _read(self, partition: PartitionData) -> tuple[list[Batch], int]:
        """Returns the batches of a response that are to be returned, and the offset after the response."""
        following = self.position
        records = partition.records
        if not isinstance(records, memoryview):
            return [], following
        is_committed = self._isolation_level is IsolationLevel.READ_COMMITTED
        aborted = (
            [(it.producer_id, it.first_offset) for it in partition.aborted_transactions or ()] if is_committed else []
        )
        batches: list[Batch] = []
        try:
            for pos, header, is_visible in visible_batches(records, aborted):
                if header.base_offset >= self.stop:
                    return batches, header.base_offset
                if self._check_crcs:
                    check_batch(records, header, pos)
                # The first batch may begin before the requested offset.
                if is_visible and header.next_offset > self.position:
                    data = records[pos : pos + header.size_in_bytes]
                    batches.append(Batch(self.at, header, data, self._start, self.stop, self._max_decompressed_bytes))
                following = max(following, header.next_offset)
        except InvalidBatch as error:
            raise _corrupt(self.at, following, error) from None
        return batches, following

    def _out_of_range(self) -> Refused:
        """Returns the error for an offset out of range. A new leader may not have the end offset yet: that may pass."""
        offsets = [
            list_offsets(self._cluster, self.at.topic, which, partitions=[self.at.partition])[self.at.partition]
            for which in (EARLIEST, LATEST)
        ]
        error = OffsetOutOfRange(self.at, self.position, *offsets)
        error.may_pass = error.earliest <= self.position <= error.latest
        return error

    def _end_not_reached(self, partition: PartitionData) -> EndNotReached:
        stable = partition.last_stable_offset
        held = f", its last stable offset is {stable}" if 0 <= stable < partition.high_watermark else ""
        return EndNotReached(
            f"nothing has come of {self.at} from offset {self.position} on for {self._cluster.timeout_s:g} s; "
            f"{self.stop} was requested, its high watermark is {partition.high_watermark}{held}"
        )


def _corrupt(at: TopicPartition, offset: int, error: InvalidBatch) -> CorruptRecords:
    return CorruptRecords(f"the records of {at} from offset {offset} on are corrupt: {error.message}")

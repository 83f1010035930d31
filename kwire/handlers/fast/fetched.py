"""The common part of the fast paths of Fetch: a consumer's read of one partition, and the encoded response about it."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs
from kwire_protocol.headers import response_head
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kwire_protocol.wire import Writer
from kwire_storage.log.slices import LogSlice

from kwire.handlers.fast.templates import MARKS, around_marks, encoded
from kwire.metadata.answers import EncodedResponse
from kwire.replicas.partition import CONSUMER, READ_COMMITTED, READ_UNCOMMITTED, Partition
from kwire.replicas.reading import NO_RECORDS
from kwire.replicas.roles import NO_EPOCH, Leader
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Context
    from kwire.handlers.shapes import Shape
    from kwire.metadata.service import MetadataService
    from kwire.replicas.fetch_sessions import TopicKey
    from kwire.replicas.table import PartitionTable, TopicRef

FIRST_VERSION: Final = 5
"""The first one whose responses have the log start offset."""
FIRST_FLEXIBLE_VERSION: Final = 12

_SAMPLE = b"records of a sample"
_VALUES = Struct(">qqq")


class NotPlainError(Exception):
    """The handler has to read: there is an error, or more to the response than records."""


def is_plain(request: FetchRequest, version: int) -> bool:
    """Returns True if the request is of a consumer that reads from any broker."""
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return (
        version >= FIRST_VERSION
        and replica_id <= CONSUMER
        and not request.rack_id
        and request.isolation_level in (READ_UNCOMMITTED, READ_COMMITTED)
    )


def is_plain_partition(partition: FetchPartition) -> bool:
    """Returns True if the consumer does not detect truncation by this request (KIP-595)."""
    return partition.last_fetched_epoch == NO_EPOCH


class Found(NamedTuple):
    """A partition's offsets, and its records for a consumer."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: LogSlice | None
    is_at_end: bool
    """True if the consumer has everything that it may read."""


@attrs.frozen(eq=False)
class Reads:
    """The reads of consumers; `find` and `read` do what `kwire.replicas.reading` does in the plain case."""

    metadata: MetadataService
    authorization: Authorization
    partitions: PartitionTable

    def find(self, context: Context, topic: TopicRef, index: int, current_leader_epoch: int) -> Partition | None:
        """Returns the partition if this node leads it, and the client may read it."""
        try:
            partition = self.partitions.by_ref[topic][index]
        except (KeyError, IndexError):
            return None
        if type(partition) is not Partition or index < 0:
            return None
        role = partition.role
        if type(role) is not Leader or (current_leader_epoch != NO_EPOCH and current_leader_epoch != role.leader_epoch):
            return None
        return partition if self.authorization.has_granted(context, Operation.READ, topic) else None

    def read(self, partition: Partition, offset: int, max_bytes: int, *, is_committed: bool) -> Found:
        """Returns what a consumer at that offset gets. Raises NotPlainError."""
        try:
            high_watermark, last_stable_offset = partition.high_watermark, partition.last_stable_offset
            bound = last_stable_offset if is_committed else high_watermark
            log_start_offset = partition.log.log_start_offset
            if offset == bound:
                return Found(high_watermark, last_stable_offset, log_start_offset, None, True)
            max_bytes = max(min(max_bytes, self.metadata.config.fetch_max_bytes), 0)
            piece = partition.read(offset, max_bytes=max_bytes, max_offset=bound, min_one_batch=True)
            if type(piece) is not LogSlice:
                raise NotPlainError
            if not piece.size:
                return Found(high_watermark, last_stable_offset, log_start_offset, None, False)
            if is_committed and partition.aborted_transactions(offset, piece):
                raise NotPlainError
        except (KafkaError, OSError):
            raise NotPlainError from None
        return Found(high_watermark, last_stable_offset, log_start_offset, piece, False)


@attrs.frozen(eq=False)
class RecordsResponse:
    """A response with records of one partition: encoded bytes, the records, encoded bytes."""

    before: bytes
    records: LogSlice
    after: bytes

    def write(self, w: Writer, version: int) -> None:
        w.buf += self.before
        if version >= FIRST_FLEXIBLE_VERSION:
            w.compact_records(self.records)
        else:
            w.records(self.records)
        w.buf += self.after


Response = EncodedResponse | RecordsResponse


class PartitionResponses:
    """Makes the responses to requests of a shape that read this partition, from its offsets and its records."""

    def __init__(self, shape: Shape, topic: TopicKey, index: int, *, session_id: int, is_committed: bool) -> None:
        def around(records: bytes) -> tuple[bytes, bytes]:
            data = PartitionData(index, 0, *MARKS, aborted_transactions=[] if is_committed else None, records=records)
            topics = [FetchableTopicResponse(topic[0], topic[1], [data])]
            before, after = around_marks(encoded(shape, FetchResponse(session_id=session_id, responses=topics)))
            # The connection writes the header.
            return before[len(response_head(shape.api.key, shape.version, 0)) - 8 :], after

        self._head, self._end = around(NO_RECORDS)
        _, rest = around(_SAMPLE)
        middle, self._tail = rest.split(_SAMPLE)
        # The size of the sample precedes it: one byte, or four in old versions.
        self._middle = middle[: -1 if shape.version >= FIRST_FLEXIBLE_VERSION else -4]

    def of(self, found: Found) -> Response:
        high_watermark, last_stable_offset, log_start_offset, records, _ = found
        begin = self._head + _VALUES.pack(high_watermark, last_stable_offset, log_start_offset)
        if records is None:
            return EncodedResponse(begin + self._end)
        return RecordsResponse(begin + self._middle, records, self._tail)

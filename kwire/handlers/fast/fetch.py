"""The fast path of Fetch: a consumer without a session reads one partition from its leader, or waits for it; v5 to v18.

If nothing is there yet, it waits like the handler: for a change of the partition, for its deadline, or for input on its
connection. After a wait that a change has ended it tries again, and leaves to the handler what it cannot answer.
"""

from __future__ import annotations

from collections.abc import Coroutine
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Final

import attrs
from kwire_protocol.headers import response_head
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire_protocol.wire import Writer
from kwire_storage.log.slices import LogSlice

from kwire.handlers.fast.templates import MARKS, around_marks, encoded
from kwire.metadata.answers import EncodedResponse
from kwire.replicas.partition import CONSUMER, READ_COMMITTED, READ_UNCOMMITTED, Partition
from kwire.replicas.reading import FIRST_VERSION_WITH_IDS, NO_RECORDS
from kwire.replicas.roles import NO_EPOCH, Leader
from kwire.runtime.futures import Future, ParkedFetch
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Answer, Context
    from kwire.handlers.shapes import FetchShape
    from kwire.metadata.service import MetadataService
    from kwire.replicas.table import PartitionTable
    from kwire.runtime.clock import Clock

FIRST_VERSION: Final = 5
"""The first one whose responses have the log start offset."""
FIRST_FLEXIBLE_VERSION: Final = 12

_SAMPLE = b"records of a sample"
_VALUES = Struct(">qqq")


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


def answer_to(
    metadata: MetadataService, authorization: Authorization, partitions: PartitionTable, clock: Clock, shape: FetchShape
) -> Answer | None:
    """Returns the function that answers requests of that shape; None for followers, and for consumers in a rack."""
    request, version, handle = shape.request, shape.version, shape.handle
    wanted, index = shape.partition, shape.partition.partition
    if (
        version < FIRST_VERSION
        or request.replica_id > CONSUMER
        or (request.replica_state is not None and request.replica_state.replica_id > CONSUMER)
        or request.rack_id
        or request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)
        or wanted.last_fetched_epoch != NO_EPOCH
        or index < 0
    ):
        return None
    topic = shape.topic.topic_id if version >= FIRST_VERSION_WITH_IDS else shape.topic.topic
    epoch, min_bytes, max_wait_ms = wanted.current_leader_epoch, request.min_bytes, request.max_wait_ms
    is_committed = request.isolation_level == READ_COMMITTED
    by_ref, may_read, offset_of = partitions.by_ref, authorization.has_granted, shape.offset_of
    limit = max(min(wanted.partition_max_bytes, request.max_bytes), 0)
    head, end = _around_values(shape, NO_RECORDS)
    _, rest = _around_values(shape, _SAMPLE)
    middle, tail = rest.split(_SAMPLE)
    # The size of the sample precedes it: one byte, or four in old versions.
    middle = middle[: -1 if version >= FIRST_FLEXIBLE_VERSION else -4]

    def find(context: Context) -> Partition | None:
        """Returns the partition if this node leads it, and the client may read it."""
        try:
            partition = by_ref[topic][index]
        except (KeyError, IndexError):
            return None
        if type(partition) is not Partition:
            return None
        role = partition.role
        if type(role) is not Leader or (epoch != NO_EPOCH and epoch != role.leader_epoch):
            return None
        return partition if may_read(context, Operation.READ, topic) else None

    def read(partition: Partition, offset: int) -> tuple[Response | None, int]:
        """Returns the response, and the size of its records in bytes; no response if the handler has to read."""
        try:
            high_watermark, last_stable_offset = partition.high_watermark, partition.last_stable_offset
            bound = last_stable_offset if is_committed else high_watermark
            begin = head + _VALUES.pack(high_watermark, last_stable_offset, partition.log.log_start_offset)
            if offset == bound:
                return EncodedResponse(begin + end), 0
            max_bytes = min(limit, metadata.config.fetch_max_bytes)
            piece = partition.read(offset, max_bytes=max_bytes, max_offset=bound, min_one_batch=True)
            if type(piece) is not LogSlice:
                return None, 0
            if not piece.size:
                return EncodedResponse(begin + end), 0
            if is_committed and partition.aborted_transactions(offset, piece):
                return None, 0
        except (KafkaError, OSError):
            return None, 0
        return RecordsResponse(begin + middle, piece, tail), piece.size

    def answer(
        frame: memoryview, context: Context, _correlation_id: int
    ) -> Response | Coroutine[Future[bool], None, Response | FetchResponse] | None:
        offset = offset_of(frame)
        if offset is None:
            return None
        partition = find(context)
        if partition is None:
            return None
        response, size = read(partition, offset)
        if response is not None and size < min_bytes and max_wait_ms > 0:
            return wait(partition, offset, context, response)
        return response

    async def wait(partition: Partition, offset: int, context: Context, response: Response) -> Response | FetchResponse:
        deadline_ms = clock.monotonic_ms() + max_wait_ms
        parked = ParkedFetch(max_wait_ms / 1000)
        partition.waiters[parked] = None
        try:
            woken = await parked
        finally:
            partition.waiters.pop(parked, None)
        # Quotas may have been set meanwhile.
        if context.fetch_throttle_ms is None:
            if not woken:
                return response
            if find(context) is partition:
                again, size = read(partition, offset)
                if again is not None and size >= min_bytes:
                    return again
        rest_ms = max(deadline_ms - clock.monotonic_ms(), 0) if woken else 0
        handled = handle(shape.request_at(offset).replace(max_wait_ms=rest_ms), context)
        answered: FetchResponse = await handled if type(handled) is CoroutineType else handled
        return answered

    return answer


def _around_values(shape: FetchShape, records: bytes) -> tuple[bytes, bytes]:
    """Returns the bytes of a response with these records before the partition's offsets and behind them.

    They are those of the body: the connection writes the header.
    """
    topic, partition = shape.topic, shape.partition
    data = PartitionData(
        partition.partition,
        0,
        *MARKS,
        aborted_transactions=[] if shape.request.isolation_level == READ_COMMITTED else None,
        records=records,
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic.topic, topic.topic_id, [data])])
    before, after = around_marks(encoded(shape, response))
    header_size = len(response_head(shape.api.key, shape.version, 0)) - 8
    return before[header_size:], after

"""The fast path of Produce: one plain batch for one partition, with or without a producer id; v9 to v13.

A batch is plain if it is in no transaction and may be appended unchanged (`read_plain_batch`). The response follows the
append at once: nothing but this replica and its page cache is waited for.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kwire_protocol.records import BATCH_HEADER_SIZE, read_plain_batch
from kwire_storage.config import NEVER

from kwire.handlers.fast.templates import MARKS, around_marks, encoded
from kwire.handlers.produce import FIRST_VERSION_WITH_IDS, completed
from kwire.replicas.acknowledging import ALL_IN_SYNC
from kwire.replicas.append import VALID_ACKS, Refusals
from kwire.replicas.partition import Partition
from kwire.replicas.roles import Leader
from kwire.security.authorizer import Operation

if TYPE_CHECKING:
    from kwire.cluster.nodes import Nodes
    from kwire.handlers.authorization import Authorization
    from kwire.handlers.context import Answer, Context
    from kwire.handlers.shapes import ProduceShape
    from kwire.replicas.table import PartitionTable
    from kwire.runtime.clock import Clock

NO_REPLY = b""


def answer_to(
    nodes: Nodes, authorization: Authorization, partitions: PartitionTable, clock: Clock, shape: ProduceShape
) -> Answer | None:
    """Returns the function that answers requests of that shape; None if there are several batches, or no plain one."""
    acks, version = shape.acks, shape.version
    if not shape.is_flexible or shape.transactional_id is not None or acks not in VALID_ACKS:
        return None
    if len(shape.topics) != 1 or len(shape.topics[0][2]) != 1:
        return None
    name, topic_id, [(index, rest)] = shape.topics[0]
    if index < 0:
        return None
    topic = topic_id if version >= FIRST_VERSION_WITH_IDS else name
    size_at = shape.head_stop
    least = size_at + 1 + BATCH_HEADER_SIZE + len(rest)
    by_ref, now, may_write = partitions.by_ref, clock.now_ms, authorization.has_granted
    head, tail = around_marks(encoded(shape, _response(shape, PartitionProduceResponse(index, 0, *MARKS))))
    pack = Struct(f">ii{len(head)}sqqq{len(tail)}s").pack
    size_of_reply = 4 + len(head) + 24 + len(tail)

    def answer(frame: memoryview, context: Context, correlation_id: int) -> bytes | ProduceResponse | None:
        # The bytes: the size of the records, a varint of up to three bytes less 1, and what follows the records.
        if len(frame) < least:
            return None
        start = size_at + 1
        size = frame[size_at] - 1
        if size > 126:
            size += frame[start] - 1 << 7
            start += 1
            if size > 16382:
                size += frame[start] - 1 << 14
                start += 1
                if size > 2097150:
                    return None
        if size < 0 or frame[start + size :] != rest:
            return None
        batch = frame[start : start + size]
        header = read_plain_batch(batch)
        # The partition, its rules, and its replicas.
        try:
            partition = by_ref[topic][index]
        except (KeyError, IndexError):
            return None
        if header is None or type(partition) is not Partition or partition.is_internal:
            return None
        role, rules, gate, now_ms = partition.role, partition.rules, partition.flush_gate, now()
        if (
            type(role) is not Leader
            or (acks == ALL_IN_SYNC and not role.is_alone)
            or gate.trigger_messages != NEVER
            or gate.held_from != NEVER
            or not rules.accepts_unchanged
            or size > rules.max_message_bytes
            or header.max_timestamp > now_ms + rules.timestamp_after_max_ms
            or not may_write(context, Operation.WRITE, topic)
        ):
            return None
        try:
            base_offset, _, log_append_time_ms = partition.append(batch, header, acks=acks, now_ms=now_ms)
        except KafkaError as error:
            refusals, refused = Refusals(version), PartitionProduceResponse(index)
            refusals.refuse(refused, batch, error, partition)
            return completed(nodes, _response(shape, refused), refusals, acks, context)
        if not acks:
            return NO_REPLY
        return pack(
            size_of_reply, correlation_id, head, base_offset, log_append_time_ms, partition.log.log_start_offset, tail
        )

    return answer


def _response(shape: ProduceShape, answer: PartitionProduceResponse) -> ProduceResponse:
    [(name, topic_id, _)] = shape.topics
    return ProduceResponse([TopicProduceResponse(name, topic_id, [answer])])

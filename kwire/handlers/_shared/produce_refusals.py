"""What a producer is told when a batch is refused, in as much as its version of Produce has room for it."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    TopicProduceResponse,
)
from kwire_protocol.records import InvalidBatch, read_header
from kwire_protocol.wire import Buffer

from kwire.replicas.partition import Partition, is_leader_error
from kwire.replicas.validation import InvalidRecords

LEADERS_TOLD_SINCE = 10
MAX_TOLD_NAME_LENGTH = 249
"""Of a topic's name in the log: whoever made it up may have made it longer than names can be."""

_REFUSALS_OF_THE_LOG = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Those that come with log_start_offset. Kafka has none to tell without a leader, a sound batch or a sound disk."""


class UnacknowledgedProduceFailed(Exception):
    """A produce with acks=0 failed: the connection closes, since no answer may be sent."""


class Unverified(KafkaError):
    """A transactional batch that was refused before the log was asked."""


def refuse(
    answer: PartitionProduceResponse,
    records: Buffer | None,
    error: KafkaError,
    partition: Partition | None,
    version: int,
) -> None:
    """Makes a refusal of an answer that says nothing yet; `records` are what the request has for the partition."""
    answer.error_code, answer.error_message = error.code, error.message
    answer.base_offset = -1
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(record.batch_index, record.message) for record in error.record_errors
        ]
    if partition is not None:
        if error.code in _REFUSALS_OF_THE_LOG and not isinstance(error, Unverified) and _is_one_batch(records):
            answer.log_start_offset = partition.log_start_offset
        if version >= LEADERS_TOLD_SINCE and is_leader_error(error.code):
            answer.current_leader = LeaderIdAndEpoch(partition.leader_id, partition.leader_epoch)


def _is_one_batch(records: Buffer | None) -> bool:
    """Whether the log was asked at all: several batches, or none, are refused before."""
    try:
        return records is not None and read_header(records).size_in_bytes == len(records)
    except InvalidBatch:
        return False


def unacknowledged(responses: list[TopicProduceResponse]) -> UnacknowledgedProduceFailed:
    """What ends the connection of a producer with acks=0: the first of the refusals among these."""
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                name = ErrorCode(answer.error_code).name
                told = (topic.name or topic.topic_id.hex())[:MAX_TOLD_NAME_LENGTH]
                text = f"acks=0 to {told!a}, partition {answer.index}: {name}: {answer.error_message}"
                return UnacknowledgedProduceFailed(text)
    raise AssertionError("called without an error")

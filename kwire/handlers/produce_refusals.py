"""What a producer is told when a batch is refused, in as much as its version of Produce has room for it."""

from __future__ import annotations

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
)
from kwire_protocol.records import InvalidBatch, read_header
from kwire_protocol.wire import Buffer

from kwire.partition import Partition, is_leader_error
from kwire.produce_validation import InvalidRecords

LEADERS_TOLD_SINCE = 10

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


def refused(
    data: PartitionProduceData, error: KafkaError, partition: Partition | None, version: int
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(data.index, error.code, -1, error_message=error.message)
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(record.batch_index, record.message) for record in error.record_errors
        ]
    if partition is not None:
        if error.code in _REFUSALS_OF_THE_LOG and _is_one_batch(data.records):
            answer.log_start_offset = partition.log_start_offset
        if version >= LEADERS_TOLD_SINCE and is_leader_error(error.code):
            answer.current_leader = LeaderIdAndEpoch(partition.leader_id, partition.leader_epoch)
    return answer


def _is_one_batch(records: Buffer | None) -> bool:
    """Whether the log was asked at all: several batches, or none, are refused before."""
    try:
        return records is not None and read_header(records).size_in_bytes == len(records)
    except InvalidBatch:
        return False

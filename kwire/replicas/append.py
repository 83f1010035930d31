"""The appends of Produce: appends a producer's batches, and returns a response or the future that it waits for.

It checks a batch, adds a transaction's partition at its coordinator (`enlisting.py`), appends the batch, and reports
errors in as much detail as the version of Produce has fields for. `Appends.pending` has the incomplete responses, each
with what it waits for: the coordinator, or the requested acknowledgement. Like Kafka's
`ReplicaManager.handleProduceAppend`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
)
from kwire_protocol.records import InvalidBatch, read_header
from kwire_protocol.wire import Buffer

from kwire.replicas.acknowledging import Acknowledgement
from kwire.replicas.enlisting import Enlist, Enlistment, Unverified, enlist
from kwire.replicas.partition import Partition
from kwire.replicas.roles import NotLeaderError
from kwire.replicas.validation import InvalidRecords, check_produced

if TYPE_CHECKING:
    from kwire.replicas.table import TopicRef
    from kwire.runtime.clock import Clock

VALID_ACKS = (-1, 0, 1)
FIRST_VERSION_WITH_CURRENT_LEADER = 10

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
"""The errors that come with log_start_offset. Kafka has no value for it without a leader, a valid batch and a disk."""


@attrs.define(eq=False)
class Refusals:
    """The refused appends of one Produce request, of `version`."""

    version: int
    has_refusals: bool = attrs.field(default=False, init=False)
    leader_moved: bool = attrs.field(default=False, init=False)

    def refuse(
        self,
        answer: PartitionProduceResponse,
        records: Buffer | None,
        error: KafkaError,
        partition: Partition | None,
    ) -> None:
        """Puts the error into an answer. `records` are the request's records for the partition."""
        self.has_refusals = True
        answer.error_code, answer.error_message = error.code, error.message
        answer.base_offset = -1
        if isinstance(error, InvalidRecords):
            answer.record_errors = [
                BatchIndexAndErrorMessage(record.batch_index, record.message) for record in error.record_errors
            ]
        elif isinstance(error, NotLeaderError) and self.version >= FIRST_VERSION_WITH_CURRENT_LEADER:
            self.leader_moved = True
            answer.current_leader = LeaderIdAndEpoch(error.leader_id, error.leader_epoch)
        if (
            partition is not None
            and error.code in _REFUSALS_OF_THE_LOG
            and not isinstance(error, Unverified)
            and _is_one_batch(records)
        ):
            answer.log_start_offset = partition.log_start_offset


@attrs.define(eq=False)
class Appends(Refusals):
    """The appends of one Produce request."""

    find: Callable[[TopicRef, int], Partition]
    enlist: Enlist
    request: ProduceRequest
    now_ms: int
    refusal: KafkaError | None = attrs.field(default=None, init=False)
    """Set if all of them are refused."""
    pending: list[tuple[PartitionProduceResponse, Acknowledgement | Enlistment]] = attrs.field(factory=list)

    def append(self, topic: TopicRef, data: PartitionProduceData) -> PartitionProduceResponse:
        """Appends to one partition and returns its answer, which may be in `pending`."""
        partition: Partition | None = None
        acks = self.request.acks
        try:
            if acks not in VALID_ACKS:
                raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
            if self.refusal is not None:
                raise self.refusal
            partition = self.find(topic, data.index)
            if partition.is_internal:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to {partition.topic}")
            batch, header = check_produced(data.records, partition.rules, version=self.version, now_ms=self.now_ms)
            if header.is_transactional:
                enlistment = enlist(
                    self.enlist,
                    self.request.transactional_id,
                    partition,
                    batch,
                    header,
                    version=self.version,
                    now_ms=self.now_ms,
                )
                if enlistment is not None:
                    answer = PartitionProduceResponse(data.index)
                    self.pending.append((answer, enlistment))
                    return answer
            result = partition.append(batch, header, acks=acks, now_ms=self.now_ms)
        except KafkaError as error:
            answer = PartitionProduceResponse(data.index)
            self.refuse(answer, data.records, error, partition)
            return answer
        answer = PartitionProduceResponse(
            data.index, 0, result.base_offset, result.log_append_time_ms, partition.log.log_start_offset
        )
        acknowledgement = partition.when_committed(result.last_offset, acks)
        if acknowledgement is not None:
            acknowledgement.wait_at_most(self.request.timeout_ms)
            self.pending.append((answer, acknowledgement))
        return answer

    async def settle(self, clock: Clock) -> None:
        """Completes the answers in `pending`."""
        acknowledged: list[tuple[PartitionProduceResponse, Acknowledgement]] = []
        # Everything is appended before the first wait for an acknowledgement, so that one flush serves all.
        for answer, waited in self.pending:
            if not isinstance(waited, Enlistment):
                acknowledged.append((answer, waited))
                continue
            partition = waited.partition
            try:
                await waited.verified(clock)
                result = partition.append(waited.batch, waited.header, acks=self.request.acks, now_ms=clock.now_ms())
            except KafkaError as error:
                self.refuse(answer, waited.batch, error, partition)
                continue
            answer.base_offset, answer.log_append_time_ms = result.base_offset, result.log_append_time_ms
            answer.log_start_offset = partition.log_start_offset
            acknowledgement = partition.when_committed(result.last_offset, self.request.acks)
            if acknowledgement is not None:
                acknowledgement.wait_at_most(self.request.timeout_ms)
                acknowledged.append((answer, acknowledgement))
        # The time counts from the appends on, for all of them together.
        began_ms = clock.monotonic_ms()
        for answer, acknowledgement in acknowledged:
            if acknowledgement.timeout_s < math.inf:
                acknowledgement.timeout_s -= (clock.monotonic_ms() - began_ms) / 1000
            failure = await acknowledgement
            if failure is not None:
                answer.log_append_time_ms = answer.log_start_offset = -1
                self.refuse(answer, None, failure, None)


def _is_one_batch(records: Buffer | None) -> bool:
    """True if the batch reached the log: several batches, or none, are refused earlier."""
    try:
        return records is not None and read_header(records).size_in_bytes == len(records)
    except InvalidBatch:
        return False

"""A transactional producer that sends raw requests: each when the test calls it, with the test's own fields.

Apache Kafka completes transactions asynchronously, and has no coordinator for some moments after its start. Retriable
errors are retried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from kwire_protocol.messages.end_txn import EndTxnRequest
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from testkit.basics.waiting import eventually
from testkit.clients.transactions.client import Spot
from testkit.raw.client import RawClient

T = TypeVar("T")

TRANSACTION = 1
FIRST_ADD_OF_BROKERS = 4
NEWEST_INIT, NEWEST_END = 5, 5
CLASSIC_ADD, CLASSIC_PRODUCE, CLASSIC_END = 3, 11, 4
"""The newest versions before transaction version 2."""
_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


def _answered(call: Callable[[], T], error_of: Callable[[T], Iterable[int]], what: str) -> T:
    def answer() -> tuple[T] | None:
        found = call()
        return None if _AGAIN.intersection(error_of(found)) else (found,)

    found = eventually(answer, f"an answer to {what}")
    assert found is not None
    return found[0]


@attrs.define
class RawProducer:
    """A producer with `producer_id` and `epoch` of the broker's last response. Arguments of a method override them."""

    client: RawClient
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1

    @classmethod
    def initialized(cls, client: RawClient, transactional_id: str) -> RawProducer:
        client.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id]), 4)
        producer = cls(client, transactional_id)
        assert producer.init() == ErrorCode.NONE
        return producer

    def init(self, *, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> ErrorCode:
        request = InitProducerIdRequest(self.transactional_id, timeout_ms, producer_id, epoch)
        answer = _answered(lambda: self.client.call(request, NEWEST_INIT), lambda it: [it.error_code], "InitProducerId")
        if answer.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def add(self, *spots: Spot, version: int = CLASSIC_ADD, verify_only: bool = False) -> dict[Spot, ErrorCode]:
        topics = [AddPartitionsToTxnTopic(name, [index]) for name, index in spots]
        about = (self.transactional_id, self.producer_id, self.epoch)
        request = (
            AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(*about, verify_only, topics)])
            if version >= FIRST_ADD_OF_BROKERS
            else AddPartitionsToTxnRequest([], *about, topics)
        )

        def errors(answer: Any) -> dict[Spot, ErrorCode]:
            found = answer.results_by_topic_v3_and_below
            if version >= FIRST_ADD_OF_BROKERS:
                (result,) = answer.results_by_transaction
                found = result.topic_results
            return {
                (topic.name, it.partition_index): ErrorCode(it.partition_error_code)
                for topic in found
                for it in topic.results_by_partition
            }

        answer = _answered(
            lambda: self.client.call(request, version), lambda it: errors(it).values(), "AddPartitionsToTxn"
        )
        return errors(answer)

    def produce(self, spot: Spot, *, sequence: int = 0, version: int = CLASSIC_PRODUCE) -> ErrorCode:
        batch = build_batch(
            [Record(timestamp=1_700_000_000_000, value=b"v")],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(spot[0], partition_data=[PartitionProduceData(spot[1], batch)])
        request = ProduceRequest(self.transactional_id, -1, 10_000, [data])
        answer = _answered(
            lambda: self.client.call(request, version).responses[0].partition_responses[0],
            lambda it: [it.error_code],
            "Produce",
        )
        return ErrorCode(answer.error_code)

    def end(
        self, *, committed: bool, version: int, producer_id: int | None = None, epoch: int | None = None
    ) -> ErrorCode:
        request = EndTxnRequest(
            self.transactional_id,
            self.producer_id if producer_id is None else producer_id,
            self.epoch if epoch is None else epoch,
            committed,
        )
        answer = _answered(lambda: self.client.call(request, version), lambda it: [it.error_code], "EndTxn")
        if answer.error_code == ErrorCode.NONE and version >= NEWEST_END:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def described(self) -> TransactionState:
        """Returns the description when its markers are written."""

        def answer() -> TransactionState | None:
            response = self.client.call(DescribeTransactionsRequest([self.transactional_id]), 0)
            (state,) = response.transaction_states
            assert isinstance(state, TransactionState)
            return None if state.transaction_state.startswith("Prepare") else state

        found = eventually(answer, "the end of a transaction")
        assert found is not None
        return found

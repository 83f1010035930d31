"""Producers, groups and an admin as they talk to a broker: requests out of a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from kwire_protocol.messages.end_txn import EndTxnRequest
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kwire_protocol.records import Record, build_batch

from kwire.handlers.find_coordinator import GROUP, TRANSACTION
from testkit.scenes.direct.broker_driver import BrokerDriver, TopicPartition

Identity: TypeAlias = tuple[int, int]
"""Producer id and epoch."""
NOBODY: Identity = (-1, -1)
Keyed: TypeAlias = tuple[bytes, bytes]
"""Key and value of a record."""

TIMEOUT_MS = 60_000
TV2 = 2
CLASSIC = 0


@attrs.frozen
class Batch:
    """The batch that a producer sends, and would send again."""

    tp: TopicPartition
    identity: Identity
    sequence: int
    pairs: tuple[Keyed, ...]
    transactional: bool = True

    def encode(self, now_ms: int) -> memoryview:
        records = [Record(number, now_ms, key, value) for number, (key, value) in enumerate(self.pairs)]
        return memoryview(
            bytearray(
                build_batch(
                    records,
                    producer_id=self.identity[0],
                    producer_epoch=self.identity[1],
                    base_sequence=self.sequence,
                    transactional=self.transactional,
                )
            )
        )


def find_coordinator(driver: BrokerDriver, key: str, key_type: int) -> None:
    """Looks for the coordinator, as every client does before its requests to it."""
    (found,) = driver.call(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), 4).coordinators
    assert found.error_code == ErrorCode.NONE, found


def init(driver: BrokerDriver, transactional_id: str, expected: Identity = NOBODY) -> tuple[ErrorCode, Identity]:
    find_coordinator(driver, transactional_id, TRANSACTION)
    request = InitProducerIdRequest(transactional_id, TIMEOUT_MS, *expected)
    answer = driver.call(request, 5)
    return ErrorCode(answer.error_code), (answer.producer_id, answer.producer_epoch)


def add_partitions(
    driver: BrokerDriver, transactional_id: str, identity: Identity, partitions: Sequence[TopicPartition]
) -> ErrorCode:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, index in partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(topic)).partitions.append(index)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=list(topics.values()),
    )
    answer = driver.call(request, 3)
    [code] = {
        ErrorCode(it.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for it in topic.results_by_partition
    }
    return code


def add_offsets(driver: BrokerDriver, transactional_id: str, identity: Identity, group: str) -> ErrorCode:
    return ErrorCode(driver.call(AddOffsetsToTxnRequest(transactional_id, *identity, group), 3).error_code)


def produce(
    driver: BrokerDriver, batches: Sequence[Batch], transactional_id: str | None = None, version: int = TV2
) -> dict[TopicPartition, tuple[ErrorCode, int]]:
    """Sends one request; returns the error and the base offset of each partition."""
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        topic, index = batch.tp
        data = PartitionProduceData(index, batch.encode(driver.now_ms))
        topics.setdefault(topic, TopicProduceData(topic)).partition_data.append(data)
    request = ProduceRequest(transactional_id, -1, 1000, list(topics.values()))
    answer = driver.call(request, 12 if version >= TV2 else 11)
    return {
        (topic.name, it.index): (ErrorCode(it.error_code), it.base_offset)
        for topic in answer.responses
        for it in topic.partition_responses
    }


def end(
    driver: BrokerDriver, transactional_id: str, identity: Identity, *, committed: bool, version: int
) -> tuple[ErrorCode, Identity]:
    """Returns the error, and the new identity of the producer."""
    request = EndTxnRequest(transactional_id, *identity, committed)
    answer = driver.call(request, 5 if version >= TV2 else 4)
    following = (answer.producer_id, answer.producer_epoch) if version >= TV2 else identity
    return ErrorCode(answer.error_code), following


def commit_in_transaction(
    driver: BrokerDriver,
    transactional_id: str,
    identity: Identity,
    group: str,
    tp: TopicPartition,
    offset: int,
    *,
    version: int,
) -> ErrorCode:
    find_coordinator(driver, group, GROUP)
    topic, index = tp
    request = TxnOffsetCommitRequest(
        transactional_id,
        group,
        *identity,
        topics=[TxnOffsetCommitRequestTopic(topic, partitions=[TxnOffsetCommitRequestPartition(index, offset)])],
    )
    answer = driver.call(request, 5 if version >= TV2 else 4)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def commit(driver: BrokerDriver, group: str, tp: TopicPartition, offset: int) -> ErrorCode:
    find_coordinator(driver, group, GROUP)
    topic, index = tp
    request = OffsetCommitRequest(
        group, topics=[OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(index, offset)])]
    )
    return ErrorCode(driver.call(request, 8).topics[0].partitions[0].error_code)


def describe(driver: BrokerDriver, transactional_id: str) -> TransactionState:
    found: TransactionState = driver.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states[0]
    return found


def abort_as_admin(driver: BrokerDriver, tp: TopicPartition, producer_id: int) -> ErrorCode:
    """Aborts as `kwire txn abort` does: describes the partition's producers, and ends the transaction."""
    topic, index = tp
    described = driver.call(DescribeProducersRequest([TopicRequest(topic, [index])]), 0)
    [known] = [it for it in described.topics[0].partitions[0].active_producers if it.producer_id == producer_id]
    marker = WritableTxnMarker(
        producer_id,
        known.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(topic, [index])],
        coordinator_epoch=max(known.coordinator_epoch, 0),
    )
    answer = driver.call(WriteTxnMarkersRequest([marker]), 1)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def delete_records(driver: BrokerDriver, tp: TopicPartition, offset: int) -> ErrorCode:
    topic, index = tp
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])], 1000)
    return ErrorCode(driver.call(request, 2).topics[0].partitions[0].error_code)

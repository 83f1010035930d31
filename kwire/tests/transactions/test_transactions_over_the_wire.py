"""Transactions over the wire, on a disk that is slow to sync: when they are decided, and visible to readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from kwire.testing import Broker
from testkit.raw.client import RawClient
from testkit.raw.stable_ends import stable_end
from testkit.scenes.flushing import BrokerOn, assert_silent
from testkit.storage.slow_disk import SlowDisk

TRANSACTION = 1
END_VERSION = 5


@contextmanager
def broker_on(disk: SlowDisk, **settings: str) -> Iterator[tuple[Broker, RawClient]]:
    """Starts a broker with topic `t` of one partition; nothing is held yet."""
    disk.holds = False
    with BrokerOn(disk=disk, settings=settings) as broker, RawClient(broker.address) as client:
        never = CreatableTopicConfig("flush.messages", str(2**63 - 1))
        client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1, configs=[never])]), 5)
        yield broker, client
        disk.holds = False


def producer_of(client: RawClient) -> tuple[int, int]:
    client.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["id"]), 4)
    answer = client.call(InitProducerIdRequest("id", 60_000), 5)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def send(client: RawClient, producer: tuple[int, int], sequence: int = 0) -> int:
    batch = build_batch(
        [Record(timestamp=1000, value=b"v")],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=True,
    )
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, bytearray(batch))])]
    code: int = client.call(ProduceRequest("id", -1, 1000, data), 12).responses[0].partition_responses[0].error_code
    return code


def end(producer: tuple[int, int], *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest("id", *producer, committed)


def state(client: RawClient) -> str:
    found: str = client.call(DescribeTransactionsRequest(["id"]), 0).transaction_states[0].transaction_state
    return found


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_complete_when_its_end_is_answered(committed: bool) -> None:
    with broker_on(SlowDisk()) as (_, client):
        producer = producer_of(client)
        assert state(client) == "Empty"
        assert send(client, producer) == 0
        assert (state(client), stable_end(client)) == ("Ongoing", 0)
        answer = client.call(end(producer, committed=committed), END_VERSION)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, producer[0], producer[1] + 1)
        assert (state(client), stable_end(client)) == ("CompleteCommit" if committed else "CompleteAbort", 2)
        assert send(client, producer) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert send(client, (producer[0], producer[1] + 1)) == 0


def test_a_decision_is_on_the_medium_before_anybody_sees_it() -> None:
    disk = SlowDisk("__transaction_state")
    settings = {"log.flush.interval.messages": "1", "transaction.state.log.num.partitions": "1"}
    with broker_on(disk, **settings) as (broker, client), RawClient(broker.address) as reader:
        producer = producer_of(client)
        assert send(client, producer) == 0
        disk.holds = True
        client.send_requests((end(producer), END_VERSION))
        disk.wait_for_sync()
        assert_silent(client)
        assert stable_end(reader) == 0
        disk.holds = False
        disk.let_sync_end()
        answer = client.answer()
        assert isinstance(answer, EndTxnResponse)
        assert (answer.error_code, stable_end(reader), state(reader)) == (0, 2, "CompleteCommit")

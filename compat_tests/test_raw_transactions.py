"""The small print of transactions: responses to requests that clients send late, twice, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kwire_protocol.errors import ErrorCode as E

from testkit.basics.waiting import eventually
from testkit.clients.transactions.client import Spot
from testkit.clients.transactions.queries import end_offset, is_stable
from testkit.clients.transactions.raw import CLASSIC_END, NEWEST_END, RawProducer
from testkit.raw import topics
from testkit.raw.client import RawClient
from testkit.servers.brokers import Broker

LAST_USABLE_EPOCH = 32_766
ADDING_PRODUCE = 12
OFFSETS = ("__consumer_offsets", 0)

pytestmark = pytest.mark.asks_one_node


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def producer(client: RawClient, transactional_id: str) -> RawProducer:
    return RawProducer.initialized(client, transactional_id)


# AddPartitionsToTxn


def test_a_client_may_not_add_what_the_broker_keeps_for_itself(producer: RawProducer, topic: str) -> None:
    producer.add((topic, 0))
    assert producer.add((topic, 0), OFFSETS) == {
        (topic, 0): E.OPERATION_NOT_ATTEMPTED,
        OFFSETS: E.TOPIC_AUTHORIZATION_FAILED,
    }


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_can_verify_which_partitions_are_in_a_transaction(
    producer: RawProducer, new_topic: Callable[..., str], version: int
) -> None:
    topic = new_topic(partitions=2)
    spots = [(topic, 0), (topic, 1)]

    def verified() -> dict[Spot, E]:
        return producer.add(*spots, version=version, verify_only=True)

    neither = dict.fromkeys(spots, E.TRANSACTION_ABORTABLE)
    assert verified() == neither
    assert producer.add(spots[0], version=version) == {spots[0]: E.NONE}
    assert verified() == neither | {spots[0]: E.NONE}
    assert producer.end(committed=False, version=CLASSIC_END) == E.NONE
    assert verified() == neither


# EndTxn


@pytest.mark.parametrize("committed", [True, False])
def test_a_classic_end_may_be_repeated_but_not_turned_round(producer: RawProducer, topic: str, committed: bool) -> None:
    assert producer.end(committed=committed, version=CLASSIC_END) == E.INVALID_TXN_STATE  # none is open
    producer.add((topic, 0))
    for _ in range(2):
        assert producer.end(committed=committed, version=CLASSIC_END) == E.NONE
    assert producer.end(committed=not committed, version=CLASSIC_END) == E.INVALID_TXN_STATE
    assert producer.described().transaction_state == ("CompleteCommit" if committed else "CompleteAbort")


@pytest.mark.parametrize("committed", [True, False])
def test_an_end_of_version_2_may_be_repeated_with_the_epoch_of_the_transaction(
    producer: RawProducer, topic: str, committed: bool
) -> None:
    producer.add((topic, 0), version=4)
    epoch = producer.epoch
    for _ in range(2):
        assert producer.end(committed=committed, version=NEWEST_END, epoch=epoch) == E.NONE
        assert producer.epoch == epoch + 1
    assert producer.end(committed=not committed, version=NEWEST_END, epoch=epoch) == E.INVALID_TXN_STATE
    assert producer.end(committed=committed, version=NEWEST_END, epoch=epoch - 1) == E.PRODUCER_FENCED
    assert producer.end(committed=committed, version=NEWEST_END, epoch=epoch + 2) == E.PRODUCER_FENCED


def test_what_has_no_partitions_can_be_aborted_by_version_2_and_not_committed(producer: RawProducer) -> None:
    assert producer.end(committed=True, version=NEWEST_END) == E.INVALID_TXN_STATE
    for epoch in (1, 2):
        assert producer.end(committed=False, version=NEWEST_END) == E.NONE
        assert producer.epoch == epoch


def test_a_producer_whose_epochs_are_used_up_continues_with_a_new_id(producer: RawProducer, topic: str) -> None:
    first = producer.producer_id
    while producer.epoch < LAST_USABLE_EPOCH - 1:
        assert producer.init() == E.NONE
    for committed in (True, False):
        producer.add((topic, 0), version=4)
        assert producer.end(committed=committed, version=NEWEST_END) == E.NONE
        if committed:
            assert (producer.producer_id, producer.epoch) == (first, LAST_USABLE_EPOCH)
    assert (producer.producer_id != first, producer.epoch) == (True, 0)
    # Had it missed that answer, it would repeat the request with its old id and epoch.
    assert producer.end(committed=False, version=NEWEST_END, producer_id=first, epoch=LAST_USABLE_EPOCH) == E.NONE
    assert (producer.producer_id != first, producer.epoch) == (True, 0)
    producer.add((topic, 0), version=4)
    assert producer.end(committed=True, version=NEWEST_END) == E.NONE
    assert producer.described().producer_epoch == 1


# InitProducerId


def test_a_producer_that_recovers_gets_its_next_epoch_once(producer: RawProducer) -> None:
    first = producer.producer_id
    for _ in range(2):
        assert producer.init(producer_id=first, epoch=0) == E.NONE
        assert (producer.producer_id, producer.epoch) == (first, 1)
    assert producer.init(producer_id=first, epoch=5) == E.PRODUCER_FENCED
    assert producer.init(producer_id=first + 100_000, epoch=1) == E.PRODUCER_FENCED
    assert producer.init() == E.NONE
    assert producer.init(producer_id=first, epoch=1) == E.PRODUCER_FENCED


# Produce


def test_no_batch_gets_in_before_its_transaction_or_after(producer: RawProducer, topic: str) -> None:
    spot = (topic, 0)
    assert producer.produce(spot) == E.TRANSACTION_ABORTABLE
    producer.add(spot)
    assert producer.produce(spot) == E.NONE
    assert producer.end(committed=True, version=CLASSIC_END) == E.NONE
    assert producer.described().transaction_state == "CompleteCommit"
    assert producer.produce(spot, sequence=1) == E.TRANSACTION_ABORTABLE


def test_a_sequence_that_an_aborted_transaction_has_used_is_a_repetition_in_the_next(
    producer: RawProducer, topic: str, broker: Broker
) -> None:
    """So a client must not use it for another record (KIP-360): that one would be acknowledged, and is nowhere."""
    spot = (topic, 0)
    for committed in (False, True):
        producer.add(spot)
        assert producer.produce(spot, sequence=0) == E.NONE
        assert producer.end(committed=committed, version=CLASSIC_END) == E.NONE
        assert producer.described().transaction_state == ("CompleteCommit" if committed else "CompleteAbort")
    assert end_offset(broker.bootstrap, spot, committed=False) == 3, "one record and two markers"


def test_a_batch_of_version_2_that_comes_after_its_end_is_refused(
    producer: RawProducer, topic: str, broker: Broker
) -> None:
    spot = (topic, 0)
    late = RawProducer(producer.client, producer.transactional_id, producer.producer_id, producer.epoch)
    assert producer.produce(spot, version=ADDING_PRODUCE) == E.NONE
    assert producer.end(committed=True, version=NEWEST_END) == E.NONE
    eventually(lambda: is_stable(broker.bootstrap, spot), "the end of the transaction")
    assert late.produce(spot, sequence=1, version=ADDING_PRODUCE) == E.INVALID_PRODUCER_EPOCH
    assert producer.produce(spot, version=ADDING_PRODUCE) == E.NONE


def test_a_transaction_over_a_topic_that_is_deleted_ends_in_the_others(
    producer: RawProducer, new_topic: Callable[..., str], broker: Broker
) -> None:
    stays, goes = (new_topic(), 0), (new_topic(), 0)
    for spot in (stays, goes):
        assert producer.produce(spot, version=ADDING_PRODUCE) == E.NONE
    topics.delete(broker.bootstrap, goes[0])
    assert producer.end(committed=True, version=NEWEST_END) == E.NONE
    assert producer.described().transaction_state == "CompleteCommit"
    assert is_stable(broker.bootstrap, stays)

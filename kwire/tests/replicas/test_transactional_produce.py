"""Produce with transactions: requests to a coordinator, their effect on a batch, and the waits for it."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kwire_protocol.records import Record, build_batch, iter_records
from kwire_storage.config import LogConfig
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.handlers import produce
from kwire.handlers.apis import bound
from kwire.handlers.context import CloseConnection
from kwire.metadata.controller.topics.topic_creation import create_topics
from kwire.node.broker import Broker
from kwire.replicas.partition import Partition
from kwire.replicas.roles import role_of
from kwire.runtime.futures import Future, at_once
from testkit.fakes.transactions import Enlistment, FakeTransactions, write_marker
from testkit.metadata.harness import FakeClock, context

TV2 = 12
"""The first version of Produce that adds partitions."""
BEFORE_TV2 = 11


class Scene:
    """A broker in memory with topic `t` of three partitions, and coordinators whose answers a test sets."""

    def __init__(self) -> None:
        self.broker = Broker.open(load_config(), MemoryDisk(), FakeClock())
        self.transactions = FakeTransactions().stand_in(self.broker)
        at_once(self.broker.metadata.change(create_topics, CreateTopicsRequest([CreatableTopic("t", 3, 1)], 1000)))

    def partition(self, index: int = 0) -> Partition:
        return self.broker.partitions.find("t", index)

    def handle(self, *data: PartitionProduceData, version: int = TV2, named: str | None = "id", acks: int = -1) -> Any:
        request = ProduceRequest(named, acks, 1000, [TopicProduceData("t", partition_data=list(data))])
        return bound(produce.handle, self.broker)(request, context(version))

    def produce(
        self, *data: PartitionProduceData, version: int = TV2, named: str | None = "id"
    ) -> list[PartitionProduceResponse]:
        response = self.handle(*data, version=version, named=named)
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses

    def code(self, *data: PartitionProduceData, version: int = TV2) -> E:
        return E(self.produce(*data, version=version)[0].error_code)

    def end(self, producer_id: int = 1, *, epoch: int = 0, version: int = 0, index: int = 0) -> None:
        write_marker(self.broker, "t", index, committed=True, producer_id=producer_id, epoch=epoch, version=version)

    def values(self, index: int = 0) -> list[bytes | None]:
        return [
            record.value
            for header, piece in self.partition(index).log.batches()
            if not header.is_control
            for record in iter_records(memoryview(piece.read()))
        ]


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.broker.close()


def a_batch(
    sequence: int = 0,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    index: int = 0,
    value: bytes = b"v",
    transactional: bool = True,
) -> PartitionProduceData:
    batch = build_batch(
        [Record(value=value, timestamp=1000)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return PartitionProduceData(index, memoryview(bytearray(batch)))


def waits(handling: Any) -> Future[Any]:
    """Returns the future that a handler waits for."""
    assert isinstance(handling, Coroutine)
    future = handling.send(None)
    assert isinstance(future, Future)
    return future


def resumed(handling: Coroutine[Any, Any, ProduceResponse | None]) -> ProduceResponse | None:
    """Returns the answer of a handler whose wait is over."""
    try:
        handling.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise AssertionError("it waits for something else")


# -- when a coordinator gets a request


@pytest.mark.parametrize(("version", "adds"), [(3, False), (BEFORE_TV2, False), (TV2, True)])
def test_the_first_batch_of_a_transaction_is_enlisted_and_no_other(scene: Scene, version: int, adds: bool) -> None:
    for sequence in range(3):
        assert scene.produce(a_batch(sequence), version=version)[0].base_offset == sequence
    assert scene.transactions.enlistments == [Enlistment("id", 1, 0, "t", 0, adds)]
    scene.end()
    assert scene.code(a_batch(3), version=version) == E.NONE
    assert len(scene.transactions.enlistments) == 2


def test_with_topic_ids_the_coordinator_receives_the_name(scene: Scene) -> None:
    topic_id = scene.partition().topic_id
    request = ProduceRequest("id", -1, 1000, [TopicProduceData(topic_id=topic_id, partition_data=[a_batch()])])
    response: Any = bound(produce.handle, scene.broker)(request, context(13))
    assert response.responses[0].partition_responses[0].error_code == 0
    assert scene.transactions.enlistments == [Enlistment("id", 1, 0, "t", 0, True)]


def test_each_partition_of_a_request_is_enlisted_and_answered_for_itself(scene: Scene) -> None:
    scene.transactions.answers = [None, E.TRANSACTION_ABORTABLE, None]
    answers = scene.produce(a_batch(index=0), a_batch(index=1), a_batch(index=2))
    assert [answer.error_code for answer in answers] == [0, E.TRANSACTION_ABORTABLE, 0]
    assert [it.index for it in scene.transactions.enlistments] == [0, 1, 2]
    assert [scene.partition(index).log_end_offset for index in range(3)] == [1, 0, 1]


def test_batches_without_transactions_are_nobodys_business(scene: Scene) -> None:
    assert scene.code(a_batch(transactional=False)) == E.NONE
    assert scene.produce(a_batch(1, transactional=False), named=None)[0].error_code == 0
    assert scene.transactions.enlistments == []


def test_a_transactional_batch_needs_a_transactional_id(scene: Scene) -> None:
    answer = scene.produce(a_batch(), named=None)[0]
    assert answer.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (scene.transactions.enlistments, scene.partition().log_end_offset) == ([], 0)


def test_while_a_transaction_is_open_a_batch_outside_of_it_is_refused(scene: Scene) -> None:
    assert scene.code(a_batch()) == E.NONE
    assert scene.code(a_batch(1, transactional=False)) == E.INVALID_TXN_STATE


def test_a_batch_that_may_not_be_appended_is_not_enlisted(scene: Scene) -> None:
    broken = a_batch()
    assert isinstance(broken.records, memoryview)
    broken.records[-1] ^= 1
    assert scene.code(broken) == E.CORRUPT_MESSAGE
    scene.end(epoch=1)
    assert scene.code(a_batch()) == E.INVALID_PRODUCER_EPOCH
    scene.partition().take_role(role_of(1, leader_id=2, leader_epoch=1, replicas=[2], isr=[2]))
    assert scene.code(a_batch(producer_id=2)) == E.NOT_LEADER_OR_FOLLOWER
    assert scene.transactions.enlistments == []


# -- what its answer is to a producer


@pytest.mark.parametrize(
    ("refusal", "version", "expected"),
    [
        (E.TRANSACTION_ABORTABLE, 10, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 11, E.TRANSACTION_ABORTABLE),
        (E.INVALID_TXN_STATE, 12, E.INVALID_TXN_STATE),
        (E.PRODUCER_FENCED, 12, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING, 12, E.INVALID_PRODUCER_ID_MAPPING),
        (E.CONCURRENT_TRANSACTIONS, 11, E.NOT_ENOUGH_REPLICAS),
        (E.CONCURRENT_TRANSACTIONS, 12, E.CONCURRENT_TRANSACTIONS),
        (E.COORDINATOR_NOT_AVAILABLE, 12, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 9, E.NOT_ENOUGH_REPLICAS),
        (E.NOT_COORDINATOR, 12, E.NOT_ENOUGH_REPLICAS),
    ],
)
@pytest.mark.parametrize("waiting", [False, True])
def test_a_coordinators_refusal_in_the_words_of_the_producers_version(
    scene: Scene, refusal: E, version: int, expected: E, waiting: bool
) -> None:
    if waiting:
        scene.transactions.answers = [Future()]
        handling = scene.handle(a_batch(), version=version)
        waits(handling).set(KafkaError(refusal))
        response = resumed(handling)
        assert response is not None
        answer = response.responses[0].partition_responses[0]
    else:
        scene.transactions.answers = [refusal]
        answer = scene.produce(a_batch(), version=version)[0]
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (expected, -1, -1)
    assert scene.partition().log_end_offset == 0


def test_only_a_refusal_of_the_log_comes_with_where_it_begins(scene: Scene) -> None:
    (answer,) = scene.produce(a_batch(5))
    assert (answer.error_code, answer.log_start_offset) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
    scene.end(epoch=1)
    (answer,) = scene.produce(a_batch())
    assert (answer.error_code, answer.log_start_offset) == (E.INVALID_PRODUCER_EPOCH, -1)


def test_later_batches_do_not_overtake_the_one_that_is_to_be_sent_again(scene: Scene) -> None:
    scene.transactions.answers = [E.COORDINATOR_NOT_AVAILABLE]
    assert scene.code(a_batch(0), version=BEFORE_TV2) == E.NOT_ENOUGH_REPLICAS
    assert scene.code(a_batch(1), version=BEFORE_TV2) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert scene.code(a_batch(0), version=BEFORE_TV2) == E.NONE
    assert scene.code(a_batch(1), version=BEFORE_TV2) == E.NONE


def test_what_was_refused_for_good_holds_nothing_back(scene: Scene) -> None:
    scene.transactions.answers = [E.TRANSACTION_ABORTABLE]
    assert scene.code(a_batch(0), version=BEFORE_TV2) == E.TRANSACTION_ABORTABLE
    assert scene.code(a_batch(7), version=BEFORE_TV2) == E.NONE


def test_with_transaction_version_2_the_first_sequence_is_0(scene: Scene) -> None:
    assert scene.code(a_batch(4)) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert scene.code(a_batch(0, producer_id=2)) == E.NONE
    assert scene.code(a_batch(4, producer_id=3), version=BEFORE_TV2) == E.NONE


# -- who waits for it


def test_what_waits_for_its_coordinator_is_appended_when_it_agrees_whatever_became_of_the_buffer(scene: Scene) -> None:
    future: Future[KafkaError | None] = Future()
    scene.transactions.answers = [future]
    sent = a_batch(value=b"first")
    handling = scene.handle(sent)
    assert waits(handling) is future
    assert scene.partition().log_end_offset == 0
    assert isinstance(sent.records, memoryview)
    sent.records[:] = bytes(len(sent.records))
    future.set(None)
    response = resumed(handling)
    assert response is not None
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 0, 0)
    assert scene.values() == [b"first"]


def test_all_partitions_are_enlisted_before_the_first_is_waited_for(scene: Scene) -> None:
    futures: list[Future[KafkaError | None]] = [Future(), Future()]
    scene.transactions.answers = [*futures]
    handling = scene.handle(a_batch(index=0), a_batch(index=1), a_batch(index=2))
    assert waits(handling) is futures[0]
    assert [it.index for it in scene.transactions.enlistments] == [0, 1, 2]
    futures[1].set(KafkaError(E.COORDINATOR_NOT_AVAILABLE))
    futures[0].set(None)
    response = resumed(handling)
    assert response is not None
    results = [(it.index, it.error_code, it.base_offset) for it in response.responses[0].partition_responses]
    assert results == [(0, 0, 0), (1, E.NOT_ENOUGH_REPLICAS, -1), (2, 0, 0)]


def test_a_transaction_that_ended_during_the_request_to_its_coordinator_gets_no_late_batch(scene: Scene) -> None:
    scene.transactions.answers = [Future()]
    handling = scene.handle(a_batch(), version=BEFORE_TV2)
    future = waits(handling)
    scene.end()
    future.set(None)
    response = resumed(handling)
    assert response is not None
    assert response.responses[0].partition_responses[0].error_code == E.INVALID_TXN_STATE
    assert scene.values() == []


def test_after_a_marker_of_the_last_transaction_the_coordinator_gets_another_request(scene: Scene) -> None:
    scene.transactions.answers = [Future()]
    handling = scene.handle(a_batch(epoch=1))
    future = waits(handling)
    scene.end(epoch=1, version=2)
    future.set(None)
    response = resumed(handling)
    assert response is not None
    assert response.responses[0].partition_responses[0].error_code == 0
    assert len(scene.transactions.enlistments) == 2
    assert scene.values() == [b"v"]


def test_a_second_refusal_counts(scene: Scene) -> None:
    scene.transactions.answers = [Future(), E.PRODUCER_FENCED]
    handling = scene.handle(a_batch(epoch=1))
    future = waits(handling)
    scene.end(epoch=1, version=2)
    future.set(None)
    response = resumed(handling)
    assert response is not None
    assert response.responses[0].partition_responses[0].error_code == E.INVALID_PRODUCER_EPOCH


def test_one_that_ended_with_a_higher_epoch_is_refused_for_its_epoch(scene: Scene) -> None:
    scene.transactions.answers = [Future()]
    handling = scene.handle(a_batch())
    future = waits(handling)
    scene.end(epoch=1, version=2)
    future.set(None)
    response = resumed(handling)
    assert response is not None
    assert response.responses[0].partition_responses[0].error_code == E.INVALID_PRODUCER_EPOCH


def test_a_batch_that_was_sent_twice_and_waited_twice_is_appended_once(scene: Scene) -> None:
    scene.transactions.answers = [Future(), Future()]
    handlings = [scene.handle(a_batch()), scene.handle(a_batch())]
    for future in [waits(handling) for handling in handlings]:
        future.set(None)
    responses = [resumed(handling) for handling in handlings]
    assert [it and it.responses[0].partition_responses[0].base_offset for it in responses] == [0, 0]
    assert scene.values() == [b"v"]


def test_one_that_has_to_be_sent_again_takes_nothing_from_another_that_waits(scene: Scene) -> None:
    scene.transactions.answers = [Future()]
    handling = scene.handle(a_batch())
    future = waits(handling)
    scene.transactions.answers = [E.CONCURRENT_TRANSACTIONS]
    assert scene.code(a_batch()) == E.CONCURRENT_TRANSACTIONS
    future.set(None)
    response = resumed(handling)
    assert response is not None
    assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("error", [None, KafkaError(E.KAFKA_STORAGE_ERROR, "the disk is broken")])
def test_behind_the_coordinator_it_waits_for_the_medium_and_all_partitions_share_that(
    scene: Scene, error: KafkaError | None
) -> None:
    for index in range(2):
        scene.partition(index).configure(scene.partition().rules, LogConfig(flush_messages=1))
    scene.transactions.answers = [Future(), Future()]
    handling = scene.handle(a_batch(index=0), a_batch(index=1))
    waits(handling).set(None)
    waits(handling).set(None)
    flushed = waits(handling)
    assert [scene.partition(index).log_end_offset for index in range(2)] == [1, 1]
    gates = [scene.partition(index).flush_gate for index in range(2)]
    for gate in gates:
        if error is None:
            flush = gate.begin()
            flush.run()
            gate.finish(flush)
        else:
            gate.fail(error)
    assert flushed.is_set
    response = resumed(handling)
    assert response is not None
    answers = response.responses[0].partition_responses
    expected = (0, 0) if error is None else (E.KAFKA_STORAGE_ERROR, -1)
    assert [(it.error_code, it.base_offset) for it in answers] == [expected, expected]


def test_a_leader_that_changed_meanwhile_is_sent_with_the_refusal(scene: Scene) -> None:
    scene.transactions.answers = [Future()]
    handling = scene.handle(a_batch())
    future = waits(handling)
    scene.partition().take_role(role_of(1, leader_id=2, leader_epoch=9, replicas=[2], isr=[2]))
    future.set(None)
    response = resumed(handling)
    assert response is not None
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == E.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader is not None
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 9)
    assert response.node_endpoints


def test_a_request_without_acknowledgement_waits_for_the_coordinator_too_and_learns_of_a_refusal(scene: Scene) -> None:
    scene.transactions.answers = [Future(), Future()]
    handling = scene.handle(a_batch(), acks=0)
    waits(handling).set(None)
    assert resumed(handling) is None
    assert scene.values() == [b"v"]
    handling = scene.handle(a_batch(producer_id=2), acks=0)
    waits(handling).set(KafkaError(E.PRODUCER_FENCED))
    with pytest.raises(CloseConnection, match="INVALID_PRODUCER_EPOCH"):
        resumed(handling)


def test_a_connection_that_is_lost_while_it_waits_leaves_nothing_behind(scene: Scene) -> None:
    scene.transactions.answers = [Future(), Future()]
    handling = scene.handle(a_batch(index=0), a_batch(index=1))
    waits(handling)
    handling.close()
    assert scene.values() == []

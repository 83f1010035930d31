"""Requests to a transaction's coordinator on another node: what each carries, and its response's meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

from kwire.transactions.remote_partitions import (
    MAX_PARTITIONS,
    MAX_WAITING,
    PartitionsRequest,
    Question,
    RemotePartitions,
    TxnProducer,
)
from kwire.transactions.transaction import TopicPartition

A, B, C = ("a", 0), ("a", 1), ("b", 0)


def added(
    machine: RemotePartitions, producer: TxnProducer, *partitions: TopicPartition, node_id: int = 2
) -> list[Question]:
    questions = [Question(producer, partition) for partition in partitions]
    for question in questions:
        machine.add(question, node_id)
    return questions


def sent(machine: RemotePartitions, node_id: int = 2) -> PartitionsRequest:
    request = machine.next_request(node_id)
    assert request is not None
    return request


def response(request: PartitionsRequest, errors: dict[TopicPartition, int] | None = None) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                it.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        [
                            AddPartitionsToTxnPartitionResult(index, (errors or {}).get((topic.name, index), 0))
                            for index in topic.partitions
                        ],
                    )
                    for topic in it.topics
                ],
            )
            for it in request.request.transactions
        ]
    )


def codes(outcomes: list[tuple[Question, KafkaError | None]]) -> dict[TopicPartition, ErrorCode | None]:
    return {question.partition: None if error is None else error.code for question, error in outcomes}


def producer(name: str = "id", *, producer_id: int = 1, epoch: int = 0, adds: bool = True) -> TxnProducer:
    return TxnProducer(name, producer_id, epoch, adds)


def test_the_partitions_of_a_transaction_go_in_one_entry() -> None:
    machine = RemotePartitions()
    added(machine, producer(), A, C, B, A)
    added(machine, producer("other", producer_id=2, adds=False), A)
    request = sent(machine)
    first, second = request.request.transactions
    assert (first.transactional_id, first.producer_id, first.producer_epoch, first.verify_only) == ("id", 1, 0, False)
    assert [(it.name, it.partitions) for it in first.topics] == [("a", [0, 1]), ("b", [0])]
    assert (second.transactional_id, second.verify_only) == ("other", True)
    assert len(machine.answered(request, response(request))) == 5


def test_what_is_requested_while_a_request_is_under_way_shares_the_next_one() -> None:
    machine = RemotePartitions()
    added(machine, producer(), A)
    first = sent(machine)
    added(machine, producer(), B)
    added(machine, producer("other"), C)
    assert machine.next_request(2) is None
    assert codes(machine.answered(first, response(first))) == {A: None}
    second = sent(machine)
    assert codes(machine.answered(second, response(second))) == {B: None, C: None}
    assert machine.next_request(2) is None


def test_each_node_has_its_own_request() -> None:
    machine = RemotePartitions()
    added(machine, producer(), A, node_id=2)
    added(machine, producer("other"), B, node_id=3)
    assert (sent(machine, 2).node_id, sent(machine, 3).node_id) == (2, 3)


@pytest.mark.parametrize("other", [producer(epoch=1), producer(producer_id=9), producer(adds=False)])
def test_an_id_is_named_once_in_a_request_and_what_differs_waits_for_the_next(other: TxnProducer) -> None:
    machine = RemotePartitions()
    added(machine, producer(), A)
    added(machine, other, A)
    added(machine, producer(), B)
    first = sent(machine)
    assert [it.producer for it in first.questions] == [producer(), producer()]
    machine.answered(first, response(first))
    second = sent(machine)
    assert [it.producer for it in second.questions] == [other]


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NETWORK_EXCEPTION),
        (9999, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_each_partition_has_its_own_answer(code: int, meaning: ErrorCode) -> None:
    machine = RemotePartitions()
    added(machine, producer(), A, B)
    request = sent(machine)
    assert codes(machine.answered(request, response(request, {A: code}))) == {A: meaning, B: None}


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_an_error_of_the_request_is_the_answer_for_all(code: ErrorCode, meaning: ErrorCode) -> None:
    machine = RemotePartitions()
    added(machine, producer(), A, B)
    assert codes(machine.answered(sent(machine), AddPartitionsToTxnResponse(error_code=code))) == {
        A: meaning,
        B: meaning,
    }


def test_without_a_response_the_producer_is_to_try_again() -> None:
    machine = RemotePartitions()
    added(machine, producer(), A)
    assert codes(machine.answered(sent(machine), None)) == {A: ErrorCode.NETWORK_EXCEPTION}
    added(machine, producer(), A)
    assert machine.next_request(2) is not None


def test_an_answer_that_leaves_out_partitions_or_makes_them_up_does_no_harm() -> None:
    machine = RemotePartitions()
    added(machine, producer(), A, B)
    request = sent(machine)
    strange = response(request)
    strange.results_by_transaction[0].topic_results[0].results_by_partition[1:] = [
        AddPartitionsToTxnPartitionResult(77, 0)
    ]
    strange.results_by_transaction.append(AddPartitionsToTxnResult("who"))
    assert codes(machine.answered(request, strange)) == {A: None, B: ErrorCode.NETWORK_EXCEPTION}


def test_what_waits_and_what_a_request_carries_is_bounded() -> None:
    machine = RemotePartitions()
    added(machine, producer(), *(("a", index) for index in range(MAX_WAITING)))
    with pytest.raises(KafkaError) as refused:
        added(machine, producer(), C)
    assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
    added(machine, producer(), C, node_id=3)
    assert len(sent(machine).questions) == MAX_PARTITIONS


ASKERS = st.builds(TxnProducer, st.sampled_from(["x", "y"]), st.integers(1, 2), st.integers(0, 1), st.booleans())


@given(st.lists(st.tuples(ASKERS, st.sampled_from([A, B, C]), st.integers(2, 3))))
def test_every_question_is_answered_once(questions: list[tuple[TxnProducer, TopicPartition, int]]) -> None:
    machine = RemotePartitions()
    waiting = []
    for it, partition, node_id in questions:
        question = Question(it, partition)
        machine.add(question, node_id)
        waiting.append(question)
    for node_id in (2, 3):
        while (request := machine.next_request(node_id)) is not None:
            ids = [it.transactional_id for it in request.request.transactions]
            assert len(set(ids)) == len(ids)
            for question, error in machine.answered(request, response(request)):
                assert error is None
                waiting.remove(question)
    assert waiting == []

"""Markers for other nodes: the requests that carry them, and the meaning of the responses."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from devtools.suite.tiers import examples
from kwire.transactions.effects import WriteMarkers
from kwire.transactions.remote_markers import MAX_PARTITIONS, MarkersRequest, RemoteMarkers, Written
from kwire.transactions.transaction import TopicPartition

EPOCH = 5
A, B, C = ("a", 0), ("a", 1), ("b", 0)


def marker(
    name: str = "id", *partitions: TopicPartition, producer_id: int = 1, epoch: int = 0, coordinator_epoch: int = EPOCH
) -> WriteMarkers:
    return WriteMarkers(name, producer_id, epoch, coordinator_epoch, True, frozenset(partitions), 2)


@attrs.define(eq=False)
class Scene:
    """This node coordinates partition 0 of the transactions, in `epoch`."""

    epoch: int = EPOCH
    machine: RemoteMarkers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.machine = RemoteMarkers(lambda index, epoch: (index, epoch) == (0, self.epoch))

    def want(self, wanted: WriteMarkers, node_id: int, *partitions: TopicPartition) -> None:
        for partition in partitions or sorted(wanted.partitions):
            self.machine.want(0, wanted, partition, node_id)

    def sent(self, node_id: int) -> MarkersRequest:
        request = self.machine.next_request(node_id)
        assert request is not None
        return request

    def answered(self, sent: MarkersRequest, *errors: tuple[TopicPartition, int]) -> dict[str, list[TopicPartition]]:
        """Returns the writes, by transactional id, after an answer with these errors, and NONE elsewhere."""
        return partitions_by_id(self.machine.answered(sent, response(sent, dict(errors))))


def partitions_by_id(written: Sequence[Written]) -> dict[str, list[TopicPartition]]:
    return {it.marker.transactional_id: it.partitions for it in written}


def response(sent: MarkersRequest, errors: dict[TopicPartition, int]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                it.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(index, errors.get((topic.name, index), 0))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in it.topics
                ],
            )
            for it in sent.request.markers
        ]
    )


def carried(sent: MarkersRequest) -> set[tuple[int, str, int]]:
    return {
        (it.producer_id, topic.name, index)
        for it in sent.request.markers
        for topic in it.topics
        for index in topic.partition_indexes
    }


def test_all_partitions_of_a_transaction_at_a_node_go_in_one_marker() -> None:
    scene = Scene()
    scene.want(marker("id", A, B, C), 2)
    sent = scene.sent(2)
    (only,) = sent.request.markers
    assert (only.producer_id, only.producer_epoch, only.transaction_result) == (1, 0, True)
    assert (only.coordinator_epoch, only.transaction_version) == (EPOCH, 2)
    assert [(it.name, it.partition_indexes) for it in only.topics] == [("a", [0, 1]), ("b", [0])]
    assert scene.answered(sent) == {"id": [A, B, C]}
    assert not scene.machine


def test_each_node_has_its_own_request() -> None:
    scene = Scene()
    wanted = marker("id", A, B)
    scene.want(wanted, 2, A)
    scene.want(wanted, 3, B)
    to_two, to_three = scene.sent(2), scene.sent(3)
    assert (carried(to_two), carried(to_three)) == ({(1, "a", 0)}, {(1, "a", 1)})
    assert scene.answered(to_three) == {"id": [B]}
    assert scene.answered(to_two) == {"id": [A]}


def test_what_is_wanted_while_a_request_is_under_way_shares_the_next_one() -> None:
    scene = Scene()
    scene.want(marker("x", A, producer_id=1), 2)
    first = scene.sent(2)
    scene.want(marker("y", A, producer_id=2), 2)
    scene.want(marker("z", A, B, producer_id=3), 2)
    assert scene.machine.next_request(2) is None
    assert scene.answered(first) == {"x": [A]}
    second = scene.sent(2)
    assert carried(second) == {(2, "a", 0), (3, "a", 0), (3, "a", 1)}
    assert scene.answered(second) == {"y": [A], "z": [A, B]}
    assert scene.machine.next_request(2) is None


def test_what_is_under_way_or_waits_is_not_sent_twice() -> None:
    scene = Scene()
    scene.want(marker("id", A), 2)
    scene.want(marker("id", A), 2)
    sent = scene.sent(2)
    scene.want(marker("id", A), 2)
    assert scene.answered(sent) == {"id": [A]}
    assert scene.machine.next_request(2) is None


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_marker_is_not_needed_where_another_coordinator_or_epoch_has_written_one(error: ErrorCode) -> None:
    scene = Scene()
    scene.want(marker("id", A, B), 2)
    assert scene.answered(scene.sent(2), (A, error)) == {"id": [A, B]}


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, False),
        (ErrorCode.REQUEST_TIMED_OUT, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (9999, True),
    ],
)
def test_other_errors_have_only_their_partition_tried_again_perhaps_elsewhere(
    error: int, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.want(marker("id", A, B), 2)
    with caplog.at_level(logging.WARNING):
        assert scene.answered(scene.sent(2), (A, error)) == {"id": [B]}
    assert bool(caplog.messages) == is_logged
    assert scene.machine.next_request(2) is None
    scene.want(marker("id", A), 3)
    assert scene.answered(scene.sent(3)) == {"id": [A]}


def test_without_a_response_everything_is_wanted_again_by_its_transaction() -> None:
    scene = Scene()
    scene.want(marker("id", A, B), 2)
    assert scene.machine.answered(scene.sent(2), None) == []
    assert not scene.machine
    scene.want(marker("id", A, B), 2)
    assert scene.answered(scene.sent(2)) == {"id": [A, B]}


def test_an_answer_that_leaves_out_partitions_or_makes_them_up_does_no_harm() -> None:
    scene = Scene()
    scene.want(marker("id", A, B), 2)
    sent = scene.sent(2)
    strange = response(sent, {})
    strange.markers[0].topics[0].partitions[1:] = [WritableTxnMarkerPartitionResult(77, 0)]
    strange.markers.append(WritableTxnMarkerResult(99, [WritableTxnMarkerTopicResult("z", [])]))
    assert partitions_by_id(scene.machine.answered(sent, strange)) == {"id": [A]}


def test_a_partition_whose_leader_moves_gets_its_marker_there_and_the_late_answer_has_no_effect() -> None:
    scene = Scene()
    scene.want(marker("id", A), 2)
    late = scene.sent(2)
    scene.want(marker("id", A), 3)
    assert scene.answered(scene.sent(3)) == {"id": [A]}
    # The next transaction of the producer, with the same epoch below transaction version 2, in the same partition.
    scene.want(marker("id", A), 3)
    assert scene.answered(late) == {}
    assert scene.answered(scene.sent(3)) == {"id": [A]}


def test_a_partition_whose_leader_moves_before_the_request_is_not_in_it() -> None:
    scene = Scene()
    scene.want(marker("x", A), 2)
    first = scene.sent(2)
    scene.want(marker("y", B, producer_id=2), 2)
    scene.want(marker("y", B, producer_id=2), 3)
    scene.answered(first)
    assert scene.machine.next_request(2) is None
    assert carried(scene.sent(3)) == {(2, "a", 1)}


def test_a_marker_that_was_written_here_meanwhile_is_forgotten() -> None:
    scene = Scene()
    scene.want(marker("id", A, B), 2)
    scene.machine.forget("id", B)
    sent = scene.sent(2)
    assert carried(sent) == {(1, "a", 0)}
    scene.machine.forget("id", A)
    assert scene.answered(sent) == {}
    assert not scene.machine


def test_a_coordinator_that_was_unloaded_sends_nothing_more_and_takes_no_answer() -> None:
    scene = Scene()
    scene.want(marker("x", A), 2)
    sent = scene.sent(2)
    scene.want(marker("y", B, producer_id=2), 2)
    scene.epoch = EPOCH + 1
    assert scene.answered(sent) == {}
    assert scene.machine.next_request(2) is None
    assert not scene.machine
    # It is loaded again, and replays that the marker is missing.
    scene.want(marker("x", A, coordinator_epoch=EPOCH + 1), 2)
    assert scene.answered(scene.sent(2)) == {"x": [A]}


def test_an_answer_to_the_coordinators_former_epoch_is_not_one_to_its_new_epoch() -> None:
    scene = Scene()
    scene.want(marker("x", A), 2)
    sent = scene.sent(2)
    scene.epoch = EPOCH + 1
    scene.want(marker("x", A, coordinator_epoch=EPOCH + 1), 2)
    assert scene.answered(sent) == {}
    again = scene.sent(2)
    assert again.request.markers[0].coordinator_epoch == EPOCH + 1
    assert scene.answered(again) == {"x": [A]}


def test_a_request_is_bounded_and_the_rest_follows() -> None:
    scene = Scene()
    partitions = [("a", index) for index in range(MAX_PARTITIONS + 2)]
    scene.want(marker("id", *partitions), 2, *partitions)
    first = scene.sent(2)
    assert len(carried(first)) == MAX_PARTITIONS
    scene.answered(first)
    assert len(carried(scene.sent(2))) == 2


NODES = st.integers(2, 4)
TRANSACTIONS = st.integers(0, 2)
PLACES = st.sampled_from([A, B, C])
ERRORS = st.sampled_from([0, 0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_PRODUCER_EPOCH, None])


class Coordinator(RuleBasedStateMachine):
    """Transactions follow one another, leaders move, answers come late or never: no marker counts for another one."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.round = [0, 0, 0]
        self.wanted: list[dict[TopicPartition, WriteMarkers]] = [{}, {}, {}]
        self.under_way: dict[int, tuple[MarkersRequest, dict[tuple[int, TopicPartition], int]]] = {}

    @rule(number=TRANSACTIONS, partitions=st.sets(PLACES, min_size=1))
    def decide(self, number: int, partitions: set[TopicPartition]) -> None:
        if not self.wanted[number]:
            self.round[number] += 1
            decided = marker(f"id-{number}", *partitions, producer_id=number)
            self.wanted[number] = dict.fromkeys(partitions, decided)

    @rule(number=TRANSACTIONS, node_id=NODES)
    def ask(self, number: int, node_id: int) -> None:
        for partition, decided in self.wanted[number].items():
            self.scene.want(decided, node_id, partition)

    @rule(number=TRANSACTIONS)
    def write_here(self, number: int) -> None:
        for partition in list(self.wanted[number]):
            self.scene.machine.forget(f"id-{number}", partition)
            del self.wanted[number][partition]

    @rule(node_id=NODES)
    def send(self, node_id: int) -> None:
        sent = self.scene.machine.next_request(node_id)
        if sent is not None:
            assert node_id not in self.under_way
            rounds = {
                (producer_id, (name, index)): self.round[producer_id] for producer_id, name, index in carried(sent)
            }
            for producer_id, partition in rounds:
                assert partition in self.wanted[producer_id], "nothing is sent that has its marker"
            self.under_way[node_id] = (sent, rounds)

    @rule(node_id=NODES, errors=st.dictionaries(PLACES, ERRORS))
    def answer(self, node_id: int, errors: dict[TopicPartition, int | None]) -> None:
        if node_id not in self.under_way:
            return
        sent, rounds = self.under_way.pop(node_id)
        if None in errors.values():
            assert self.scene.machine.answered(sent, None) == []
            return
        codes = {place: error for place, error in errors.items() if error is not None}
        for written in self.scene.machine.answered(sent, response(sent, codes)):
            number = written.marker.producer_id
            for partition in written.partitions:
                assert rounds[number, partition] == self.round[number], "a late answer does not count"
                assert errors.get(partition) != ErrorCode.NOT_LEADER_OR_FOLLOWER
                del self.wanted[number][partition]

    @invariant()
    def is_empty_when_nothing_is_wanted(self) -> None:
        assert any(self.wanted) or not self.scene.machine


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)

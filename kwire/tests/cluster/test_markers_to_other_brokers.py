"""The coordinator, the leaders and the group of a transaction on different brokers, while messages are lost and late,
and leaders move.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire_protocol.messages.end_txn import EndTxnRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kwire_protocol.records import Record, build_batch

from kwire.client.producing import _FIRST_PRODUCE_THAT_ADDS
from kwire.coordinators.runtime import java_hash
from kwire.metadata.controller.topics.topic_deletion import delete_topics
from kwire.names.topic_names import TRANSACTION_STATE
from kwire.replicas.partition import Partition
from kwire.runtime.futures import Future
from testkit.basics.futures import at_once
from testkit.cluster.connected_cluster import ConnectedCluster, answering, handled
from testkit.cluster.scripted_cluster import create

SETTINGS = (
    "transaction.state.log.replication.factor=2",
    "transaction.state.log.min.isr=1",
    "transaction.state.log.num.partitions=1",
    "add.partitions.to.txn.retry.backoff.max.ms=10000",
)
PRODUCE = _FIRST_PRODUCE_THAT_ADDS
T0, T1 = ("t", 0), ("t", 1)


@attrs.define(eq=False)
class Scene:
    """Two brokers. Node 1 coordinates all transactional ids, and leads t-0; node 2 leads t-1. Both have replicas."""

    cluster: ConnectedCluster
    producer: tuple[int, int] = (-1, -1)

    def init(self) -> None:
        answer = handled(self.cluster.brokers[1], InitProducerIdRequest("id", 60_000), 5)
        assert answer.error_code == 0
        self.producer = (answer.producer_id, answer.producer_epoch)

    def produce(self, node_id: int, index: int, *, sequence: int = 0, version: int = PRODUCE) -> Future[object]:
        producer_id, epoch = self.producer
        batch = build_batch(
            [Record(timestamp=1, value=b"v")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData("t", partition_data=[PartitionProduceData(index, batch)])
        return answering(self.cluster.brokers[node_id], ProduceRequest("id", 1, 1000, [data]), version)

    def produced(self, future: Future[object]) -> ErrorCode:
        assert future.is_set
        (topic,) = future.value.responses  # type: ignore[attr-defined]
        return ErrorCode(topic.partition_responses[0].error_code)

    def write(self) -> None:
        """Writes the producer's first batch in both partitions."""
        here, there = self.produce(1, 0), self.produce(2, 1)
        self.cluster.deliver_all()
        assert (self.produced(here), self.produced(there)) == (ErrorCode.NONE, ErrorCode.NONE)

    def end(self, *, committed: bool = True, node_id: int = 1) -> None:
        answer = handled(self.cluster.brokers[node_id], EndTxnRequest("id", *self.producer, committed=committed), 5)
        assert answer.error_code == 0
        self.producer = (answer.producer_id, answer.producer_epoch)

    def write_as_older(self, sequence: int = 0) -> None:
        """Writes the first batch in t-1 of a producer before transaction version 2."""
        topics = [AddPartitionsToTxnTopic("t", [1])]
        added = handled(self.cluster.brokers[1], AddPartitionsToTxnRequest([], "id", *self.producer, topics), 3)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        there = self.produce(2, 1, sequence=sequence, version=PRODUCE - 1)
        self.cluster.in_flight.pop().deliver()
        assert self.produced(there) is ErrorCode.NONE

    def end_as_older(self) -> None:
        answer = handled(self.cluster.brokers[1], EndTxnRequest("id", *self.producer, committed=True), 4)
        assert answer.error_code == 0

    def partition(self, index: int, node_id: int) -> Partition:
        return self.cluster.led("t", index, node_id)

    def state(self, node_id: int = 1) -> str:
        return self.cluster.brokers[node_id].transactions.describe("id").transaction_state

    def try_again(self, node_id: int = 1) -> None:
        """Runs the retry by which the coordinator requests its missing markers."""
        runtime = self.cluster.brokers[node_id].transactions.runtime
        index, shard, _ = runtime.find("id")
        runtime.perform(index, shard.go_on("id", now=runtime.now()))

    def settle(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.transactions.runtime.settle()


@pytest.fixture
def scene() -> Iterator[Scene]:
    cluster = ConnectedCluster()
    cluster.start(1, *SETTINGS)
    first = cluster.start(2, *SETTINGS)
    create(first, "t", 2, 2)
    at_once(first.transactions.runtime.topic.ensure())
    cluster.elect("t", 0, 1)
    cluster.elect("t", 1, 2)
    cluster.elect(TRANSACTION_STATE, 0, 1)
    scene = Scene(cluster)
    scene.settle()
    scene.init()
    yield scene
    for broker in cluster.brokers.values():
        broker.close()


def ends(partition: Partition) -> tuple[int, int]:
    """Returns the last stable offset and the log end."""
    return partition.last_stable_offset, partition.log_end_offset


@pytest.mark.parametrize("committed", [True, False])
def test_each_leader_gets_its_markers_and_then_the_transaction_is_complete(scene: Scene, committed: bool) -> None:
    scene.write()
    scene.end(committed=committed)
    assert (ends(scene.partition(0, 1)), ends(scene.partition(1, 2))) == ((2, 2), (0, 1))
    assert scene.state().startswith("Prepare")
    scene.cluster.taken(WriteTxnMarkersRequest).deliver()
    assert ends(scene.partition(1, 2)) == (2, 2)
    assert scene.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert scene.cluster.in_flight == []


def test_what_is_local_sends_no_request(scene: Scene) -> None:
    assert scene.produced(scene.produce(1, 0)) is ErrorCode.NONE
    scene.end()
    assert scene.state() == "CompleteCommit"
    assert scene.cluster.in_flight == []


def test_a_marker_whose_answer_was_lost_is_written_again_which_does_no_harm(scene: Scene) -> None:
    scene.write()
    scene.end()
    lost = scene.cluster.taken(WriteTxnMarkersRequest)
    lost.handle()
    lost.fail()
    assert scene.state() == "PrepareCommit"
    scene.try_again()
    scene.cluster.deliver_all()
    assert scene.state() == "CompleteCommit"
    assert ends(scene.partition(1, 2)) == (3, 3)


def test_a_leader_that_moves_between_the_decision_and_the_marker_gets_the_marker(scene: Scene) -> None:
    scene.write()
    scene.end()
    late = scene.cluster.taken(WriteTxnMarkersRequest)
    scene.cluster.replicate("t", 1, source=2, target=1)
    scene.cluster.elect("t", 1, 1)
    refused = late.handle().value
    assert refused.markers[0].topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    late.respond(refused)
    assert scene.state() == "PrepareCommit"
    scene.try_again()
    assert scene.state() == "CompleteCommit"
    assert ends(scene.partition(1, 1)) == (2, 2)
    assert scene.cluster.in_flight == []


def test_a_late_answer_of_a_former_leader_has_no_effect(scene: Scene) -> None:
    scene.write()
    scene.end()
    late = scene.cluster.taken(WriteTxnMarkersRequest)
    answer = late.handle()
    scene.cluster.replicate("t", 1, source=2, target=1)
    scene.cluster.elect("t", 1, 1)
    scene.try_again()
    assert scene.state() == "CompleteCommit"
    here = scene.produce(1, 1)
    assert scene.produced(here) is ErrorCode.NONE
    late.respond(answer.value)
    assert scene.state() == "Ongoing"


def test_a_late_answer_does_not_count_for_the_next_transaction_of_an_older_producer(scene: Scene) -> None:
    """The producer's epoch stays the same."""
    scene.write_as_older()
    scene.end_as_older()
    late = scene.cluster.taken(WriteTxnMarkersRequest)
    answer = late.handle()
    scene.cluster.elect("t", 1, 1)
    scene.try_again()
    assert scene.state() == "CompleteCommit"
    scene.cluster.elect("t", 1, 2)
    scene.write_as_older(sequence=1)
    scene.end_as_older()
    late.respond(answer.value)
    assert scene.state() == "PrepareCommit"
    scene.cluster.deliver_all()
    assert scene.state() == "CompleteCommit"


def test_a_partition_of_this_broker_that_is_offline_is_tried_again_without_a_request(scene: Scene) -> None:
    assert scene.produced(scene.produce(1, 0)) is ErrorCode.NONE
    scene.partition(0, 1).take_offline()
    scene.end()
    scene.try_again()
    assert scene.state() == "PrepareCommit"
    assert scene.cluster.in_flight == []


def test_a_topic_that_was_deleted_needs_no_marker(scene: Scene) -> None:
    scene.write()
    scene.end()
    lost = scene.cluster.taken(WriteTxnMarkersRequest)
    at_once(
        scene.cluster.brokers[2].metadata.change(delete_topics, DeleteTopicsRequest([DeleteTopicState("t")]), version=6)
    )
    answer = lost.handle().value
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    lost.respond(answer)
    assert scene.state() == "PrepareCommit"
    scene.try_again()
    assert scene.state() == "CompleteCommit"


def test_a_coordinator_that_moves_has_the_new_one_write_the_markers_and_the_old_one_do_nothing(scene: Scene) -> None:
    scene.write()
    scene.end()
    late = scene.cluster.taken(WriteTxnMarkersRequest)
    answer = late.handle()
    scene.cluster.replicate(TRANSACTION_STATE, 0, source=1, target=2)
    scene.cluster.elect(TRANSACTION_STATE, 0, 2)
    old = scene.cluster.led(TRANSACTION_STATE, 0, 1)
    end = old.log_end_offset
    late.respond(answer.value)
    scene.settle()
    assert old.log_end_offset == end
    with pytest.raises(KafkaError) as refused:
        scene.state(1)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    load(scene, 2)
    # The new one leads t-1 itself, and sends a request to node 1 for t-0; both have a marker already.
    assert scene.state(2) == "PrepareCommit"
    to_first = scene.cluster.taken(WriteTxnMarkersRequest)
    assert to_first.node_id == 1
    assert to_first.request.markers[0].coordinator_epoch > 0
    to_first.deliver()
    assert scene.state(2) == "CompleteCommit"
    assert ends(scene.partition(0, 1)) == (3, 3)


def load(scene: Scene, node_id: int) -> None:
    """Loads as the runtime's task does."""
    runtime = scene.cluster.brokers[node_id].transactions.runtime
    index = java_hash("id") % runtime.topic.partition_count
    runtime._advance(index, _Endless())  # type: ignore[arg-type]


class _Endless:
    def is_over(self) -> bool:
        return False


# Partitions whose coordinator is elsewhere


def test_a_partition_joins_the_transaction_before_its_first_batch_is_appended(scene: Scene) -> None:
    waiting = scene.produce(2, 1)
    assert not waiting.is_set
    assert scene.partition(1, 2).log_end_offset == 0
    sent = scene.cluster.taken(AddPartitionsToTxnRequest)
    (transaction,) = sent.request.transactions
    assert (sent.node_id, transaction.transactional_id, transaction.verify_only) == (1, "id", False)
    sent.deliver()
    assert scene.produced(waiting) is ErrorCode.NONE
    assert scene.state() == "Ongoing"
    assert scene.produced(scene.produce(2, 1, sequence=1)) is ErrorCode.NONE
    assert scene.cluster.in_flight == []


def test_an_older_producer_has_its_partition_verified_only(scene: Scene) -> None:
    waiting = scene.produce(2, 1, version=PRODUCE - 1)
    sent = scene.cluster.taken(AddPartitionsToTxnRequest)
    assert sent.request.transactions[0].verify_only
    sent.deliver()
    assert scene.produced(waiting) is ErrorCode.TRANSACTION_ABORTABLE
    assert scene.state() == "Empty"


def test_a_coordinator_that_does_not_answer_has_the_producer_try_again(scene: Scene) -> None:
    waiting = scene.produce(2, 1)
    scene.cluster.taken(AddPartitionsToTxnRequest).fail()
    assert scene.produced(waiting) is ErrorCode.NOT_ENOUGH_REPLICAS
    again = scene.produce(2, 1)
    scene.cluster.deliver_all()
    assert scene.produced(again) is ErrorCode.NONE


def test_a_fenced_producer_is_refused_by_the_coordinator_elsewhere(scene: Scene) -> None:
    former = scene.producer
    scene.init()
    scene.producer = former
    waiting = scene.produce(2, 1)
    scene.cluster.deliver_all()
    assert scene.produced(waiting) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_of_the_next_transaction_waits_for_the_end_of_the_last_one(scene: Scene) -> None:
    scene.write()
    scene.end()
    marker = scene.cluster.taken(WriteTxnMarkersRequest)
    waiting = scene.produce(2, 1)
    scene.cluster.taken(AddPartitionsToTxnRequest).deliver()  # CONCURRENT_TRANSACTIONS
    assert not waiting.is_set
    marker.deliver()
    scene.cluster.pauses.pop().set(None)
    scene.cluster.taken(AddPartitionsToTxnRequest).deliver()
    # The marker has come since the first request to the coordinator, so a second one is sent.
    scene.cluster.taken(AddPartitionsToTxnRequest).deliver()
    assert scene.produced(waiting) is ErrorCode.NONE
    assert scene.state() == "Ongoing"


def test_an_older_producer_gets_an_error_at_once_while_its_last_transaction_has_not_ended(scene: Scene) -> None:
    scene.write_as_older()
    scene.end_as_older()
    scene.cluster.taken(WriteTxnMarkersRequest).handle()
    waiting = scene.produce(2, 1, sequence=1, version=PRODUCE - 1)
    scene.cluster.taken(AddPartitionsToTxnRequest).deliver()
    assert scene.produced(waiting) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_coordinator_that_moved_here_during_the_pause_has_the_producer_try_again(scene: Scene) -> None:
    scene.write()
    scene.end()
    waiting = scene.produce(2, 1)
    marker, sent = scene.cluster.in_flight
    sent.deliver()
    scene.cluster.replicate(TRANSACTION_STATE, 0, source=1, target=2)
    scene.cluster.elect(TRANSACTION_STATE, 0, 2)
    scene.cluster.pauses.pop().set(None)
    assert scene.produced(waiting) is ErrorCode.NOT_ENOUGH_REPLICAS
    marker.fail()

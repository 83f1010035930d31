"""Requests of `kwire cluster` in special cases: to brokers that lag, fail or forget meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kwire_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kwire_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kwire_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kwire_protocol.messages.metadata import MetadataRequest
from kwire_protocol.messages.unregister_broker import UnregisterBrokerRequest

from kwire.admin.batches import MAX_BATCH
from kwire.admin.brokers import only_at, unregister_broker
from kwire.admin.cluster_state import describe_cluster
from kwire.admin.elections import SETTLING_S, elect, electable
from kwire.admin.partitions import PartitionState, replica_sizes
from kwire.admin.reassignments import (
    Outcome,
    Progress,
    Reassignment,
    cancel_reassignment,
    list_reassignments,
    measure,
    outcome,
    reassign,
)
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ConnectionFailed
from testkit.fakes.brokers import in_sequence
from testkit.fakes.cluster_brokers import ClusterBrokers

E = ErrorCode
AT = TopicPartition("t", 0)


def ended(before: tuple[int, ...], target: tuple[int, ...]) -> Reassignment:
    removing = tuple(it for it in before if it not in target)
    return Reassignment(AT, (*target, *removing), tuple(it for it in target if it not in before), removing)


@pytest.mark.parametrize(
    ("before", "target", "replicas", "isr", "how", "waits"),
    [
        ((1,), (2,), [2], [2], Outcome.COMPLETE, False),
        ((1,), (2,), [1], [1], Outcome.CANCELLED, False),
        ((1,), (2,), [2, 1], [1], Outcome.CANCELLED, True),  # the broker has not heard of it, and never does
        ((1,), (1, 2), [1, 2], [1, 2], Outcome.COMPLETE, False),
        ((1,), (1, 2), [1, 2], [1], Outcome.COMPLETE, True),  # complete, and out of sync again
        ((1,), (1, 2), [1], [1], Outcome.CANCELLED, False),
        ((1, 2), (1,), [1], [1], Outcome.COMPLETE, False),
        ((1, 2), (1,), [1, 2], [1, 2], Outcome.CANCELLED, True),
        ((1, 2), (2, 1), [2, 1], [1, 2], Outcome.COMPLETE, False),
        ((1,), (2,), [3], [3], Outcome.CANCELLED, True),  # another reassignment
    ],
)
def test_how_a_reassignment_ended_is_seen_by_the_replicas(
    before: tuple[int, ...], target: tuple[int, ...], replicas: list[int], isr: list[int], how: Outcome, waits: bool
) -> None:
    brokers = ClusterBrokers()
    brokers.has("t-0", replicas, isr)
    assert outcome(brokers.cluster(), ended(before, target)) is how
    assert (brokers.network.clock.now_s > 1) is waits


def test_a_reassignment_whose_topic_was_deleted_has_ended_so() -> None:
    brokers = ClusterBrokers()
    assert outcome(brokers.cluster(), ended((1,), (2,))) is Outcome.DELETED
    assert measure(brokers.cluster(), [ended((1,), (2,))]) == {}


def test_progress_counts_a_replica_in_sync_in_full_and_no_replica_beyond_that() -> None:
    brokers = ClusterBrokers()
    it = brokers.moves("t-0", [1], [2, 3], n1=100, n2=30, n3=500)
    cluster = brokers.cluster()
    assert measure(cluster, list_reassignments(cluster)) == {AT: Progress(130, 200)}
    it.isr.append(2)
    assert measure(cluster, list_reassignments(cluster)) == {AT: Progress(200, 200)}


def test_replicas_of_a_reassignment_that_was_replaced_are_waited_for_too() -> None:
    """As in Kafka, the later reassignment counts them as existing replicas."""
    brokers = ClusterBrokers()
    brokers.moves("t-0", [1], [2], n1=100, n2=30)
    cluster = brokers.cluster()
    reassign(cluster, AT, [2, 3])
    (found,) = list_reassignments(cluster)
    assert found.adding == (3,)
    assert measure(cluster, [found]) == {AT: Progress(30, 200)}


@given(st.integers(0, 1000), st.dictionaries(st.integers(2, 5), st.integers(0, 1 << 62)), st.sets(st.integers(2, 5)))
def test_progress_is_never_more_than_all(leader_size: int, sizes: dict[int, int], in_sync: set[int]) -> None:
    brokers = ClusterBrokers(nodes=[1, 2, 3, 4, 5])
    it = brokers.moves("t-0", [1], [2, 3, 4, 5])
    it.sizes = {1: leader_size, **sizes}
    it.isr = [1, *in_sync]
    cluster = brokers.cluster()
    (found,) = measure(cluster, list_reassignments(cluster)).values()
    assert found.total_bytes == 4 * leader_size
    assert 0 <= found.copied_bytes <= 4 * leader_size
    assert found.percent is not None
    assert 0 <= found.percent <= 100
    assert found.percent == 100 or in_sync != {2, 3, 4, 5}


def test_sizes_of_brokers_that_do_not_answer_are_left_out() -> None:
    brokers = ClusterBrokers()
    brokers.has("t-0", [1, 2]).sizes = {1: 10, 2: 20}
    cluster = brokers.cluster()
    brokers.network.down = {2}
    assert replica_sizes(cluster, [(1, AT), (2, AT)]) == {(1, AT): 10}
    brokers.does_not_serve(DescribeLogDirsRequest)
    assert replica_sizes(brokers.cluster(), [(1, AT)]) == {}


def test_a_request_is_sent_again_when_the_controller_has_moved() -> None:
    brokers = ClusterBrokers()
    brokers.network.answers[ListPartitionReassignmentsRequest] = in_sequence(
        ListPartitionReassignmentsResponse(error_code=E.NOT_CONTROLLER), ListPartitionReassignmentsResponse()
    )
    assert list_reassignments(brokers.cluster()) == []
    assert len(brokers.requests(ListPartitionReassignmentsRequest)) == 2


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (AlterPartitionReassignmentsRequest, lambda cluster: reassign(cluster, AT, [2])),
        (AlterPartitionReassignmentsRequest, lambda cluster: cancel_reassignment(cluster, AT)),
        (UnregisterBrokerRequest, lambda cluster: unregister_broker(cluster, 4)),
    ],
)
def test_a_change_whose_response_is_lost_is_not_sent_again(kind: type, change: Callable[[Cluster], None]) -> None:
    brokers = ClusterBrokers()
    brokers.network.answers[kind] = in_sequence(ConnectionResetError(104, "Connection reset by peer"))
    with pytest.raises(ConnectionFailed):
        change(brokers.cluster())
    assert len(brokers.requests(kind)) == 1


def test_elections_are_requested_in_batches() -> None:
    brokers = ClusterBrokers()
    for index in range(MAX_BATCH + 1):
        brokers.has(f"t-{index}", [1, 2], leader=2)
    cluster = brokers.cluster()
    found = elect(cluster, electable(cluster, None, unclean=False), unclean=False)
    assert len(found) == MAX_BATCH + 1
    assert {(it.leader_before, it.leader_id, it.problem) for it in found} == {(2, 1, None)}
    requests = brokers.requests(ElectLeadersRequest)
    assert [sum(len(it.partitions) for it in request.topic_partitions) for request in requests] == [MAX_BATCH, 1]


def test_a_broker_that_has_not_heard_of_a_new_leader_is_waited_for_but_not_for_ever() -> None:
    brokers = ClusterBrokers()
    it = brokers.has("t-0", [1, 2], leader=2)
    cluster = brokers.cluster()
    partitions = electable(cluster, "t", unclean=False)
    brokers.network.answers[ElectLeadersRequest] = in_sequence(
        ElectLeadersResponse(replica_election_results=[ReplicaElectionResult("t", [PartitionResult(0)])])
    )
    (found,) = elect(cluster, partitions, unclean=False)
    assert (found.leader_id, found.problem) == (2, None)
    assert 1 < brokers.network.clock.now_s <= SETTLING_S
    it.leader = 1
    assert elect(cluster, partitions, unclean=False)[0].leader_id == 1


def test_what_was_elected_meanwhile_is_no_problem() -> None:
    brokers = ClusterBrokers()
    it = brokers.has("t-0", [1, 2], leader=2)
    cluster = brokers.cluster()
    partitions = electable(cluster, None, unclean=False)
    it.leader = 1
    (found,) = elect(cluster, partitions, unclean=False)
    assert (found.leader_before, found.leader_id, found.problem) == (2, 1, None)


def test_records_are_only_at_a_broker_if_no_other_replica_is_in_sync() -> None:
    brokers = ClusterBrokers(nodes=[1, 2])
    brokers.has("a-0", [3], leader=-1)
    brokers.has("b-0", [1, 3], [3], leader=-1)
    brokers.has("c-0", [1, 3], [], leader=-1)  # nobody is in sync: it may be the one that lost nothing
    brokers.has("d-0", [1, 3], [1, 3])
    brokers.has("e-0", [1, 2])
    assert [it.at.topic for it in only_at(describe_cluster(brokers.cluster()), 3)] == ["a", "b", "c"]


def test_a_topic_that_is_not_described_is_left_out_and_noted() -> None:
    brokers = ClusterBrokers()
    brokers.has("t-0", [1])
    kept = brokers.network.answers[MetadataRequest]

    def refuse(node_id: int, request: Any) -> Any:
        answer = kept(node_id, request)
        for topic in answer.topics:
            topic.error_code, topic.partitions = E.TOPIC_AUTHORIZATION_FAILED, []
        return answer

    brokers.network.answers[MetadataRequest] = refuse
    state = describe_cluster(brokers.cluster())
    assert list(state.partitions) == []
    assert list(state.notes) == ["topic 't' is left out: TOPIC_AUTHORIZATION_FAILED"]


@pytest.mark.parametrize(
    ("replicas", "isr", "adding", "min_isr", "expected"),
    [
        ((1, 2), (1, 2), (), None, (False, False)),
        ((1, 2), (1,), (), 1, (True, False)),
        ((1, 2), (1,), (), 2, (True, True)),
        ((1,), (1,), (), 2, (False, False)),
        ((2, 1), (1,), (2,), 1, (False, False)),
        ((2, 1), (1,), (2,), 2, (False, True)),
    ],
)
def test_a_partition_is_counted_as_in_kafka(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    adding: tuple[int, ...],
    min_isr: int | None,
    expected: tuple[bool, bool],
) -> None:
    it = PartitionState(AT, 1, replicas, isr, adding, min_isr)
    assert (it.is_under_replicated, it.is_below_min_isr) == expected
    assert it.needs_attention is any(expected)

"""Reassignments and elections that an operator requests, on an image that takes each decision at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

from kwire.metadata.controller.brokers import brokers_that_may_lead, unregister
from kwire.metadata.controller.partitions.leader_elections import balance_leaders, elect_leaders
from kwire.metadata.controller.partitions.partition_changes import partition_change
from kwire.metadata.image import NO_LEADER, PartitionRegistration
from testkit.metadata.image_cluster import NODES, Cluster
from testkit.metadata.reassigning import reassign

PREFERRED, UNCLEAN = 0, 1


def in_sync(cluster: Cluster, *isr: int, index: int = 0) -> None:
    """Records this ISR as the leader would."""
    may_lead = brokers_that_may_lead(cluster.image)
    record = partition_change(cluster.state, cluster.image.topics["t"], index, isr=isr, may_lead=may_lead)
    cluster.take([] if record is None else [record])


def of(cluster: Cluster) -> tuple[tuple[int, ...], ...]:
    it = cluster.partitions[0]
    return it.replicas, it.isr, it.adding_replicas, it.removing_replicas


def test_new_replicas_are_added_first_and_the_old_ones_go_when_the_new_ones_are_in_sync() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    assert reassign(cluster, [3, 2]) == 0
    assert of(cluster) == ((3, 2, 1), (1, 2), (3,), (1,))
    assert (cluster.leaders(), cluster.partitions[0].leader_epoch) == ([1], 0)
    in_sync(cluster, 1, 2, 3)
    assert of(cluster) == ((3, 2), (2, 3), (), ())
    assert (cluster.leaders(), cluster.partitions[0].leader_epoch) == ([3], 1)


def test_a_fetch_of_a_replica_that_is_gone_counts_no_more_though_the_leader_stays() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    reassign(cluster, [1, 3])
    in_sync(cluster, 1, 2, 3)
    assert of(cluster) == ((1, 3), (1, 3), (), ())
    assert (cluster.leaders(), cluster.partitions[0].leader_epoch) == ([1], 1)


def test_a_smaller_factor_takes_effect_at_once() -> None:
    cluster = Cluster()
    cluster.add(1, 2, 3)
    assert reassign(cluster, [2]) == 0
    assert of(cluster) == ((2,), (2,), (), ())
    assert cluster.leaders() == [2]


def test_what_is_so_already_is_not_recorded() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    assert reassign(cluster, [1, 2]) == 0
    assert cluster.partitions[0].partition_epoch == 0
    assert reassign(cluster, [2, 1]) == 0
    assert of(cluster) == ((2, 1), (1, 2), (), ()), "another order makes another preferred leader"
    assert cluster.leaders() == [1]


def test_a_cancelled_reassignment_drops_the_new_replicas_and_keeps_the_old_ones() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    reassign(cluster, [3])
    assert reassign(cluster, None) == 0
    assert of(cluster) == ((1, 2), (1, 2), (), ())
    assert cluster.leaders() == [1]
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_of_which_only_the_new_replicas_are_in_sync_is_cancelled_uncleanly_or_not_at_all() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    reassign(cluster, [3, 2])
    in_sync(cluster, 1, 3)
    cluster.fence(1)
    assert of(cluster)[1] == (3,)
    assert reassign(cluster, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.allow_unclean_election()
    assert reassign(cluster, None) == 0
    assert of(cluster) == ((2, 1), (2,), (), ())
    assert cluster.leaders() == [2]


def test_a_reassignment_to_nobody_or_to_brokers_that_are_not_there_is_refused() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    assert reassign(cluster, []) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, [1, 7]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, [1, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, [1], index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, [1], topic="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, [1], may_change_factor=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert of(cluster) == ((1, 2), (1, 2), (), ())


# Elections


def elect(cluster: Cluster, election_type: int, indexes: Sequence[int] | None = (0,)) -> dict[int, int]:
    request = ElectLeadersRequest(election_type, None if indexes is None else [TopicPartitions("t", list(indexes))])
    records, response = elect_leaders(cluster.state, request)
    cluster.take(records)
    return {
        it.partition_id: it.error_code for topic in response.replica_election_results for it in topic.partition_result
    }


def test_the_preferred_replica_leads_again_when_that_is_requested() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    cluster.fence(1)
    assert elect(cluster, PREFERRED) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    cluster.unfence(1)
    assert elect(cluster, PREFERRED) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}, "it is not in sync yet"
    in_sync(cluster, 1, 2)
    assert elect(cluster, PREFERRED, [0, 1]) == {0: 0, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.leaders() == [1]
    assert elect(cluster, PREFERRED) == {0: ErrorCode.ELECTION_NOT_NEEDED}
    assert elect(cluster, PREFERRED, None) == {}


def test_an_unclean_leader_is_elected_when_that_is_requested() -> None:
    cluster = Cluster()
    cluster.add(1, 2, isr=[1])
    assert elect(cluster, UNCLEAN) == {0: ErrorCode.ELECTION_NOT_NEEDED}
    cluster.fence(1)
    assert elect(cluster, UNCLEAN, None) == {0: 0}
    assert (cluster.leaders(), cluster.isrs()) == ([2], [(2,)])
    cluster.fence(2)
    assert elect(cluster, UNCLEAN) == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_leaders_are_balanced_where_the_preferred_ones_are_in_sync() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    cluster.add(2, 1)
    cluster.add(1, 3)
    cluster.fence(1)
    cluster.unfence(1)
    in_sync(cluster, 1, 2)
    assert cluster.leaders() == [2, 2, 3]
    cluster.take(balance_leaders(cluster.state))
    assert cluster.leaders() == [1, 2, 3]
    assert balance_leaders(cluster.state) == []


def test_a_broker_that_has_ended_can_be_forgotten() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    with pytest.raises(KafkaError, match="Broker 1 is in service: stop it"):
        unregister(cluster.state, 1)
    cluster.fence(1)
    cluster.take(unregister(cluster.state, 1))
    assert (cluster.leaders(), cluster.isrs()) == ([2], [(2,)])
    assert set(cluster.image.brokers) == {2, 3}
    with pytest.raises(KafkaError, match="Broker ID 1 is not currently registered"):
        unregister(cluster.state, 1)


SUBSETS = st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True)
STEPS: st.SearchStrategy[tuple[str, list[int]]] = st.one_of(
    st.tuples(st.just("reassign"), SUBSETS),
    st.tuples(st.just("cancel"), st.just([])),
    st.tuples(st.just("in_sync"), SUBSETS),
    st.tuples(
        st.sampled_from(["fence", "register", "unfence"]), st.lists(st.sampled_from(NODES), min_size=1, max_size=1)
    ),
)


@given(steps=st.lists(STEPS, max_size=40))
def test_whatever_is_requested_the_isr_is_of_replicas_and_a_reassignment_that_can_end_has_ended(
    steps: list[tuple[str, list[int]]],
) -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    for name, nodes in steps:
        was = cluster.partitions[0]
        match name:
            case "reassign":
                reassign(cluster, nodes)
            case "cancel":
                reassign(cluster, None)
            case "in_sync":
                if was.leader != NO_LEADER:
                    in_service = {it.broker_id for it in cluster.image.live_brokers()}
                    in_sync(cluster, was.leader, *(in_service & set(nodes) & set(was.replicas) - {was.leader}))
            case _:
                getattr(cluster, name)(*nodes)
        check(was, cluster.partitions[0])
        if name != "in_sync":
            assert set(cluster.isrs()[0]) & set(was.isr), "nobody is in sync without the leader's word"


def check(was: PartitionRegistration, now: PartitionRegistration) -> None:
    assert now.isr
    assert set(now.isr) <= set(now.replicas)
    assert len(set(now.replicas)) == len(now.replicas)
    assert now.leader == NO_LEADER or now.leader in now.isr
    assert set(now.adding_replicas) | set(now.removing_replicas) <= set(now.replicas)
    if now.adding_replicas or now.removing_replicas:
        assert not set(now.isr) - set(now.removing_replicas) >= set(now.replicas) - set(now.removing_replicas)
    if now.leader != was.leader or not set(was.replicas) <= set(now.replicas):
        assert now.leader_epoch == was.leader_epoch + 1

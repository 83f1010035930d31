"""The life of brokers: registration, fencing, service, and the leaders of their partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.metadata.controller import brokers
from kwire.metadata.controller.partitions.elections import Elected, Election, elect
from kwire.metadata.image import NO_LEADER
from testkit.metadata.image_cluster import NODES, TOPIC_ID, Cluster


def test_another_replica_in_sync_leads_when_the_leader_has_ended() -> None:
    cluster = Cluster()
    cluster.add(1, 2, 3)
    cluster.add(2, 3, 1)
    cluster.add(1, 2, 3, isr=[1, 3])
    assert cluster.fence(1) == [1]
    assert cluster.leaders() == [2, 2, 3]
    assert cluster.isrs() == [(2, 3), (2, 3), (3,)]
    assert [it.leader_epoch for it in cluster.partitions] == [1, 0, 1]
    assert cluster.image.brokers[1].fenced


def test_the_last_replica_in_sync_stays_in_the_isr_and_nobody_leads() -> None:
    cluster = Cluster()
    cluster.add(1, 2, isr=[1])
    cluster.fence(1)
    assert (cluster.leaders(), cluster.isrs()) == ([NO_LEADER], [(1,)])
    cluster.register(1)
    assert cluster.leaders() == [NO_LEADER], "it is fenced until it serves clients"
    cluster.unfence(1)
    assert (cluster.leaders(), cluster.isrs()) == ([1], [(1,)])
    assert cluster.partitions[0].leader_epoch == 2


def test_an_unclean_election_makes_its_leader_the_whole_isr() -> None:
    cluster = Cluster()
    cluster.add(1, 2, isr=[1])
    cluster.allow_unclean_election()
    cluster.fence(1)
    assert (cluster.leaders(), cluster.isrs()) == ([2], [(2,)])


def test_the_brokers_may_allow_unclean_elections_of_all_topics() -> None:
    cluster = Cluster(static={"unclean.leader.election.enable": "true"})
    cluster.add(1, 2, isr=[1])
    cluster.fence(1)
    assert (cluster.leaders(), cluster.isrs()) == ([2], [(2,)])


def test_several_brokers_that_ended_together_do_not_elect_each_other() -> None:
    cluster = Cluster()
    cluster.add(1, 2, 3)
    assert cluster.fence(1, 2) == [1, 2]
    assert (cluster.leaders(), cluster.isrs()) == ([3], [(3,)])
    assert cluster.fence(1, 2) == [], "that is recorded already"


def test_a_leader_that_is_back_does_not_wait_for_replicas_that_ended_with_it() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    cluster.fence(1, 2)
    assert (cluster.leaders(), cluster.isrs()) == ([NO_LEADER], [(1, 2)])
    cluster.unfence(1)
    assert (cluster.leaders(), cluster.isrs()) == ([1], [(1,)])
    cluster.unfence(2)
    assert (cluster.leaders(), cluster.isrs()) == ([1], [(1,)]), "its leader reports when it is in sync"


def test_a_broker_that_shuts_down_hands_over_and_is_not_elected_again() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    cluster.add(1)
    cluster.shut_down(1)
    assert (cluster.leaders(), cluster.isrs()) == ([2, NO_LEADER], [(2,), (1,)])
    assert [it.broker_id for it in cluster.image.live_brokers()] == [2, 3]
    cluster.fence(2)
    assert cluster.leaders() == [NO_LEADER, NO_LEADER]


def test_a_broker_that_starts_again_leads_nothing_before_it_serves() -> None:
    cluster = Cluster()
    cluster.add(1, 2)
    cluster.add(1)
    cluster.register(1)
    assert cluster.leaders() == [2, NO_LEADER]
    cluster.unfence(1)
    assert cluster.leaders() == [2, 1]


def test_requests_of_an_earlier_start_have_no_effect() -> None:
    cluster = Cluster()
    epoch = cluster.image.brokers[1].broker_epoch
    cluster.register(1)
    assert brokers.unfence(cluster.state, 1, epoch) == []
    assert brokers.begin_shutdown(cluster.state, 1, epoch) == []
    assert brokers.unfence(cluster.state, 7, 0) == []
    assert cluster.fence(7) == []


def test_the_preferred_leader_is_elected_if_it_is_in_sync() -> None:
    def anybody(_broker_id: int) -> bool:
        return True

    assert elect(2, [1, 2], [1, 2], anybody) == Elected(2)
    assert elect(2, [1, 2], [1, 2], anybody, Election.PREFERRED) == Elected(1)
    assert elect(2, [1, 2], [2], anybody, Election.PREFERRED) == Elected(2)
    assert elect(2, [1, 2], [1, 2], lambda it: it == 2, Election.PREFERRED) == Elected(2)


def test_others_lead_the_partitions_of_a_failed_log_dir_where_they_can() -> None:
    cluster = Cluster()
    for replicas in ((1, 2), (1, 2), (1,), (2, 1)):
        cluster.add(*replicas)
    cluster.add(1, 2, isr=[1])
    failed = [(TOPIC_ID, 0), (TOPIC_ID, 2), (TOPIC_ID, 3), (TOPIC_ID, 4), (b"g" * 16, 0)]
    cluster.take(brokers.give_up_replicas(cluster.state, 1, cluster.image.brokers[1].broker_epoch, failed))
    assert cluster.leaders() == [2, 1, 1, 2, 1]
    assert cluster.isrs() == [(2,), (1, 2), (1,), (2,), (1,)]
    assert brokers.give_up_replicas(cluster.state, 1, 77, failed) == []


STEPS = st.tuples(st.sampled_from(["fence", "register", "unfence", "shut_down"]), st.sampled_from(NODES))


@pytest.mark.parametrize("unclean", [False, True])
@given(steps=st.lists(STEPS, max_size=40), replicas=st.lists(st.permutations(NODES), min_size=1, max_size=4))
def test_whatever_happens_to_brokers_a_leader_is_in_service_and_in_sync(
    unclean: bool, steps: list[tuple[str, int]], replicas: list[list[int]]
) -> None:
    cluster = Cluster()
    if unclean:
        cluster.allow_unclean_election()
    for order in replicas:
        cluster.add(*order)
    for name, broker_id in steps:
        before = cluster.partitions[:]
        getattr(cluster, name)(broker_id)
        in_service = {it.broker_id for it in cluster.image.live_brokers()}
        for was, is_now in zip(before, cluster.partitions, strict=True):
            assert is_now.isr
            assert is_now.leader_epoch == was.leader_epoch + (is_now.leader != was.leader)
            if is_now.leader == NO_LEADER:
                assert not in_service & set(is_now.replicas if unclean else is_now.isr)
            else:
                assert is_now.leader in is_now.isr
                assert is_now.leader in in_service
            if not unclean:
                assert set(is_now.isr) <= set(was.isr), "nobody is in sync again without its leader's word"

"""Configured replication factors: a broker that is alone limits them, a cluster waits for enough brokers."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.names.topic_names import INTERNAL_TOPICS
from kwire.runtime.futures import at_once
from testkit.cluster.scripted_cluster import ScriptedCluster
from testkit.scenes.folder_scene import new_disks, open_broker

OFFSETS = "__consumer_offsets"


def test_a_broker_that_is_alone_needs_no_other_for_its_internal_topics() -> None:
    broker = open_broker(new_disks())
    at_once(broker.groups.runtime.topic.ensure())
    assert {it.replicas for it in broker.metadata.image.topics[OFFSETS].partitions} == {(1,)}


def test_a_cluster_has_no_coordinators_before_there_are_enough_brokers() -> None:
    cluster = ScriptedCluster()
    one = cluster.open(1)
    cluster.open(2)
    with pytest.raises(KafkaError, match="replication factor of 3 cannot be reached because only 2") as refused:
        at_once(one.groups.runtime.topic.ensure())
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.open(3)
    at_once(one.groups.runtime.topic.ensure())
    assert {len(it.replicas) for it in one.metadata.image.topics[OFFSETS].partitions} == {3}


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_an_internal_topic_is_created_while_one_of_three_brokers_is_away(name: str) -> None:
    cluster = ScriptedCluster()
    brokers = {node_id: cluster.open(node_id) for node_id in (1, 2, 3)}
    brokers[3].close()
    at_once(brokers[1].metadata.change(auto_create_topic, name))
    partitions = brokers[1].metadata.image.topics[name].partitions
    assert {frozenset(it.replicas) for it in partitions} == {frozenset((1, 2, 3))}
    assert {frozenset(it.isr) for it in partitions} == {frozenset((1, 2))}
    assert {it.leader for it in partitions} == {1, 2}

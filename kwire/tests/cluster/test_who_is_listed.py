"""The brokers that a node lists. Clients that get none discard all that they had (librdkafka 2.16)."""

from __future__ import annotations

from kwire_protocol.messages.describe_cluster import DescribeClusterRequest
from kwire_protocol.messages.metadata import MetadataRequest

from kwire.node.broker import Broker
from testkit.basics.futures import at_once
from testkit.cluster.connected_cluster import handled
from testkit.cluster.scripted_cluster import ScriptedCluster


def listed(broker: Broker) -> list[int]:
    """Returns the brokers by Metadata. DescribeCluster has the same, with fenced brokers and without."""
    found = [it.node_id for it in handled(broker, MetadataRequest()).brokers]
    for fenced in (False, True):
        described = handled(broker, DescribeClusterRequest(include_fenced_brokers=fenced)).brokers
        assert found == [it.broker_id for it in described if not it.is_fenced]
        assert len({it.broker_id for it in described}) == len(described)
    return found


def fenced(broker: Broker) -> list[int]:
    described = handled(broker, DescribeClusterRequest(include_fenced_brokers=True)).brokers
    return [it.broker_id for it in described if it.is_fenced]


def begin_stop(broker: Broker) -> None:
    assert broker.member is not None
    at_once(broker.member.shut_down())


def test_the_last_node_lists_itself_until_it_has_stopped() -> None:
    cluster = ScriptedCluster()
    one, two = cluster.open(1), cluster.open(2)
    assert listed(one) == [1, 2]
    begin_stop(two)
    assert listed(one) == listed(two) == [1]
    assert fenced(one) == fenced(two) == [2]
    two.close()
    begin_stop(one)
    assert listed(one) == [1]


def test_the_first_node_lists_itself_before_it_is_in_service() -> None:
    cluster = ScriptedCluster()
    one = cluster.open(1, serves=False)
    assert listed(one) == [1]
    assert one.member is not None
    one.member.serve()
    assert listed(one) == [1]


def test_a_node_that_others_have_taken_out_of_service_lists_them() -> None:
    cluster = ScriptedCluster()
    cluster.open(1)
    two = cluster.open(2, serves=False)
    assert listed(two) == [1]

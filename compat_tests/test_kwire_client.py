"""kwire's own client, kwire.client, against whatever broker is under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import Refused, TopicExists, UnknownTopic
from kwire.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kwire.client.topics import NewTopic, create_topics, describe_topic_configs

from . import brokers
from .transactions.hanging import leave_hanging

TIMEOUT_S = 60.0


@pytest.fixture
def cluster(broker: brokers.Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as connected:
        yield connected


def test_a_cluster_tells_what_it_is(cluster: Cluster, topic: str) -> None:
    assert cluster.cluster_id == cluster.metadata(None).cluster_id
    assert cluster.cluster_id
    assert cluster.node_ids() == [1]
    assert cluster.topic(topic).leaders == {0: 1}
    assert any(cluster.topic(topic).topic_id)
    with pytest.raises(UnknownTopic):
        cluster.topic(f"{topic}-not")


def test_topics_are_created_with_configurations(cluster: Cluster, unique: Callable[[str], str]) -> None:
    name, other = unique("topic"), unique("topic")
    create_topics(cluster, [NewTopic(name, 3, 1, {"retention.ms": "4711"}), NewTopic(other)])
    assert list_offsets(cluster, name, LATEST) == {0: 0, 1: 0, 2: 0}
    configs = describe_topic_configs(cluster, [name, other])
    assert configs[name]["retention.ms"] == "4711"
    assert configs[other]["retention.ms"] != "4711"
    with pytest.raises(TopicExists):
        create_topics(cluster, [NewTopic(name)])
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        create_topics(cluster, [NewTopic(unique("topic"), configs={"no.such.thing": "1"})])
    with pytest.raises(UnknownTopic):
        describe_topic_configs(cluster, [unique("topic")])


def test_offsets_are_committed_by_no_member(cluster: Cluster, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert fetch_offsets(cluster, group) == {}
    commit_offsets(cluster, group, {first: 5, second: CommittedOffset(7, "why")})
    assert fetch_offsets(cluster, group) == {first: CommittedOffset(5), second: CommittedOffset(7, "why")}
    assert fetch_offsets(cluster, group, [second], require_stable=True) == {second: CommittedOffset(7, "why")}
    commit_offsets(cluster, group, {first: 6})
    assert fetch_offsets(cluster, group, [first]) == {first: CommittedOffset(6)}
    with pytest.raises(UnknownTopic):
        commit_offsets(cluster, group, {TopicPartition(f"{topic}-not", 0): 1})


def test_a_read_committed_end_is_the_last_stable_offset(
    broker: brokers.Broker, cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    leave_hanging(broker.bootstrap, (topic, 1))
    assert list_offsets(cluster, topic, EARLIEST) == {0: 0, 1: 0}
    assert list_offsets(cluster, topic, LATEST) == {0: 0, 1: 1}
    assert list_offsets(cluster, topic, LATEST, isolation_level=IsolationLevel.READ_COMMITTED) == {0: 0, 1: 0}
    assert list_offsets(cluster, topic, 0, partitions=[0]) == {}

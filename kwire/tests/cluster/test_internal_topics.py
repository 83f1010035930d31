"""Internal topics: one table has all of them, and the log has the reason why one cannot be created."""

from __future__ import annotations

import logging

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

from kwire.config.definition import ConfigSource
from kwire.config.server import load_config
from kwire.config.tables.broker import HONOURED_CONFIGS
from kwire.config.tables.topic import TOPIC_CONFIGS
from kwire.coordinators.internal_topic import InternalTopic
from kwire.metadata.controller.topics.auto_created_topics import plan_topic
from kwire.metadata.image import ConfigResourceType
from kwire.names.topic_names import INTERNAL_TOPICS, internal_replication_factors
from kwire.runtime.futures import at_once
from kwire.share.coordinator.state import SharePartitionKey
from kwire.testing import Cluster
from testkit.cluster.scripted_cluster import ScriptedCluster
from testkit.raw.client import RawClient

KEYS = {0: "group", 1: "transactional id", 2: SharePartitionKey("group", b"t" * 16, 0).text}
"""By the kind of coordinator: what has one."""


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_the_table_names_settings_and_configurations_that_there_are(name: str) -> None:
    topic = INTERNAL_TOPICS[name]
    names = {topic.num_partitions, topic.replication_factor, topic.segment_bytes}
    settings = dict.fromkeys(names | ({topic.min_isr} if topic.min_isr else set()), "7")
    assert settings.keys() <= HONOURED_CONFIGS.keys()
    plan = plan_topic(name, load_config(settings=[f"{key}={value}" for key, value in settings.items()]))
    assert (plan.partitions, plan.replication_factor) == (7, 7)
    assert plan.configs.keys() <= TOPIC_CONFIGS.keys()
    assert plan.configs["internal.segment.bytes"] == "7"
    assert plan.configs.get("min.insync.replicas") == ("7" if topic.min_isr else None)


def internal_topics(broker_count: int) -> list[InternalTopic]:
    cluster = ScriptedCluster()
    brokers = [cluster.open(node_id) for node_id in range(1, broker_count + 1)]
    one = brokers[0]
    return [it.runtime.topic for it in (one.groups, one.transactions, one.share_state)]


def test_each_has_a_service() -> None:
    assert {topic.name for topic in internal_topics(1)} == INTERNAL_TOPICS.keys()


def test_why_one_cannot_be_created_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for topic in internal_topics(2):
        for _ in range(3):
            with pytest.raises(KafkaError) as refused:
                at_once(topic.ensure())
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    warnings = [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING]
    assert [it.split()[0] for it in warnings] == ["__consumer_offsets", "__transaction_state", "__share_group_state"]
    assert all("factor of 3 cannot be reached because only 2 broker(s) are registered" in it for it in warnings)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_each_has_coordinators_in_a_cluster_for_tests_and_as_many_replicas_as_the_others(size: int) -> None:
    settings = {topic.num_partitions: "2" for topic in INTERNAL_TOPICS.values()}
    with Cluster(size, settings=settings) as cluster, RawClient(cluster.nodes[1].address) as client:
        for kind, key in KEYS.items():
            found = client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 6).coordinators[0]
            assert found.error_code == ErrorCode.NONE
        described = client.call(MetadataRequest([MetadataRequestTopic(name=it) for it in INTERNAL_TOPICS]), 12).topics
        counts = {len(it.replica_nodes) for topic in described for it in topic.partitions}
        assert counts == {min(size, 3)}
        names = list(internal_replication_factors(0))
        resource = DescribeConfigsResource(ConfigResourceType.BROKER, "1", names)
        entries = client.call(DescribeConfigsRequest([resource]), 4).results[0].configs
        assert {(it.value, it.config_source) for it in entries} == {(str(min(size, 3)), ConfigSource.DEFAULT_CONFIG)}

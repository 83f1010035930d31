"""Requests to a broker that cannot serve them, and those that all brokers answer alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kwire_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kwire_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kwire_protocol.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire_protocol.messages.end_txn import EndTxnRequest
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.list_transactions import ListTransactionsRequest
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

from kwire.metadata.image import ConfigResourceType
from kwire.node.broker import Broker
from kwire.replicas.roles import Absent
from testkit.basics.futures import at_once
from testkit.cluster.connected_cluster import ConnectedCluster, handled
from testkit.cluster.scripted_cluster import create

E = ErrorCode
SETTINGS = (
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.num.partitions=1",
    "offsets.topic.replication.factor=1",
    "offsets.topic.num.partitions=1",
)


@pytest.fixture
def cluster() -> Iterator[ConnectedCluster]:
    """Two brokers; each leads one partition of topic `t`, which has one replica."""
    cluster = ConnectedCluster()
    cluster.start(1, *SETTINGS)
    create(cluster.start(2, *SETTINGS), "t", 2)
    at_once(cluster.brokers[1].groups.runtime.topic.ensure())
    at_once(cluster.brokers[1].transactions.runtime.topic.ensure())
    yield cluster
    for broker in cluster.brokers.values():
        broker.close()


def parts(cluster: ConnectedCluster, topic: str, index: int) -> tuple[Broker, Broker]:
    """Returns the broker that leads the partition, and the other one."""
    leader = cluster.brokers[1].metadata.image.topics[topic].partitions[index].leader
    return cluster.brokers[leader], cluster.brokers[3 - leader]


@pytest.mark.parametrize("key_type", [0, 1])
def test_all_brokers_name_the_same_coordinator(cluster: ConnectedCluster, key_type: int) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
    found = {handled(it, request).coordinators[0].node_id for it in cluster.brokers.values()}
    assert len(found) == 1


def test_only_the_coordinator_of_a_group_answers_for_it(cluster: ConnectedCluster) -> None:
    coordinator, other = parts(cluster, "__consumer_offsets", 0)
    assert handled(other, DescribeGroupsRequest(["g"])).groups[0].error_code == E.NOT_COORDINATOR
    assert handled(other, DeleteGroupsRequest(["g"])).results[0].error_code == E.NOT_COORDINATOR
    assert handled(other, HeartbeatRequest("g", 1, "m")).error_code == E.NOT_COORDINATOR
    assert handled(coordinator, HeartbeatRequest("g", 1, "m")).error_code == E.UNKNOWN_MEMBER_ID
    for broker in cluster.brokers.values():
        assert handled(broker, ListGroupsRequest()).error_code == E.NONE


def test_only_the_coordinator_of_a_transactional_id_answers_for_it(cluster: ConnectedCluster) -> None:
    coordinator, other = parts(cluster, "__transaction_state", 0)
    assert handled(other, InitProducerIdRequest("id", 1000), 5).error_code == E.NOT_COORDINATOR
    assert handled(other, EndTxnRequest("id", 1, 0)).error_code == E.NOT_COORDINATOR
    assert handled(other, AddOffsetsToTxnRequest("id", 1, 0, "g")).error_code == E.NOT_COORDINATOR
    assert handled(other, DescribeTransactionsRequest(["id"])).transaction_states[0].error_code == E.NOT_COORDINATOR
    assert handled(coordinator, InitProducerIdRequest("id", 1000), 5).error_code == E.NONE
    listed = [handled(it, ListTransactionsRequest()).transaction_states for it in (coordinator, other)]
    assert [len(it) for it in listed] == [1, 0]


def test_a_transaction_takes_a_group_of_any_broker(cluster: ConnectedCluster) -> None:
    coordinator, _ = parts(cluster, "__transaction_state", 0)
    producer = handled(coordinator, InitProducerIdRequest("id", 1000), 5)
    request = AddOffsetsToTxnRequest("id", producer.producer_id, producer.producer_epoch, "g")
    assert handled(coordinator, request).error_code == E.NONE


def test_producer_ids_of_all_brokers_differ(cluster: ConnectedCluster) -> None:
    found = [
        handled(it, InitProducerIdRequest(None, 1000), 5).producer_id for it in cluster.brokers.values() for _ in "ab"
    ]
    assert len(set(found)) == 4


def test_only_the_leader_deletes_records_and_describes_producers(cluster: ConnectedCluster) -> None:
    _, other = parts(cluster, "t", 0)
    deleted = handled(other, DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)])], 1000))
    assert deleted.topics[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER
    described = handled(other, DescribeProducersRequest([TopicRequest("t", [0])]))
    assert described.topics[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER


def test_log_dirs_are_those_of_the_broker_that_handles_the_request(cluster: ConnectedCluster) -> None:
    leader, other = parts(cluster, "t", 0)
    path = next(iter(other.log_dirs)).path
    moved = handled(other, AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic("t", [0])])]))
    assert moved.results[0].partitions[0].error_code == E.REPLICA_NOT_AVAILABLE
    for broker, indexes in ((leader, [0]), (other, [1])):
        (described,) = handled(broker, DescribeLogDirsRequest(None)).results
        (found,) = (it for it in described.topics if it.name == "t")
        assert [it.partition_index for it in found.partitions] == indexes


@pytest.mark.parametrize("kind", [ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER])
def test_a_brokers_configuration_is_described_by_that_broker_only(
    cluster: ConnectedCluster, kind: ConfigResourceType
) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, "2")])
    answers = [handled(cluster.brokers[it], request).results[0].error_code for it in (1, 2)]
    assert answers == [E.INVALID_REQUEST, E.NONE]


def test_a_brokers_configuration_is_changed_by_that_broker_and_a_default_by_any(cluster: ConnectedCluster) -> None:
    def change(name: str) -> IncrementalAlterConfigsRequest:
        setting = AlterableConfig("log.cleaner.threads", 0, "2")
        return IncrementalAlterConfigsRequest([AlterConfigsResource(ConfigResourceType.BROKER, name, [setting])])

    assert [handled(cluster.brokers[it], change("2")).responses[0].error_code for it in (1, 2)] == [
        E.INVALID_REQUEST,
        E.NONE,
    ]
    assert handled(cluster.brokers[1], change("")).responses[0].error_code == E.NONE
    for broker in cluster.brokers.values():
        assert broker.metadata.configs.dynamic_default == {"log.cleaner.threads": "2", "min.insync.replicas": "1"}


def test_replicas_of_a_broker_that_is_out_of_service_are_offline(cluster: ConnectedCluster) -> None:
    create(cluster.brokers[1], "both", 1, 2)
    request = MetadataRequest([MetadataRequestTopic(name="both")])
    described = DescribeTopicPartitionsRequest([DescribedTopic("both")])

    def offline() -> list[list[int]]:
        broker = cluster.brokers[1]
        return [
            handled(broker, request, 12).topics[0].partitions[0].offline_replicas,
            handled(broker, described).topics[0].partitions[0].offline_replicas,
        ]

    assert offline() == [[], []]
    cluster.kill(2)
    assert offline() == [[2], [2]]
    assert handled(cluster.brokers[1], request, 12).controller_id == 1


def test_a_coordinator_whose_folder_here_is_broken_is_found_if_another_broker_leads(cluster: ConnectedCluster) -> None:
    coordinator, other = parts(cluster, "__consumer_offsets", 0)
    name = coordinator.groups.runtime.topic.name
    places = other.partitions.by_name[name]
    assert isinstance(places[0], Absent)
    places[0] = Absent(places[0].leader_id, places[0].leader_epoch, E.KAFKA_STORAGE_ERROR)
    found = handled(other, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])).coordinators[0]
    assert (found.error_code, found.node_id) == (E.NONE, coordinator.config.node_id)

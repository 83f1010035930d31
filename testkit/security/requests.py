"""A request of every API, and a broker whose authorizer denies it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from kwire_protocol.internal.metadata_security import DelegationTokenRecord
from kwire_protocol.messages import APIS as MESSAGES
from kwire_protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    streams_group_topology_description_update,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_share_group_state,
    write_txn_markers,
)
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import Reader, Uuid, Writer
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.handlers.apis import APIS
from kwire.handlers.context import Context
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.node.broker import Broker
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.principal import Principal, Requester
from kwire.share.coordinator import kinds
from kwire.share.coordinator.state import SharePartitionKey
from testkit.scenes.folder_scene import append
from testkit.scenes.internal_topics import FEW_PARTITIONS, create_internal_topics

TOPIC, GROUP, ID = "secret-topic", "secret-group", "secret-id"


TOKEN = DelegationTokenRecord("User:alice", "User:alice", [], 1, 1 << 62, 1 << 62, "secret-token")


MALLORY = Requester(Principal("User", "mallory"), "host")


class DoesNotAnswerYet(Exception):
    """The handler waits for something."""


@attrs.define
class Denier:
    """An authorizer that denies everything to every user, but what is in `permitted`."""

    permitted: set[tuple[Operation, ResourceType, str]] = attrs.field(factory=set)
    checked: list[tuple[Requester, Operation, ResourceType, str]] = attrs.field(factory=list)
    allows_all: bool = False

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.checked.append((requester, operation, resource_type, name))
        return (operation, resource_type, name) in self.permitted

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        return any(it[:2] == (operation, resource_type) for it in self.permitted)

    def granted(self, requester: Requester, operation: Operation) -> frozenset[str | Uuid]:
        return frozenset()

    def grant(self, requester: Requester, operation: Operation, topic: str | Uuid) -> None:
        """Does nothing, so that each check is made."""


@contextmanager
def open_broker() -> Iterator[Broker]:
    """It has a topic with a record, a group that has committed, a transactional id, and a delegation token."""
    settings = [*FEW_PARTITIONS, "delegation.token.secret.key=secret-key", "transaction.two.phase.commit.enable=true"]
    opened = Broker.open(load_config(settings=settings), MemoryDisk(), SystemClock())
    at_once(opened.metadata.change(lambda _: ([TOKEN], None)))
    create_internal_topics(opened)
    at_once(opened.metadata.change(auto_create_topic, TOPIC))
    append(opened.partitions.find(TOPIC, 0), b"secret-value")
    call(opened, "offset_commit", REQUESTS["offset_commit"][0](opened))
    call(opened, "init_producer_id", init_producer_id.InitProducerIdRequest(ID, 60_000))
    yield opened
    opened.close()


def topic_id(broker: Broker) -> bytes:
    return broker.metadata.image.topics[TOPIC].topic_id


def with_share_session(broker: Broker, member_id: str) -> str:
    broker.sharing.sessions.begin(GROUP, member_id, 0, [], connection=member_id)
    return member_id


def batch() -> memoryview:
    return memoryview(bytearray(build_batch([Record(value=b"x")])))


def latest(name: str) -> int:
    return next(api for api in APIS.values() if api.name == name).versions[-1]


def call(broker: Broker, name: str, request: Any, *, version: int | None = None) -> Any:
    """Returns the answer of the handler, without waiting, encoded and decoded."""
    api = next(api for api in APIS.values() if api.name == name)
    api_version = latest(name) if version is None else version
    context = Context("host", "127.0.0.1", 9092, api_key=api.key, api_version=api_version, requester=MALLORY)
    handle = api.handler(broker)
    response = handle(request, context)
    if isinstance(response, Coroutine):
        try:
            response.send(None)
        except StopIteration as stop:
            response = stop.value
        else:
            raise DoesNotAnswerYet
    if response is None:
        return None
    return MESSAGES[api.key].response_class.read(Reader(written(response, api_version)), api_version)


def written(response: Any, version: int) -> bytes:
    writer = Writer()
    response.write(writer, version)
    pieces: list[Any] = list(writer.pieces())
    return b"".join(it.read() if hasattr(it, "read") else bytes(it) for it in pieces)


Make = Callable[[Broker], Any]


P = produce.PartitionProduceData


CONFIGS = [(2, TOPIC), (4, "1"), (32, GROUP)]
"""A topic, a broker and a group, by ConfigResource.Type."""


REQUESTS: dict[str, list[Make]] = {
    "produce": [
        lambda it: produce.ProduceRequest(
            None, 1, 1000, [produce.TopicProduceData(TOPIC, topic_id(it), [P(0, batch())])]
        ),
        lambda it: produce.ProduceRequest(
            ID, -1, 1000, [produce.TopicProduceData(TOPIC, topic_id(it), [P(0, batch())])]
        ),
    ],
    "fetch": [
        lambda it, replica=replica: fetch.FetchRequest(  # type: ignore[misc]
            replica_state=fetch.ReplicaState(replica),
            max_bytes=1000,
            topics=[fetch.FetchTopic(TOPIC, topic_id(it), [fetch.FetchPartition(0, partition_max_bytes=1000)])],
        )
        for replica in (-1, 1)
    ],
    "list_offsets": [
        lambda _: list_offsets.ListOffsetsRequest(
            -1, 0, [list_offsets.ListOffsetsTopic(TOPIC, [list_offsets.ListOffsetsPartition(0, -1, -1)])]
        )
    ],
    "metadata": [
        lambda _: metadata.MetadataRequest(None),
        lambda _: metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)]),
        lambda _: metadata.MetadataRequest([metadata.MetadataRequestTopic(name="new")], True),
        lambda it: metadata.MetadataRequest([metadata.MetadataRequestTopic(topic_id(it), None)]),
    ],
    "offset_commit": [
        lambda it: offset_commit.OffsetCommitRequest(
            GROUP,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    TOPIC, topic_id(it), [offset_commit.OffsetCommitRequestPartition(0, 1)]
                )
            ],
        )
    ],
    "offset_fetch": [
        lambda _: offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(GROUP, topics=None)]),
        lambda it: offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    GROUP, topics=[offset_fetch.OffsetFetchRequestTopics(TOPIC, topic_id(it), [0])]
                )
            ]
        ),
    ],
    "find_coordinator": [
        lambda _: find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]),
        lambda _: find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]),
        lambda it: find_coordinator.FindCoordinatorRequest(
            key_type=2, coordinator_keys=[SharePartitionKey(GROUP, topic_id(it), 0).text]
        ),
    ],
    "join_group": [
        lambda _: join_group.JoinGroupRequest(
            GROUP, 10_000, 10_000, "", None, "consumer", [join_group.JoinGroupRequestProtocol("range", b"")]
        )
    ],
    "heartbeat": [lambda _: heartbeat.HeartbeatRequest(GROUP, 1, "member")],
    "leave_group": [
        lambda _: leave_group.LeaveGroupRequest(GROUP, members=[leave_group.MemberIdentity(member_id="member")])
    ],
    "sync_group": [
        lambda _: sync_group.SyncGroupRequest(GROUP, 1, "member", protocol_type="consumer", protocol_name="range")
    ],
    "describe_groups": [lambda _: describe_groups.DescribeGroupsRequest([GROUP], True)],
    "list_groups": [lambda _: list_groups.ListGroupsRequest()],
    "create_topics": [lambda _: create_topics.CreateTopicsRequest([create_topics.CreatableTopic("new", 1, 1)], 1000)],
    "delete_topics": [
        lambda _: delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(TOPIC)]),
        lambda it: delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(None, topic_id(it))]),
    ],
    "delete_records": [
        lambda _: delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic(TOPIC, [delete_records.DeleteRecordsPartition(0, 1)])]
        )
    ],
    "init_producer_id": [
        lambda _: init_producer_id.InitProducerIdRequest(ID, 60_000),
        lambda _: init_producer_id.InitProducerIdRequest(None, 60_000),
    ],
    "offset_for_leader_epoch": [
        lambda _: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            -1,
            [
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    TOPIC, [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
                )
            ],
        )
    ],
    "add_partitions_to_txn": [
        lambda _: add_partitions_to_txn.AddPartitionsToTxnRequest(
            [
                add_partitions_to_txn.AddPartitionsToTxnTransaction(
                    ID, 0, 0, topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0])]
                )
            ]
        )
    ],
    "add_offsets_to_txn": [lambda _: add_offsets_to_txn.AddOffsetsToTxnRequest(ID, 0, 0, GROUP)],
    "end_txn": [lambda _: end_txn.EndTxnRequest(ID, 0, 0, True)],
    "write_txn_markers": [
        lambda _: write_txn_markers.WriteTxnMarkersRequest(
            [write_txn_markers.WritableTxnMarker(0, 0, True, [write_txn_markers.WritableTxnMarkerTopic(TOPIC, [0])], 0)]
        )
    ],
    "txn_offset_commit": [
        lambda it: txn_offset_commit.TxnOffsetCommitRequest(
            ID,
            GROUP,
            0,
            0,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    TOPIC, topic_id(it), [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1)]
                )
            ],
        )
    ],
    "describe_acls": [lambda _: describe_acls.DescribeAclsRequest(2, TOPIC, 3, None, None, 1, 1)],
    "create_acls": [
        lambda _: create_acls.CreateAclsRequest([create_acls.AclCreation(2, TOPIC, 3, "User:mallory", "*", 2, 3)])
    ],
    "delete_acls": [
        lambda _: delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(2, TOPIC, 3, None, None, 1, 1)])
    ],
    "describe_configs": [
        lambda _: describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(kind, name) for kind, name in [*CONFIGS, (8, "1")]]
        )
    ],
    "alter_configs": [
        lambda _: alter_configs.AlterConfigsRequest(
            [alter_configs.AlterConfigsResource(kind, name, []) for kind, name in CONFIGS]
        )
    ],
    "incremental_alter_configs": [
        lambda _: incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(kind, name, []) for kind, name in CONFIGS]
        )
    ],
    "alter_replica_log_dirs": [
        lambda _: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            [
                alter_replica_log_dirs.AlterReplicaLogDir(
                    "./data", [alter_replica_log_dirs.AlterReplicaLogDirTopic(TOPIC, [0])]
                )
            ]
        )
    ],
    "describe_log_dirs": [lambda _: describe_log_dirs.DescribeLogDirsRequest(None)],
    "create_partitions": [
        lambda _: create_partitions.CreatePartitionsRequest([create_partitions.CreatePartitionsTopic(TOPIC, 9)], 1000)
    ],
    "delete_groups": [lambda _: delete_groups.DeleteGroupsRequest([GROUP])],
    "offset_delete": [
        lambda _: offset_delete.OffsetDeleteRequest(
            GROUP,
            [offset_delete.OffsetDeleteRequestTopic(TOPIC, [offset_delete.OffsetDeleteRequestPartition(0)])],
        )
    ],
    "describe_client_quotas": [lambda _: describe_client_quotas.DescribeClientQuotasRequest()],
    "alter_client_quotas": [
        lambda _: alter_client_quotas.AlterClientQuotasRequest(
            [
                alter_client_quotas.AlterClientQuotasRequestEntryData(
                    [alter_client_quotas.AlterClientQuotasRequestEntityData("user", "mallory")],
                    [alter_client_quotas.OpData("producer_byte_rate", 1.0)],
                )
            ]
        )
    ],
    "create_delegation_token": [lambda _: create_delegation_token.CreateDelegationTokenRequest("User", "alice")],
    "describe_delegation_token": [lambda _: describe_delegation_token.DescribeDelegationTokenRequest(None)],
    "update_features": [
        lambda _: update_features.UpdateFeaturesRequest(
            1000, [update_features.FeatureUpdateKey("transaction.version", 0, upgrade_type=3)]
        )
    ],
    "alter_partition_reassignments": [
        lambda _: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    TOPIC, [alter_partition_reassignments.ReassignablePartition(0, [1])]
                )
            ]
        )
    ],
    "list_partition_reassignments": [
        lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    ],
    "elect_leaders": [lambda _: elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions(TOPIC, [0])])],
    "alter_partition": [lambda _: alter_partition.AlterPartitionRequest(1, 0)],
    "describe_user_scram_credentials": [
        lambda _: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(None),
        lambda _: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            [describe_user_scram_credentials.UserName("alice")]
        ),
    ],
    "alter_user_scram_credentials": [
        lambda _: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            [alter_user_scram_credentials.ScramCredentialDeletion("alice", 1)],
            [alter_user_scram_credentials.ScramCredentialUpsertion("mallory", 1, 4096, b"salt", b"salted")],
        )
    ],
    "unregister_broker": [lambda _: unregister_broker.UnregisterBrokerRequest(7)],
    "describe_quorum": [
        lambda _: describe_quorum.DescribeQuorumRequest(
            [
                describe_quorum.DescribeQuorumRequestTopicData(
                    "__cluster_metadata", [describe_quorum.DescribeQuorumRequestPartitionData(0)]
                )
            ]
        )
    ],
    "describe_cluster": [lambda _: describe_cluster.DescribeClusterRequest(True)],
    "describe_producers": [
        lambda _: describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(TOPIC, [0])])
    ],
    "describe_transactions": [lambda _: describe_transactions.DescribeTransactionsRequest([ID])],
    "list_transactions": [lambda _: list_transactions.ListTransactionsRequest()],
    "describe_topic_partitions": [
        lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(),
        lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(TOPIC)]
        ),
    ],
    "consumer_group_heartbeat": [
        lambda _: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            GROUP, "member", rebalance_timeout_ms=1_000, subscribed_topic_names=[TOPIC], topic_partitions=[]
        )
    ],
    "consumer_group_describe": [
        lambda _: consumer_group_describe.ConsumerGroupDescribeRequest([GROUP], include_authorized_operations=True)
    ],
    "share_group_heartbeat": [
        lambda _: share_group_heartbeat.ShareGroupHeartbeatRequest(GROUP, "member", subscribed_topic_names=[TOPIC])
    ],
    "share_group_describe": [
        lambda _: share_group_describe.ShareGroupDescribeRequest([GROUP], include_authorized_operations=True)
    ],
    "streams_group_heartbeat": [
        lambda _: streams_group_heartbeat.StreamsGroupHeartbeatRequest(
            GROUP,
            "member",
            0,
            rebalance_timeout_ms=60_000,
            topology=streams_group_heartbeat.Topology(
                0,
                [
                    streams_group_heartbeat.Subtopology(
                        "0",
                        source_topics=[TOPIC],
                        state_changelog_topics=[streams_group_heartbeat.TopicInfo("changelog")],
                    )
                ],
            ),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
    ],
    "streams_group_describe": [
        lambda _: streams_group_describe.StreamsGroupDescribeRequest([GROUP], include_authorized_operations=True)
    ],
    "streams_group_topology_description_update": [
        lambda _: streams_group_topology_description_update.StreamsGroupTopologyDescriptionUpdateRequest(
            GROUP, "member", 0
        )
    ],
    "describe_share_group_offsets": [
        lambda _: describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(GROUP, None)]
        )
    ],
    "alter_share_group_offsets": [
        lambda _: alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            GROUP,
            [
                alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                    TOPIC, [alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(0, 0)]
                )
            ],
        )
    ],
    "delete_share_group_offsets": [
        lambda _: delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            GROUP, [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(TOPIC)]
        )
    ],
    "share_fetch": [
        lambda it: share_fetch.ShareFetchRequest(
            GROUP,
            "member",
            max_records=1,
            topics=[share_fetch.FetchTopic(topic_id(it), [share_fetch.FetchPartition(0)])],
        )
    ],
    "share_acknowledge": [
        lambda it: share_acknowledge.ShareAcknowledgeRequest(
            GROUP,
            with_share_session(it, "member"),
            1,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id(it), [share_acknowledge.AcknowledgePartition(0)])],
        )
    ],
    "initialize_share_group_state": [
        lambda it: kinds.INITIALIZE.request(
            GROUP, {topic_id(it): [initialize_share_group_state.PartitionData(0, 0, 0)]}
        )
    ],
    "read_share_group_state": [
        lambda it: kinds.READ.request(GROUP, {topic_id(it): [read_share_group_state.PartitionData(0, 0)]})
    ],
    "write_share_group_state": [
        lambda it: kinds.WRITE.request(GROUP, {topic_id(it): [write_share_group_state.PartitionData(0)]})
    ],
    "delete_share_group_state": [
        lambda it: kinds.DELETE.request(GROUP, {topic_id(it): [delete_share_group_state.PartitionData(0)]})
    ],
    "read_share_group_state_summary": [
        lambda it: kinds.SUMMARIZE.request(GROUP, {topic_id(it): [read_share_group_state_summary.PartitionData(0, 0)]})
    ],
}


FOR_EVERYBODY = {
    "api_versions": "asked before anybody has said who they are",
    "describe_cluster": "where the brokers are, and nothing of what may be done to them",
    "sasl_handshake": "asked to learn who somebody is",
    "sasl_authenticate": "asked to learn who somebody is",
    "renew_delegation_token": "whoever is a renewer of the token may do it",
    "expire_delegation_token": "whoever is a renewer of the token may do it",
}

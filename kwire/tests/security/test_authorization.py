"""What every API asks the authorizer, and what it answers to somebody who may do nothing, or some things."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
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
from kwire_protocol.wire import NULL_UUID, Reader, Uuid, Writer
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.handlers.apis import APIS
from kwire.handlers.context import Context
from kwire.metadata.controller.topics import topic_deletion
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.node.broker import Broker
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once
from kwire.security.authorizer import SUPPORTED, Operation, ResourceType
from kwire.security.principal import ANONYMOUS, Principal, Requester
from kwire.share.coordinator import kinds
from kwire.share.coordinator.state import SharePartitionKey
from kwire.tests.error_codes import error_codes
from kwire.tests.folder_scene import append
from kwire.tests.internal_topics import create_internal_topics

TOPIC, GROUP, ID = "secret-topic", "secret-group", "secret-id"
TOKEN = DelegationTokenRecord("User:alice", "User:alice", [], 1, 1 << 62, 1 << 62, "secret-token")
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
MALLORY = Requester(Principal("User", "mallory"), "host")


class DoesNotAnswerYet(Exception):
    """The handler waits for something."""


@attrs.define
class Denier:
    """Refuses everything to everybody, but what is in `permitted`."""

    permitted: set[tuple[Operation, ResourceType, str]] = attrs.field(factory=set)
    asked: list[tuple[Requester, Operation, ResourceType, str]] = attrs.field(factory=list)
    allows_all: bool = False

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.asked.append((requester, operation, resource_type, name))
        return (operation, resource_type, name) in self.permitted

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        return any(it[:2] == (operation, resource_type) for it in self.permitted)

    def granted(self, requester: Requester, operation: Operation) -> frozenset[str | Uuid]:
        return frozenset()

    def grant(self, requester: Requester, operation: Operation, topic: str | Uuid) -> None:
        """It is asked each time."""


@contextmanager
def open_broker() -> Iterator[Broker]:
    """It has a topic with a record, a group that has committed, a transactional id, and a delegation token."""
    settings = ["delegation.token.secret.key=secret-key", "transaction.two.phase.commit.enable=true"]
    opened = Broker.open(load_config(settings=settings), MemoryDisk(), SystemClock())
    at_once(opened.metadata.change(lambda _: ([TOKEN], None)))
    create_internal_topics(opened)
    at_once(opened.metadata.change(auto_create_topic, TOPIC))
    append(opened.partitions.find(TOPIC, 0), b"secret-value")
    ask(opened, "offset_commit", REQUESTS["offset_commit"][0](opened))
    ask(opened, "init_producer_id", init_producer_id.InitProducerIdRequest(ID, 60_000))
    yield opened
    opened.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with open_broker() as opened:
        yield opened


def topic_id(broker: Broker) -> bytes:
    return broker.metadata.image.topics[TOPIC].topic_id


def with_share_session(broker: Broker, member_id: str) -> str:
    broker.sharing.sessions.begin(GROUP, member_id, 0, [], connection=member_id)
    return member_id


def batch() -> memoryview:
    return memoryview(bytearray(build_batch([Record(value=b"x")])))


def latest(name: str) -> int:
    return next(api for api in APIS.values() if api.name == name).versions[-1]


def ask(broker: Broker, name: str, request: Any, *, version: int | None = None) -> Any:
    """What the handler answers, without waiting, after a trip over the wire."""
    api = next(api for api in APIS.values() if api.name == name)
    asked = latest(name) if version is None else version
    context = Context("host", "127.0.0.1", 9092, api_key=api.key, api_version=asked, requester=MALLORY)
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
    return MESSAGES[api.key].response_class.read(Reader(written(response, asked)), asked)


def written(response: Any, version: int) -> bytes:
    writer = Writer()
    response.write(writer, version)
    pieces: list[Any] = list(writer.pieces())
    return b"".join(it.read() if hasattr(it, "read") else bytes(it) for it in pieces)


def state(broker: Broker) -> object:
    """What no refused request may change."""
    return broker.metadata.image.epoch, {(it.topic, it.index): it.log_end_offset for it in broker.partitions}


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
LISTS = {
    "metadata": "topics",
    "list_groups": "groups",
    "list_transactions": "transaction_states",
    "describe_delegation_token": "tokens",
    "describe_topic_partitions": "topics",
}
"""Where all is asked for, what may not be seen is left out."""


WRITES_AN_ID = "WRITE TRANSACTIONAL_ID"
READS_A_GROUP = "READ GROUP"
CONFIGURES = {"TOPIC", "CLUSTER", "GROUP"}
ASKED: dict[str, set[str]] = {
    "produce": {"WRITE TOPIC", WRITES_AN_ID},
    "fetch": {"READ TOPIC", "CLUSTER_ACTION CLUSTER"},
    "list_offsets": {"DESCRIBE TOPIC"},
    "metadata": {"DESCRIBE TOPIC", "CREATE CLUSTER"},
    "offset_commit": {READS_A_GROUP, "READ TOPIC"},
    "offset_fetch": {"DESCRIBE GROUP", "DESCRIBE TOPIC"},
    "find_coordinator": {"DESCRIBE GROUP", "DESCRIBE TRANSACTIONAL_ID", "CLUSTER_ACTION CLUSTER"},
    "join_group": {READS_A_GROUP},
    "heartbeat": {READS_A_GROUP},
    "leave_group": {READS_A_GROUP},
    "sync_group": {READS_A_GROUP},
    "describe_groups": {f"{it} GROUP" for it in ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")},
    "list_groups": {"DESCRIBE CLUSTER"},
    "create_topics": {"CREATE CLUSTER", "DESCRIBE_CONFIGS TOPIC"},
    "delete_topics": {"DELETE CLUSTER"},
    "delete_records": {"DELETE TOPIC"},
    "init_producer_id": {WRITES_AN_ID, "WRITE TOPIC"},
    "offset_for_leader_epoch": {"CLUSTER_ACTION CLUSTER"},
    "add_partitions_to_txn": {"CLUSTER_ACTION CLUSTER"},
    "add_offsets_to_txn": {WRITES_AN_ID, READS_A_GROUP},
    "end_txn": {WRITES_AN_ID},
    "write_txn_markers": {"ALTER CLUSTER"},
    "txn_offset_commit": {WRITES_AN_ID, READS_A_GROUP, "READ TOPIC"},
    "describe_acls": {"DESCRIBE CLUSTER"},
    "create_acls": {"ALTER CLUSTER"},
    "delete_acls": {"ALTER CLUSTER"},
    "describe_configs": {f"DESCRIBE_CONFIGS {it}" for it in CONFIGURES},
    "alter_configs": {f"ALTER_CONFIGS {it}" for it in CONFIGURES},
    "incremental_alter_configs": {f"ALTER_CONFIGS {it}" for it in CONFIGURES},
    "alter_replica_log_dirs": {"ALTER CLUSTER"},
    "describe_log_dirs": {"DESCRIBE CLUSTER"},
    "create_partitions": {"ALTER TOPIC"},
    "delete_groups": {"DELETE GROUP"},
    "offset_delete": {"DELETE GROUP", "READ TOPIC"},
    "describe_client_quotas": {"DESCRIBE_CONFIGS CLUSTER"},
    "alter_client_quotas": {"ALTER_CONFIGS CLUSTER"},
    "create_delegation_token": {"CREATE_TOKENS USER"},
    "describe_delegation_token": {"DESCRIBE DELEGATION_TOKEN"},
    "update_features": {"ALTER CLUSTER"},
    "alter_partition_reassignments": {"ALTER CLUSTER"},
    "list_partition_reassignments": {"DESCRIBE CLUSTER"},
    "elect_leaders": {"ALTER CLUSTER"},
    "describe_user_scram_credentials": {"DESCRIBE CLUSTER"},
    "alter_user_scram_credentials": {"ALTER CLUSTER"},
    "unregister_broker": {"ALTER CLUSTER"},
    "alter_partition": {"CLUSTER_ACTION CLUSTER"},
    "describe_quorum": {"DESCRIBE CLUSTER"},
    "describe_cluster": {f"{it.name} CLUSTER" for it in SUPPORTED[ResourceType.CLUSTER]},
    "describe_producers": {"READ TOPIC"},
    "describe_transactions": {"DESCRIBE TRANSACTIONAL_ID"},
    "list_transactions": {"DESCRIBE TRANSACTIONAL_ID"},
    "describe_topic_partitions": {f"{it.name} TOPIC" for it in SUPPORTED[ResourceType.TOPIC]},
    "consumer_group_heartbeat": {READS_A_GROUP, "DESCRIBE TOPIC"},
    "consumer_group_describe": {"DESCRIBE GROUP"},
    "share_group_heartbeat": {READS_A_GROUP, "DESCRIBE TOPIC"},
    "share_group_describe": {"DESCRIBE GROUP"},
    "streams_group_heartbeat": {READS_A_GROUP, "DESCRIBE TOPIC", "CREATE CLUSTER"},
    "streams_group_describe": {"DESCRIBE GROUP"},
    "streams_group_topology_description_update": {READS_A_GROUP},
    "describe_share_group_offsets": {"DESCRIBE GROUP"},
    "alter_share_group_offsets": {"READ GROUP", "READ TOPIC"},
    "delete_share_group_offsets": {"DELETE GROUP", "READ TOPIC"},
    "share_fetch": {"READ GROUP", "READ TOPIC"},
    "share_acknowledge": {"READ GROUP", "READ TOPIC"},
    "initialize_share_group_state": {"CLUSTER_ACTION CLUSTER"},
    "read_share_group_state": {"CLUSTER_ACTION CLUSTER"},
    "write_share_group_state": {"CLUSTER_ACTION CLUSTER"},
    "delete_share_group_state": {"CLUSTER_ACTION CLUSTER"},
    "read_share_group_state_summary": {"CLUSTER_ACTION CLUSTER"},
}
"""What an Apache Kafka asks before it answers somebody who may do everything (KafkaApis, ControllerApis)."""


@attrs.define
class Granter(Denier):
    """Refuses nothing, and notes what it is asked."""

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.asked.append((requester, operation, resource_type, name))
        return True

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        self.asked.append((requester, operation, resource_type, ""))
        return True


@pytest.mark.parametrize("name", REQUESTS)
def test_the_authorizer_is_asked_what_kafkas_is(broker: Broker, name: str) -> None:
    broker.authorization.authorizer = granter = Granter()
    for request in [make(broker) for make in REQUESTS[name]]:
        with suppress(DoesNotAnswerYet):
            ask(broker, name, request)
    assert {f"{it[1].name} {it[2].name}" for it in granter.asked} == ASKED[name]
    assert {it[0] for it in granter.asked} == {MALLORY}


def test_what_a_transaction_has_of_topics_that_may_not_be_seen_is_left_out(broker: Broker) -> None:
    identity = ask(broker, "init_producer_id", init_producer_id.InitProducerIdRequest(ID, 60_000))
    add = add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0])
    added = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[add],
    )
    visible_id = (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ID)
    may_write = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, ID)
    for granted, error in (
        (set(), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({may_write}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ({may_write, (Operation.WRITE, ResourceType.TOPIC, TOPIC)}, ErrorCode.NONE),
    ):
        broker.authorization.authorizer = Denier(granted)
        answer = ask(broker, "add_partitions_to_txn", added, version=3)
        (partition,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert partition.partition_error_code == error
    for granted, topics in (
        ({visible_id}, []),
        ({visible_id, (Operation.DESCRIBE, ResourceType.TOPIC, TOPIC)}, [TOPIC]),
    ):
        broker.authorization.authorizer = Denier(granted)
        (described,) = ask(
            broker, "describe_transactions", REQUESTS["describe_transactions"][0](broker)
        ).transaction_states
        assert [it.topic for it in described.topics] == topics


def test_a_transactional_id_is_needed_for_transactional_batches_only(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.WRITE, ResourceType.TOPIC, TOPIC)})

    def produced(*batches: bytes | memoryview) -> list[int]:
        data = [P(index, each) for index, each in enumerate(batches)]
        request = produce.ProduceRequest(ID, 1, 1000, [produce.TopicProduceData(TOPIC, topic_id(broker), data)])
        answers = ask(broker, "produce", request).responses[0].partition_responses
        return [it.error_code for it in answers]

    transactional = bytes(build_batch([Record()], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0))
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produced(batch()) == [0]
    assert produced(b"no batch") == [ErrorCode.INVALID_RECORD]
    assert produced(batch(), transactional) == [refused, refused]


def test_whoever_may_delete_in_the_cluster_may_delete_any_topic(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.DELETE, ResourceType.CLUSTER, "kafka-cluster")})
    assert error_codes(ask(broker, "delete_topics", REQUESTS["delete_topics"][0](broker))) == {0}


def test_a_refusal_says_which_operation_it_needs_and_no_name(broker: Broker) -> None:
    def answer() -> str | None:
        request = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(None, topic_id(broker))])
        [response] = ask(broker, "delete_topics", request).responses
        message: str | None = response.error_message
        return message

    broker.authorization.authorizer = Denier()
    assert answer() == "Topic authorization failed. It needs DELETE on the topic."
    quotas = ask(broker, "describe_client_quotas", describe_client_quotas.DescribeClientQuotasRequest([]))
    assert quotas.error_message == "Cluster authorization failed. It needs DESCRIBE_CONFIGS on the cluster."


def test_whoever_may_see_topics_but_not_delete_them_is_told_which_there_are(broker: Broker) -> None:
    identifier = topic_id(broker)

    def answer(name: str | None, topic_id: bytes = NULL_UUID) -> tuple[str | None, int]:
        request = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(name, topic_id)])
        [response] = ask(broker, "delete_topics", request).responses
        return response.name, response.error_code

    refused, unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.authorization.authorizer = Denier()
    assert (answer(TOPIC), answer("none")) == ((TOPIC, refused), ("none", refused))
    assert answer(None, identifier) == (None, refused)
    assert answer(None, b"x" * 16) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.TOPIC, it) for it in (TOPIC, "none")})
    assert (answer(TOPIC), answer("none")) == ((TOPIC, refused), ("none", unknown))
    assert answer(None, identifier) == (TOPIC, refused)
    broker.authorization.authorizer = Denier({(Operation.DELETE, ResourceType.TOPIC, TOPIC)})
    assert answer(TOPIC) == (TOPIC, refused), "it may not be seen, so it does not exist for the client"
    assert answer(None, identifier) == (TOPIC, 0)


def test_what_is_named_twice_is_wrong_whoever_asks_for_it(broker: Broker) -> None:
    broker.authorization.authorizer = Denier()
    identifier = topic_id(broker)
    by_id, by_both = delete_topics.DeleteTopicState(None, identifier), delete_topics.DeleteTopicState(TOPIC, identifier)
    config = alter_configs.AlterConfigsResource(2, TOPIC, [])
    for name, request in (
        ("create_topics", create_topics.CreateTopicsRequest([create_topics.CreatableTopic("new", 1, 1)] * 2)),
        (
            "create_topics",
            create_topics.CreateTopicsRequest([create_topics.CreatableTopic("__cluster_metadata", 1, 1)]),
        ),
        (
            "create_partitions",
            create_partitions.CreatePartitionsRequest([create_partitions.CreatePartitionsTopic(TOPIC, 2)] * 2),
        ),
        ("delete_topics", delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(TOPIC)] * 2)),
        ("delete_topics", delete_topics.DeleteTopicsRequest([by_id, by_id])),
        ("delete_topics", delete_topics.DeleteTopicsRequest([by_both])),
        ("alter_configs", alter_configs.AlterConfigsRequest([config, config])),
    ):
        assert error_codes(ask(broker, name, request)) - {0} <= {
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        }, name
        assert TOPIC in broker.metadata.image.topics


def test_a_topic_that_may_not_be_seen_is_not_called_internal_and_one_that_may_not_be_created_not_invalid(
    broker: Broker,
) -> None:
    def asked(name: str) -> tuple[int, bool]:
        [topic] = ask(broker, "metadata", metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)])).topics
        return topic.error_code, topic.is_internal

    broker.authorization.authorizer = Denier()
    assert asked("__consumer_offsets") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.TOPIC, "not valid")})
    assert asked("not valid") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)


def test_offsets_of_topics_that_may_not_be_seen_are_left_out(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.GROUP, GROUP)})
    everything, named = (ask(broker, "offset_fetch", make(broker)).groups[0] for make in REQUESTS["offset_fetch"])
    assert everything.topics == []
    assert error_codes(named) == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_a_topic_may_be_created_by_whoever_may_create_that_topic(broker: Broker) -> None:
    may_create = (Operation.CREATE, ResourceType.TOPIC, "new")
    broker.authorization.authorizer = Denier({may_create, (Operation.DESCRIBE, ResourceType.TOPIC, "new")})
    (created,) = ask(broker, "create_topics", REQUESTS["create_topics"][0](broker)).topics
    assert (created.error_code, created.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (created.configs, created.num_partitions, created.replication_factor) == ([], -1, -1)
    at_once(
        broker.metadata.change(
            topic_deletion.delete_topics, delete_topics.DeleteTopicsRequest(topic_names=["new"]), version=5
        )
    )
    assert "new" not in broker.metadata.image.topics
    ask(broker, "metadata", REQUESTS["metadata"][2](broker))
    assert "new" in broker.metadata.image.topics


def test_metadata_creates_no_topic_for_a_client_that_may_not_create_it(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.TOPIC, "new")})
    (topic,) = ask(broker, "metadata", REQUESTS["metadata"][2](broker)).topics
    assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "new" not in broker.metadata.image.topics


def test_metadata_creates_no_topic_for_a_client_that_may_not_describe_it(broker: Broker) -> None:
    broker.authorization.authorizer = Denier({(Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")})
    (topic,) = ask(broker, "metadata", REQUESTS["metadata"][2](broker)).topics
    assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "new" not in broker.metadata.image.topics


def test_every_api_is_asked() -> None:
    assert {api.name for api in APIS.values()} == set(REQUESTS) | set(FOR_EVERYBODY)


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, requests in REQUESTS.items() for number in range(len(requests))]
)
def test_who_may_do_nothing_is_answered_nothing(broker: Broker, name: str, number: int) -> None:
    broker.authorization.authorizer = denier = Denier()
    before = state(broker)
    response = ask(broker, name, REQUESTS[name][number](broker))
    assert state(broker) == before
    assert {it[0] for it in denier.asked} <= {MALLORY}
    if name in FOR_EVERYBODY:
        assert response.cluster_authorized_operations == 0
        return
    codes = error_codes(response)
    assert codes - {0} <= REFUSALS
    if codes <= {0}:
        assert getattr(response, LISTS[name]) == []
    assert b"secret-value" not in repr(response).encode()


@pytest.mark.parametrize("name", ["produce", "fetch", "offset_commit", "txn_offset_commit", "offset_fetch"])
def test_older_versions_that_name_topics_are_refused_too(broker: Broker, name: str) -> None:
    broker.authorization.authorizer = Denier()
    version = {"produce": 12, "fetch": 12, "offset_commit": 9, "txn_offset_commit": 5, "offset_fetch": 9}[name]
    before = state(broker)
    response = ask(broker, name, REQUESTS[name][0](broker), version=version)
    assert (error_codes(response) - {0}) <= REFUSALS
    assert error_codes(response) != {0}
    assert state(broker) == before


def test_whoever_may_not_see_a_topic_is_not_told_whether_it_exists(broker: Broker) -> None:
    broker.authorization.authorizer = Denier()
    for name in ("list_offsets", "delete_records", "describe_producers"):
        answers = []
        for topic in (TOPIC, "none"):
            request = REQUESTS[name][0](broker)
            (named,) = request.topics
            field = "name" if hasattr(named, "name") else "topic"
            setattr(named, field, topic)
            response = ask(broker, name, request)
            setattr(response.topics[0], field, "")
            answers.append(response)
        assert answers[0] == answers[1]


def test_a_member_of_a_share_group_gets_only_topics_that_it_may_read(broker: Broker) -> None:
    may_read = (Operation.READ, ResourceType.GROUP, GROUP)
    broker.authorization.authorizer = Denier({may_read})
    fetched = ask(broker, "share_fetch", REQUESTS["share_fetch"][0](broker))
    acknowledged = ask(broker, "share_acknowledge", REQUESTS["share_acknowledge"][0](broker))
    assert error_codes(fetched) == error_codes(acknowledged) == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert len(broker.sharing) == 0


def test_remembered_answers_stay_with_the_principal(broker: Broker) -> None:
    api = APIS[3]
    handle = api.handler(broker)

    def topics(principal: Principal) -> list[str]:
        context = Context("host", "127.0.0.1", 9092, api_key=3, api_version=12, requester=Requester(principal, "host"))
        response = handle(metadata.MetadataRequest(None), context)
        return [it.name or "" for it in metadata.MetadataResponse.read(Reader(written(response, 12)), 12).topics]

    @attrs.define
    class OnlyAnonymous(Denier):
        def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
            return requester.principal == ANONYMOUS

    broker.authorization.authorizer = OnlyAnonymous()
    for _ in range(2):
        assert TOPIC in topics(ANONYMOUS)
        assert topics(MALLORY.principal) == []


def test_authorized_operations_are_what_the_authorizer_allows(broker: Broker) -> None:
    broker.authorization.authorizer = Denier(
        {
            (Operation.DESCRIBE, ResourceType.TOPIC, TOPIC),
            (Operation.READ, ResourceType.TOPIC, TOPIC),
            (Operation.DESCRIBE, ResourceType.GROUP, GROUP),
            (Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"),
        }
    )
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)], True, True, True)
    answer = ask(broker, "metadata", request, version=10)
    (topic,) = answer.topics
    assert answer.cluster_authorized_operations == 1 << Operation.DESCRIBE
    assert topic.topic_authorized_operations == 1 << Operation.DESCRIBE | 1 << Operation.READ
    (group,) = ask(broker, "describe_groups", REQUESTS["describe_groups"][0](broker)).groups
    assert group.authorized_operations == 1 << Operation.DESCRIBE
    cluster = ask(broker, "describe_cluster", REQUESTS["describe_cluster"][0](broker))
    assert cluster.cluster_authorized_operations == 1 << Operation.DESCRIBE


@pytest.mark.parametrize("may_describe", [False, True])
def test_what_may_be_done_to_the_cluster_is_told_to_whom_may_describe_it(broker: Broker, may_describe: bool) -> None:
    operations = {Operation.ALTER, Operation.DESCRIBE} if may_describe else {Operation.ALTER}
    broker.authorization.authorizer = Denier({(it, ResourceType.CLUSTER, "kafka-cluster") for it in operations})
    request = metadata.MetadataRequest([], include_cluster_authorized_operations=True)
    told = 1 << Operation.ALTER | 1 << Operation.DESCRIBE if may_describe else 0
    assert ask(broker, "metadata", request, version=10).cluster_authorized_operations == told
    described = ask(broker, "describe_cluster", REQUESTS["describe_cluster"][0](broker))
    assert described.cluster_authorized_operations == told


def test_what_may_be_done_to_a_topic_is_told_whether_it_exists_or_not(broker: Broker) -> None:
    broker.authorization.authorizer = Denier(
        {
            (Operation.DESCRIBE, ResourceType.TOPIC, TOPIC),
            (Operation.READ, ResourceType.TOPIC, TOPIC),
            (Operation.DESCRIBE, ResourceType.TOPIC, "none"),
        }
    )
    names = [describe_topic_partitions.TopicRequest(it) for it in (TOPIC, "none")]
    described = ask(
        broker, "describe_topic_partitions", describe_topic_partitions.DescribeTopicPartitionsRequest(names)
    )
    assert {it.name: it.topic_authorized_operations for it in described.topics} == {
        TOPIC: 1 << Operation.DESCRIBE | 1 << Operation.READ,
        "none": 1 << Operation.DESCRIBE,
    }


def described_to(broker: Broker, kind: str, permitted: set[tuple[Operation, ResourceType, str]]) -> Any:
    """The description of a group of that kind. Its only member subscribes to the topic."""
    api = f"{kind}_group_describe"
    request = REQUESTS[f"{kind}_group_heartbeat"][0](broker)
    request.group_id = f"{kind}-group"
    assert ask(broker, f"{kind}_group_heartbeat", request).error_code == 0
    asked = REQUESTS[api][0](broker)
    asked.group_ids = [f"{kind}-group"]
    broker.authorization.authorizer = Denier({(Operation.DESCRIBE, ResourceType.GROUP, f"{kind}-group"), *permitted})
    [group] = ask(broker, api, asked).groups
    return group


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_what_may_be_done_to_a_group_is_told_of_every_kind(broker: Broker, kind: str) -> None:
    seen = {(Operation.DESCRIBE, ResourceType.TOPIC, it) for it in (TOPIC, "changelog")}
    group = described_to(broker, kind, {*seen, (Operation.DELETE, ResourceType.GROUP, f"{kind}-group")})
    assert (group.error_code, len(group.members)) == (0, 1)
    assert group.authorized_operations == 1 << Operation.DESCRIBE | 1 << Operation.DELETE


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_a_group_is_not_shown_to_whom_may_not_see_its_topics(broker: Broker, kind: str) -> None:
    group = described_to(broker, kind, set())
    assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "topic" in (group.error_message or "")
    assert group.members == []
    assert TOPIC not in repr(group)


def test_offsets_of_a_share_group_are_told_of_topics_that_may_be_seen(broker: Broker) -> None:
    alter = REQUESTS["alter_share_group_offsets"][0](broker)
    everything = REQUESTS["describe_share_group_offsets"][0](broker)
    alter.group_id = everything.groups[0].group_id = "share-group"
    assert error_codes(ask(broker, "alter_share_group_offsets", alter)) == {0}
    seen = (Operation.DESCRIBE, ResourceType.GROUP, "share-group")
    for permitted, names in (({seen}, []), ({seen, (Operation.DESCRIBE, ResourceType.TOPIC, TOPIC)}, [TOPIC])):
        broker.authorization.authorizer = Denier(permitted)
        [group] = ask(broker, "describe_share_group_offsets", everything).groups
        assert (group.error_code, [it.topic_name for it in group.topics]) == (0, names)


def test_a_partition_is_served_to_whom_it_is_granted(broker: Broker) -> None:
    broker.authorization.authorizer = Denier(
        {(Operation.READ, ResourceType.TOPIC, TOPIC), (Operation.WRITE, ResourceType.TOPIC, TOPIC)}
    )
    produced = ask(broker, "produce", REQUESTS["produce"][0](broker))
    assert error_codes(produced) == {0}
    fetched = ask(broker, "fetch", REQUESTS["fetch"][0](broker))
    assert error_codes(fetched) == {0}
    assert error_codes(ask(broker, "fetch", REQUESTS["fetch"][1](broker))) == {
        0,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }, "a follower needs more"

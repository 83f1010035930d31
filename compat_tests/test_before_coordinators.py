"""Responses before `__consumer_offsets`, `__transaction_state` and `__share_group_state` exist.

FindCoordinator creates them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from kwire_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kwire_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire_protocol.messages.end_txn import EndTxnRequest
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.init_producer_id import InitProducerIdRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.list_transactions import ListTransactionsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.messages.sync_group import SyncGroupRequest
from kwire_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import ApiMessage

from kwire.share.coordinator.kinds import DELETE, INITIALIZE, READ, SUMMARIZE, WRITE, Kind
from kwire.share.coordinator.state import SharePartitionKey
from testkit.basics.error_codes import error_codes
from testkit.basics.waiting import eventually
from testkit.raw import nodes, topics
from testkit.raw.client import RawClient
from testkit.raw.share_states import SHARE
from testkit.servers import brokers

E = ErrorCode
TOPIC = "t"
PARTITIONS = int(brokers.SETTINGS["offsets.topic.num.partitions"])
"""Of all internal topics."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with brokers.fresh_broker() as fresh:
        topics.create(fresh.bootstrap, TOPIC, replicas=brokers.NODES)
        yield fresh.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(bootstrap) as connected:
        yield connected


def join(group: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    return JoinGroupRequest(group, 10_000, 10_000, protocol_type="consumer", protocols=protocols)


def sync(group: str) -> SyncGroupRequest:
    return SyncGroupRequest(group, 1, "m", protocol_type="consumer", protocol_name="range")


def commit(group: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, 5)
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(TOPIC, partitions=[partition])])


def fetch(group: str) -> OffsetFetchRequest:
    wanted = OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=[wanted])])


def delete_offsets(group: str) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(0)])])


def commit_in_transaction(group: str) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(0, 5)
    offsets = [TxnOffsetCommitRequestTopic(TOPIC, partitions=[partition])]
    return TxnOffsetCommitRequest("id", group, 1, 0, topics=offsets)


def produce_in_transaction() -> ProduceRequest:
    batch = build_batch([Record()], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    return ProduceRequest("id", -1, 10_000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch)])])


def of_a_share_partition(kind: Kind, data: object) -> ApiMessage:
    request: ApiMessage = kind.request("g", {bytes(range(16)): [data]})
    return request


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        pytest.param(
            OffsetFetchRequest("g", [OffsetFetchRequestTopic(TOPIC, [0])]), 1, E.NOT_COORDINATOR, id="OffsetFetch v1"
        ),
        pytest.param(
            OffsetFetchRequest("g", [OffsetFetchRequestTopic(TOPIC, [0])]), 7, E.NOT_COORDINATOR, id="OffsetFetch v7"
        ),
        pytest.param(fetch("g"), 8, E.NOT_COORDINATOR, id="OffsetFetch"),
        pytest.param(fetch(""), 8, E.NOT_COORDINATOR, id="OffsetFetch, no group id"),
        pytest.param(commit("g"), 9, E.NOT_COORDINATOR, id="OffsetCommit"),
        pytest.param(commit(""), 9, E.NOT_COORDINATOR, id="OffsetCommit, no group id"),
        pytest.param(delete_offsets("g"), 0, E.NOT_COORDINATOR, id="OffsetDelete"),
        pytest.param(delete_offsets(""), 0, E.INVALID_GROUP_ID, id="OffsetDelete, no group id"),
        pytest.param(DescribeGroupsRequest(["g"]), 5, E.NOT_COORDINATOR, id="DescribeGroups v5"),
        pytest.param(DescribeGroupsRequest(["g", ""]), 6, E.NOT_COORDINATOR, id="DescribeGroups"),
        pytest.param(DeleteGroupsRequest(["g", ""]), 2, E.NOT_COORDINATOR, id="DeleteGroups"),
        pytest.param(ListGroupsRequest(), 5, None, id="ListGroups"),
        pytest.param(join("g"), 0, E.NOT_COORDINATOR, id="JoinGroup v0"),
        pytest.param(join("g"), 9, E.NOT_COORDINATOR, id="JoinGroup"),
        pytest.param(join(""), 9, E.INVALID_GROUP_ID, id="JoinGroup, no group id"),
        pytest.param(sync("g"), 5, E.NOT_COORDINATOR, id="SyncGroup"),
        pytest.param(sync(""), 5, E.INVALID_GROUP_ID, id="SyncGroup, no group id"),
        pytest.param(HeartbeatRequest("g", 1, "m"), 4, E.NOT_COORDINATOR, id="Heartbeat"),
        pytest.param(HeartbeatRequest("", 1, "m"), 4, E.INVALID_GROUP_ID, id="Heartbeat, no group id"),
        pytest.param(LeaveGroupRequest("g", "m"), 2, E.NOT_COORDINATOR, id="LeaveGroup v2"),
        pytest.param(LeaveGroupRequest("g", members=[MemberIdentity("m")]), 5, E.NOT_COORDINATOR, id="LeaveGroup"),
        pytest.param(
            LeaveGroupRequest("", members=[MemberIdentity("m")]), 5, E.INVALID_GROUP_ID, id="LeaveGroup, no group id"
        ),
        pytest.param(commit_in_transaction("g"), 4, E.COORDINATOR_NOT_AVAILABLE, id="TxnOffsetCommit v4"),
        pytest.param(commit_in_transaction("g"), 5, E.COORDINATOR_NOT_AVAILABLE, id="TxnOffsetCommit"),
        pytest.param(commit_in_transaction(""), 5, E.INVALID_GROUP_ID, id="TxnOffsetCommit, no group id"),
        pytest.param(InitProducerIdRequest("id", 10_000), 5, E.NOT_COORDINATOR, id="InitProducerId"),
        pytest.param(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="id",
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, [0])],
            ),
            3,
            E.NOT_COORDINATOR,
            id="AddPartitionsToTxn",
        ),
        pytest.param(AddOffsetsToTxnRequest("id", 1, 0, "g"), 3, E.NOT_COORDINATOR, id="AddOffsetsToTxn"),
        pytest.param(EndTxnRequest("id", 1, 0, committed=True), 4, E.NOT_COORDINATOR, id="EndTxn"),
        pytest.param(DescribeTransactionsRequest(["id"]), 0, E.NOT_COORDINATOR, id="DescribeTransactions"),
        pytest.param(ListTransactionsRequest(), 1, None, id="ListTransactions"),
        pytest.param(produce_in_transaction(), 11, E.NOT_ENOUGH_REPLICAS, id="Produce v11"),
        pytest.param(produce_in_transaction(), 12, E.NOT_ENOUGH_REPLICAS, id="Produce"),
        *(
            pytest.param(of_a_share_partition(kind, data), 0, E.NOT_COORDINATOR, id=f"{kind.name} a share state")
            for kind, data in (
                (INITIALIZE, initialize_share_group_state.PartitionData(0, 0, 0)),
                (READ, read_share_group_state.PartitionData(0, 0)),
                (WRITE, write_share_group_state.PartitionData(0)),
                (DELETE, delete_share_group_state.PartitionData(0)),
                (SUMMARIZE, read_share_group_state_summary.PartitionData(0, 0)),
            )
        ),
    ],
)
def test_nobody_coordinates_and_no_topic_is_created(
    bootstrap: str, client: RawClient, request_: ApiMessage, version: int, code: ErrorCode | None
) -> None:
    answer = client.call(request_, version)
    assert error_codes(answer) - {0} == ({code} if code else set())
    assert topics.names(bootstrap) == {TOPIC}


@pytest.mark.parametrize("version", [0, 7, 9])
def test_a_join_without_a_coordinator_is_refused_without_a_member_id(client: RawClient, version: int) -> None:
    request = join("g")
    request.member_id = "m"
    answer = client.call(request, version)
    no_protocol = None if version >= 7 else ""
    assert (answer.error_code, answer.member_id, answer.protocol_name) == (E.NOT_COORDINATOR, "", no_protocol)


def test_a_search_for_the_coordinator_creates_the_topic() -> None:
    with brokers.fresh_broker() as fresh:

        def answers(request: ApiMessage, version: int) -> bool:
            """Returns whether some broker answers without an error: a coordinator."""
            return any(error_codes(client.call(request, version)) <= {0} for client in nodes.each(fresh.bootstrap))

        for key_type, key, topic in (
            (nodes.GROUP, "g", "__consumer_offsets"),
            (nodes.TRANSACTION, "g", "__transaction_state"),
            (SHARE, SharePartitionKey("g", bytes(range(16)), 0).text, "__share_group_state"),
        ):
            search = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
            assert topic not in topics.names(fresh.bootstrap)
            eventually(functools.partial(answers, search, 6), "a coordinator")
            nodes.wait_until_led(fresh.bootstrap, topic, PARTITIONS)
        eventually(lambda: answers(fetch("g"), 8), "committed offsets")
        eventually(lambda: answers(InitProducerIdRequest("g", 10_000), 5), "a producer id")

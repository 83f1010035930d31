"""Groups of every kind in the metrics of a running broker, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from kwire.metrics.groups import STATES
from kwire.testing import Broker
from testkit.groups.shard_driver import ShardDriver
from testkit.raw.client import RawClient
from testkit.raw.scrapes import CLASSIC, GROUP, SHARE, eventually_has, groups, in_state, scrape

SETTINGS = {"offsets.topic.num.partitions": "3", "share.coordinator.state.topic.num.partitions": "2"}
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
JOINS, LEAVES = 0, -1


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(metrics=True, settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        assert client.call(CreateTopicsRequest([CreatableTopic("t", 2, -1)], 1000), 7).topics[0].error_code == 0
        find_coordinator(client)
        yield client


def find_coordinator(client: RawClient) -> None:
    (found,) = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators
    assert found.error_code == 0


def commit(client: RawClient, group_id: str, *partitions: int) -> None:
    committed = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in partitions]
    (topic,) = client.call(
        OffsetCommitRequest(group_id, topics=[OffsetCommitRequestTopic("t", partitions=committed)]), 8
    ).topics
    assert [it.error_code for it in topic.partitions] == [0] * len(partitions)


def delete_group(client: RawClient, group_id: str) -> None:
    (result,) = client.call(DeleteGroupsRequest([group_id]), 2).results
    assert result.error_code == 0


def test_before_there_is_a_group_every_state_is_there_with_0(broker: Broker) -> None:
    values = scrape(broker)
    for kind, states in STATES.items():
        assert values[groups(kind)] == 0
        for state in states:
            assert values[f"{CLASSIC}numgroups{state.lower()}" if kind == "classic" else in_state(kind, state)] == 0


def test_classic_groups_come_and_go(broker: Broker, client: RawClient) -> None:
    join = JoinGroupRequest("g", 10_000, 10_000, "", None, "custom", [JoinGroupRequestProtocol("p", b"")])
    joined = client.call(join, 3)
    assert joined.error_code == 0
    eventually_has(
        broker,
        {
            groups("classic"): 1,
            f"{CLASSIC}numgroups": 1,
            f"{CLASSIC}numgroupscompletingrebalance": 1,
            f"{GROUP}group_completed_rebalance_total": 0,
        },
    )
    assignments = [SyncGroupRequestAssignment(joined.member_id, b"all")]
    assert client.call(SyncGroupRequest("g", joined.generation_id, joined.member_id, assignments=assignments), 2)
    eventually_has(
        broker,
        {
            f"{CLASSIC}numgroupscompletingrebalance": 0,
            f"{CLASSIC}numgroupsstable": 1,
            f"{GROUP}group_completed_rebalance_total": 1,
        },
    )
    client.call(LeaveGroupRequest("g", members=[MemberIdentity(joined.member_id)]), 3)
    eventually_has(broker, {f"{CLASSIC}numgroupsstable": 0, f"{CLASSIC}numgroupsempty": 1})
    delete_group(client, "g")
    eventually_has(broker, {groups("classic"): 0, f"{CLASSIC}numgroupsempty": 0})


def test_consumer_groups_come_and_go(broker: Broker, client: RawClient) -> None:
    def heartbeat(epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=MEMBER, member_epoch=epoch, rebalance_timeout_ms=10_000
        )
        request.subscribed_topic_names, request.topic_partitions = ["t"], []
        assert client.call(request, 1).error_code == 0

    heartbeat(JOINS)
    eventually_has(
        broker,
        {
            groups("consumer"): 1,
            groups("classic"): 0,
            in_state("consumer", "Stable"): 1,
            f"{GROUP}consumer_group_rebalance_total": 1,
        },
    )
    heartbeat(LEAVES)
    eventually_has(
        broker,
        {
            in_state("consumer", "Stable"): 0,
            in_state("consumer", "Empty"): 1,
            f"{GROUP}consumer_group_rebalance_total": 2,
        },
    )
    delete_group(client, "g")
    eventually_has(broker, {groups("consumer"): 0, in_state("consumer", "Empty"): 0})


def test_share_groups_come_and_go(broker: Broker, client: RawClient) -> None:
    def heartbeat(epoch: int) -> None:
        request = ShareGroupHeartbeatRequest(group_id="g", member_id=MEMBER, member_epoch=epoch)
        request.subscribed_topic_names = ["t"]
        assert client.call(request, 1).error_code == 0

    heartbeat(JOINS)
    eventually_has(
        broker, {groups("share"): 1, in_state("share", "Stable"): 1, f"{GROUP}share_group_rebalance_total": 1}
    )
    eventually_has(broker, {f'{SHARE}num_partitions{{state="active"}}': 2})
    heartbeat(LEAVES)
    eventually_has(broker, {in_state("share", "Stable"): 0, in_state("share", "Empty"): 1})
    delete_group(client, "g")
    eventually_has(broker, {groups("share"): 0})


def test_committed_offsets_are_counted_and_found_again_after_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, metrics=True, settings=SETTINGS) as broker, RawClient(broker.address) as client:
        client.call(CreateTopicsRequest([CreatableTopic("t", 2, -1)], 1000), 7)
        find_coordinator(client)
        commit(client, "one", 0, 1)
        commit(client, "one", 1)
        commit(client, "two", 0)
        eventually_has(
            broker,
            {
                f"{GROUP}offset_commit_total": 4,
                f"{CLASSIC}numoffsets": 3,
                groups("classic"): 2,
                f'{GROUP}num_partitions{{state="active"}}': 3,
                f"{GROUP}partition_load_time_seconds_count": 3,
            },
        )
        topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
        assert client.call(OffsetDeleteRequest("one", topics), 0).error_code == 0
        eventually_has(broker, {f"{GROUP}offset_deletion_total": 1, f"{CLASSIC}numoffsets": 2})
    with Broker(data_dir=tmp_path, metrics=True, settings=SETTINGS) as broker:
        values = scrape(broker)
        assert values[f"{CLASSIC}numoffsets"] == 2
        assert values[groups("classic")] == 2
        assert values[f"{GROUP}offset_commit_total"] == 0


def test_offsets_go_out_of_the_count_with_their_time_and_with_their_group() -> None:
    driver = ShardDriver()
    driver.commit({("t", 0): 1, ("t", 1): 1})
    driver.commit({("t", 0): 1}, group="other")
    driver.commit_transactional({("t", 0): 2}, group="other")
    assert driver.shard.offset_count == 3
    driver.delete_groups("other")
    assert driver.shard.offset_count == 2
    assert driver.counts.offset_deletions == 0
    driver.advance(driver.config.offsets_retention_ms + driver.config.offsets_retention_check_interval_ms)
    assert driver.shard.offset_count == 0
    assert driver.counts.offset_expirations == 2
    assert driver.counts.offset_commits == 4

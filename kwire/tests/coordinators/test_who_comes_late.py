"""Requests that come after a deadline, on a broker whose own task has not woken up: what is due is done before them.

Only the test moves the clock, and only the requests look at it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.list_transactions import ListTransactionsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kwire_storage.disk.memory_disk import MemoryDisk

from kwire.config.server import load_config
from kwire.coordinators.deadlines import PAUSES_MS
from kwire.coordinators.internal_topic import LoggedRecord
from kwire.groups.records import read_head
from kwire.groups.shard import GroupShard
from kwire.node.broker import Broker
from testkit.metadata.harness import FakeClock
from testkit.scenes.direct import clients
from testkit.scenes.direct.broker_driver import BrokerDriver
from testkit.scenes.internal_topics import create_internal_topics

SESSION_MS = 6_000
CONSUMER_SESSION_MS = 45_000
RETENTION_CHECK_MS = 600_000
GROUP = "g"


class FullDisk(MemoryDisk):
    """A disk that takes no appends to paths with `full` in them, unless that is empty."""

    full = ""

    def operation(self, name: str, path: str) -> None:
        super().operation(name, path)
        if name == "append" and self.full and self.full in path:
            raise OSError(errno.ENOSPC, "no space left", path)


@attrs.define(eq=False)
class Member:
    """A kind of member: how it joins, and the errors of its heartbeats after that."""

    session_ms: int
    join: Callable[[BrokerDriver], Callable[[], int]]
    """Returns its next heartbeat, which returns the error."""


def classic(driver: BrokerDriver) -> Callable[[], int]:
    member_id = join(driver)
    return lambda: driver.call(HeartbeatRequest(GROUP, 1, member_id), 4).error_code


def static(driver: BrokerDriver) -> Callable[[], int]:
    member_id = join(driver, instance_id="i")
    return lambda: driver.call(HeartbeatRequest(GROUP, 1, member_id, "i"), 4).error_code


def join(driver: BrokerDriver, *, instance_id: str | None = None) -> str:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    joined = driver.call(JoinGroupRequest(GROUP, SESSION_MS, 60_000, "", instance_id, "consumer", protocols), 5)
    if joined.error_code == E.MEMBER_ID_REQUIRED:
        request = JoinGroupRequest(GROUP, SESSION_MS, 60_000, joined.member_id, None, "consumer", protocols)
        joined = driver.call(request, 5)
    assert joined.error_code == E.NONE
    member_id: str = joined.member_id
    assigned = [SyncGroupRequestAssignment(member_id, b"")]
    sync = SyncGroupRequest(GROUP, 1, member_id, instance_id, "consumer", "range", assigned)
    assert driver.call(sync, 5).error_code == E.NONE
    return member_id


def consumer(driver: BrokerDriver) -> Callable[[], int]:
    def heartbeat(epoch: int, **more: Any) -> Any:
        return driver.call(ConsumerGroupHeartbeatRequest(GROUP, "m", epoch, **more), 1)

    joined = heartbeat(0, rebalance_timeout_ms=5_000, subscribed_topic_names=["t"], topic_partitions=[])
    assert joined.error_code == E.NONE
    return lambda: heartbeat(joined.member_epoch).error_code


def share(driver: BrokerDriver) -> Callable[[], int]:
    joined = driver.call(ShareGroupHeartbeatRequest(GROUP, "m", 0, subscribed_topic_names=["t"]), 1)
    assert joined.error_code == E.NONE
    return lambda: driver.call(ShareGroupHeartbeatRequest(GROUP, "m", joined.member_epoch), 1).error_code


def streams(driver: BrokerDriver) -> Callable[[], int]:
    topology = Topology(epoch=0, subtopologies=[])
    request = StreamsGroupHeartbeatRequest(
        GROUP,
        "m",
        0,
        rebalance_timeout_ms=5_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
    )
    joined = driver.call(request, 0)
    assert joined.error_code == E.NONE, joined
    return lambda: driver.call(StreamsGroupHeartbeatRequest(GROUP, "m", joined.member_epoch), 0).error_code


MEMBERS = {
    "classic": Member(SESSION_MS, classic),
    "static": Member(SESSION_MS, static),
    "consumer": Member(CONSUMER_SESSION_MS, consumer),
    "share": Member(CONSUMER_SESSION_MS, share),
    "streams": Member(CONSUMER_SESSION_MS, streams),
}


@pytest.fixture
def disk() -> FullDisk:
    return FullDisk()


@pytest.fixture
def driver(disk: FullDisk) -> BrokerDriver:
    clock = FakeClock()
    driver = BrokerDriver(Broker.open(load_config(), disk, clock), clock)
    create_internal_topics(driver.broker)
    driver.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), 7)
    return driver


@pytest.fixture(params=MEMBERS)
def member(request: pytest.FixtureRequest) -> Member:
    return MEMBERS[request.param]


def later(driver: BrokerDriver, by_ms: int) -> None:
    """Moves the clock without waking a task."""
    driver.clock.time_ms += by_ms


def delete(driver: BrokerDriver) -> int:
    error: int = driver.call(DeleteGroupsRequest([GROUP]), 2).results[0].error_code
    return error


def shard(driver: BrokerDriver) -> GroupShard:
    for _, found in driver.broker.groups.runtime.in_service():
        if GROUP in found.groups:
            return found
    raise AssertionError("no such group")


def test_a_group_can_be_deleted_from_the_millisecond_on_in_which_its_last_session_ends(
    driver: BrokerDriver, member: Member
) -> None:
    member.join(driver)
    later(driver, member.session_ms - 1)
    assert delete(driver) == E.NON_EMPTY_GROUP
    later(driver, 1)
    assert delete(driver) == E.NONE


def test_a_member_that_comes_late_is_unknown(driver: BrokerDriver, member: Member) -> None:
    heartbeat = member.join(driver)
    later(driver, member.session_ms - 1)
    assert heartbeat() == E.NONE
    later(driver, member.session_ms)
    assert heartbeat() in (E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND)


def test_a_group_is_listed_and_described_without_who_is_late(driver: BrokerDriver, member: Member) -> None:
    member.join(driver)
    later(driver, member.session_ms)
    assert [it.group_state for it in driver.call(ListGroupsRequest(), 5).groups] == ["Empty"]


def test_a_description_leaves_out_who_is_late(driver: BrokerDriver) -> None:
    classic(driver)
    later(driver, SESSION_MS)
    (described,) = driver.call(DescribeGroupsRequest([GROUP]), 5).groups
    assert (described.group_state, described.members) == ("Empty", [])


def test_a_new_member_finds_the_group_as_the_late_one_has_left_it(driver: BrokerDriver) -> None:
    consumer(driver)
    later(driver, CONSUMER_SESSION_MS)
    request = ConsumerGroupHeartbeatRequest(
        GROUP, "n", 0, rebalance_timeout_ms=5_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    joined = driver.call(request, 1)
    assert [it.partitions for it in joined.assignment.topic_partitions] == [[0]]
    (described,) = driver.call(ConsumerGroupDescribeRequest([GROUP]), 1).groups
    assert [it.member_id for it in described.members] == ["n"]


def commit(driver: BrokerDriver, member_id: str, generation: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(GROUP, generation, member_id, topics=topics)
    error: int = driver.call(request, 8).topics[0].partitions[0].error_code
    return error


def test_a_late_member_commits_nothing(driver: BrokerDriver) -> None:
    member_id = join(driver)
    later(driver, SESSION_MS)
    assert commit(driver, member_id, 1) == E.UNKNOWN_MEMBER_ID
    fetched = driver.call(OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic("t", [0])]), 7)
    assert fetched.topics[0].partitions[0].committed_offset == -1


def test_a_late_member_cannot_leave(driver: BrokerDriver) -> None:
    member_id = join(driver)
    later(driver, SESSION_MS)
    assert driver.call(LeaveGroupRequest(GROUP, members=[MemberIdentity(member_id)]), 5).members[0].error_code == (
        E.UNKNOWN_MEMBER_ID
    )


def test_a_member_id_that_was_handed_out_and_not_used_in_time_is_forgotten(driver: BrokerDriver) -> None:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    handed_out = driver.call(JoinGroupRequest(GROUP, SESSION_MS, 60_000, "", None, "consumer", protocols), 5)
    assert handed_out.error_code == E.MEMBER_ID_REQUIRED
    later(driver, SESSION_MS)
    late = driver.call(
        JoinGroupRequest(GROUP, SESSION_MS, 60_000, handed_out.member_id, None, "consumer", protocols), 5
    )
    assert late.error_code == E.UNKNOWN_MEMBER_ID


def test_the_records_of_an_expiry_come_before_those_of_the_request(driver: BrokerDriver) -> None:
    consumer(driver)
    before = len(records(driver))
    later(driver, CONSUMER_SESSION_MS)
    assert clients.commit(driver, GROUP, ("t", 0), 7) is E.NONE
    kinds = [read_head(key)[0] for key in records(driver)[before:]]
    offset_record = 1
    assert len(kinds) > 1
    assert kinds.index(offset_record) == len(kinds) - 1


def records(driver: BrokerDriver) -> list[bytes]:
    topic = driver.broker.groups.runtime.topic
    return [
        logged.key
        for index in range(topic.partition_count)
        for _, batch in topic.replay(index, 0)
        for logged in batch
        if isinstance(logged, LoggedRecord)
    ]


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_an_expiry_that_cannot_be_recorded_has_not_happened_and_comes_later(
    driver: BrokerDriver, disk: FullDisk, kind: str
) -> None:
    heartbeat = MEMBERS[kind].join(driver)
    later(driver, CONSUMER_SESSION_MS)
    disk.full = "__consumer_offsets"
    # The second, if it wanted to record something itself.
    assert heartbeat() in (E.NONE, E.NOT_COORDINATOR)
    assert not shard(driver).groups[GROUP].is_empty
    disk.full = ""
    later(driver, CONSUMER_SESSION_MS)
    assert heartbeat() == E.UNKNOWN_MEMBER_ID


def begin(driver: BrokerDriver, version: int = clients.TV2) -> clients.Identity:
    error, identity = clients.init(driver, "id")
    assert error is E.NONE
    if version == clients.CLASSIC:
        assert clients.add_partitions(driver, "id", identity, [("t", 0)]) is E.NONE
    batch = clients.Batch(("t", 0), identity, 0, ((b"k", b"v"),))
    assert clients.produce(driver, [batch], "id", version) == {("t", 0): (E.NONE, 0)}
    return identity


@pytest.mark.parametrize(
    ("version", "committed", "error"),
    [
        (clients.CLASSIC, True, E.PRODUCER_FENCED),
        (clients.CLASSIC, False, E.PRODUCER_FENCED),
        # As if its answer had been lost: this request is compared with what was decided (KIP-890).
        (clients.TV2, True, E.INVALID_TXN_STATE),
        (clients.TV2, False, E.NONE),
    ],
)
def test_a_transaction_that_has_timed_out_is_aborted_whatever_its_producer_decides(
    driver: BrokerDriver, version: int, error: E, *, committed: bool
) -> None:
    identity = begin(driver, version)
    later(driver, clients.TIMEOUT_MS)
    assert clients.end(driver, "id", identity, committed=committed, version=version)[0] is error
    assert clients.describe(driver, "id").transaction_state == "CompleteAbort"


def test_a_transaction_can_be_ended_in_its_last_millisecond(driver: BrokerDriver) -> None:
    identity = begin(driver)
    later(driver, clients.TIMEOUT_MS - 1)
    assert clients.end(driver, "id", identity, committed=True, version=clients.TV2)[0] is E.NONE
    assert clients.describe(driver, "id").transaction_state == "CompleteCommit"


def test_a_transaction_that_has_timed_out_gets_no_more_partitions_and_no_more_data(driver: BrokerDriver) -> None:
    identity = begin(driver)
    later(driver, clients.TIMEOUT_MS)
    assert clients.add_partitions(driver, "id", identity, [("t", 0)]) is E.PRODUCER_FENCED
    assert clients.add_offsets(driver, "id", identity, GROUP) is E.PRODUCER_FENCED
    batch = clients.Batch(("t", 0), identity, 1, ((b"k", b"late"),))
    ((error, _),) = clients.produce(driver, [batch], "id").values()
    assert error in (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH)


def test_a_transaction_that_has_timed_out_is_described_and_listed_as_aborted(driver: BrokerDriver) -> None:
    begin(driver)
    later(driver, clients.TIMEOUT_MS)
    (listed,) = driver.call(ListTransactionsRequest(), 1).transaction_states
    assert listed.transaction_state == "CompleteAbort"


def test_an_abort_that_cannot_be_recorded_leaves_the_transaction_open(driver: BrokerDriver, disk: FullDisk) -> None:
    identity = begin(driver)
    later(driver, clients.TIMEOUT_MS)
    disk.full = "__transaction_state"
    assert clients.describe(driver, "id").transaction_state == "Ongoing"
    disk.full = ""
    later(driver, PAUSES_MS.first)
    assert clients.end(driver, "id", identity, committed=True, version=clients.TV2)[0] is E.INVALID_TXN_STATE
    assert clients.describe(driver, "id").transaction_state == "CompleteAbort"


def test_offsets_that_are_due_to_be_forgotten_are_not_fetched(driver: BrokerDriver) -> None:
    assert clients.commit(driver, GROUP, ("t", 0), 7) is E.NONE
    week_ms = 7 * 24 * 3600 * 1000
    later(driver, week_ms + RETENTION_CHECK_MS)
    fetched = driver.call(OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic("t", [0])]), 7)
    assert fetched.topics[0].partitions[0].committed_offset == -1

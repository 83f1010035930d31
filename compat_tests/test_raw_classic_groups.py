"""Responses of the APIs of classic groups, accepted and refused: each field, not only the error.

Whether a refused JoinGroup repeats the member id depends on where the request is refused. The coordinator repeats it
when it has checked the request against a classic group. If the group is of another kind, or there is no coordinator,
the member id is empty.

Where kwire and Apache Kafka differ on purpose:

* A member that sends JoinGroup again while its first one is parked: kwire answers the first one with
  REBALANCE_IN_PROGRESS. Apache Kafka never answers it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kwire_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.offset_fetch import OffsetFetchRequest
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

from testkit.basics.message_text import unquoted
from testkit.basics.waiting import eventually
from testkit.clients.group_requests import commit, subscription
from testkit.raw import groups
from testkit.raw.client import RawClient
from testkit.servers import brokers
from testkit.servers.brokers import Broker

E = ErrorCode
JOINS, LEAVES = 0, -1
FIRST_JOIN_WITH_A_GIVEN_ID = 4
FIRST_JOIN_WITH_INSTANCES = 5
FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_LEAVE_OF_MEMBERS = 3
JOIN_VERSIONS = [0, 3, 4, 5, 6, 7, 9]
SYNC_VERSIONS = range(6)
LEAVE_VERSIONS = [0, 2, 3, 5]
OTHER_PROTOCOL = [JoinGroupRequestProtocol("other", b"")]

pytestmark = pytest.mark.asks_one_node


@pytest.fixture(scope="module")
def _served(broker: Broker) -> None:
    groups.wait_until_served(broker.bootstrap)


@pytest.fixture
def client(broker: Broker, _served: None) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


def join_request(group: str, version: int, **more: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", subscription("t"))]
    request = JoinGroupRequest(group_id=group, session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols)
    if version >= 1:
        request.rebalance_timeout_ms = 5_000
    for name, value in more.items():
        setattr(request, name, value)
    return request


def join(client: RawClient, version: int, group: str, **more: Any) -> JoinGroupResponse:
    answer: JoinGroupResponse = client.call(join_request(group, version, **more), version)
    return answer


def refusal(answer: JoinGroupResponse, version: int) -> tuple[ErrorCode, str]:
    """Returns the error and the member id of an answer without other values."""
    no_protocol = None if version >= FIRST_JOIN_WITH_NULL_PROTOCOL else ""
    others = (answer.generation_id, answer.protocol_type, answer.protocol_name, answer.leader, answer.members)
    assert others == (-1, None, no_protocol, "", [])
    assert answer.skip_assignment is False
    return ErrorCode(answer.error_code), answer.member_id


def consumer_heartbeat(client: RawClient, group: str, member: str, epoch: int, instance: str | None = None) -> None:
    """Sends a heartbeat of a member of the consumer protocol."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        instance_id=instance,
        member_epoch=epoch,
        rebalance_timeout_ms=5_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer: ConsumerGroupHeartbeatResponse = client.call(request, 1)
    assert answer.error_code == E.NONE


def begin_rebalance(broker: Broker, client: RawClient, group: str) -> RawClient:
    """Another member joins, and is parked. Its connection must be closed."""
    other = RawClient(broker.bootstrap)
    other.send_requests((join_request(group, 3), 3))

    def has_begun() -> bool:
        (described,) = client.call(DescribeGroupsRequest([group]), 5).groups
        return bool(described.group_state == "PreparingRebalance")

    eventually(has_begun, "the rebalance")
    return other


# JoinGroup


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_at_once_or_with_the_id_that_it_is_given(client: RawClient, group: str, version: int) -> None:
    answer = join(client, version, group)
    if version >= FIRST_JOIN_WITH_A_GIVEN_ID:
        assert refusal(answer, version) == (E.MEMBER_ID_REQUIRED, answer.member_id)
        answer = join(client, version, group, member_id=answer.member_id)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (E.NONE, 1, "range")
    assert answer.protocol_type == ("consumer" if version >= FIRST_JOIN_WITH_NULL_PROTOCOL else None)
    assert [(it.member_id, it.metadata) for it in answer.members] == [(answer.member_id, subscription("t"))]


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_join_is_refused_with_the_member_id_that_it_had(
    client: RawClient, new_group: Callable[[], str], version: int
) -> None:
    def refused(group: str, **more: Any) -> tuple[ErrorCode, str]:
        return refusal(join(client, version, group, **more), version)

    assert refused("", member_id="x") == (E.INVALID_GROUP_ID, "x")
    unknown = new_group()
    for timeout_ms in (499, 1_800_001):
        assert refused(unknown, member_id="x", session_timeout_ms=timeout_ms) == (E.INVALID_SESSION_TIMEOUT, "x")
    assert refused(unknown, member_id="x") == (E.UNKNOWN_MEMBER_ID, "x")
    assert refused(unknown, member_id="x", protocols=[]) == (E.UNKNOWN_MEMBER_ID, "x")
    assert refused(unknown, protocols=[]) == (E.INCONSISTENT_GROUP_PROTOCOL, "")
    assert refused(unknown, protocol_type="") == (E.INCONSISTENT_GROUP_PROTOCOL, "")
    group = new_group()
    member = join(client, 3, group, session_timeout_ms=1_800_000).member_id
    assert refused(group, member_id="x") == (E.UNKNOWN_MEMBER_ID, "x")
    assert refused(group, member_id="x", protocol_type="connect") == (E.INCONSISTENT_GROUP_PROTOCOL, "x")
    mistakes: list[dict[str, Any]] = [{"protocol_type": "connect"}, {"protocols": OTHER_PROTOCOL}, {"protocols": []}]
    for wrong in mistakes:
        assert refused(group, **wrong) == (E.INCONSISTENT_GROUP_PROTOCOL, "")
    assert refused(group, member_id=member, protocols=OTHER_PROTOCOL) == (E.INCONSISTENT_GROUP_PROTOCOL, member)


@pytest.mark.parametrize("version", [it for it in JOIN_VERSIONS if it >= FIRST_JOIN_WITH_INSTANCES])
def test_a_join_of_an_instance_is_refused_with_the_member_id_that_it_had(
    client: RawClient, new_group: Callable[[], str], version: int
) -> None:
    group = new_group()
    former = join(client, version, group, group_instance_id="i").member_id
    joined = join(client, version, group, group_instance_id="i")
    member = joined.member_id
    assert (joined.error_code, joined.generation_id) == (E.NONE, 2)
    for more, refused in (
        ({"member_id": former, "group_instance_id": "i"}, (E.FENCED_INSTANCE_ID, former)),
        ({"member_id": "x", "group_instance_id": "i"}, (E.FENCED_INSTANCE_ID, "x")),
        ({"member_id": "x", "group_instance_id": "j"}, (E.UNKNOWN_MEMBER_ID, "x")),
        ({"member_id": member, "group_instance_id": "j"}, (E.UNKNOWN_MEMBER_ID, member)),
    ):
        assert refusal(join(client, version, group, **more), version) == refused
    error, pending = refusal(join(client, version, group), version)
    assert (error, bool(pending)) == (E.MEMBER_ID_REQUIRED, True)
    static = join(client, version, group, member_id=pending, group_instance_id="j")
    assert refusal(static, version) == (E.UNKNOWN_SERVER_ERROR, "")


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_join_of_a_group_of_another_kind_is_refused_without_a_member_id(
    client: RawClient, new_group: Callable[[], str], version: int
) -> None:
    def refused(group: str, **more: Any) -> tuple[ErrorCode, str]:
        return refusal(join(client, version, group, **more), version)

    share = new_group()
    joined = client.call(ShareGroupHeartbeatRequest(share, "m", JOINS, None, ["t"]), 1)
    assert joined.error_code == E.NONE
    for member in ("", "x"):
        assert refused(share, member_id=member) == (E.INCONSISTENT_GROUP_PROTOCOL, "")
    group = new_group()
    consumer_heartbeat(client, group, "s", JOINS, "i")
    for member in ("", "x"):
        assert refused(group, member_id=member, protocol_type="connect") == (E.INCONSISTENT_GROUP_PROTOCOL, "")
        assert refused(group, member_id=member, protocols=[]) == (E.INCONSISTENT_GROUP_PROTOCOL, "")
        assert refused(group, member_id=member, session_timeout_ms=1) == (E.INVALID_SESSION_TIMEOUT, member)
    if version >= FIRST_JOIN_WITH_INSTANCES:
        assert refused(group, member_id="x", group_instance_id="i") == (E.FENCED_INSTANCE_ID, "")
        assert refused(group, member_id="x", group_instance_id="j") == (E.UNKNOWN_MEMBER_ID, "")
        error, fresh = refused(group)
        assert (error, bool(fresh)) == (E.MEMBER_ID_REQUIRED, True)
    consumer_heartbeat(client, group, "s", LEAVES, "i")
    assert refused(group, member_id="x") == (E.UNKNOWN_MEMBER_ID, "x")


@pytest.mark.parametrize("version", [it for it in JOIN_VERSIONS if it >= FIRST_JOIN_WITH_INSTANCES])
def test_a_parked_join_is_refused_when_its_member_leaves_or_is_replaced(
    broker: Broker, client: RawClient, new_group: Callable[[], str], version: int
) -> None:
    group = new_group()
    leader = join(client, 3, group).member_id
    assert client.call(SyncGroupRequest(group, 1, leader), 3).error_code == E.NONE

    def members() -> list[str]:
        return [it.member_id for it in client.call(DescribeGroupsRequest([group]), 5).groups[0].members]

    for instance in (None, "i"):
        with RawClient(broker.bootstrap) as parked, RawClient(broker.bootstrap) as other:
            mine = "" if instance is not None else join(parked, version, group).member_id
            parked.send_requests((join_request(group, version, member_id=mine, group_instance_id=instance), version))
            eventually(lambda: len(members()) == 2, "it has joined")
            (mine,) = set(members()) - {leader}
            if instance is None:
                client.call(LeaveGroupRequest(group, members=[MemberIdentity(mine)]), 3)
                assert refusal(parked.answer(), version) == (E.UNKNOWN_MEMBER_ID, "")
            else:
                other.send_requests((join_request(group, 5, group_instance_id=instance), 5))
                assert refusal(parked.answer(), version) == (E.FENCED_INSTANCE_ID, mine)


def test_a_join_beyond_the_limit_is_refused_without_a_member_id() -> None:
    limits = {"group_max_size": "1", "group_consumer_max_size": "1"}
    with brokers.restartable_broker(**limits) as broker, RawClient(broker.bootstrap) as client:
        groups.wait_until_served(broker.bootstrap)
        classic, consumer = (groups.name_coordinated_here(broker.bootstrap, it) for it in groups.PROTOCOLS)
        join(client, 3, classic)
        consumer_heartbeat(client, consumer, "m", JOINS)
        for version, group, member in itertools.product((0, 9), (classic, consumer), ("", "x")):
            refused = join(client, version, group, member_id=member)
            assert refusal(refused, version) == (E.GROUP_MAX_SIZE_REACHED, "")


# SyncGroup


def sync(client: RawClient, version: int, group: str, generation: int, member: str, **more: Any) -> SyncGroupResponse:
    request = SyncGroupRequest(group, generation, member)
    if version >= FIRST_SYNC_WITH_PROTOCOL:
        request.protocol_type, request.protocol_name = "consumer", "range"
    for name, value in more.items():
        setattr(request, name, value)
    answer: SyncGroupResponse = client.call(request, version)
    return answer


def sync_error(answer: SyncGroupResponse) -> ErrorCode:
    """Returns the error of an answer without other values."""
    assert (answer.protocol_type, answer.protocol_name, answer.assignment) == (None, None, b"")
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize("version", SYNC_VERSIONS)
def test_a_refused_sync_returns_nothing_but_the_error(
    broker: Broker, client: RawClient, new_group: Callable[[], str], version: int
) -> None:
    def refused(group: str, generation: int, member: str, **more: Any) -> ErrorCode:
        return sync_error(sync(client, version, group, generation, member, **more))

    assert refused("", 1, "x") == E.INVALID_GROUP_ID
    group = new_group()
    assert refused(group, 1, "x") == E.UNKNOWN_MEMBER_ID
    static = join(client, 5, group, group_instance_id="i").member_id
    assert refused(group, 1, "x") == refused(group, 1, "") == E.UNKNOWN_MEMBER_ID
    assert refused(group, 9, static) == refused(group, -1, static) == E.ILLEGAL_GENERATION
    if version >= 3:
        assert refused(group, 1, "x", group_instance_id="i") == E.FENCED_INSTANCE_ID
        assert refused(group, 1, static, group_instance_id="j") == E.UNKNOWN_MEMBER_ID
    if version >= FIRST_SYNC_WITH_PROTOCOL:
        for wrong in ({"protocol_type": "connect"}, {"protocol_name": "other"}, {"protocol_name": None}):
            assert refused(group, 1, static, **wrong) == E.INCONSISTENT_GROUP_PROTOCOL
        assert refused("", 1, static, protocol_type=None) == E.INCONSISTENT_GROUP_PROTOCOL
    right = sync(client, version, group, 1, static, assignments=[SyncGroupRequestAssignment(static, b"all")])
    named = ("consumer", "range") if version >= FIRST_SYNC_WITH_PROTOCOL else (None, None)
    assert (right.error_code, right.assignment, right.protocol_type, right.protocol_name) == (E.NONE, b"all", *named)
    with begin_rebalance(broker, client, group):
        assert refused(group, 1, static) == E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", SYNC_VERSIONS)
def test_a_refused_sync_of_a_consumer_group_returns_nothing_but_the_error(
    client: RawClient, new_group: Callable[[], str], version: int
) -> None:
    group = new_group()
    consumer_heartbeat(client, group, "m", JOINS)
    joined = join(client, 3, group)
    assert sync_error(sync(client, version, group, 1, "x")) == E.UNKNOWN_MEMBER_ID
    assert sync_error(sync(client, version, group, 99, joined.member_id)) == E.ILLEGAL_GENERATION
    if version >= FIRST_SYNC_WITH_PROTOCOL:
        for wrong in ({"protocol_type": "connect"}, {"protocol_name": "other"}):
            refused = sync(client, version, group, joined.generation_id, joined.member_id, **wrong)
            assert sync_error(refused) == E.INCONSISTENT_GROUP_PROTOCOL
    right = sync(client, version, group, joined.generation_id, joined.member_id)
    named = ("consumer", "range") if version >= FIRST_SYNC_WITH_PROTOCOL else (None, None)
    assert (right.error_code, right.protocol_type, right.protocol_name) == (E.NONE, *named)


# Heartbeat


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_is_of_a_member_in_its_generation(
    broker: Broker, client: RawClient, new_group: Callable[[], str], version: int
) -> None:
    group = new_group()
    member = join(client, 5, group, group_instance_id="i").member_id

    def heartbeat(group: str, generation: int, member: str, instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(group, generation, member, instance)
        return ErrorCode(client.call(request, version).error_code)

    assert heartbeat(group, 1, member) == E.NONE, "it is welcome before the sync too"
    assert sync(client, 3, group, 1, member).error_code == E.NONE
    assert heartbeat(group, 1, member) == E.NONE
    assert heartbeat(group, 0, member) == heartbeat(group, 2, member) == E.ILLEGAL_GENERATION
    assert heartbeat(group, 1, "x") == heartbeat(group, 1, "") == E.UNKNOWN_MEMBER_ID
    assert heartbeat(new_group(), 1, member) == E.UNKNOWN_MEMBER_ID
    assert heartbeat("", 1, member) == E.INVALID_GROUP_ID
    if version >= 3:
        assert heartbeat(group, 1, "x", "i") == E.FENCED_INSTANCE_ID
        assert heartbeat(group, 1, member, "j") == E.UNKNOWN_MEMBER_ID
    with begin_rebalance(broker, client, group):
        assert heartbeat(group, 1, member) == E.REBALANCE_IN_PROGRESS


# LeaveGroup

Left = tuple[ErrorCode, list[tuple[str, str | None, ErrorCode]]]
"""The error of the answer; and of each member: its id, its instance id, and its error."""


def leave(client: RawClient, version: int, group: str, *members: tuple[str, str | None]) -> Left:
    """Before version 3 the first of them leaves, without its instance id."""
    if version < FIRST_LEAVE_OF_MEMBERS:
        request = LeaveGroupRequest(group, members[0][0] if members else "")
    else:
        request = LeaveGroupRequest(
            group, members=[MemberIdentity(*it, "tired" if version >= 5 else None) for it in members]
        )
    answer: LeaveGroupResponse = client.call(request, version)
    left = [(it.member_id, it.group_instance_id, ErrorCode(it.error_code)) for it in answer.members]
    return ErrorCode(answer.error_code), left


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_once(client: RawClient, group: str, version: int) -> None:
    member = join(client, 3, group).member_id
    for error in (E.NONE, E.UNKNOWN_MEMBER_ID):
        expected = (error, []) if version < FIRST_LEAVE_OF_MEMBERS else (E.NONE, [(member, None, error)])
        assert leave(client, version, group, (member, None)) == expected


@pytest.mark.parametrize("version", LEAVE_VERSIONS)
@pytest.mark.parametrize("kind", ["unknown", "classic", "consumer", "share"])
def test_each_member_that_may_not_leave_gets_its_error(
    client: RawClient, new_group: Callable[[], str], version: int, kind: str
) -> None:
    group = new_group()
    match kind:
        case "classic":
            join(client, 5, group, group_instance_id="i")
        case "consumer":
            consumer_heartbeat(client, group, "m", JOINS, "i")
        case "share":
            client.call(ShareGroupHeartbeatRequest(group, "m", JOINS, None, ["t"]), 1)
    assert leave(client, version, "", ("x", None)) == (E.INVALID_GROUP_ID, [])
    fenced = E.FENCED_INSTANCE_ID if kind in ("classic", "consumer") else E.UNKNOWN_MEMBER_ID
    expected: list[tuple[str, str | None, ErrorCode]] = [
        ("x", None, E.UNKNOWN_MEMBER_ID),
        ("", None, E.UNKNOWN_MEMBER_ID),
        ("x", "i", fenced),
        ("x", "j", E.UNKNOWN_MEMBER_ID),
        ("", "j", E.UNKNOWN_MEMBER_ID),
    ]
    if version < FIRST_LEAVE_OF_MEMBERS:
        assert {leave(client, version, group, (it[0], None))[0] for it in expected} == {E.UNKNOWN_MEMBER_ID}
        assert leave(client, version, group)[1] == []
        return
    assert leave(client, version, group) == (E.NONE, [])
    assert leave(client, version, group, *[it[:2] for it in expected]) == (E.NONE, expected)
    left = {"classic": E.NONE, "consumer": E.NONE}.get(kind, E.UNKNOWN_MEMBER_ID)
    again = E.NONE if kind == "consumer" else E.UNKNOWN_MEMBER_ID
    twice = leave(client, version, group, ("", "i"), ("", "i"))
    assert twice == (E.NONE, [("", "i", left), ("", "i", again)])


# DescribeGroups, ListGroups, DeleteGroups


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_described_with_its_members_once_it_is_stable(
    client: RawClient, new_group: Callable[[], str], version: int
) -> None:
    group, missing = new_group(), new_group()
    member = join(client, 3, group).member_id

    def described(name: str) -> DescribedGroup:
        request = DescribeGroupsRequest([group, missing], include_authorized_operations=version >= 3)
        found = {it.group_id: it for it in client.call(request, version).groups}[name]
        assert isinstance(found, DescribedGroup)
        return found

    # Apache Kafka describes only what is committed: until the replicas have the group, its state is Dead.
    eventually(lambda: described(group).group_state != "Dead", "the group is there")
    found = described(group)
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("CompletingRebalance", "consumer", "")
    assert [(it.member_id, it.member_metadata, it.member_assignment) for it in found.members] == [(member, b"", b"")]
    sync(client, 3, group, 1, member, assignments=[SyncGroupRequestAssignment(member, b"all")])
    found = described(group)
    assert (found.error_code, found.group_state, found.protocol_data) == (E.NONE, "Stable", "range")
    if version >= 3:
        assert found.authorized_operations == 0b1101_0100_1000
    (shown,) = found.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member, "raw", "/127.0.0.1")
    assert (shown.member_metadata, shown.member_assignment) == (subscription("t"), b"all")
    dead = described(missing)
    assert (dead.group_state, dead.error_code) == ("Dead", E.NONE if version < 6 else E.GROUP_ID_NOT_FOUND)
    assert (dead.error_message and unquoted(dead.error_message)) == (
        None if version < 6 else f"Group {missing} not found."
    )


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_by_state_and_type(
    client: RawClient, new_group: Callable[[], str], topic: str, version: int
) -> None:
    busy, idle = new_group(), new_group()
    sync(client, 3, busy, 1, join(client, 3, busy).member_id)
    assert commit(client, 9, idle, "", -1, topic) == E.NONE

    def listed(*states: str, types: Sequence[str] = ()) -> dict[str, tuple[str, str, str]]:
        answer = client.call(ListGroupsRequest([*states], [*types]), version)
        return {
            it.group_id: (it.protocol_type, it.group_state, it.group_type)
            for it in answer.groups
            if it.group_id in (busy, idle)
        }

    kind = "classic" if version >= 5 else ""
    one = {busy: ("consumer", "Stable" if version >= 4 else "", kind)}
    both = one | {idle: ("", "Empty" if version >= 4 else "", kind)}
    assert listed() == both
    if version >= 4:
        assert listed("STABLE") == one
        assert listed("no such state") == {}
    if version >= 5:
        assert listed("Stable ", "empty", types=["Classic"]) == both
        assert listed(types=["consumer", "share"]) == {}


@pytest.mark.parametrize("version", range(4 if brokers.IS_4_4 else 3))
def test_a_group_without_members_is_deleted_with_its_offsets(
    client: RawClient, new_group: Callable[[], str], topic: str, version: int
) -> None:
    busy, idle, missing = new_group(), new_group(), new_group()
    join(client, 3, busy)
    leave(client, 3, idle, (join(client, 3, idle).member_id, None))
    assert commit(client, 9, idle, "", -1, topic) == E.NONE
    results = client.call(DeleteGroupsRequest([busy, idle, missing, idle]), version).results
    assert sorted((it.group_id, it.error_code) for it in results) == sorted(
        [(busy, E.NON_EMPTY_GROUP), (idle, E.NONE), (missing, E.GROUP_ID_NOT_FOUND)]
    )
    assert client.call(OffsetFetchRequest(idle, None), 7).topics == []
    assert join(client, 3, idle).generation_id == 1


@pytest.mark.parametrize("late_ms", [5, 50])
def test_a_group_can_be_deleted_when_the_session_of_its_last_member_is_over(
    client: RawClient, new_group: Callable[[], str], late_ms: int
) -> None:
    """Apache Kafka's timer may come a little later."""
    session_ms, group = 500, new_group()
    first = join(client, 5, group, session_timeout_ms=session_ms)
    joined = join(client, 5, group, session_timeout_ms=session_ms, member_id=first.member_id)
    assert joined.error_code == E.NONE
    # The session began before this answer came.
    time.sleep((session_ms + late_ms) / 1000)

    def deleted() -> ErrorCode:
        (answer,) = client.call(DeleteGroupsRequest([group]), 2).results
        return ErrorCode(answer.error_code)

    if brokers.IS_KAFKA:
        eventually(lambda: deleted() == E.NONE, "the group is deleted")
    else:
        assert deleted() == E.NONE

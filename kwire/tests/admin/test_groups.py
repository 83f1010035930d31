"""Groups of a made-up cluster in the admin library: their descriptions and their changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages import streams_group_describe as streams
from kwire_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.list_groups import ListGroupsRequest

from kwire.admin.groups import GroupAdmin, GroupDescription, GroupNotEmpty, GroupNotFound, MemberTasks
from kwire.admin.groups_offsets import delete_offsets, delete_share_offsets, progress
from kwire.admin.groups_reset import (
    Bounds,
    NothingCommitted,
    ResetTarget,
    Scope,
    ShiftBy,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    execute_reset,
    new_offset,
    plan_reset,
)
from kwire.client.cluster import TopicPartition
from kwire.client.errors import ClientError, ConnectionFailed, UnknownTopic, VersionNotServed
from testkit.fakes.group_brokers import Group, GroupBrokers, classic_member, consumer_member, share_member

E = ErrorCode
P0, P1, P2 = (TopicPartition("orders", index) for index in range(3))


def admin(brokers: GroupBrokers) -> GroupAdmin:
    return GroupAdmin(brokers.cluster())


def one_of_each() -> GroupBrokers:
    return GroupBrokers(
        {
            "old": Group("classic"),
            "new": Group("consumer", "Empty", node_id=2),
            "shared": Group("share", protocol_type="share"),
            "stream": Group("streams", "NotReady", protocol_type="streams"),
        }
    )


# Which there are


def test_the_groups_of_all_brokers_are_listed_with_their_kinds() -> None:
    found = admin(one_of_each()).list_groups()
    assert [(it.group_id, it.kind, it.state, it.coordinator_id) for it in found] == [
        ("new", "consumer", "Empty", 2),
        ("old", "classic", "Stable", 1),
        ("shared", "share", "Stable", 1),
        ("stream", "streams", "NotReady", 1),
    ]


def test_brokers_filter_kinds_and_states() -> None:
    brokers = one_of_each()
    assert [it.group_id for it in admin(brokers).list_groups(kinds=["share", "consumer"])] == ["new", "shared"]
    assert [it.group_id for it in admin(brokers).list_groups(states=["NotReady"])] == ["stream"]


def test_brokers_that_know_no_kinds_have_classic_groups_and_cannot_filter_them() -> None:
    brokers = one_of_each()
    brokers.network.newest[ListGroupsRequest.api_key] = 3
    assert {(it.kind, it.state) for it in admin(brokers).list_groups()} == {("classic", None)}
    with pytest.raises(VersionNotServed, match="does not serve ListGroups"):
        admin(brokers).list_groups(states=["Stable"])
    brokers.network.newest[ListGroupsRequest.api_key] = 4
    assert admin(brokers).list_groups(states=["Empty"])[0].group_id == "new"
    with pytest.raises(VersionNotServed, match="does not serve ListGroups"):
        admin(brokers).list_groups(kinds=["classic"])


def test_a_request_is_retried_while_the_coordinator_loads_and_not_when_it_refuses() -> None:
    brokers = one_of_each()
    brokers.passing_errors = [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert len(admin(brokers).list_groups()) == 4
    brokers.passing_errors = [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert admin(brokers).describe("old").kind == "classic"
    brokers.passing_errors = [E.CLUSTER_AUTHORIZATION_FAILED]
    with pytest.raises(ClientError, match="of broker 1 cannot be listed: CLUSTER_AUTHORIZATION_FAILED"):
        admin(brokers).list_groups()


# Who is in them


def test_a_classic_group_is_described_from_its_members_own_messages() -> None:
    member = classic_member("m", ["orders", "clicks"], {"orders": [1, 0]})
    member.group_instance_id = "till-1"
    found = admin(GroupBrokers({"g": Group(members=[member])})).describe("g")
    assert (found.kind, found.assignor, found.epoch, found.coordinator_id) == ("classic", "range", None, 1)
    (it,) = found.members
    assert (it.topics, it.partitions, it.target) == (("clicks", "orders"), (P0, P1), None)
    assert (it.instance_id, it.host, it.rack_id, it.protocol) == ("till-1", "127.0.0.1", "a", "classic")


def test_what_is_not_of_the_consumer_protocol_is_not_read() -> None:
    member = classic_member("worker", ["orders"], {"orders": [0]})
    (it,) = admin(GroupBrokers({"g": Group(members=[member], protocol_type="connect")})).describe("g").members
    assert (it.topics, it.partitions) == (None, ())
    member.member_metadata, member.member_assignment = b"\x00", b"\x00\x00\x7f"
    (it,) = admin(GroupBrokers({"g": Group(members=[member])})).describe("g").members
    assert (it.topics, it.partitions) == (None, ())


def test_a_subscription_that_claims_a_later_version_than_it_has_is_read() -> None:
    member = classic_member("m", ["orders"], {"orders": [0]})
    member.member_metadata = b"\x00\x03" + b"\x00\x00\x00\x01\x00\x06orders" + b"\xff\xff\xff\xff"
    (it,) = admin(GroupBrokers({"g": Group(members=[member])})).describe("g").members
    assert it.topics == ("orders",)


def test_a_consumer_group_is_described_with_epochs_and_targets() -> None:
    moving = consumer_member("b", ["orders"], {"orders": [0]}, {"orders": [0, 1]})
    moving.subscribed_topic_regex = "or.*"
    on_the_old_protocol = consumer_member("a", [], {}).replace(member_type=0)
    brokers = GroupBrokers({"g": Group("consumer", "Reconciling", [moving, on_the_old_protocol], node_id=2)})
    found = admin(brokers).describe("g")
    assert (found.state, found.epoch, found.assignment_epoch, found.coordinator_id) == ("Reconciling", 7, 6, 2)
    assert [(it.member_id, it.epoch, it.protocol) for it in found.members] == [
        ("a", 6, "classic"),
        ("b", 6, "consumer"),
    ]
    assert (found.members[1].partitions, found.members[1].target) == ((P0,), (P0, P1))
    assert found.members[1].regex == "or.*"
    assert [node_id for node_id, _ in brokers.requests(ConsumerGroupDescribeRequest)] == [2]


def test_a_share_group_is_described() -> None:
    brokers = one_of_each()
    brokers.groups["shared"].members = [share_member("m", ["orders"], {"orders": [1]})]
    found = admin(brokers).describe("shared")
    assert (found.kind, found.epoch, found.assignor, found.members[0].partitions) == ("share", 3, "simple", (P1,))


def test_a_streams_group_is_described_with_tasks_and_the_partitions_that_these_read() -> None:
    brokers = one_of_each()
    has = streams.Assignment([streams.TaskIds("1", [0]), streams.TaskIds("0", [1, 0])], [streams.TaskIds("1", [1])])
    target = streams.Assignment([streams.TaskIds("0", [0])])
    brokers.groups["stream"].members = [
        streams.Member("m", 4, process_id="p", assignment=has, target_assignment=target)
    ]
    brokers.has_topic("orders", (0, 9), (0, 10))
    brokers.has_topic("few", (0, 1))
    found = admin(brokers).describe("stream")
    assert (found.kind, found.state, found.epoch, found.assignment_epoch) == ("streams", "NotReady", 5, 4)
    (it,) = found.members
    assert it.tasks == MemberTasks((("0", (0, 1)), ("1", (0,))), (("1", (1,)),))
    assert it.target_tasks == MemberTasks((("0", (0,)),))
    assert it.partitions == (TopicPartition("few", 0), P0, P1), "without what does not exist"
    assert (it.epoch, it.protocol, it.process_id) == (4, "streams", "p")


@pytest.mark.parametrize("newest", [5, 6])
def test_an_unknown_group_is_not_found(newest: int) -> None:
    brokers = GroupBrokers()
    brokers.network.newest[DescribeGroupsRequest.api_key] = newest
    with pytest.raises(GroupNotFound, match="group 'g' not found"):
        admin(brokers).describe("g")


def test_a_group_that_is_hidden_from_us_is_not_reported_as_missing() -> None:
    brokers = GroupBrokers({"g": Group()}, hidden={"g"})
    with pytest.raises(ClientError, match="'g' cannot be described: GROUP_AUTHORIZATION_FAILED"):
        admin(brokers).describe("g")


# How far they are


def described(brokers: GroupBrokers, group_id: str = "g") -> GroupDescription:
    return admin(brokers).describe(group_id)


def test_progress_has_what_is_committed_and_what_is_owned() -> None:
    brokers = GroupBrokers({"g": Group(members=[classic_member("m", ["orders"], {"orders": [1, 2]})])})
    brokers.groups["g"].offsets = {P0: 5, P1: 10}
    brokers.has_topic("orders", (0, 9), (0, 10), (3, 4))
    found = progress(brokers.cluster(), described(brokers))
    assert [(it.at, it.offset, it.log_end, it.lag, it.member_ids) for it in found.partitions] == [
        (P0, 5, 9, 4, ()),
        (P1, 10, 10, 0, ("m",)),
        (P2, None, 4, None, ("m",)),
    ]
    assert found.notes == []


def test_unknown_end_offsets_are_noted_and_the_others_reported() -> None:
    gone = TopicPartition("gone", 0)
    brokers = GroupBrokers({"g": Group(state="Empty", offsets={gone: 1, P0: 5, P1: 5})})
    brokers.has_topic("orders", (0, 9), (0, 9), leaders=[1, -1])
    found = progress(brokers.cluster(), described(brokers))
    assert [(it.at, it.log_end, it.lag) for it in found.partitions] == [
        (gone, None, None),
        (P0, 9, 4),
        (P1, None, None),
    ]
    assert found.notes == [
        "there is no topic 'gone'",
        "topic 'orders' has no leader of partition 1, or no such partition",
    ]
    assert brokers.network.clock.slept_s == []


def test_a_share_groups_lag_is_what_its_coordinator_counts() -> None:
    members = [share_member(name, ["orders"], {"orders": [0]}) for name in ("a", "b")]
    brokers = GroupBrokers({"g": Group("share", members=members, offsets={P0: 5, P1: -1, P2: 3}, lags={P0: 2})})
    brokers.has_topic("orders", (0, 9), (0, 9), (0, 9))
    found = progress(brokers.cluster(), described(brokers)).partitions
    assert [(it.at, it.offset, it.lag, it.member_ids) for it in found] == [
        (P0, 5, 2, ("a", "b")),
        (P1, None, None, ()),
        (P2, 3, None, ()),
    ]


# Resets


def planned(
    brokers: GroupBrokers, target: ResetTarget, scope: Scope | None = None
) -> list[tuple[TopicPartition, int | None, int]]:
    found = plan_reset(brokers.cluster(), described(brokers), scope, target)
    return [(it.at, it.before, it.after) for it in found]


def idle(kind: str = "classic") -> GroupBrokers:
    """A group without members, at 5 and 8 of partitions with records 2 to 9."""
    brokers = GroupBrokers({"g": Group(kind, "Empty", offsets={P0: 5, P1: 8})})
    brokers.has_topic("orders", (2, 10), (2, 10), (2, 10))
    return brokers


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (ToEarliest(), [2, 2]),
        (ToLatest(), [10, 10]),
        (ToOffset(7), [7, 7]),
        (ToOffset(1), [2, 2]),
        (ToOffset(11), [10, 10]),
        (ShiftBy(-2), [3, 6]),
        (ShiftBy(-4), [2, 4]),
        (ShiftBy(3), [8, 10]),
        (ToTime(1000), [4, 10]),
    ],
)
@pytest.mark.parametrize("kind", ["classic", "consumer", "share"])
def test_a_reset_goes_to_its_target_within_the_log(kind: str, target: ResetTarget, after: list[int]) -> None:
    brokers = idle(kind)
    brokers.times = {P0: {3: 900, 4: 1000, 5: 1100}, P1: {5: 900}}
    assert planned(brokers, target) == [(P0, 5, after[0]), (P1, 8, after[1])]
    assert brokers.groups["g"].offsets == {P0: 5, P1: 8}
    execute_reset(
        brokers.cluster(), described(brokers), plan_reset(brokers.cluster(), described(brokers), None, target)
    )
    assert brokers.groups["g"].offsets == dict(zip((P0, P1), after, strict=True))


def test_a_reset_may_be_of_some_partitions_or_of_topics_without_offsets() -> None:
    assert planned(idle(), ToEarliest(), {"orders": [1]}) == [(P1, 8, 2)]
    assert planned(idle(), ToEarliest(), {"orders": None}) == [(P0, 5, 2), (P1, 8, 2), (P2, None, 2)]
    assert planned(GroupBrokers({"g": Group(state="Empty")}), ToEarliest()) == []


def test_what_cannot_be_reset_is_reported() -> None:
    with pytest.raises(NothingCommitted, match="orders-2: there is no committed offset to shift"):
        planned(idle(), ShiftBy(1), {"orders": [2]})
    with pytest.raises(UnknownTopic, match="partition 3 of topic 'orders' not found: it has 3"):
        planned(idle(), ToLatest(), {"orders": [0, 3]})
    with pytest.raises(UnknownTopic, match="no topic 'clicks'"):
        planned(idle(), ToLatest(), {"clicks": None})


def test_a_group_with_members_is_not_reset() -> None:
    brokers = idle()
    plan = plan_reset(brokers.cluster(), described(brokers), None, ToEarliest())
    brokers.groups["g"].state = "PreparingRebalance"
    with pytest.raises(GroupNotEmpty, match="group 'g' is active .state PreparingRebalance.: "):
        execute_reset(brokers.cluster(), described(brokers), plan)
    assert brokers.groups["g"].offsets == {P0: 5, P1: 8}


_OFFSETS = st.integers(0, 2**63 - 1)


@given(
    st.one_of(
        st.builds(ToEarliest),
        st.builds(ToLatest),
        st.builds(ToOffset, _OFFSETS),
        st.builds(ShiftBy, st.integers(-(2**63), 2**63 - 1)),
        st.builds(ToTime, _OFFSETS),
    ),
    _OFFSETS,
    st.tuples(_OFFSETS, _OFFSETS).map(sorted),
    st.none() | _OFFSETS,
)
def test_a_reset_never_leaves_the_log(target: ResetTarget, before: int, log: list[int], at_time: int | None) -> None:
    bounds = Bounds(*log)
    wanted = new_offset(target, before=before, bounds=bounds, at_time=at_time)
    after = bounds.nearest(wanted)
    assert bounds.first <= after <= bounds.end
    if bounds.first <= wanted <= bounds.end:
        assert after == wanted


# Their end


def test_a_group_is_deleted_by_its_coordinator_unless_it_has_members() -> None:
    brokers = GroupBrokers({"a": Group(state="Empty", node_id=2), "b": Group(members=[classic_member("m", [], {})])})
    admin(brokers).delete("a")
    assert "a" not in brokers.groups
    with pytest.raises(GroupNotEmpty, match="'b' is not deleted: it has members"):
        admin(brokers).delete("b")
    with pytest.raises(GroupNotFound, match="'a' not found"):
        admin(brokers).delete("a")


def test_a_deletion_without_an_answer_is_not_repeated() -> None:
    brokers = GroupBrokers({"a": Group(state="Empty")})

    def hang_up(_: int, __: object) -> None:
        raise ConnectionResetError(104, "Connection reset by peer")

    brokers.network.answers[DeleteGroupsRequest] = hang_up
    with pytest.raises(ConnectionFailed):
        admin(brokers).delete("a")
    assert len(brokers.requests(DeleteGroupsRequest)) == 1


def test_offsets_are_deleted_by_partition_and_those_of_share_groups_by_topic() -> None:
    clicks = TopicPartition("clicks", 0)
    brokers = GroupBrokers({"g": Group(offsets={P0: 5, P1: 8, clicks: 1})}, subscribed={"clicks"})
    found = delete_offsets(brokers.cluster(), described(brokers), [P1, clicks])
    assert found == {P1: None, clicks: "a member subscribes to the topic (GROUP_SUBSCRIBED_TO_TOPIC)"}
    assert brokers.groups["g"].offsets == {P0: 5, clicks: 1}
    brokers = GroupBrokers({"g": Group("share", "Empty", offsets={P0: 5, clicks: 1})})
    assert delete_share_offsets(brokers.cluster(), "g", ["orders"]) == {"orders": None}
    assert brokers.groups["g"].offsets == {clicks: 1}
    brokers.groups["g"].members = [share_member("m", [], {})]
    with pytest.raises(GroupNotEmpty, match="are not deleted: it has members"):
        delete_share_offsets(brokers.cluster(), "g", ["clicks"])

"""ConsumerGroupHeartbeat and the other APIs of groups for consumer groups (KIP-848): requests right and wrong.

Where kwire and Apache Kafka differ on purpose:

* Apache Kafka matches regular expressions on another thread, so a member learns of its topics with a later heartbeat.
* Both quote names in messages in their own ways, and explain bad expressions in the words of their libraries. kwire
  refuses very long expressions, and gives the reason if a protocol is turned off.
* A static member that joins again with its own member id, because the answer was lost, is UNRELEASED_INSTANCE_ID in
  Apache Kafka until its session ends. kwire takes it back.
* In a group whose members all use the classic protocol (the last other one left, and the policy keeps it a consumer
  group), Apache Kafka computes the next assignment only when another member joins. kwire has them rejoin for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from kwire_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kwire_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kwire_protocol.wire import Uuid, Writer

from testkit.basics.message_text import unquoted
from testkit.basics.waiting import eventually
from testkit.clients.group_requests import commit, delete_offset, fetch, listed, subscription, transactional_commit
from testkit.raw import groups
from testkit.raw.client import RawClient
from testkit.raw.topic_ids import topic_id
from testkit.servers import brokers
from testkit.servers.brokers import Broker

E = ErrorCode
LEAVES, STATIC_LEAVES, JOINS = -1, -2, 0
FIRST_EPOCH = 2
"""Of the first member of a group, if it subscribes to topics."""
VERSIONS = [0, 1]
GROUP_VERSION = "group.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2

pytestmark = pytest.mark.asks_one_node


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def new_topic(client: RawClient, new_topic: Callable[..., str]) -> Callable[..., str]:
    """Creates a topic. In Apache Kafka, a coordinator gets it a little later than the broker that it is on."""

    def create(*, partitions: int = 1) -> str:
        name = new_topic(partitions=partitions)

        def is_known(group: str) -> bool:
            answer = join(client, group, "m", name)
            assert heartbeat(client, group, "m", LEAVES).error_code == answer.error_code
            return answer.error_code == E.NOT_COORDINATOR or len(assigned(answer) or []) == partitions

        for number in range(8):  # enough that each partition of the offsets topic has one
            eventually(partial(is_known, f"knows-{name}-{number}"), f"the coordinators know {name}")
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=3)


def heartbeat(
    client: RawClient, group: str, member: str, epoch: int, version: int = 1, **more: Any
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)
    answer: ConsumerGroupHeartbeatResponse = client.call(request, version)
    return answer


def join(
    client: RawClient, group: str, member: str, *topics: str, version: int = 1, **more: Any
) -> ConsumerGroupHeartbeatResponse:
    wanted = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": [*topics], "topic_partitions": [], **more}
    return heartbeat(client, group, member, JOINS, version, **wanted)


def owned(topic: Uuid, *partitions: int) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    return [ConsumerGroupHeartbeatRequestTopicPartitions(topic, [*partitions])] if partitions else []


def assigned(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    """Returns the assigned partitions of the one topic; None if the answer has no assignment."""
    assert answer.error_code == E.NONE, answer
    if answer.assignment is None:
        return None
    return sorted(partition for it in answer.assignment.topic_partitions for partition in it.partitions)


def code(answer: ConsumerGroupHeartbeatResponse) -> ErrorCode:
    if answer.error_code:
        assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
    return ErrorCode(answer.error_code)


def described(client: RawClient, group: str, version: int = 1) -> DescribedGroup:
    (answer,) = client.call(ConsumerGroupDescribeRequest([group]), version).groups
    assert isinstance(answer, DescribedGroup)
    return answer


# ConsumerGroupHeartbeat: requests that contradict themselves


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param({"group_id": ""}, "GroupId can't be empty.", id="no group"),
        pytest.param({"group_id": "  "}, "GroupId can't be empty.", id="blank group"),
        pytest.param({"instance_id": ""}, "InstanceId can't be empty.", id="no instance"),
        pytest.param({"instance_id": " "}, "InstanceId can't be empty.", id="blank instance"),
        pytest.param({"rack_id": ""}, "RackId can't be empty.", id="no rack"),
        pytest.param(
            {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request.", id="no time-out"
        ),
        pytest.param({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining.", id="owns null"),
        pytest.param(
            {"topic_partitions": owned(b"x" * 16, 0)},
            "TopicPartitions must be empty when (re-)joining.",
            id="owns something",
        ),
        pytest.param({"member_epoch": -3}, "MemberEpoch is invalid.", id="epoch -3"),
        pytest.param({"member_epoch": STATIC_LEAVES}, "InstanceId can't be null.", id="static without an instance"),
        pytest.param({"member_epoch": LEAVES, "member_id": ""}, "MemberId can't be empty.", id="nobody leaves"),
        pytest.param({"member_epoch": 1, "member_id": ""}, "MemberId can't be empty.", id="nobody stays"),
    ],
)
def test_a_request_that_contradicts_itself_is_invalid(
    client: RawClient, group: str, version: int, wrong: dict[str, Any], message: str
) -> None:
    right = {
        "group_id": group,
        "member_id": "m",
        "rebalance_timeout_ms": 5_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    answer = client.call(ConsumerGroupHeartbeatRequest(**{**right, **wrong}), version)
    assert (code(answer), unquoted(answer.error_message)) == (E.INVALID_REQUEST, unquoted(message))
    assert described(client, group).error_code == E.GROUP_ID_NOT_FOUND  # it did not come into being


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_that_joins_must_subscribe(client: RawClient, group: str, version: int) -> None:
    answer = join(client, group, "m", version=version, subscribed_topic_names=None)
    assert code(answer) == E.INVALID_REQUEST
    assert str(answer.error_message).startswith("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null")


def test_members_choose_their_ids_from_version_1_on(client: RawClient, group: str, topic: str) -> None:
    chosen = join(client, group, "", topic, version=0)
    assert (code(chosen), len(str(chosen.member_id)), chosen.member_epoch) == (E.NONE, 22, FIRST_EPOCH)
    assert join(client, group, "mine", topic, version=0).member_id == "mine"
    refused = join(client, group, "", topic)
    assert (code(refused), unquoted(refused.error_message)) == (E.INVALID_REQUEST, "MemberId cant be empty.")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("assignor", ["", "RANGE", "cooperative-sticky"])
def test_an_unknown_assignor_is_refused(client: RawClient, group: str, topic: str, version: int, assignor: str) -> None:
    message = f"ServerAssignor {assignor} is not supported. Supported assignors: uniform, range."
    answer = join(client, group, "m", topic, version=version, server_assignor=assignor)
    assert (code(answer), answer.error_message) == (E.UNSUPPORTED_ASSIGNOR, message)
    joined = join(client, group, "m", topic, version=version, server_assignor="range")
    assert described(client, group).assignor_name == "range"
    answer = heartbeat(client, group, "m", joined.member_epoch, version, server_assignor=assignor)
    assert (code(answer), answer.error_message) == (E.UNSUPPORTED_ASSIGNOR, message)


@pytest.mark.parametrize("regex", ["(", "[a", "(?=a)", r"(a)\1", "*", r"\p{Alpha}"])
def test_a_regular_expression_that_is_not_of_re2_is_refused(client: RawClient, group: str, regex: str) -> None:
    answer = join(client, group, "m", subscribed_topic_regex=regex)
    assert code(answer) == E.INVALID_REGULAR_EXPRESSION
    prefix = f"SubscribedTopicRegex {unquoted(regex)} is not a valid regular expression: "
    assert unquoted(answer.error_message).replace("\\\\", "\\").startswith(prefix)
    assert described(client, group).error_code == E.GROUP_ID_NOT_FOUND
    joined = join(client, group, "m", subscribed_topic_regex="nothing")
    epoch = joined.member_epoch
    answer = heartbeat(client, group, "m", epoch, subscribed_topic_regex=regex)
    assert code(answer) == E.INVALID_REGULAR_EXPRESSION
    assert code(heartbeat(client, group, "m", epoch)) == E.NONE  # it is a member as before


@pytest.mark.parametrize(
    "regex",
    ["a" * 30_000, "|".join(f"x{it}" for it in range(4_000)), "(a{1000}){1000}"],
    ids=["long", "many", "powers"],
)
def test_a_huge_regular_expression_does_no_harm(client: RawClient, group: str, regex: str) -> None:
    expected = {E.NONE} if brokers.IS_KAFKA else {E.INVALID_REGULAR_EXPRESSION}
    assert code(join(client, group, "m", subscribed_topic_regex=regex)) in expected
    assert code(join(client, group, "other", subscribed_topic_regex="x")) == E.NONE


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_a_strange_rebalance_timeout_is_taken(client: RawClient, group: str, topic: str, timeout_ms: int) -> None:
    joined = join(client, group, "m", topic, rebalance_timeout_ms=timeout_ms)
    assert assigned(joined) == [0, 1, 2]
    assert code(heartbeat(client, group, "m", joined.member_epoch, rebalance_timeout_ms=timeout_ms)) == E.NONE


@pytest.mark.parametrize("epoch", [LEAVES, STATIC_LEAVES, 1, 7])
def test_a_group_comes_into_being_by_joining_only(client: RawClient, group: str, epoch: int) -> None:
    instance = {"instance_id": "i"} if epoch == STATIC_LEAVES else {}
    answer = heartbeat(client, group, "m", epoch, **instance)
    assert code(answer) == E.GROUP_ID_NOT_FOUND
    assert f"roup {group} not found." in unquoted(answer.error_message)


# ConsumerGroupHeartbeat: the life of a member


@pytest.mark.parametrize("names", [["a b", ""], ["there-is-no-such-topic"]])
def test_topics_that_are_not_there_are_no_error(client: RawClient, group: str, names: list[str]) -> None:
    joined = join(client, group, "m", *names)
    assert (assigned(joined), joined.member_epoch) == ([], FIRST_EPOCH)


def test_a_member_without_topics_begins_no_epoch(client: RawClient, group: str) -> None:
    assert join(client, group, "m").member_epoch == 1
    assert join(client, group, "other").member_epoch == 1
    found = described(client, group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 1, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_gets_its_assignment_when_it_changes_and_after_a_full_heartbeat(
    client: RawClient, group: str, topic: str, version: int
) -> None:
    ref = topic_id(client, topic)
    joined = join(client, group, "m", topic, topic, version=version)
    epoch = joined.member_epoch
    assert (assigned(joined), epoch, joined.heartbeat_interval_ms) == ([0, 1, 2], FIRST_EPOCH, 200)

    def stays(**more: Any) -> list[int] | None:
        answer = heartbeat(client, group, "m", epoch, version, **more)
        assert answer.member_epoch == epoch
        return assigned(answer)

    assert stays() is None
    for strange in (owned(b"x" * 16, 0), owned(ref, 0, 0, 1), owned(ref, 99, -1)):
        assert stays(topic_partitions=strange) is None
    everything = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": [topic], "topic_partitions": []}
    assert stays(**everything) == [0, 1, 2]
    again = join(client, group, "m", topic, version=version)
    assert (again.member_epoch, assigned(again)) == (epoch, [0, 1, 2])


def test_an_epoch_that_is_not_the_members_fences_it(client: RawClient, group: str, topic: str) -> None:
    epoch = join(client, group, "m", topic).member_epoch
    for wrong, size in ((99, "greater"), (epoch - 1, "smaller")):
        answer = heartbeat(client, group, "m", wrong)
        assert code(answer) == E.FENCED_MEMBER_EPOCH
        assert answer.error_message == (
            f"The consumer group member has a {size} member epoch ({wrong}) than the one known by the group "
            f"coordinator ({epoch}). The member must abandon all its partitions and rejoin."
        )
    stranger = heartbeat(client, group, "x", epoch)
    assert (code(stranger), unquoted(stranger.error_message)) == (
        E.UNKNOWN_MEMBER_ID,
        f"Member x is not a member of group {group}.",
    )
    assert code(heartbeat(client, group, "m", epoch)) == E.NONE


def test_the_previous_epoch_is_taken_from_one_who_owns_nothing_wrong(
    client: RawClient, group: str, new_topic: Callable[..., str]
) -> None:
    first, second = new_topic(partitions=3), new_topic()
    ref = topic_id(client, first)
    old = join(client, group, "m", first).member_epoch
    unrevoked = heartbeat(
        client, group, "m", old, subscribed_topic_names=[second], topic_partitions=owned(ref, 0, 1, 2)
    )
    assert (assigned(unrevoked), unrevoked.member_epoch) == ([], old)
    assert assigned(heartbeat(client, group, "m", old, topic_partitions=owned(ref, 1))) is None  # not yet
    moved = heartbeat(client, group, "m", old, topic_partitions=[])
    assert (assigned(moved), moved.member_epoch) == ([0], old + 1)
    repeated = heartbeat(client, group, "m", old, topic_partitions=[])
    assert (code(repeated), repeated.member_epoch) == (E.NONE, old + 1)
    assert code(heartbeat(client, group, "m", old, topic_partitions=owned(ref, 0))) == E.FENCED_MEMBER_EPOCH
    assert code(heartbeat(client, group, "m", old)) == E.FENCED_MEMBER_EPOCH


def test_a_partition_is_given_to_the_second_member_when_the_first_has_let_go(
    client: RawClient, group: str, topic: str
) -> None:
    ref = topic_id(client, topic)
    first, second = join(client, group, "a", topic), join(client, group, "b", topic)
    assert (assigned(first), assigned(second)) == ([0, 1, 2], [])
    assert (first.member_epoch, second.member_epoch) == (FIRST_EPOCH, FIRST_EPOCH + 1)
    kept = assigned(heartbeat(client, group, "a", FIRST_EPOCH))
    assert kept is not None
    assert len(kept) == 2
    assert assigned(heartbeat(client, group, "b", FIRST_EPOCH + 1)) is None
    found = described(client, group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == (
        "Reconciling",
        FIRST_EPOCH + 1,
        FIRST_EPOCH + 1,
    )
    moved = heartbeat(client, group, "a", FIRST_EPOCH, topic_partitions=owned(ref, *kept))
    assert moved.member_epoch == FIRST_EPOCH + 1
    (given,) = assigned(heartbeat(client, group, "b", FIRST_EPOCH + 1)) or []
    assert sorted([*kept, given]) == [0, 1, 2]
    assert described(client, group).group_state == "Stable"
    left = heartbeat(client, group, "b", LEAVES)
    assert (code(left), left.member_id, left.member_epoch, left.heartbeat_interval_ms) == (E.NONE, "b", LEAVES, 0)
    assert code(heartbeat(client, group, "b", LEAVES)) == E.UNKNOWN_MEMBER_ID
    assert assigned(heartbeat(client, group, "a", FIRST_EPOCH + 1)) == [0, 1, 2]


def test_what_a_member_has_still_to_give_up_is_described_as_its_own(client: RawClient, group: str, topic: str) -> None:
    ref = topic_id(client, topic)
    join(client, group, "a", topic)
    join(client, group, "b", topic)
    kept = assigned(heartbeat(client, group, "a", FIRST_EPOCH)) or []
    assert len(kept) == 2

    def of(name: str) -> tuple[list[int], list[int]]:
        """Returns the partitions of a member, and those of its target assignment."""
        member = next(it for it in described(client, group).members if it.member_id == name)
        both = (member.assignment.topic_partitions, member.target_assignment.topic_partitions)
        has, target = ([partition for it in parts for partition in it.partitions] for parts in both)
        return sorted(has), sorted(target)

    other = sorted({0, 1, 2}.difference(kept))
    assert (of("a"), of("b")) == (([0, 1, 2], kept), ([], other))
    heartbeat(client, group, "a", FIRST_EPOCH, topic_partitions=owned(ref, *kept))
    heartbeat(client, group, "b", FIRST_EPOCH + 1)
    assert (of("a"), of("b")) == ((kept, kept), (other, other))


def test_a_regular_expression_and_names_are_one_subscription(
    client: RawClient, group: str, new_topic: Callable[..., str]
) -> None:
    named, matched = new_topic(), new_topic(partitions=2)
    epoch = join(client, group, "m", named, subscribed_topic_regex=re.escape(matched) + "|zzz").member_epoch

    def everything() -> bool:
        nonlocal epoch
        full = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": [named], "topic_partitions": []}
        answer = heartbeat(client, group, "m", epoch, **full)
        epoch = answer.member_epoch
        return assigned(answer) == [0, 0, 1]

    eventually(everything, "the expression is matched")


# Static members


def test_an_instance_belongs_to_one_member_until_that_leaves(client: RawClient, group: str, topic: str) -> None:
    epoch = join(client, group, "a", topic, instance_id="i").member_epoch
    second = join(client, group, "b", topic, instance_id="i")
    assert code(second) == E.UNRELEASED_INSTANCE_ID
    assert unquoted(second.error_message) == (
        "Static member b with instance id i cannot join the group because the instance id is owned by a member."
    )
    assert code(heartbeat(client, group, "b", epoch, instance_id="i")) == E.FENCED_INSTANCE_ID
    assert code(heartbeat(client, group, "a", epoch, instance_id="j")) == E.UNKNOWN_MEMBER_ID
    assert code(heartbeat(client, group, "a", epoch)) == E.NONE  # it need not name its instance
    for leaves in (LEAVES, STATIC_LEAVES):
        fenced = heartbeat(client, group, "b", leaves, instance_id="i")
        assert code(fenced) == E.FENCED_INSTANCE_ID
        assert unquoted(fenced.error_message) == "Static member b with instance id i was fenced by member a."
    left = heartbeat(client, group, "a", STATIC_LEAVES, instance_id="i")
    assert (code(left), left.member_epoch) == (E.NONE, STATIC_LEAVES)
    (away,) = described(client, group).members
    assert (away.member_id, away.member_epoch, away.instance_id) == ("a", STATIC_LEAVES, "i")
    back = join(client, group, "b", topic, instance_id="i")
    assert (back.member_epoch, assigned(back)) == (epoch, [0, 1, 2])
    assert code(heartbeat(client, group, "a", epoch, instance_id="i")) == E.FENCED_INSTANCE_ID
    assert code(heartbeat(client, group, "b", LEAVES, instance_id="i")) == E.NONE
    assert described(client, group).group_state == "Empty"


def test_a_static_member_may_come_back_with_another_subscription(
    client: RawClient, group: str, new_topic: Callable[..., str]
) -> None:
    first, second = new_topic(partitions=3), new_topic()
    epoch = join(client, group, "a", first, instance_id="i").member_epoch
    heartbeat(client, group, "a", STATIC_LEAVES, instance_id="i")
    back = join(client, group, "b", second, instance_id="i")
    assert (back.member_epoch, assigned(back)) == (epoch + 1, [0])


@pytest.mark.skipif(brokers.IS_KAFKA, reason="an Apache Kafka lets it wait until its own session has ended")
def test_a_static_member_whose_join_was_not_answered_joins_again(client: RawClient, group: str, topic: str) -> None:
    epoch = join(client, group, "a", topic, instance_id="i").member_epoch
    again = join(client, group, "a", topic, instance_id="i")
    assert (again.member_epoch, assigned(again)) == (epoch, [0, 1, 2])


# Offsets


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_is_of_a_member_in_its_epoch(client: RawClient, group: str, topic: str, version: int) -> None:
    epoch = join(client, group, "m", topic).member_epoch
    by_members = version >= 9
    assert commit(client, version, group, "m", epoch, topic) == (E.NONE if by_members else E.UNSUPPORTED_VERSION)
    for wrong in (epoch + 1, epoch - 1, -1):
        stale = E.STALE_MEMBER_EPOCH if by_members else E.UNSUPPORTED_VERSION
        assert commit(client, version, group, "m", wrong, topic) == stale
    for nobody, wrong in (("x", epoch), ("", epoch), ("", -1)):
        assert commit(client, version, group, nobody, wrong, topic) == E.UNKNOWN_MEMBER_ID
    heartbeat(client, group, "m", LEAVES)
    assert commit(client, version, group, "m", epoch, topic) == E.UNKNOWN_MEMBER_ID
    assert commit(client, version, group, "", -1, topic) == E.NONE  # nobody is in it


@pytest.mark.parametrize("version", [9, 10])
def test_offsets_are_returned_to_members_in_their_epoch_and_to_requests_without_a_member(
    client: RawClient, group: str, topic: str, version: int
) -> None:
    epoch = join(client, group, "m", topic).member_epoch
    assert commit(client, 9, group, "m", epoch, topic) == E.NONE
    for member, right in (("m", epoch), (None, -1), (None, -2)):
        assert fetch(client, version, group, member, right, topic) == (E.NONE, 5)
    for wrong in (epoch + 1, epoch - 1, -1):
        assert fetch(client, version, group, "m", wrong, topic) == (E.STALE_MEMBER_EPOCH, -1)
    for nobody, wrong in (("x", epoch), ("x", -1), ("", 0), ("", -1)):
        assert fetch(client, version, group, nobody, wrong, topic) == (E.UNKNOWN_MEMBER_ID, -1)
    assert fetch(client, version, group, None, epoch, topic) == (E.UNKNOWN_SERVER_ERROR, -1)


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_takes_offsets_of_a_member_in_its_epoch(
    client: RawClient, group: str, topic: str, transactional_id: str, version: int
) -> None:
    commit = transactional_commit(client, version, transactional_id, group, topic)
    epoch = join(client, group, "m", topic).member_epoch
    assert commit("", -1) == E.NONE
    if version >= 3:
        assert commit("m", epoch) == E.NONE
        for wrong in (epoch + 1, epoch - 1, -1):
            assert commit("m", wrong) == E.ILLEGAL_GENERATION
        for nobody, wrong in (("x", epoch), ("", epoch)):
            assert commit(nobody, wrong) == E.UNKNOWN_MEMBER_ID


# The classic protocol's requests, to a consumer group


def classic_join(client: RawClient, version: int, group: str, topic: str, **more: Any) -> JoinGroupResponse:
    protocols = [JoinGroupRequestProtocol("range", subscription(topic))]
    request = JoinGroupRequest(group_id=group, session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols)
    if version >= 1:
        request.rebalance_timeout_ms = 5_000
    for name, value in more.items():
        setattr(request, name, value)
    answer: JoinGroupResponse = client.call(request, version)
    return answer


@pytest.mark.parametrize("version", range(10))
def test_a_classic_member_joins_at_once_and_is_not_the_leader(
    client: RawClient, group: str, topic: str, version: int
) -> None:
    join(client, group, "m", topic)
    answer = classic_join(client, version, group, topic)
    if version >= 4:
        assert (answer.error_code, bool(answer.member_id)) == (E.MEMBER_ID_REQUIRED, True)
        answer = classic_join(client, version, group, topic, member_id=answer.member_id)
    assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (E.NONE, FIRST_EPOCH + 1, "", [])
    assert (answer.protocol_name, answer.protocol_type) == ("range", "consumer" if version >= 7 else None)
    kinds = {it.member_id: it.member_type for it in described(client, group).members}
    assert kinds == {"m": 1, answer.member_id: 0}
    assert [it.member_type for it in described(client, group, 0).members] == [-1, -1]


@pytest.mark.parametrize("version", [0, 9])
def test_a_garbled_subscription_is_refused(client: RawClient, group: str, topic: str, version: int) -> None:
    join(client, group, "m", topic)
    garbled = {"protocols": [JoinGroupRequestProtocol("range", b"\0")], "member_id": "" if version == 0 else "x"}
    assert classic_join(client, version, group, topic, **garbled).error_code == E.UNKNOWN_SERVER_ERROR
    assert len(described(client, group).members) == 1


@pytest.mark.parametrize("member", ["m", "x", ""])
def test_classic_requests_of_members_of_the_other_protocol_are_refused(
    client: RawClient, group: str, topic: str, member: str
) -> None:
    epoch = join(client, group, "m", topic).member_epoch
    for generation in (epoch, epoch - 1, -1):
        for version in (0, 4):
            sync = client.call(SyncGroupRequest(group, generation, member), version)
            assert (sync.error_code, sync.assignment) == (E.UNKNOWN_MEMBER_ID, b"")
        for version in (0, 4):
            assert client.call(HeartbeatRequest(group, generation, member), version).error_code == E.UNKNOWN_MEMBER_ID
    assert code(heartbeat(client, group, "m", epoch)) == E.NONE


@pytest.mark.parametrize("version", range(6))
def test_leave_group_removes_members_of_either_protocol(
    client: RawClient, group: str, topic: str, version: int
) -> None:
    join(client, group, "m", topic)
    join(client, group, "s", topic, instance_id="i")
    classic = classic_join(client, 3, group, topic).member_id

    def left(member: str, instance: str | None = None) -> ErrorCode:
        if version < 3:
            return ErrorCode(client.call(LeaveGroupRequest(group, member), version).error_code)
        (answer,) = client.call(LeaveGroupRequest(group, members=[MemberIdentity(member, instance)]), version).members
        return ErrorCode(answer.error_code)

    assert left("x") == left("") == E.UNKNOWN_MEMBER_ID
    for member in ("m", classic):
        assert (left(member), left(member)) == (E.NONE, E.UNKNOWN_MEMBER_ID)
    assert (left("s") if version < 3 else left("", "i")) == E.NONE
    assert described(client, group).members == []


# Administration


@pytest.fixture
def full(client: RawClient, group: str, topic: str) -> str:
    """A consumer group with a member that has committed an offset."""
    epoch = join(client, group, "m", topic).member_epoch
    assert commit(client, 9, group, "m", epoch, topic) == E.NONE
    return group


@pytest.mark.parametrize("version", range(6))
def test_a_consumer_group_is_listed_with_its_state_and_type(client: RawClient, full: str, version: int) -> None:
    found = ["Stable" if version >= 4 else "", "consumer" if version >= 5 else ""]
    assert listed(client, full, version) == found
    if version >= 4:
        for states in (("Stable",), ("stable",), ("Empty", "STABLE")):
            assert listed(client, full, version, *states) == found
        for states in (("Empty",), ("Assigning", "Reconciling"), ("no such state",)):
            assert listed(client, full, version, *states) == []
    if version >= 5:
        for types in (("consumer",), ("CONSUMER",), ("classic", "consumer")):
            assert listed(client, full, version, types=types) == found
        for types in (("classic",), ("share", "streams"), ("no such type",)):
            assert listed(client, full, version, types=types) == []
        assert listed(client, full, version, "Empty", types=("consumer",)) == []
        heartbeat(client, full, "m", LEAVES)
        assert listed(client, full, version, "Empty", types=("consumer",)) == ["Empty", "consumer"]


@pytest.mark.parametrize("version", range(7))
def test_each_kind_of_group_is_described_by_its_own_api(
    client: RawClient, full: str, topic: str, new_group: Callable[[str], str], version: int
) -> None:
    classic = new_group("classic")
    assert commit(client, 9, classic, "", -1, topic) == E.NONE
    answers = client.call(DescribeGroupsRequest([full, classic]), version).groups
    found = {it.group_id: (it.error_code, it.group_state, it.protocol_type, it.error_message) for it in answers}
    if version >= 6:
        *rest, message = found[full]
        assert rest == [E.GROUP_ID_NOT_FOUND, "Dead", ""]
        assert unquoted(message) == f"Group {full} is not a classic group."
    else:
        assert found[full] == (E.NONE, "Dead", "", None)
    assert found[classic] == (E.NONE, "Empty", "", None)
    other = described(client, classic, version % 2)
    assert other.error_code == E.GROUP_ID_NOT_FOUND
    assert unquoted(other.error_message) == f"Group {classic} is not a consumer group."


@pytest.mark.parametrize("version", VERSIONS)
def test_a_consumer_group_is_described_with_everything(client: RawClient, group: str, topic: str, version: int) -> None:
    join(client, group, "m", topic, version=version, rack_id="r", instance_id="i")
    answers = client.call(ConsumerGroupDescribeRequest([group, "", group], True), version).groups
    assert sorted((it.group_id, it.error_code) for it in answers) == [("", E.INVALID_GROUP_ID), *[(group, E.NONE)] * 2]
    found = described(client, group, version)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", FIRST_EPOCH, FIRST_EPOCH)
    assert (found.assignor_name, found.authorized_operations) == ("uniform", -(2**31))
    assert {it.authorized_operations for it in answers if it.group_id} == {3400}
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", FIRST_EPOCH)
    assert (member.client_id, member.client_host) == ("raw", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([topic], "")
    assert member.member_type == (1 if version else -1)
    for assignment in (member.assignment, member.target_assignment):
        (one,) = assignment.topic_partitions
        assert (one.topic_id, one.topic_name, sorted(one.partitions)) == (topic_id(client, topic), topic, [0, 1, 2])
    assert client.call(ConsumerGroupDescribeRequest([]), version).groups == []


def test_offsets_of_a_topic_that_is_subscribed_to_are_not_deleted(
    client: RawClient, full: str, topic: str, new_topic: Callable[..., str]
) -> None:
    other = new_topic()
    epoch = FIRST_EPOCH
    assert commit(client, 9, full, "m", epoch, other) == E.NONE

    assert delete_offset(client, full, topic) == (E.NONE, [E.GROUP_SUBSCRIBED_TO_TOPIC])
    assert delete_offset(client, full, other) == (E.NONE, [E.NONE])
    assert fetch(client, 9, full, None, -1, other) == (E.NONE, -1)
    heartbeat(client, full, "m", LEAVES)
    assert delete_offset(client, full, topic) == (E.NONE, [E.NONE])


@pytest.mark.parametrize("version", range(3))
def test_a_group_without_members_is_deleted(client: RawClient, full: str, version: int) -> None:
    def deleted() -> ErrorCode:
        (answer,) = client.call(DeleteGroupsRequest([full]), version).results
        return ErrorCode(answer.error_code)

    assert deleted() == E.NON_EMPTY_GROUP
    heartbeat(client, full, "m", LEAVES)
    assert deleted() == E.NONE
    assert deleted() == E.GROUP_ID_NOT_FOUND
    assert listed(client, full, 5) == []


# Where the protocol is turned off


def update(client: RawClient, level: int, kind: int) -> ErrorCode:
    wanted = FeatureUpdateKey(GROUP_VERSION, level, upgrade_type=kind)
    return ErrorCode(client.call(UpdateFeaturesRequest(10_000, [wanted]), 2).error_code)


def level(client: RawClient) -> int:
    answer = client.call(ApiVersionsRequest("tests", "1.0"), 4)
    assert {68, 69} <= {it.api_key for it in answer.api_keys}  # they are listed in any case
    return next((it.max_version_level for it in answer.finalized_features if it.name == GROUP_VERSION), 0)


def test_without_the_feature_there_are_no_consumer_groups_until_it_is_back() -> None:
    with brokers.restartable_broker() as broker, RawClient(broker.bootstrap) as client:
        groups.wait_until_served(broker.bootstrap)
        group = groups.name_coordinated_here(broker.bootstrap, "group")
        epoch = join(client, group, "m").member_epoch
        assert level(client) == 1
        assert update(client, 2, UPGRADE) == update(client, 0, UPGRADE) == E.INVALID_UPDATE_VERSION
        assert update(client, 0, SAFE_DOWNGRADE) == E.NONE
        eventually(lambda: level(client) == 0, "the feature is off")
        assert code(heartbeat(client, group, "m", epoch)) == E.UNSUPPORTED_VERSION
        assert code(heartbeat(client, "", "m", epoch)) == E.UNSUPPORTED_VERSION
        assert code(join(client, "another", "m")) == E.UNSUPPORTED_VERSION
        assert described(client, group).error_code == E.UNSUPPORTED_VERSION
        assert listed(client, group, 5, types=("consumer",)) == ["Stable", "consumer"]
        assert update(client, 1, UPGRADE) == E.NONE
        eventually(lambda: level(client) == 1, "the feature is on")
        assert code(heartbeat(client, group, "m", epoch)) == E.NONE


def test_a_broker_without_the_protocol_refuses_it() -> None:
    more = {"group_coordinator_rebalance_protocols": "classic"}
    with brokers.restartable_broker(**more) as broker, RawClient(broker.bootstrap) as client:
        for group in ("g", ""):
            assert code(join(client, group, "m")) == E.UNSUPPORTED_VERSION
            assert described(client, group).error_code == E.UNSUPPORTED_VERSION
        assert level(client) == 1


def test_a_broker_refuses_members_beyond_its_limit_other_assignors_and_migrations() -> None:
    more = {
        "group_consumer_max_size": "1",
        "group_consumer_assignors": "range",
        "group_consumer_migration_policy": "disabled",
    }
    with brokers.restartable_broker(**more) as broker, RawClient(broker.bootstrap) as client:
        groups.wait_until_served(broker.bootstrap)
        group, other, classic = (
            groups.name_coordinated_here(broker.bootstrap, it) for it in ("group", "other", "classic")
        )
        epoch = join(client, group, "a").member_epoch
        second = join(client, group, "b")
        assert (code(second), second.error_message) == (
            E.GROUP_MAX_SIZE_REACHED,
            "The consumer group has reached its maximum capacity of 1 members.",
        )
        assert code(join(client, group, "a")) == code(heartbeat(client, group, "a", epoch)) == E.NONE
        assert code(join(client, other, "b", server_assignor="uniform")) == E.UNSUPPORTED_ASSIGNOR
        assert described(client, group).assignor_name == "range"
        assert classic_join(client, 3, group, "t").error_code == E.INCONSISTENT_GROUP_PROTOCOL
        assert classic_join(client, 3, classic, "t").error_code == E.NONE
        refused = join(client, classic, "b")
        assert (code(refused), refused.error_message) == (
            E.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {classic} to consumer group because online upgrade is disabled.",
        )


# A group that changes its kind


def classic_member(client: RawClient, group: str, topic: str, partitions: int, user_data: bytes = b"") -> str:
    """The only member of a classic group, in generation 1, with all partitions of a topic. Returns its id."""
    joined = classic_join(client, 3, group, topic)
    assert (joined.error_code, joined.generation_id) == (E.NONE, 1)
    w = Writer()
    w.int16(1)
    has = [ConsumerProtocolAssignmentTopicPartition(topic, [*range(partitions)])]
    ConsumerProtocolAssignment(has, user_data or None).write(w, 1)
    mine = SyncGroupRequestAssignment(joined.member_id, bytes(w.getvalue()))
    synced = client.call(SyncGroupRequest(group, 1, joined.member_id, assignments=[mine]), 3)
    assert synced.error_code == E.NONE
    return str(joined.member_id)


def test_an_empty_group_takes_the_kind_of_the_next_member_and_keeps_its_offsets(
    client: RawClient, group: str, topic: str
) -> None:
    assert commit(client, 9, group, "", -1, topic) == E.NONE
    assert listed(client, group, 5) == ["Empty", "classic"]
    assert join(client, group, "m", topic).member_epoch == FIRST_EPOCH
    assert listed(client, group, 5) == ["Stable", "consumer"]
    heartbeat(client, group, "m", LEAVES)
    classic_member(client, group, topic, 3)
    assert listed(client, group, 5) == ["Stable", "classic"]
    assert fetch(client, 9, group, None, -1, topic) == (E.NONE, 5)


def test_a_member_of_the_other_protocol_upgrades_a_group_and_its_last_one_downgrades_it(
    client: RawClient, group: str, topic: str
) -> None:
    classic = classic_member(client, group, topic, 3)
    for epoch in (1, LEAVES):
        refused = heartbeat(client, group, "m", epoch)
        assert code(refused) == E.GROUP_ID_NOT_FOUND
        assert unquoted(refused.error_message) == f"Group {group} is not a consumer group."
    joined = join(client, group, "m", topic)
    assert (joined.member_epoch, assigned(joined)) == (2, [])
    found = described(client, group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Reconciling", 2, 2)
    assert {it.member_id: (it.member_type, it.member_epoch) for it in found.members} == {classic: (0, 1), "m": (1, 2)}

    def beats(generation: int) -> ErrorCode:
        return ErrorCode(client.call(HeartbeatRequest(group, generation, classic), 4).error_code)

    assert (beats(0), beats(1)) == (E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS)
    assert commit(client, 5, group, classic, 1, topic) == E.NONE  # the classic protocol's versions are for it
    assert commit(client, 5, group, classic, 2, topic) == E.ILLEGAL_GENERATION
    again = classic_join(client, 3, group, topic, member_id=classic)
    assert (again.error_code, again.generation_id, again.leader, again.members) == (E.NONE, 2, "", [])
    synced = client.call(SyncGroupRequest(group, 2, classic), 3)
    assert (synced.error_code, len(synced.assignment) > 0) == (E.NONE, True)
    assert beats(2) == E.NONE
    assert len(assigned(heartbeat(client, group, "m", 2)) or []) == 1
    assert commit(client, 5, group, classic, 1, topic) == E.NONE  # KIP-1251: it had the partition then
    heartbeat(client, group, "m", LEAVES)
    assert listed(client, group, 5)[1] == "classic"
    assert code(heartbeat(client, group, "m", 2)) == E.GROUP_ID_NOT_FOUND
    assert beats(2) == E.REBALANCE_IN_PROGRESS
    last = classic_join(client, 3, group, topic, member_id=classic)
    assert (last.error_code, last.generation_id, last.leader) == (E.NONE, 3, classic)


def test_a_classic_member_rejoins_when_an_assignment_is_there_and_not_while_it_is_delayed(
    broker: Broker, client: RawClient, group: str, topic: str
) -> None:
    interval = "consumer.assignment.interval.ms"
    groups.configure(broker.bootstrap, group, interval, 15_000)
    join(client, group, "m", topic)
    classic = classic_join(client, 3, group, topic)
    member, generation = classic.member_id, classic.generation_id
    found = described(client, group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == (
        "Assigning",
        FIRST_EPOCH + 1,
        FIRST_EPOCH,
    )
    assert generation == FIRST_EPOCH

    def beats() -> ErrorCode:
        return ErrorCode(client.call(HeartbeatRequest(group, generation, member), 4).error_code)

    def syncs() -> ErrorCode:
        return ErrorCode(client.call(SyncGroupRequest(group, generation, member), 3).error_code)

    assert (syncs(), beats()) == (E.NONE, E.NONE)
    assert commit(client, 5, group, member, generation, topic) == E.NONE
    assert classic_join(client, 3, group, topic, member_id=member).generation_id == generation
    groups.configure(broker.bootstrap, group, interval, 0)

    def is_assigned() -> bool:
        heartbeat(client, group, "m", FIRST_EPOCH)
        return described(client, group).assignment_epoch == FIRST_EPOCH + 1

    eventually(is_assigned, "the assignment that was delayed")
    assert (syncs(), beats()) == (E.REBALANCE_IN_PROGRESS, E.REBALANCE_IN_PROGRESS)
    again = classic_join(client, 3, group, topic, member_id=member)
    assert (again.error_code, again.generation_id) == (E.NONE, FIRST_EPOCH + 1)


def test_a_static_member_that_comes_back_with_the_classic_protocol_downgrades_its_group(
    client: RawClient, new_topic: Callable[..., str], new_group: Callable[[str], str]
) -> None:
    """If its topics are the same it has its partitions at once. Else it is in generation 0 until all have rejoined."""
    topic, other = new_topic(partitions=3), new_topic()
    for wanted, generation in ((topic, FIRST_EPOCH), (other, 0)):
        group = new_group("static")
        assert join(client, group, "m", topic, instance_id="i").member_epoch == FIRST_EPOCH
        back = classic_join(client, 5, group, wanted, group_instance_id="i")
        assert (back.error_code, back.generation_id, back.leader) == (E.NONE, generation, "")
        assert listed(client, group, 5)[1] == "classic"
        expected = E.NONE if generation else E.ILLEGAL_GENERATION
        beat = client.call(HeartbeatRequest(group, generation, back.member_id, "i"), 4)
        synced = client.call(SyncGroupRequest(group, generation, back.member_id, group_instance_id="i"), 3)
        assert (beat.error_code, synced.error_code, bool(synced.assignment)) == (expected, expected, bool(generation))
        again = classic_join(client, 5, group, wanted, member_id=back.member_id, group_instance_id="i")
        assert (again.error_code, again.generation_id > FIRST_EPOCH, again.leader) == (E.NONE, True, back.member_id)


def test_groups_that_the_coordinator_cannot_assign_to_are_not_upgraded(
    client: RawClient, topic: str, new_group: Callable[[str], str]
) -> None:
    def refusal(group: str) -> str:
        refused = join(client, group, "m", topic)
        assert code(refused) == E.GROUP_ID_NOT_FOUND
        return unquoted(refused.error_message).removeprefix(f"Cannot upgrade classic group {group} to consumer group ")

    custom = new_group("custom")
    classic_member(client, custom, topic, 3, b"of the assignor")
    assert refusal(custom).startswith("because an unsupported custom assignor is in use.")
    connect = new_group("connect")
    protocols = [JoinGroupRequestProtocol("range", b"\x01")]
    joined = classic_join(client, 3, connect, topic, protocol_type="connect", protocols=protocols)
    assert joined.error_code == E.NONE
    assert refusal(connect) == "because the group does not use the consumer embedded protocol."
    garbled = new_group("garbled")
    joined = classic_join(client, 3, garbled, topic, protocols=protocols)
    assert joined.error_code == E.NONE
    assert refusal(garbled).startswith("because the embedded consumer protocol is malformed")

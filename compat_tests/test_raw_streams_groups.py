"""StreamsGroupHeartbeat and the other APIs of groups for streams groups (KIP-1071): requests right and wrong.

Where kwire and Apache Kafka differ on purpose:

* Apache Kafka answers UNKNOWN_SERVER_ERROR to topologies that it cannot handle. kwire reports what is wrong with them.
* Apache Kafka creates internal topics after the response, and reports a failure with a later heartbeat.
* Apache Kafka answers UNKNOWN_SERVER_ERROR to a member with an endpoint while a source topic is missing.
* Apache Kafka lists groups in the state NotReady only for the filter "not_ready".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.heartbeat import HeartbeatRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire_protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kwire_protocol.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskOffset,
    Topology,
)
from kwire_protocol.messages.sync_group import SyncGroupRequest
from kwire_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from testkit.basics.message_text import unquoted
from testkit.basics.waiting import eventually
from testkit.clients.group_requests import commit, delete_offset, fetch, listed, transactional_commit
from testkit.raw import configs, groups, topics
from testkit.raw.client import RawClient
from testkit.raw.streams_members import (
    DELAYED,
    FIRST_EPOCH,
    JOINS,
    LEAVES,
    NO_INTERNAL,
    NO_SOURCE,
    SHUTDOWN,
    STALE,
    VERSION,
    WRONG_PARTITIONS,
    Member,
    all_tasks,
    coordinator,
    copartitioned,
    described,
    endpoint,
    error,
    internal,
    received,
    sent,
    subtopology,
    topology,
    wait_until_coordinators_have,
)
from testkit.servers import brokers
from testkit.servers.brokers import Broker, RestartableBroker

E = ErrorCode
HEARTBEAT, DESCRIBE = 88, 89
STREAMS_VERSION = "streams.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2
STANDBYS = "streams.num.standby.replicas"

pytestmark = pytest.mark.asks_one_node


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def new_topic(client: RawClient, new_topic: Callable[..., str]) -> Callable[..., str]:
    def create(*, partitions: int = 1) -> str:
        name = new_topic(partitions=partitions)
        wait_until_coordinators_have(client, name, partitions)
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=2)


@pytest.fixture
def new_member(client: RawClient, group: str, topic: str) -> Callable[[str], Member]:
    """Makes members of one group with a topology of one subtopology: the topic is its only source."""
    return lambda member_id: Member(client, group, member_id, topology(topic))


@pytest.fixture
def member(new_member: Callable[[str], Member]) -> Member:
    """A member that has not joined yet."""
    return new_member("a")


@pytest.fixture
def joined(member: Member) -> Member:
    """The only member of its group, with the tasks of both partitions."""
    member.join()
    assert (member.epoch, member.received_tasks) == (FIRST_EPOCH, {"0": [0, 1]})
    return member


def code(answer: StreamsGroupHeartbeatResponse) -> ErrorCode:
    return error(answer)[0]


def has_no_group(client: RawClient, group: str) -> bool:
    return described(client, group).error_code == E.GROUP_ID_NOT_FOUND


def test_the_apis_and_the_feature_are_there(client: RawClient) -> None:
    answer = client.call(ApiVersionsRequest("tests", "1.0"), 4)
    lowest = {it.api_key: it.min_version for it in answer.api_keys}
    assert (lowest[HEARTBEAT], lowest[DESCRIBE]) == (0, 0)
    features = {it.name: (it.min_version, it.max_version) for it in answer.supported_features}
    levels = {it.name: it.max_version_level for it in answer.finalized_features}
    assert (features[STREAMS_VERSION], levels[STREAMS_VERSION]) == ((0, 1), 1)


# Requests that contradict themselves


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param({"group_id": ""}, "GroupId can't be empty.", id="no group"),
        pytest.param({"group_id": "  "}, "GroupId can't be empty.", id="blank group"),
        pytest.param({"member_id": ""}, "MemberId can't be empty.", id="no member"),
        pytest.param({"member_id": " "}, "MemberId can't be empty.", id="blank member"),
        pytest.param({"instance_id": "i"}, "Static membership is not yet supported.", id="instance"),
        pytest.param({"instance_id": ""}, "Static membership is not yet supported.", id="empty instance"),
        pytest.param({"rack_id": ""}, "RackId can't be empty.", id="no rack"),
        pytest.param(
            {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request.", id="no time-out"
        ),
        pytest.param({"topology": None}, "Topology must be non-null when (re-)joining.", id="no topology"),
        pytest.param({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining.", id="active null"),
        pytest.param({"standby_tasks": None}, "StandbyTasks must be empty when (re-)joining.", id="standby null"),
        pytest.param({"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining.", id="warm-up null"),
        pytest.param(
            {"active_tasks": sent({"0": [0]})}, "ActiveTasks must be empty when (re-)joining.", id="has active tasks"
        ),
        pytest.param(
            {"standby_tasks": sent({"0": [0]})}, "StandbyTasks must be empty when (re-)joining.", id="has standby tasks"
        ),
        pytest.param({"warmup_tasks": sent({"0": [0]})}, "WarmupTasks are not supported yet.", id="has warm-up tasks"),
        pytest.param({"task_offsets": []}, "TaskOffsets are not supported yet.", id="offsets"),
        pytest.param(
            {"task_end_offsets": [TaskOffset("0", 0, 1)]}, "TaskEndOffsets are not supported yet.", id="end offsets"
        ),
        pytest.param(
            {"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2.", id="epoch -3"
        ),
        pytest.param({"member_epoch": -2}, "InstanceId can't be null.", id="static without an instance"),
        pytest.param(
            {"member_epoch": -2, "instance_id": "i"}, "Static membership is not yet supported.", id="static leaves"
        ),
        pytest.param(
            {"member_epoch": LEAVES}, "Topology can only be provided when (re-)joining.", id="leaves with a topology"
        ),
        pytest.param(
            {"member_epoch": 1}, "Topology can only be provided when (re-)joining.", id="stays with a topology"
        ),
        pytest.param(
            {"member_epoch": 1, "topology": None, "active_tasks": None},
            "If one task-type is non-null, all must be non-null.",
            id="some kinds of tasks",
        ),
        pytest.param(
            {"topology": Topology(0, [Subtopology("0", [], ["t.*"])])},
            "Regular expressions for source topics are not supported yet.",
            id="pattern",
        ),
    ],
)
def test_a_request_that_contradicts_itself_is_invalid(
    client: RawClient, group: str, wrong: dict[str, Any], message: str
) -> None:
    member = Member(client, group, "a", topology("t"))
    answer = member.send_join(**wrong)
    assert error(answer)[0] == E.INVALID_REQUEST
    assert unquoted(error(answer)[1]) == unquoted(message)
    assert has_no_group(client, group)


_LOOP = "There may be loops in the topology that cannot be resolved."


@pytest.mark.parametrize(
    ("part", "message"),
    [
        pytest.param({}, "No source topics found for subtopology 0", id="reads nothing"),
        pytest.param({"source_topics": [""]}, "Topic names  are not valid topic names.", id="no name"),
        pytest.param({"source_topics": ["a b"]}, "Topic names a b are not valid topic names.", id="source's name"),
        pytest.param(
            {"source_topics": ["SOURCE"], "state_changelog_topics": [internal("c c")]},
            "Topic names c c are not valid topic names.",
            id="changelog's name",
        ),
        pytest.param(
            {"source_topics": ["SOURCE"], "state_changelog_topics": [internal("__consumer_offsets")]},
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
            id="Kafka's own topic",
        ),
        pytest.param(
            {"source_topics": ["SOURCE"], "state_changelog_topics": [internal("c", 3)]},
            "Changelog topic c must have an undefined partition count, but it is set to 3.",
            id="changelog's count",
        ),
        pytest.param(
            {"source_topics": ["SOURCE"], "state_changelog_topics": [internal("c", -1)]},
            "Changelog topic c must have an undefined partition count, but it is set to -1.",
            id="changelog's negative count",
        ),
        pytest.param(
            {"source_topics": ["SOURCE"], "repartition_source_topics": [internal("r")]},
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic.",
            id="nobody writes it",
        ),
        pytest.param(
            {"repartition_source_topics": [internal("r")], "repartition_sink_topics": ["r"]},
            f"Failed to compute number of partitions for all repartition topics. {_LOOP}",
            id="loop",
        ),
    ],
)
def test_a_topology_that_contradicts_itself_is_invalid(
    client: RawClient, group: str, topic: str, part: dict[str, Any], message: str
) -> None:
    wanted = Subtopology("0", **part)
    wanted.source_topics = [topic if it == "SOURCE" else it for it in wanted.source_topics]
    answer = Member(client, group, "a", Topology(0, [wanted])).send_join()
    assert error(answer) == (E.STREAMS_INVALID_TOPOLOGY, message)
    assert has_no_group(client, group)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda topic: Topology(-1, [subtopology(topic)]), id="epoch below 0"),
        pytest.param(lambda topic: Topology(0, [subtopology(topic), subtopology(topic)]), id="twice"),
        pytest.param(
            lambda topic: topology(topic, state_changelog_topics=[internal("c"), internal("c")]), id="changelog twice"
        ),
        pytest.param(lambda topic: topology(topic, copartition_groups=[copartitioned([1])]), id="unknown source"),
        pytest.param(lambda topic: topology(topic, copartition_groups=[copartitioned([-1])]), id="source below 0"),
        pytest.param(lambda topic: topology(topic, copartition_groups=[copartitioned([], [0])]), id="unknown topic"),
        pytest.param(
            lambda topic: topology(topic, repartition_source_topics=[internal("r", -3)], repartition_sink_topics=["r"]),
            id="count below 0",
        ),
    ],
)
def test_a_topology_that_apache_kafka_stumbles_over_is_refused(
    client: RawClient, group: str, topic: str, wrong: Callable[[str], Topology]
) -> None:
    expected = {E.UNKNOWN_SERVER_ERROR} if brokers.IS_KAFKA else {E.INVALID_REQUEST, E.STREAMS_INVALID_TOPOLOGY}
    assert code(Member(client, group, "a", wrong(topic)).send_join()) in expected
    assert has_no_group(client, group)


def test_a_client_tag_has_one_value(client: RawClient, member: Member) -> None:
    expected = E.UNKNOWN_SERVER_ERROR if brokers.IS_KAFKA else E.INVALID_REQUEST
    tags = [KeyValue("zone", "a"), KeyValue("zone", "b")]
    assert code(member.send_join(client_tags=tags)) == expected
    assert has_no_group(client, member.group)


def test_a_topology_may_be_strange(client: RawClient, topic: str, new_group: Callable[[str], str]) -> None:
    def tasks(*parts: Subtopology, **more: Any) -> dict[str, list[int]]:
        member = Member(client, new_group("strange"), "m" * 37, Topology(0, [*parts]))
        member.join(**more)
        assert (member.epoch, member.statuses) == (FIRST_EPOCH, [])
        return member.active

    whole = {"0": [0, 1]}
    assert tasks() == {}
    assert tasks(subtopology(topic, topic)) == whole
    assert tasks(subtopology(topic, repartition_sink_topics=["nobody-reads-it"])) == whole
    assert tasks(subtopology(topic, copartition_groups=[copartitioned([0]), copartitioned([])])) == whole
    assert tasks(subtopology(topic, name="")) == {"": [0, 1]}
    assert tasks(subtopology(topic), subtopology(topic, name="1")) == {"0": [0, 1], "1": [0, 1]}
    for more in ({"rebalance_timeout_ms": 0}, {"rebalance_timeout_ms": -5}, {"process_id": None}, {"process_id": ""}):
        assert tasks(subtopology(topic), **more) == whole


# The life of a member


def test_the_first_member_gets_all_tasks_and_then_changes_only(client: RawClient, member: Member) -> None:
    answer = member.join()
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.status) == (FIRST_EPOCH, 200, [])
    assert (answer.endpoint_information_epoch, answer.partitions_by_user_endpoint) == (0, None)
    assert (answer.acceptable_recovery_lag_legacy, answer.task_offset_interval_ms) == (0, 0)
    assert (member.active, member.standby) == ({"0": [0, 1]}, {})
    quiet = member.beat()
    assert (quiet.active_tasks, quiet.standby_tasks, quiet.warmup_tasks) == (None, None, None)
    assert (quiet.member_epoch, quiet.status) == (FIRST_EPOCH, [])
    member.confirm()
    assert (member.received_tasks, member.epoch) == (None, FIRST_EPOCH)
    member.join()
    assert (member.received_tasks, member.epoch) == ({"0": [0, 1]}, FIRST_EPOCH)
    left = member.leave()
    assert (left.member_epoch, left.heartbeat_interval_ms, left.active_tasks) == (LEAVES, 0, None)
    assert code(member.send_heartbeat(LEAVES)) == E.UNKNOWN_MEMBER_ID
    found = described(client, member.group)
    assert (found.group_state, found.group_epoch, found.members) == ("Empty", FIRST_EPOCH + 1, [])


@pytest.mark.parametrize("epoch", [LEAVES, 1, 7])
def test_a_group_comes_into_being_by_joining_only(client: RawClient, group: str, epoch: int) -> None:
    found, message = error(Member(client, group, "a", topology("t")).send_heartbeat(epoch))
    assert found == E.GROUP_ID_NOT_FOUND
    assert f"roup {group} not found." in unquoted(message)


def test_an_epoch_that_is_not_the_members_fences_it(joined: Member) -> None:
    epoch = joined.epoch
    for wrong, size in ((99, "greater"), (epoch - 1, "smaller")):
        assert error(joined.send_heartbeat(wrong)) == (
            E.FENCED_MEMBER_EPOCH,
            f"The streams group member has a {size} member epoch ({wrong}) than the one known by the group "
            f"coordinator ({epoch}). The member must abandon all its partitions and rejoin.",
        )
    stranger = Member(joined.client, joined.group, "x", joined.topology)
    for any_epoch in (epoch, LEAVES):
        found, message = error(stranger.send_heartbeat(any_epoch))
        assert (found, unquoted(message)) == (
            E.UNKNOWN_MEMBER_ID,
            f"Member x is not a member of group {joined.group}.",
        )
    joined.beat()
    assert joined.epoch == epoch


def test_the_previous_epoch_is_taken_from_one_who_has_no_task_too_many(
    joined: Member, new_member: Callable[[str], Member]
) -> None:
    old = joined.epoch
    new_member("b").join()
    joined.beat()
    assert (joined.epoch, len(joined.active["0"])) == (old, 1)
    kept = joined.active
    joined.confirm()
    assert joined.epoch == old + 1
    none: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    for right in (none, {**none, "active_tasks": sent(kept)}):
        assert joined.send_heartbeat(old, **right).member_epoch == old + 1, (
            "the answer with its epoch may have been lost"
        )
    for wrong in ({}, {**none, "active_tasks": sent({"0": [0, 1]})}, {**none, "standby_tasks": sent(kept)}):
        assert code(joined.send_heartbeat(old, **wrong)) == E.FENCED_MEMBER_EPOCH


def test_a_task_is_given_to_the_second_member_when_the_first_has_let_go(
    client: RawClient, joined: Member, new_member: Callable[[str], Member]
) -> None:
    second = new_member("b")
    second.join()
    epoch = FIRST_EPOCH + 1
    assert (second.epoch, second.active) == (epoch, {})
    joined.beat()
    assert joined.epoch == FIRST_EPOCH
    (kept,) = joined.active["0"]
    second.beat()
    assert second.received_tasks is None
    found = described(client, joined.group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Reconciling", epoch, epoch)
    of = {it.member_id: it for it in found.members}
    assert all_tasks(of["a"].assignment) == ({"0": [kept]}, {}, {})
    assert all_tasks(of["b"].assignment) == ({}, {}, {})
    assert all_tasks(of["b"].target_assignment) == ({"0": [1 - kept]}, {}, {})
    joined.confirm()
    assert joined.epoch == epoch
    second.beat()
    assert second.active == {"0": [1 - kept]}
    assert described(client, joined.group).group_state == "Stable"
    second.leave()
    joined.beat()
    assert (joined.active, joined.epoch) == ({"0": [0, 1]}, epoch + 1)


def test_a_member_that_joins_gets_its_share_of_each_subtopology(client: RawClient, group: str, topic: str) -> None:
    """Otherwise all state could be with one instance, and all that is stateless with the other."""
    parts = Topology(0, [subtopology(topic), subtopology(topic, name="1")])
    first, second = Member(client, group, "a", parts), Member(client, group, "b", parts)
    first.join()
    second.join()
    second.settle(2, others=[first])
    assert (first.active, second.active) == ({"0": [0], "1": [0]}, {"0": [1], "1": [1]})


def test_a_member_that_does_not_let_go_in_time_is_removed(member: Member, new_member: Callable[[str], Member]) -> None:
    member.join(rebalance_timeout_ms=100)
    second = new_member("b")
    second.join()
    member.beat()
    second.settle(2)
    assert code(member.send_heartbeat(member.epoch)) == E.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_when_its_session_ends(
    broker: Broker, member: Member, new_member: Callable[[str], Member]
) -> None:
    groups.configure(broker.bootstrap, member.group, "streams.session.timeout.ms", 500)
    member.join()
    second = new_member("b")
    second.join()
    second.settle(2)
    assert code(member.send_heartbeat(member.epoch)) == E.UNKNOWN_MEMBER_ID


def test_a_member_that_has_moved_to_another_process_begins_an_epoch(client: RawClient, joined: Member) -> None:
    joined.beat(process_id="of-a", rebalance_timeout_ms=5_000)
    assert joined.epoch == FIRST_EPOCH
    joined.beat(process_id="another", rack_id="r", client_tags=[KeyValue("zone", "z")])
    assert joined.epoch == FIRST_EPOCH + 1
    (found,) = described(client, joined.group).members
    assert (found.process_id, found.rack_id) == ("another", "r")
    assert [(it.key, it.value) for it in found.client_tags] == [("zone", "z")]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"0": [2]}, "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
        ({"0": [0, -1]}, "Task -1 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
        ({"9": [0]}, "Subtopology 9 does not exist in the topology."),
    ],
)
@pytest.mark.parametrize("kind", ["active_tasks", "standby_tasks"])
def test_a_task_that_is_not_there_is_refused(
    joined: Member, kind: str, tasks: dict[str, list[int]], message: str
) -> None:
    wanted: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    assert error(joined.send_heartbeat(joined.epoch, **{**wanted, kind: sent(tasks)})) == (E.INVALID_REQUEST, message)
    joined.beat()


# Standby tasks


def stateful(topic: str, changelog: str) -> Topology:
    return topology(topic, state_changelog_topics=[internal(changelog, cleanup_policy="compact")])


def test_standby_tasks_are_with_other_processes(
    broker: Broker, client: RawClient, group: str, topic: str, unique: Callable[[str], str]
) -> None:
    changelog = unique("changelog")
    first, second = (Member(client, group, it, stateful(topic, changelog)) for it in "ab")
    first.join()
    first.settle(2)
    second.join()
    second.settle(1, others=[first])
    epoch = first.epoch
    assert second.epoch == epoch
    groups.configure(broker.bootstrap, group, STANDBYS, 1)

    def is_noticed() -> bool:  # by a coordinator, which may get it later than the broker that it is on
        first.beat()
        return bool(first.standby)

    eventually(is_noticed, "standby tasks")
    second.beat()
    for member, other in ((first, second), (second, first)):
        assert (member.standby, member.epoch) == (other.active, epoch + 1)
    found = described(client, group)
    assert found.group_state == "Stable"
    for of in found.members:
        member = {"a": first, "b": second}[of.member_id]
        assert all_tasks(of.assignment) == all_tasks(of.target_assignment) == (member.active, member.standby, {})
    second.leave()
    first.settle(2)
    assert first.standby == {}
    of_same_process = Member(client, group, "c", first.topology)
    of_same_process.join(process_id="of-a")
    of_same_process.settle(1, others=[first])
    assert (first.standby, of_same_process.standby) == ({}, {})


def test_tasks_without_state_have_no_standby(
    broker: Broker, member: Member, new_member: Callable[[str], Member]
) -> None:
    groups.configure(broker.bootstrap, member.group, STANDBYS, 1)
    second = new_member("b")
    member.join()
    second.join()
    second.settle(1, others=[member])
    assert (member.standby, second.standby) == ({}, {})


# Delays


def test_the_first_assignment_waits_for_more_members(
    broker: Broker, client: RawClient, member: Member, new_member: Callable[[str], Member]
) -> None:
    groups.configure(broker.bootstrap, member.group, "streams.initial.rebalance.delay.ms", 300)
    second = new_member("b")
    member.join()
    second.join()
    delayed = [(DELAYED, "Assignment delayed due to the configured initial rebalance delay.")]
    assert (member.statuses, member.epoch, member.active) == (delayed, 1, {})
    assert (second.statuses, second.epoch, second.active) == (delayed, 1, {})
    assert described(client, member.group).group_state == "Assigning"

    def has_begun() -> bool:
        member.beat()
        return bool(member.active)

    eventually(has_begun, "the first assignment")
    second.beat()
    assert sorted(member.active["0"] + second.active["0"]) == [0, 1]
    assert member.epoch == second.epoch


def test_an_assignment_waits_for_its_interval_and_heartbeats_have_theirs(
    broker: Broker, client: RawClient, member: Member, new_member: Callable[[str], Member]
) -> None:
    groups.configure(broker.bootstrap, member.group, "streams.assignment.interval.ms", 300)
    groups.configure(broker.bootstrap, member.group, "streams.heartbeat.interval.ms", 150)
    assert member.join().heartbeat_interval_ms == 150
    assert (member.active, member.statuses) == ({"0": [0, 1]}, [])
    second = new_member("b")
    second.join()
    delayed = [(DELAYED, "Assignment delayed due to the configured assignment interval.")]
    assert (second.statuses, second.epoch, second.active) == (delayed, FIRST_EPOCH, {})
    assert described(client, member.group).group_state == "Assigning"
    second.settle(1, others=[member])
    assert second.epoch == member.epoch == FIRST_EPOCH + 1


# The end of an application


def test_one_member_ends_the_application_until_all_have_left(
    joined: Member, new_member: Callable[[str], Member]
) -> None:
    second, third = new_member("b"), new_member("c")
    second.join()
    ends = [
        (
            SHUTDOWN,
            "Streams group member b encountered a fatal error and requested a shutdown for the entire application.",
        )
    ]
    second.beat(shutdown_application=True)
    joined.beat()
    assert (second.statuses, joined.statuses) == (ends, ends)
    second.leave()
    third.join()
    joined.beat()
    assert (third.statuses, joined.statuses) == (ends, ends)
    third.leave()
    joined.leave()
    second.join()
    assert (second.statuses, second.active) == ([], {"0": [0, 1]})


def test_a_member_ends_the_application_as_it_leaves(joined: Member, new_member: Callable[[str], Member]) -> None:
    second = new_member("b")
    second.join()
    second.leave(shutdown_application=True)
    joined.beat()
    assert [it for it, _ in joined.statuses] == [SHUTDOWN]


# Topologies


def test_a_group_keeps_the_topology_of_its_first_member(
    client: RawClient, group: str, topic: str, new_topic: Callable[..., str]
) -> None:
    first = Member(client, group, "a", topology(topic, epoch=3))
    first.join()
    for newer in (topology(topic, epoch=4), topology(new_topic(), epoch=3)):
        refused = Member(client, group, "b", newer).send_join()
        assert error(refused) == (E.INVALID_REQUEST, "Topology updates are not supported yet.")
    stale = [(STALE, "The member's topology epoch 2 is behind the group's topology epoch 3.")]
    second = Member(client, group, "b", topology("whatever", epoch=2))
    second.join()
    assert second.statuses == stale
    second.beat()
    assert second.statuses == stale
    first.beat()
    assert first.statuses == []
    found = described(client, group)
    assert found.topology is not None
    assert {it.member_id: it.topology_epoch for it in found.members} == {"a": 3, "b": 2}
    assert (found.topology.epoch, [it.source_topics for it in found.topology.subtopologies or []]) == (3, [[topic]])
    first.leave()
    second.leave()
    assert code(Member(client, group, "a", topology(topic, epoch=4)).send_join()) == E.INVALID_REQUEST


def test_source_topics_come_grow_and_go(
    broker: Broker, client: RawClient, group: str, unique: Callable[[str], str]
) -> None:
    name = unique("late")
    member = Member(client, group, "a", topology(name))
    member.join()
    missing = [(NO_SOURCE, f"Source topics {name} are missing.")]
    assert (member.statuses, member.epoch, member.active) == (missing, FIRST_EPOCH, {})
    found = described(client, group)
    assert (found.group_state, found.assignment_epoch) == ("NotReady", FIRST_EPOCH)
    topics.create(broker.bootstrap, name, partitions=1)
    member.settle(1)
    assert member.epoch == FIRST_EPOCH + 1
    topics.grow(broker.bootstrap, name, 2)
    member.settle(2)
    assert member.epoch == FIRST_EPOCH + 2
    topics.delete(broker.bootstrap, name)

    def is_gone() -> bool:
        member.confirm()
        return member.statuses == missing

    eventually(is_gone, "the source is missing")
    assert member.active == {}
    assert described(client, group).group_state == "NotReady"


def test_only_some_of_the_missing_topics_are_named(client: RawClient, group: str, topic: str) -> None:
    member = Member(client, group, "a", topology("no-d", "no-c", topic, "no-b", "no-a"))
    member.join()
    assert member.statuses == [(NO_SOURCE, "Source topics no-a, no-b, no-c and 1 additional topics are missing.")]


def test_copartitioned_topics_have_the_same_number_of_partitions(
    client: RawClient, group: str, topic: str, new_topic: Callable[..., str], new_group: Callable[[str], str]
) -> None:
    a, b = sorted((topic, new_topic(partitions=3)))
    sizes = {topic: 2}
    together = copartitioned([0, 1])
    member = Member(client, group, "a", topology(a, b, copartition_groups=[together]))
    member.join()
    message = f"{{{a}={sizes.get(a, 3)}, {b}={sizes.get(b, 3)}}}"
    assert member.statuses == [
        (WRONG_PARTITIONS, f"Following topics do not have the same number of partitions: [{message}]")
    ]
    assert (member.epoch, member.active) == (FIRST_EPOCH, {})
    assert described(client, group).group_state == "NotReady"
    repartition = {
        "repartition_source_topics": [internal("r", 5)],
        "repartition_sink_topics": ["r"],
        "copartition_groups": [copartitioned([0], [0])],
    }
    other = Member(client, new_group("other"), "a", topology(topic, **repartition))
    other.join()
    message = "Number of partitions [5] of repartition topic [r] doesn't match number of partitions [2] of the source"
    assert other.statuses == [(WRONG_PARTITIONS, f"{message} topic.")]


def test_an_internal_topic_that_exists_has_the_number_of_partitions_that_it_needs(
    client: RawClient, topic: str, new_topic: Callable[..., str], new_group: Callable[[str], str]
) -> None:
    existing = new_topic(partitions=3)
    message = [(WRONG_PARTITIONS, f"Existing topic {existing} has different number of partitions: expected 2, found 3")]
    for part in (
        {"state_changelog_topics": [internal(existing)]},
        {"repartition_source_topics": [internal(existing, 2)], "repartition_sink_topics": [existing]},
        {"repartition_source_topics": [internal(existing)], "repartition_sink_topics": [existing]},
    ):
        member = Member(client, new_group("other"), "a", topology(topic, **part))
        member.join()
        assert (member.statuses, member.active) == (message, {})
    right = {"repartition_source_topics": [internal(existing, 3)], "repartition_sink_topics": [existing]}
    member = Member(client, new_group("right"), "a", topology(topic, **right))
    member.join()
    assert (member.statuses, member.active) == ([], {"0": [0, 1, 2]})


def own_configs(client: RawClient, name: str) -> dict[str, str | None]:
    """Returns the configurations that were set for the topic."""
    found = configs.described(client, configs.TOPIC, name)
    return {key: it.value for key, it in found.items() if any(its.source == 1 for its in it.synonyms)}


def partitions_and_replicas(client: RawClient, name: str) -> tuple[int, int]:
    (found,) = client.call(MetadataRequest([MetadataRequestTopic(name=name)]), 12).topics
    return len(found.partitions), len(found.partitions[0].replica_nodes)


def test_internal_topics_are_created_with_their_configs(
    client: RawClient, group: str, topic: str, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    """The repartition topic has as many partitions as the topic that it is copartitioned with, and not as its writer's.

    One that is not copartitioned has as many as the largest source of its writer.
    """
    wide, changelog, joined_with, free = new_topic(partitions=3), unique("log"), unique("joined"), unique("free")
    writer = subtopology(wide, repartition_sink_topics=[joined_with, free])
    reader = subtopology(
        topic,
        name="1",
        repartition_source_topics=[internal(joined_with, retention_ms="-1")],
        state_changelog_topics=[internal(changelog, 0, 1, cleanup_policy="compact", segment_bytes="1048577")],
        copartition_groups=[copartitioned([0], [0])],
    )
    last = subtopology(name="2", repartition_source_topics=[internal(free)])
    member = Member(client, group, "a", Topology(0, [writer, reader, last]))
    member.join()
    ((status, detail),) = member.statuses
    assert (status, member.active) == (NO_INTERNAL, {})
    assert detail.startswith("Internal topics are missing: ")
    assert all(name in detail for name in (changelog, joined_with, free))
    assert described(client, group).group_state == "NotReady"
    member.settle(8)
    assert member.active == {"0": [0, 1, 2], "1": [0, 1], "2": [0, 1, 2]}
    assert member.epoch > FIRST_EPOCH
    found = described(client, group).topology
    assert found is not None
    assert [it.partitions for it in (found.subtopologies or [])[1].state_changelog_topics] == [2]
    everywhere = len(brokers.NODES)
    assert partitions_and_replicas(client, changelog) == (2, 1)
    assert partitions_and_replicas(client, joined_with) == (2, everywhere)
    assert partitions_and_replicas(client, free) == (3, everywhere)
    assert own_configs(client, changelog) == {"cleanup.policy": "compact", "segment.bytes": "1048577"}
    assert own_configs(client, joined_with) == {"retention.ms": "-1"}
    member.leave()
    assert delete_group(client, group) == E.NONE
    assert partitions_and_replicas(client, changelog) == (2, 1), "they are not the group's to delete"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param({"replicas": 77}, "77", id="replicas"),
        pytest.param({"no_such": "x"}, "Unknown topic config name: no.such", id="unknown config"),
        pytest.param({"cleanup_policy": "x"}, "Invalid value x for configuration cleanup.policy", id="invalid config"),
    ],
)
def test_members_receive_the_reason_why_an_internal_topic_was_not_created(
    client: RawClient, group: str, topic: str, unique: Callable[[str], str], bad: dict[str, Any], reason: str
) -> None:
    changelog = unique("changelog")
    member = Member(client, group, "a", topology(topic, state_changelog_topics=[internal(changelog, **bad)]))
    member.join()

    def has_reason() -> bool:
        ((status, detail),) = member.statuses
        assert status == NO_INTERNAL
        assert unquoted(detail).startswith(f"Internal topics are missing: {changelog}")
        before, _, why = unquoted(detail).partition("; Creation failed: ")
        assert before == f"Internal topics are missing: {changelog}"
        member.beat()
        return why.startswith(f"{changelog} (") and reason in why

    eventually(has_reason, "the reason")
    assert member.active == {}


# The endpoints of other instances of the application


def endpoints(answer: StreamsGroupHeartbeatResponse) -> dict[tuple[str, int], tuple[dict[str, list[int]], ...]] | None:
    """Returns active and standby partitions of topics, by host and port; None if the response has none."""
    if answer.partitions_by_user_endpoint is None:
        return None
    return {
        (it.user_endpoint.host, it.user_endpoint.port): tuple(
            {its.topic: sorted(its.partitions) for its in kind}
            for kind in (it.active_partitions, it.standby_partitions)
        )
        for it in answer.partitions_by_user_endpoint
    }


def test_members_with_the_latest_epoch_of_endpoints_get_changes_only(joined: Member, topic: str) -> None:
    joined.leave()
    first = joined.join(user_endpoint=endpoint("host", 1))
    table: dict[tuple[str, int], Any] = {("host", 1): ({topic: [0, 1]}, {})}
    assert endpoints(first) == table
    latest = joined.beat(endpoint_information_epoch=-1)
    assert endpoints(latest) == table
    epoch = latest.endpoint_information_epoch
    known = joined.beat(endpoint_information_epoch=epoch)
    assert (endpoints(known), known.endpoint_information_epoch) == (None, epoch)
    assert endpoints(joined.beat(endpoint_information_epoch=epoch + 9)) == table


def test_endpoints_are_returned_with_the_partitions_of_tasks(
    broker: Broker,
    client: RawClient,
    group: str,
    topic: str,
    unique: Callable[[str], str],
) -> None:
    first, second = (Member(client, group, it, stateful(topic, unique("changelog"))) for it in "ab")
    second.topology = first.topology
    groups.configure(broker.bootstrap, group, STANDBYS, 1)
    first.join(user_endpoint=endpoint("one", 1))
    first.settle(2)
    second.join(user_endpoint=endpoint("two", 65_535))
    second.settle(1, 1, others=[first])
    message = first.beat(endpoint_information_epoch=-1)
    table = {
        ("one", 1): ({topic: first.active["0"]}, {topic: first.standby["0"]}),
        ("two", 65_535): ({topic: second.active["0"]}, {topic: second.standby["0"]}),
    }
    assert endpoints(message) == table
    epoch = message.endpoint_information_epoch
    second.leave()
    first.settle(2)
    message = first.beat(endpoint_information_epoch=epoch)
    assert message.endpoint_information_epoch > epoch
    assert endpoints(message) == {("one", 1): ({topic: [0, 1]}, {})}
    (found,) = described(client, group).members
    assert found.user_endpoint is not None
    assert (found.user_endpoint.host, found.user_endpoint.port) == ("one", 1)


def test_an_endpoint_is_returned_without_partitions_while_a_source_is_missing(client: RawClient, group: str) -> None:
    member = Member(client, group, "a", topology("there-is-no-such-topic"))
    answer = member.send_join(user_endpoint=endpoint("host", 1))
    if brokers.IS_KAFKA:
        assert code(answer) == E.UNKNOWN_SERVER_ERROR
    else:
        assert [it.status_code for it in answer.status or []] == [NO_SOURCE]
        assert endpoints(answer) in ({}, {("host", 1): ({}, {})})


def test_an_endpoint_lists_repartition_topics_too_and_no_changelogs(
    client: RawClient, group: str, topic: str, unique: Callable[[str], str]
) -> None:
    repartition, changelog = unique("repartition"), unique("changelog")
    part = {
        "repartition_source_topics": [internal(repartition)],
        "repartition_sink_topics": [repartition],
        "state_changelog_topics": [internal(changelog)],
    }
    member = Member(client, group, "a", topology(topic, **part))
    member.join(user_endpoint=endpoint("host", 1))
    member.settle(2)
    message = member.beat(endpoint_information_epoch=-1)
    assert endpoints(message) == {("host", 1): ({topic: [0, 1], repartition: [0, 1]}, {})}


# Describing, listing, deleting


def test_a_streams_group_is_described_with_everything(
    client: RawClient, group: str, topic: str, unique: Callable[[str], str]
) -> None:
    changelog, repartition = unique("changelog"), unique("repartition")
    wanted = {
        "state_changelog_topics": [internal(changelog, cleanup_policy="compact")],
        "repartition_source_topics": [internal(repartition, 0, 1)],
        "repartition_sink_topics": [repartition],
    }
    member = Member(client, group, "a", topology(topic, epoch=7, **wanted))
    member.join(rack_id="r", client_tags=[KeyValue("zone", "z")], user_endpoint=endpoint("host", 99))
    before = described(client, group)
    assert (before.group_state, before.topology and before.topology.epoch) == ("NotReady", 7)
    member.settle(2)
    answers = client.call(StreamsGroupDescribeRequest([group, "", group], True), VERSION).groups
    assert sorted((it.group_id, it.error_code) for it in answers) == [("", E.INVALID_GROUP_ID), *[(group, E.NONE)] * 2]
    assert {it.authorized_operations for it in answers if it.group_id} == {3400}
    found = described(client, group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", member.epoch, member.epoch)
    assert (found.authorized_operations, found.error_message) == (-(2**31), None)
    assert found.topology is not None
    (part,) = found.topology.subtopologies or []
    assert (found.topology.epoch, part.subtopology_id, part.source_topics) == (7, "0", [topic])
    assert part.repartition_sink_topics == [repartition]
    # The number of partitions is the one that was found.
    (log,), (again,) = part.state_changelog_topics, part.repartition_source_topics
    assert (log.name, log.partitions, log.replication_factor) == (changelog, 2, 0)
    assert [(it.key, it.value) for it in log.topic_configs] == [("cleanup.policy", "compact")]
    assert (again.name, again.partitions, again.replication_factor, again.topic_configs) == (repartition, 2, 1, [])
    (of,) = found.members
    assert (of.member_id, of.member_epoch, of.instance_id, of.rack_id) == ("a", member.epoch, None, "r")
    assert (of.client_id, of.client_host, of.process_id) == ("raw", "/127.0.0.1", "of-a")
    assert (of.topology_epoch, of.task_offsets, of.task_end_offsets, of.is_classic) == (7, [], [], False)
    assert [(it.key, it.value) for it in of.client_tags] == [("zone", "z")]
    assert of.user_endpoint is not None
    assert (of.user_endpoint.host, of.user_endpoint.port) == ("host", 99)
    assert all_tasks(of.assignment) == all_tasks(of.target_assignment) == ({"0": [0, 1]}, {}, {})
    assert client.call(StreamsGroupDescribeRequest([]), VERSION).groups == []


@pytest.mark.parametrize("version", range(6))
def test_a_streams_group_is_listed_with_its_state_and_type(
    client: RawClient, joined: Member, version: int, new_group: Callable[[str], str]
) -> None:
    group = joined.group
    found = ["Stable" if version >= 4 else "", "streams" if version >= 5 else ""]
    assert listed(client, group, version) == found
    if version >= 4:
        for right in (["Stable"], ["stable"], ["Empty", "STABLE"]):
            assert listed(client, group, version, *right) == found
        for wrong in (["Empty"], ["Assigning", "Reconciling", "NotReady"], ["no such state"]):
            assert listed(client, group, version, *wrong) == []
        waiting = new_group("waiting")
        Member(client, waiting, "a", topology("there-is-no-such-topic")).join()
        for state in ("not_ready",) if brokers.IS_KAFKA else ("not_ready", "NotReady", "notready"):
            assert listed(client, waiting, version, state) == ["NotReady", *found[1:]]
    if version >= 5:
        for types in (("streams",), ("STREAMS",), ("classic", "streams")):
            assert listed(client, group, version, types=types) == found
        for types in (("classic",), ("share", "consumer"), ("no such type",)):
            assert listed(client, group, version, types=types) == []
        joined.leave()
        assert listed(client, group, version, "Empty", types=("streams",)) == ["Empty", "streams"]


def delete_group(client: RawClient, group: str, version: int = 2) -> ErrorCode:
    (answer,) = client.call(DeleteGroupsRequest([group]), version).results
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize("version", range(3))
def test_a_group_without_members_is_deleted_with_its_offsets_and_its_topology(
    client: RawClient, joined: Member, topic: str, version: int
) -> None:
    group = joined.group
    assert commit(client, 9, group, "a", joined.epoch, topic) == E.NONE
    assert delete_group(client, group, version) == E.NON_EMPTY_GROUP
    joined.leave()
    assert delete_group(client, group, version) == E.NONE
    assert delete_group(client, group, version) == E.GROUP_ID_NOT_FOUND
    assert listed(client, group, 5) == []
    assert fetch(client, 9, group, None, -1, topic) == (E.NONE, -1)
    rejoined = Member(client, group, "a", topology(topic, epoch=9))
    rejoined.join()
    assert (rejoined.epoch, rejoined.active) == (FIRST_EPOCH, {"0": [0, 1]})


# Offsets


@pytest.mark.parametrize("version", [2, 5, 8, 9, 10])
def test_a_commit_is_of_a_member_in_its_epoch(client: RawClient, joined: Member, topic: str, version: int) -> None:
    group, epoch = joined.group, joined.epoch
    by_members = version >= 9
    assert commit(client, version, group, "a", epoch, topic) == (E.NONE if by_members else E.UNSUPPORTED_VERSION)
    for wrong in (epoch + 1, epoch - 1, -1):
        stale = E.STALE_MEMBER_EPOCH if by_members else E.UNSUPPORTED_VERSION
        assert commit(client, version, group, "a", wrong, topic) == stale
    for nobody, wrong in (("x", epoch), ("", epoch), ("", -1)):
        assert commit(client, version, group, nobody, wrong, topic) == E.UNKNOWN_MEMBER_ID
    joined.leave()
    assert commit(client, version, group, "a", epoch, topic) == E.UNKNOWN_MEMBER_ID
    assert commit(client, version, group, "", -1, topic) == E.NONE  # nobody is in it


def test_an_older_epoch_commits_for_the_tasks_that_the_member_has_had_since(
    client: RawClient, joined: Member, topic: str, new_member: Callable[[str], Member]
) -> None:
    group = joined.group
    second = new_member("b")
    second.join()
    joined.beat()
    (kept,) = joined.active["0"]
    for partition in (0, 1):  # the other one is being revoked
        assert commit(client, 9, group, "a", FIRST_EPOCH, topic, partition) == E.NONE
    joined.confirm()
    second.beat()
    assert joined.epoch == second.epoch == FIRST_EPOCH + 1

    def commits(member: str, epoch: int) -> list[ErrorCode]:
        return [commit(client, 9, group, member, epoch, topic, it) for it in (kept, 1 - kept)]

    assert commits("a", FIRST_EPOCH + 1) == commits("b", FIRST_EPOCH + 1) == [E.NONE, E.NONE]
    assert commits("a", FIRST_EPOCH) == [E.NONE, E.STALE_MEMBER_EPOCH]
    stale = [E.STALE_MEMBER_EPOCH, E.STALE_MEMBER_EPOCH]
    assert commits("a", FIRST_EPOCH - 1) == commits("a", FIRST_EPOCH + 2) == commits("b", FIRST_EPOCH) == stale


@pytest.mark.parametrize("version", [9, 10])
def test_offsets_are_returned_to_members_in_their_epoch_and_to_requests_without_a_member(
    client: RawClient, joined: Member, topic: str, version: int
) -> None:
    group, epoch = joined.group, joined.epoch
    assert commit(client, 9, group, "a", epoch, topic) == E.NONE
    for member, right in (("a", epoch), (None, -1)):
        assert fetch(client, version, group, member, right, topic) == (E.NONE, 5)
    for wrong in (epoch + 1, epoch - 1, -1):
        assert fetch(client, version, group, "a", wrong, topic) == (E.STALE_MEMBER_EPOCH, -1)
    for nobody, wrong in (("x", epoch), ("x", -1), ("", 0), ("", -1)):
        assert fetch(client, version, group, nobody, wrong, topic) == (E.UNKNOWN_MEMBER_ID, -1)


@pytest.mark.parametrize("version", [2, 3, 5])
def test_a_transaction_takes_offsets_of_a_member_in_its_epoch(
    client: RawClient, joined: Member, topic: str, transactional_id: str, version: int
) -> None:
    group, epoch = joined.group, joined.epoch

    commit = transactional_commit(client, version, transactional_id, group, topic)
    assert commit("", -1) == E.NONE
    if version >= 3:
        assert commit("a", epoch) == E.NONE
        for wrong in (epoch + 1, epoch - 1, -1):
            assert commit("a", wrong) == E.ILLEGAL_GENERATION
        for nobody, wrong in (("x", epoch), ("", epoch)):
            assert commit(nobody, wrong) == E.UNKNOWN_MEMBER_ID


def test_offsets_of_a_topic_that_the_topology_reads_are_not_deleted(
    client: RawClient, joined: Member, topic: str, new_topic: Callable[..., str]
) -> None:
    group, other = joined.group, new_topic()
    assert commit(client, 9, group, "a", joined.epoch, other) == E.NONE

    assert delete_offset(client, group, topic) == (E.NONE, [E.GROUP_SUBSCRIBED_TO_TOPIC])
    assert delete_offset(client, group, other) == (E.NONE, [E.NONE])
    assert fetch(client, 9, group, None, -1, other) == (E.NONE, -1)
    joined.leave()
    assert delete_offset(client, group, topic) == (E.NONE, [E.NONE])


# Groups of other kinds


def classic_join(client: RawClient, version: int, group: str) -> ErrorCode:
    protocols = [JoinGroupRequestProtocol("range", b"\0\1\0\0\0\0\0\0\0\0")]
    request = JoinGroupRequest(group_id=group, session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols)
    if version >= 1:
        request.rebalance_timeout_ms = 5_000
    return ErrorCode(client.call(request, version).error_code)


def join_as_consumer(client: RawClient, group: str, epoch: int = JOINS) -> tuple[ErrorCode, str]:
    request = ConsumerGroupHeartbeatRequest(group, "c", epoch, None, None, 5_000, ["t"], None, None, [])
    answer = client.call(request, 1)
    return ErrorCode(answer.error_code), unquoted(answer.error_message)


def join_as_share(client: RawClient, group: str) -> tuple[ErrorCode, str]:
    answer = client.call(ShareGroupHeartbeatRequest(group, "s", JOINS, None, ["t"]), 1)
    return ErrorCode(answer.error_code), unquoted(answer.error_message)


@pytest.mark.parametrize("version", range(7))
def test_a_streams_group_is_no_classic_group(client: RawClient, joined: Member, version: int) -> None:
    (found,) = client.call(DescribeGroupsRequest([joined.group]), version).groups
    assert (found.group_state, found.protocol_type) == ("Dead", "")
    if version >= 6:
        assert found.error_code == E.GROUP_ID_NOT_FOUND
        assert unquoted(found.error_message) == f"Group {joined.group} is not a classic group."
    else:
        assert found.error_code == E.NONE


def test_a_streams_group_is_of_no_other_kind(client: RawClient, joined: Member) -> None:
    group = joined.group
    for request, version, kind in (
        (ConsumerGroupDescribeRequest([group]), 1, "consumer"),
        (ShareGroupDescribeRequest([group]), 1, "share"),
    ):
        (found,) = client.call(request, version).groups
        assert (found.error_code, unquoted(found.error_message)) == (
            E.GROUP_ID_NOT_FOUND,
            f"Group {group} is not a {kind} group.",
        )
    is_no_consumer_group = (E.GROUP_ID_NOT_FOUND, f"Group {group} is not a consumer group.")
    assert join_as_consumer(client, group) == join_as_consumer(client, group, 1) == is_no_consumer_group
    assert join_as_share(client, group) == (E.GROUP_ID_NOT_FOUND, f"Group {group} is not a share group.")
    for version in (0, 3, 9):
        assert classic_join(client, version, group) == E.INCONSISTENT_GROUP_PROTOCOL
    assert client.call(SyncGroupRequest(group, 1, "a"), 4).error_code == E.UNKNOWN_MEMBER_ID
    assert client.call(HeartbeatRequest(group, 1, "a"), 4).error_code == E.UNKNOWN_MEMBER_ID
    assert client.call(LeaveGroupRequest(group, "a"), 2).error_code == E.UNKNOWN_MEMBER_ID
    (left,) = client.call(LeaveGroupRequest(group, members=[MemberIdentity("a")]), 5).members
    assert left.error_code == E.UNKNOWN_MEMBER_ID
    joined.beat()


def test_a_group_of_another_kind_is_no_streams_group(
    client: RawClient, topic: str, new_group: Callable[[str], str]
) -> None:
    classic, consumer, share = (new_group(it) for it in ("classic", "consumer", "share"))
    assert classic_join(client, 3, classic) == E.NONE
    assert join_as_consumer(client, consumer)[0] == join_as_share(client, share)[0] == E.NONE
    for group in (classic, consumer, share):
        message = f"Group {group} is not a streams group."
        member = Member(client, group, "a", topology(topic))
        for answer in (member.send_join(), member.send_heartbeat(1), member.send_heartbeat(LEAVES)):
            assert code(answer) == E.GROUP_ID_NOT_FOUND
            assert unquoted(answer.error_message) == message
        found = described(client, group)
        assert (found.error_code, unquoted(found.error_message)) == (E.GROUP_ID_NOT_FOUND, message)


def test_an_empty_classic_group_becomes_a_streams_group_and_back_and_keeps_its_offsets(
    client: RawClient, member: Member, topic: str
) -> None:
    group = member.group
    assert commit(client, 9, group, "", -1, topic) == E.NONE
    member.join()
    assert listed(client, group, 5) == ["Stable", "streams"]
    assert fetch(client, 9, group, None, -1, topic) == (E.NONE, 5)
    member.leave()
    is_no_consumer_group = (E.GROUP_ID_NOT_FOUND, f"Group {group} is not a consumer group.")
    assert join_as_consumer(client, group) == is_no_consumer_group
    assert listed(client, group, 5) == ["Empty", "streams"]
    assert classic_join(client, 3, group) == E.NONE
    assert code(member.send_join()) == E.GROUP_ID_NOT_FOUND
    assert fetch(client, 9, group, None, -1, topic) == (E.NONE, 5)


# Where the protocol is turned off, or limited


def update(client: RawClient, level: int, kind: int) -> ErrorCode:
    wanted = FeatureUpdateKey(STREAMS_VERSION, level, upgrade_type=kind)
    return ErrorCode(client.call(UpdateFeaturesRequest(10_000, [wanted]), 2).error_code)


def level(client: RawClient) -> int:
    answer = client.call(ApiVersionsRequest("tests", "1.0"), 4)
    assert {HEARTBEAT, DESCRIBE} <= {it.api_key for it in answer.api_keys}  # they are listed in any case
    return next((it.max_version_level for it in answer.finalized_features if it.name == STREAMS_VERSION), 0)


def test_without_the_feature_there_are_no_streams_groups_until_it_is_back() -> None:
    with brokers.restartable_broker() as broker, coordinator(broker.bootstrap, "the-group") as client:
        member = Member(client, "the-group", "a", topology("t"))
        member.join()
        assert level(client) == 1
        assert update(client, 2, UPGRADE) == update(client, 0, UPGRADE) == E.INVALID_UPDATE_VERSION
        assert update(client, 0, SAFE_DOWNGRADE) == E.NONE
        eventually(lambda: level(client) == 0, "the feature is off")
        assert code(member.send_heartbeat(member.epoch)) == E.UNSUPPORTED_VERSION
        assert code(member.send_join(group_id="")) == E.UNSUPPORTED_VERSION
        assert code(member.send_join(group_id="another")) == E.UNSUPPORTED_VERSION
        assert described(client, "the-group").error_code == E.UNSUPPORTED_VERSION
        assert listed(client, "the-group", 5, types=("streams",)) == ["NotReady", "streams"]
        assert update(client, 1, UPGRADE) == E.NONE
        eventually(lambda: level(client) == 1, "the feature is on")
        member.beat()


def test_a_broker_without_the_protocol_refuses_it() -> None:
    more = {"group_coordinator_rebalance_protocols": "classic,consumer"}
    with brokers.restartable_broker(**more) as broker, RawClient(broker.bootstrap) as client:
        for group in ("g", ""):
            assert code(Member(client, group, "a", topology("t")).send_join()) == E.UNSUPPORTED_VERSION
            assert described(client, group).error_code == E.UNSUPPORTED_VERSION
        assert level(client) == 1


def test_a_broker_limits_the_members_and_the_standby_tasks_of_a_group() -> None:
    more = {"group_streams_max_size": "1", "group_streams_max_standby_replicas": "1"}
    with brokers.restartable_broker(**more) as broker, coordinator(broker.bootstrap, "g") as client:
        member = Member(client, "g", "a", topology("t"))
        member.join()
        assert error(Member(client, "g", "b", topology("t")).send_join()) == (
            E.GROUP_MAX_SIZE_REACHED,
            "The streams group has reached its maximum capacity of 1 members.",
        )
        found, _ = configs.altered(client, configs.GROUP, "g", STANDBYS, "2")
        assert found == E.INVALID_CONFIG


# Afterwards


def test_a_group_outlives_a_restart_and_a_kill(
    restartable_broker: RestartableBroker, unique: Callable[[str], str]
) -> None:
    bootstrap = restartable_broker.bootstrap
    name, group, changelog = unique("topic"), unique("group"), unique("changelog")
    topics.create(bootstrap, name, partitions=2)
    with coordinator(bootstrap, group) as client:
        first, second = (Member(client, group, it, stateful(name, changelog)) for it in "ab")
        second.join()  # until its source is known there, it can have no endpoint in Apache Kafka
        second.settle(2)
        first.join(user_endpoint=endpoint("host", 1))
        first.settle(1, others=[second])
    epoch = first.epoch
    for again in (restartable_broker.restart, restartable_broker.kill_and_restart):
        again()
        with coordinator(bootstrap, group) as client:
            found = described(client, group)
            of = {it.member_id: (it.member_epoch, received(it.assignment.active_tasks)) for it in found.members}
            assert of == {"a": (epoch, first.active), "b": (epoch, second.active)}
            assert (found.group_state, found.group_epoch) == ("Stable", epoch)
            for member in (first, second):
                member.client = client
                message = member.confirm(endpoint_information_epoch=-1)
                assert (member.received_tasks, member.epoch, member.statuses) == (None, epoch, [])
                assert endpoints(message) == {("host", 1): ({name: first.active["0"]}, {})}
            assert error(Member(client, group, "c", topology(name)).send_join()) == (
                E.INVALID_REQUEST,
                "Topology updates are not supported yet.",
            )

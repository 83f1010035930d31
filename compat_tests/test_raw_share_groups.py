"""The coordinator of share groups (KIP-932) over the requests of members and administrators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import pytest
from kwire_protocol.errors import ErrorCode as E
from kwire_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from kwire_protocol.messages.describe_groups import DescribeGroupsRequest
from kwire_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
)
from kwire_protocol.messages.list_groups import ListGroupsRequest
from kwire_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire_protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from kwire_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kwire_protocol.wire import NULL_UUID

from testkit.basics.message_text import unquoted
from testkit.basics.waiting import eventually
from testkit.clients import confluent
from testkit.raw import topics
from testkit.raw.client import RawClient
from testkit.raw.share_states import share_partition, topic_id
from testkit.servers import brokers
from testkit.servers.brokers import Broker

pytestmark = pytest.mark.asks_one_node

JOINING, LEAVING = 0, -1
INVALID_MEMBER_ID = None if brokers.IS_KAFKA else "Invalid member id in the request."


@attrs.define(eq=False)
class Member:
    """A member of a share group. `assigned` is its last assignment: topic ids and partitions."""

    client: RawClient
    group: str
    member_id: str
    epoch: int = JOINING
    assigned: dict[bytes, list[int]] = attrs.field(factory=dict)

    def send(self, epoch: int | None = None, topic_names: list[str] | None = None) -> ShareGroupHeartbeatResponse:
        wanted = self.epoch if epoch is None else epoch
        request = ShareGroupHeartbeatRequest(self.group, self.member_id, wanted, None, topic_names)
        answer: ShareGroupHeartbeatResponse = self.client.call(request, 1)
        if answer.error_code == E.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {it.topic_id: sorted(it.partitions) for it in answer.assignment.topic_partitions}
        return answer

    def join(self, *topic_names: str) -> ShareGroupHeartbeatResponse:
        return self.send(JOINING, list(topic_names))

    def settle(self, partitions: int) -> None:
        """Sends heartbeats until it has so many partitions. The group's assignment interval is 1 s."""

        def has_them() -> bool:
            assert self.send().error_code == E.NONE
            return sum(map(len, self.assigned.values())) == partitions

        eventually(has_them, f"{partitions} partitions", pause_s=0.3)


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def group(group: str, client: RawClient) -> str:
    """The name of an unused group whose coordinator answers."""
    passing = (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR)
    eventually(lambda: describe(client, group).error_code not in passing, "a coordinator")
    return group


@pytest.fixture
def member(client: RawClient, group: str) -> Member:
    return Member(client, group, "member-1")


def describe(client: RawClient, group: str) -> DescribedGroup:
    (described,) = client.call(ShareGroupDescribeRequest([group]), 1).groups
    assert isinstance(described, DescribedGroup)
    return described


def alter(client: RawClient, group: str, offsets: dict[str, dict[int, int]]) -> AlterShareGroupOffsetsResponse:
    wanted = [
        AlterShareGroupOffsetsRequestTopic(
            name, [AlterShareGroupOffsetsRequestPartition(*each) for each in of_topic.items()]
        )
        for name, of_topic in offsets.items()
    ]
    answer: AlterShareGroupOffsetsResponse = client.call(AlterShareGroupOffsetsRequest(group, wanted), 0)
    return answer


def make_group(client: RawClient, group: str, topic: str) -> None:
    """Creates a group by altering offsets, once the coordinator has the topic: Apache Kafka's may get it later."""
    made = {(topic, 0): E.NONE}
    eventually(lambda: errors(alter(client, group, {topic: {0: 0}})) == made, "a group with offsets")


def errors(answer: AlterShareGroupOffsetsResponse) -> dict[tuple[str, int], int]:
    assert answer.error_code == E.NONE, answer.error_message
    return {(it.topic_name, part.partition_index): part.error_code for it in answer.responses for part in it.partitions}


def offsets(
    client: RawClient, group: str, wanted: dict[str, list[int]] | None = None, *, version: int = 1
) -> DescribeShareGroupOffsetsResponseGroup:
    of_topics = None if wanted is None else [DescribeShareGroupOffsetsRequestTopic(*each) for each in wanted.items()]
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, of_topics)])
    (described,) = client.call(request, version).groups
    assert isinstance(described, DescribeShareGroupOffsetsResponseGroup)
    return described


def numbers(described: DescribeShareGroupOffsetsResponseGroup) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """Start offset, leader epoch, lag and error of each partition."""
    assert described.error_code == E.NONE, described.error_message
    return {
        (topic.topic_name, it.partition_index): (it.start_offset, it.leader_epoch, it.lag, it.error_code)
        for topic in described.topics
        for it in topic.partitions
    }


def delete_offsets(client: RawClient, group: str, *names: str) -> DeleteShareGroupOffsetsResponse:
    request = DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic(it) for it in names])
    answer: DeleteShareGroupOffsetsResponse = client.call(request, 0)
    return answer


def delete_group(client: RawClient, group: str) -> int:
    error: int = client.call(DeleteGroupsRequest([group]), 2).results[0].error_code
    return error


def test_the_versions_are_kafkas(client: RawClient) -> None:
    answer = client.call(ApiVersionsRequest("tests", "1.0"), 4)
    served = {it.api_key: (it.min_version, it.max_version) for it in answer.api_keys}
    assert {key: served[key] for key in (76, 77, 90, 91, 92)} == {
        76: (1, 1),
        77: (1, 1),
        90: (0, 1),
        91: (0, 0),
        92: (0, 0),
    }
    features = {it.name: (it.min_version, it.max_version) for it in answer.supported_features}
    levels = {it.name: it.max_version_level for it in answer.finalized_features}
    assert (features["share.version"], levels["share.version"]) == ((0, 1), 1)


# Members


def test_a_member_gets_its_partitions_after_their_states_are_initialized(
    broker: Broker, client: RawClient, member: Member, topic: str
) -> None:
    joined = member.join(topic)
    assert joined.error_code == E.NONE, joined.error_message
    assert (joined.member_id, joined.heartbeat_interval_ms) == ("member-1", 200)
    assert joined.assignment is not None
    member.settle(1)
    assert member.assigned == {topic_id(client, topic): [0]}
    quiet = member.send()
    assert (quiet.member_epoch, quiet.assignment) == (member.epoch, None)
    full = member.send(topic_names=[topic])
    assert full.assignment is not None
    described = describe(client, member.group)
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert described.group_epoch == described.assignment_epoch == member.epoch
    # Apache Kafka's coordinator may notice a topic after the member that joined for it, which is an epoch more.
    assert member.epoch == 3 or (brokers.IS_KAFKA and member.epoch == 4)
    (of_member,) = described.members
    assert (of_member.member_id, of_member.member_epoch, of_member.rack_id) == ("member-1", member.epoch, None)
    assert (of_member.client_host, of_member.subscribed_topic_names) == ("/127.0.0.1", [topic])
    assert [(it.topic_name, it.partitions) for it in of_member.assignment.topic_partitions] == [(topic, [0])]
    listed = client.call(ListGroupsRequest([], ["share"]), 5).groups
    found = [it for it in listed if it.group_id == member.group]
    assert [(it.protocol_type, it.group_state, it.group_type) for it in found] == [("share", "Stable", "share")]


def test_the_epochs_of_a_group_count_from_one(client: RawClient, group: str, topic: str) -> None:
    make_group(client, group, topic)
    made = describe(client, group)
    assert (made.group_state, made.group_epoch, made.assignment_epoch) == ("Empty", 1, 1)
    member = Member(client, group, "member-1")
    member.join(topic)
    joined = describe(client, group)
    assert (joined.group_state, joined.group_epoch, joined.assignment_epoch) == ("Stable", 2, 2)
    assert (member.epoch, joined.members[0].member_epoch) == (2, 2)
    member.send(LEAVING)
    left = describe(client, group)
    assert (left.group_state, left.group_epoch, left.assignment_epoch) == ("Empty", 3, 2)


def test_members_share_a_partition(client: RawClient, member: Member, topic: str) -> None:
    other = Member(client, member.group, "member-2")
    member.join(topic)
    member.settle(1)
    other.join(topic)
    other.settle(1)
    member.settle(1)
    assert member.assigned == other.assigned
    assert other.send(LEAVING).error_code == E.NONE
    assert describe(client, member.group).members[0].member_id == "member-1"


def test_a_member_in_another_epoch_is_fenced(client: RawClient, member: Member, topic: str) -> None:
    member.join(topic)
    member.settle(1)
    epoch = member.epoch
    assert member.send(epoch + 1).error_code == E.FENCED_MEMBER_EPOCH
    assert member.send(epoch - 1).error_code == E.NONE, "the answer with its epoch may have been lost"
    assert member.send(JOINING, [topic]).member_epoch == epoch, "a member that joins again keeps its epoch"
    stranger = Member(client, member.group, "member-3")
    assert stranger.send(1).error_code == E.UNKNOWN_MEMBER_ID
    assert stranger.send(LEAVING).error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "named", "message"),
    [
        ("", 0, ["t"], INVALID_MEMBER_ID),
        ("m" * 37, 0, ["t"], INVALID_MEMBER_ID),
        (" ", 0, ["t"], "MemberId can't be empty."),
        ("m", 0, None, "SubscribedTopicNames must be set in first request."),
        ("m", 0, [], "SubscribedTopicNames must be set in first request."),
        ("m", -2, None, "MemberEpoch is invalid."),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(
    client: RawClient, group: str, member_id: str, epoch: int, named: list[str] | None, message: str | None
) -> None:
    answer = Member(client, group, member_id).send(epoch, named)
    assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, message)


def test_a_group_that_is_not_there_is_not_found(client: RawClient, member: Member) -> None:
    for epoch in (LEAVING, 1):
        answer = member.send(epoch)
        assert answer.error_code == E.GROUP_ID_NOT_FOUND
    assert describe(client, member.group).error_code == E.GROUP_ID_NOT_FOUND
    assert describe(client, "").error_code == E.INVALID_GROUP_ID


def join_as_consumer(client: RawClient, group: str) -> int:
    request = ConsumerGroupHeartbeatRequest(group, "c", JOINING, None, None, 5_000, ["t"], None, None, [])
    error: int = client.call(request, 1).error_code
    return error


def test_a_share_group_is_of_no_other_kind(
    client: RawClient, member: Member, topic: str, new_group: Callable[[], str]
) -> None:
    member.join(topic)
    assert join_as_consumer(client, member.group) == E.GROUP_ID_NOT_FOUND
    other = new_group()
    assert join_as_consumer(client, other) == E.NONE
    described = describe(client, other)
    assert described.error_code == E.GROUP_ID_NOT_FOUND
    assert unquoted(described.error_message) == f"Group {other} is not a share group."
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequest(
        group_id=member.group, topics=[OffsetCommitRequestTopic(topic, partitions=[partition])]
    )
    (of_topic,) = client.call(commit, 9).topics
    assert of_topic.partitions[0].error_code == E.GROUP_ID_NOT_FOUND
    (classic,) = client.call(DescribeGroupsRequest([member.group]), 6).groups
    assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")


def test_only_a_group_without_members_is_deleted_and_with_its_states(
    broker: Broker, client: RawClient, member: Member, topic: str
) -> None:
    member.join(topic)
    member.settle(1)
    with share_partition(broker.bootstrap, member.group, topic) as state:
        initialized_in = member.epoch - 1
        assert initialized_in == 2 or (brokers.IS_KAFKA and initialized_in == 3)
        assert state.summary()[:2] == (E.NONE, initialized_in)
        assert delete_group(client, member.group) == E.NON_EMPTY_GROUP
        assert member.send(LEAVING).member_epoch == LEAVING
        assert describe(client, member.group).group_state == "Empty"
        assert delete_group(client, member.group) == E.NONE
        assert state.summary()[:2] == (E.NONE, 0)
    assert describe(client, member.group).error_code == E.GROUP_ID_NOT_FOUND
    assert delete_group(client, member.group) == E.GROUP_ID_NOT_FOUND


def test_a_topic_that_grows_is_assigned_in_full(broker: Broker, member: Member, topic: str) -> None:
    member.join(topic)
    member.settle(1)
    topics.grow(broker.bootstrap, topic, 3)
    member.settle(3)


# Offsets


def test_offsets_are_altered_and_described(client: RawClient, member: Member, topic: str) -> None:
    group = member.group
    member.join(topic)
    member.settle(1)
    refused = alter(client, group, {topic: {0: 5}})
    assert (refused.error_code, bool(refused.error_message)) == (E.NON_EMPTY_GROUP, True)
    # Nobody has fetched yet, so the leader has not chosen a start offset.
    assert numbers(offsets(client, group)) == {(topic, 0): (-1, 0, -1, E.NONE)}
    member.send(LEAVING)
    answer = alter(client, group, {topic: {0: 0, 7: 1}, "no-such-topic": {0: 1}})
    assert errors(answer) == {
        (topic, 0): E.NONE,
        (topic, 7): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such-topic", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    if not brokers.IS_KAFKA:  # which fails as a whole
        assert errors(alter(client, group, {topic: {-1: 1}})) == {(topic, -1): E.UNKNOWN_TOPIC_OR_PARTITION}
    ids = {it.topic_name: it.topic_id for it in answer.responses}
    assert ids == {topic: topic_id(client, topic), "no-such-topic": NULL_UUID}
    assert numbers(offsets(client, group)) == {(topic, 0): (0, 0, 0, E.NONE)}
    assert numbers(offsets(client, group, {topic: [0]}, version=0)) == {(topic, 0): (0, 0, -1, E.NONE)}
    nothing = (-1, 0, -1, E.NONE)
    assert numbers(offsets(client, group, {"no-such-topic": [3]})) == {("no-such-topic", 3): nothing}
    if not brokers.IS_KAFKA:  # which does not answer
        assert numbers(offsets(client, group, {topic: [3]})) == {(topic, 3): nothing}
    assert errors(alter(client, group, {topic: {0: 7}})) == {(topic, 0): E.NONE}
    assert numbers(offsets(client, group)) == {(topic, 0): (7, 0, -7, E.NONE)}, "beyond the end of the log"


def test_an_alteration_that_the_share_coordinator_refuses_has_an_error_message(
    broker: Broker, client: RawClient, group: str, topic: str
) -> None:
    make_group(client, group, topic)
    with share_partition(broker.bootstrap, group, topic) as state:
        assert state.initialize(state_epoch=99) is E.NONE
    answer = alter(client, group, {topic: {0: 1, 7: 1}})
    assert errors(answer) == {(topic, 0): E.FENCED_STATE_EPOCH, (topic, 7): E.UNKNOWN_TOPIC_OR_PARTITION}
    assert all(it.error_message for it in answer.responses[0].partitions)


def test_a_lag_is_counted_from_whoever_leads_the_partition(
    broker: Broker, client: RawClient, group: str, unique: Callable[[str], str]
) -> None:
    nodes = brokers.NODES
    name = unique("led-elsewhere")
    topics.create(broker.bootstrap, name, replicas=[nodes[-1], *nodes[:-1]])
    confluent.fill(broker.bootstrap, name, [b"a", b"b", b"c"])
    assert errors(alter(client, group, {name: {0: 1}})) == {(name, 0): E.NONE}
    eventually(lambda: numbers(offsets(client, group)) == {(name, 0): (1, 0, 2, E.NONE)}, "a lag of 2")


def test_offsets_are_deleted_by_topic(
    client: RawClient, member: Member, topic: str, new_topic: Callable[..., str]
) -> None:
    group, other = member.group, new_topic()
    make_group(client, group, other)
    member.join(topic)
    member.settle(1)
    refused = delete_offsets(client, group, topic)
    assert (refused.error_code, bool(refused.error_message)) == (E.NON_EMPTY_GROUP, True)
    member.send(LEAVING)
    found = {it.topic_name: (it.error_code, it.topic_id) for it in delete_offsets(client, group, topic, "no").responses}
    assert found == {
        topic: (E.NONE, topic_id(client, topic)),
        "no": (E.UNKNOWN_TOPIC_OR_PARTITION, NULL_UUID),
    }
    assert numbers(offsets(client, group)) == {(other, 0): (0, 0, 0, E.NONE)}
    assert numbers(offsets(client, group, {topic: [0]})) == {(topic, 0): (-1, 0, -1, E.NONE)}
    again = delete_offsets(client, group, topic, other)
    assert {it.topic_name: (it.error_code, it.error_message) for it in again.responses} == {
        topic: (E.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."),
        other: (E.NONE, None),
    }


def test_a_group_is_made_by_an_alteration_and_by_nothing_else(
    client: RawClient, member: Member, group: str, topic: str
) -> None:
    assert errors(alter(client, group, {"no-such-topic": {0: 1}})) == {
        ("no-such-topic", 0): E.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert delete_offsets(client, group, topic).error_code == E.GROUP_ID_NOT_FOUND
    assert numbers(offsets(client, group)) == {}
    assert numbers(offsets(client, group, {topic: [0]})) == {(topic, 0): (-1, 0, -1, E.NONE)}
    make_group(client, group, topic)
    assert describe(client, group).group_state == "Empty"
    member.join(topic)
    member.settle(1)

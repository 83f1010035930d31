"""Topologies that members of streams groups describe (KIP-1331): requested, stored, refused and shown.

Where kwire and Apache Kafka 4.4 differ on purpose:

* After a restart kwire requests again what it had in memory. Apache Kafka goes by its record of a stored description,
  so its in-memory plugin has nothing to show until the group is deleted.
* kwire stores descriptions of up to 1 MiB, and 64 MiB of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Message
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal import streams_group as records
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.delete_groups import DeleteGroupsRequest
from kwire_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire_protocol.messages.streams_group_heartbeat import TaskOffset
from kwire_protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

from kwire.groups.records import read_head
from testkit.clients.confluent import reading, take_until
from testkit.raw import nodes, topics
from testkit.raw.client import RawClient
from testkit.raw.streams_members import STALE, Member, coordinator, error, topology
from testkit.raw.topologies import AVAILABLE, NOT_REQUESTED, NOT_STORED, PLUGIN, VERSION, described
from testkit.servers import brokers
from testkit.servers.brokers import Broker, RestartableBroker

E = ErrorCode
HEARTBEAT, DESCRIBE, UPDATE = 88, 89, 93
SOURCE, PROCESSOR, SINK = 1, 2, 3
OFFSETS_PARTITIONS = int(brokers.SETTINGS["offsets.topic.num.partitions"])

pytestmark = [
    pytest.mark.asks_one_node,
    pytest.mark.skipif(not brokers.IS_4_4, reason="Apache Kafka 4.3.1 has no descriptions of topologies (KIP-1331)"),
]


@pytest.fixture(scope="module")
def describing() -> Iterator[RestartableBroker]:
    """A broker that keeps what is described in memory."""
    with brokers.restartable_broker(group_streams_topology_description_plugin_class=PLUGIN) as broker:
        yield broker


@pytest.fixture
def member(describing: RestartableBroker, group: str, unique: Callable[[str], str]) -> Iterator[Member]:
    """The only member of a group."""
    yield from joined(describing, group, unique)


def joined(broker: Broker, group: str, unique: Callable[[str], str]) -> Iterator[Member]:
    topic = unique("t")
    topics.create(broker.bootstrap, topic)
    with coordinator(broker.bootstrap, group) as client:
        member = Member(client, group, "m", topology(topic), version=VERSION)
        member.join()
        yield member


def description(*sources: str) -> TopologyDescription:
    nodes = [
        TopologyDescriptionNode("in", SOURCE, source_topics=[*sources], successors=["count"]),
        TopologyDescriptionNode("count", PROCESSOR, stores=["counts"], successors=["out"]),
        TopologyDescriptionNode("out", SINK, sink_topic="counted"),
    ]
    store = TopologyDescriptionGlobalStore(
        TopologyDescriptionNode("g", SOURCE, source_topics=["all"], successors=["gp"]),
        TopologyDescriptionNode("gp", PROCESSOR, stores=["names"]),
    )
    return TopologyDescription([TopologyDescriptionSubtopology("0", nodes)], [store])


def update(
    member: Member, sent: TopologyDescription | None = None, *, epoch: int = 0, **other: str
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    about = {"group_id": member.group, "member_id": member.member_id, **other}
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        topology_epoch=epoch, topology_description=sent or description("t"), **about
    )
    answer = member.client.call(request, 0)
    assert isinstance(answer, StreamsGroupTopologyDescriptionUpdateResponse)
    return answer


def refusal(answer: StreamsGroupTopologyDescriptionUpdateResponse) -> tuple[ErrorCode, str | None]:
    return ErrorCode(answer.error_code), answer.error_message


def status(member: Member) -> int:
    found = described(member.client, member.group)
    assert (found.topology_description is not None) == (found.topology_description_status == AVAILABLE)
    return found.topology_description_status


def test_the_versions_of_4_4_are_served(describing: RestartableBroker) -> None:
    with RawClient(describing.bootstrap) as client:
        served = {it.api_key: it for it in client.call(ApiVersionsRequest("test", "1"), 4).api_keys}
    assert [(served[key].min_version, served[key].max_version) for key in (HEARTBEAT, DESCRIBE, UPDATE)] == [
        (0, 1),
        (0, 1),
        (0, 0),
    ]


def test_a_topology_is_solicited_and_described(member: Member) -> None:
    assert member.is_solicited
    assert status(member) == NOT_STORED
    assert refusal(update(member)) == (E.NONE, None)
    found = described(member.client, member.group)
    assert (found.topology_description_status, found.assignor_name) == (AVAILABLE, "sticky")
    stored = found.topology_description
    assert stored is not None
    assert stored.subtopologies[0].subtopology_id == "0"
    nodes = {it.name: it for it in stored.subtopologies[0].nodes}
    assert [(it.name, it.node_type) for it in nodes.values()] == [("in", SOURCE), ("count", PROCESSOR), ("out", SINK)]
    assert (nodes["in"].source_topics, nodes["in"].successors) == (["t"], ["count"])
    assert (nodes["count"].stores, nodes["count"].successors) == (["counts"], ["out"])
    assert (nodes["out"].sink_topic, nodes["out"].successors) == ("counted", [])
    (store,) = stored.global_stores
    assert (store.source.source_topics, store.source.successors) == (["all"], ["gp"])
    assert (store.processor.name, store.processor.stores) == ("gp", ["names"])
    member.beat()
    assert not member.is_solicited


def test_who_does_not_want_a_description_gets_none(member: Member, describing: RestartableBroker) -> None:
    update(member)
    found = described(member.client, member.group, wanted=False)
    assert (found.topology_description_status, found.topology_description) == (NOT_REQUESTED, None)
    old = described(member.client, member.group, version=0, wanted=False)
    assert (old.error_code, old.group_id, old.assignor_name) == (E.NONE, member.group, None)
    for group in ("there-is-no-such-group", ""):
        answers = [described(client, group) for client in nodes.each(describing.bootstrap)]
        assert {(it.topology_description_status, it.topology_description) for it in answers} == {(NOT_REQUESTED, None)}
        codes = {it.error_code for it in answers} - {E.NOT_COORDINATOR}
        assert codes in ({E.GROUP_ID_NOT_FOUND}, {E.INVALID_GROUP_ID})


def test_one_member_is_solicited_at_a_time(member: Member) -> None:
    other = Member(member.client, member.group, "other", member.topology, version=VERSION)
    other.join()
    assert (member.is_solicited, other.is_solicited) == (True, False)
    member.beat()
    assert not member.is_solicited, "not again for half a minute"


def test_members_of_version_0_are_not_solicited(describing: RestartableBroker, member: Member) -> None:
    group = f"{member.group}-old"
    with coordinator(describing.bootstrap, group) as client:
        old = Member(client, group, "old", member.topology)
        old.join()
        assert not old.is_solicited
        new = Member(client, group, "new", member.topology, version=VERSION)
        new.join()
        assert new.is_solicited
        old.leave()


def test_members_with_an_old_topology_are_not_solicited(describing: RestartableBroker, member: Member) -> None:
    group = f"{member.group}-newer"
    source = member.topology.subtopologies[0].source_topics[0]
    with coordinator(describing.bootstrap, group) as client:
        newer = Member(client, group, "newer", topology(source, epoch=3))
        newer.join()
        stale = Member(client, group, "stale", topology(source, epoch=2), version=VERSION)
        stale.join()
        assert STALE in dict(stale.statuses)
        assert not stale.is_solicited


def test_an_invalid_description_is_refused_with_the_reason(member: Member) -> None:
    assert refusal(update(member, member_id="")) == (E.INVALID_REQUEST, "MemberId can't be empty.")
    assert refusal(update(member, group_id="")) == (E.INVALID_REQUEST, "GroupId can't be empty.")
    assert update(member, group_id="none-such").error_code in (E.GROUP_ID_NOT_FOUND, E.NOT_COORDINATOR)
    assert update(member, member_id="stranger").error_code == E.UNKNOWN_MEMBER_ID
    for epoch in (-1, 1):
        assert refusal(update(member, epoch=epoch)) == (
            E.INVALID_REQUEST,
            f"Topology epoch {epoch} does not match the group's current topology epoch 0.",
        )
    for node_type in (0, 4, -1):
        wrong = description("t")
        wrong.subtopologies[0].nodes[0].node_type = node_type
        assert refusal(update(member, wrong)) == (E.INVALID_REQUEST, f"Unknown topology node type: {node_type}")
    wrong = description("t")
    wrong.global_stores[0].source.node_type = SINK
    assert refusal(update(member, wrong)) == (
        E.INVALID_REQUEST,
        "Global store must be composed of a source and a processor node.",
    )
    assert status(member) == NOT_STORED


def test_a_description_of_nothing_and_one_that_follows_are_stored(member: Member) -> None:
    assert update(member, TopologyDescription([], [])).error_code == E.NONE
    assert status(member) == AVAILABLE
    assert update(member, description("other")).error_code == E.NONE
    found = described(member.client, member.group).topology_description
    assert found is not None
    assert found.subtopologies[0].nodes[0].source_topics == ["other"]


def test_a_description_is_there_until_the_group_is_deleted(member: Member) -> None:
    group = member.group
    update(member)
    member.leave()
    assert not member.is_solicited
    assert status(member) == AVAILABLE
    (deleted,) = member.client.call(DeleteGroupsRequest([group]), 3).results
    assert (deleted.error_code, deleted.error_message) == (E.NONE, None)
    assert described(member.client, group).error_code == E.GROUP_ID_NOT_FOUND
    again = Member(member.client, group, "again", member.topology, version=VERSION)
    again.join()
    assert again.is_solicited, "it is another group"
    assert status(again) == NOT_STORED


def test_a_classic_group_takes_the_place_of_an_empty_one(member: Member) -> None:
    update(member)
    member.leave()
    protocol = [JoinGroupRequestProtocol("range", b"")]
    request = JoinGroupRequest(member.group, 10_000, 10_000, "", None, "consumer", protocol)
    answer = member.client.call(request, 3)
    assert (answer.error_code, answer.generation_id) == (E.NONE, 1)
    assert described(member.client, member.group).error_code == E.GROUP_ID_NOT_FOUND


def test_offsets_of_tasks_are_taken(member: Member) -> None:
    """From v1 on members report them unsolicited, and they are described."""
    member.confirm(task_offsets=[TaskOffset("0", 0, 17)], task_end_offsets=[TaskOffset("0", 0, 18)])
    answer = member.beat()
    assert (answer.acceptable_recovery_lag_legacy, answer.task_offset_interval_ms) == (0, 60_000)
    assert answer.acceptable_recovery_lag == 10_000
    (shown,) = described(member.client, member.group).members
    offsets = [
        [(it.subtopology_id, it.partition, it.offset) for it in of]
        for of in (shown.task_offsets, shown.task_end_offsets)
    ]
    assert offsets == [[("0", 0, 17)], [("0", 0, 18)]]


def test_an_offset_of_a_task_that_comes_twice_is_refused(member: Member) -> None:
    refused = member.send_heartbeat(member.epoch, task_offsets=[TaskOffset("0", 0, 17)] * 2)
    assert error(refused) == (
        E.INVALID_REQUEST,
        "Task offsets contain a duplicate entry for subtopology 0 and partition 0.",
    )


def test_the_records_of_a_group_have_what_was_stored(describing: RestartableBroker, member: Member) -> None:
    read: list[Message] = []

    def recorded() -> tuple[int, int, int] | None:
        """The group's last epoch, and the topology epochs whose descriptions were stored and refused."""
        found = None
        for record in read:
            key, value = record.key(), record.value()
            assert isinstance(key, bytes)
            record_type, its = read_head(key)
            if record_type != records.StreamsGroupMetadataKey.api_key or value is None:
                continue
            if records.StreamsGroupMetadataKey.read(its, 0).group_id == member.group:
                version, its = read_head(value)
                it = records.StreamsGroupMetadataValue.read(its, version)
                found = it.epoch, it.stored_description_topology_epoch, it.failed_description_topology_epoch
        return found

    def find(epoch: int, stored: int) -> None:
        take_until(consumer, lambda: recorded() == (epoch, stored, -1), read, f"{stored} in epoch {epoch}")

    with reading(describing.bootstrap, "__consumer_offsets", partitions=range(OFFSETS_PARTITIONS)) as consumer:
        epoch = described(member.client, member.group).group_epoch
        find(epoch, -1)
        update(member)
        find(epoch, 0)
        member.leave()
        find(epoch + 1, 0)


def test_members_are_not_solicited_if_no_plugin_is_configured(
    broker: Broker, group: str, unique: Callable[[str], str]
) -> None:
    for member in joined(broker, group, unique):
        assert not member.is_solicited
        assert status(member) == NOT_STORED
        assert refusal(update(member)) == (
            E.UNSUPPORTED_VERSION,
            "The broker has no streams group topology description plugin configured.",
        )
        member.leave()


def test_after_a_restart_a_member_describes_again(
    describing: RestartableBroker, group: str, unique: Callable[[str], str]
) -> None:
    for member in joined(describing, group, unique):
        update(member)
        assert status(member) == AVAILABLE
        describing.restart()
    with coordinator(describing.bootstrap, group) as client:
        member.client = client
        assert status(member) == NOT_STORED
        member.beat()
        assert member.is_solicited == (not brokers.IS_KAFKA)
        update(member)
        assert status(member) == AVAILABLE

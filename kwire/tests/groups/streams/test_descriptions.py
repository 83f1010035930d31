"""Topology descriptions (KIP-1331): the members solicited and when, what is stored, and its removal."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.internal import streams_group as records
from kwire_protocol.messages import streams_group_describe as described_wire
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskOffset
from kwire_protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
)
from kwire_protocol.wire import Reader, Writer

from kwire.config.definition import ConfigError
from kwire.config.server import load_config
from kwire.config.tables.coordinators import IN_MEMORY_DESCRIPTIONS
from kwire.coordinators.internal_topic import LoggedRecord
from kwire.groups.config import GroupConfig, StreamsGroupSettings
from kwire.groups.records import read_head
from kwire.groups.streams.changes import UNCERTAIN, EpochChange, StreamsEpoch
from kwire.groups.streams.descriptions import MAX_DESCRIPTION_BYTES, DescriptionStatus, NodeType
from kwire.groups.streams.group import StreamsGroup
from kwire.groups.streams.topology import StatusCode
from kwire.groups.topology_descriptions import DescriptionStore, StoredDescription
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.principal import Requester
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.streams.clients import Client, description, heartbeat, topology, update
from testkit.groups.topics import FakeTopics
from testkit.scenes.broker_in_trio import InTrio, with_broker

SECOND = 1_000
HOUR = 3_600 * SECOND
PLUGIN: Final = "group.streams.topology.description.plugin.class"


@pytest.fixture
def driver() -> ShardDriver:
    driver = ShardDriver(GroupConfig(), FakeTopics(t=2, r=2, c=2))
    driver.wall_ahead_ms = 1_700_000_000_000
    driver.streams_settings = StreamsGroupSettings(45 * SECOND, assignment_interval_ms=0, initial_rebalance_delay_ms=0)
    driver.descriptions = DescriptionStore()
    driver.restart()
    return driver


def joined(driver: ShardDriver, name: str = "a", version: int = 1) -> Client:
    client = Client(driver, name, name, version=version)
    assert client.heartbeat() is ErrorCode.NONE
    return client


def streams_group(driver: ShardDriver) -> StreamsGroup:
    group = driver.shard.groups[GROUP]
    assert isinstance(group, StreamsGroup)
    return group


def epochs(driver: ShardDriver) -> tuple[int, int]:
    """Returns the topology epochs of stored, and of refused, descriptions, as the log has them."""
    values = [
        it.value
        for it in driver.log
        if isinstance(it, LoggedRecord) and read_head(it.key)[0] == records.StreamsGroupMetadataKey.api_key
    ]
    assert values[-1] is not None
    _, reader = read_head(values[-1])
    read = records.StreamsGroupMetadataValue.read(reader, 0)
    return read.stored_description_topology_epoch, read.failed_description_topology_epoch


def described(driver: ShardDriver) -> tuple[int, described_wire.TopologyDescription | None]:
    found = driver.shard.describe_streams(GROUP, with_description=True)
    return found.topology_description_status, found.topology_description


def sizes(driver: ShardDriver) -> tuple[int, int]:
    store = driver.descriptions
    assert store is not None
    return len(store), store.size


def heartbeats_until_solicited(client: Client, within_ms: int) -> int:
    """Returns how long it took, in steps of 10 s."""
    begun = client.driver.now_ms
    while client.driver.now_ms - begun <= within_ms:
        client.driver.advance(10 * SECOND)
        client.heartbeat()
        if client.is_solicited:
            return client.driver.now_ms - begun
    raise AssertionError("it was not asked")


def test_a_member_is_solicited_describes_its_topology_and_is_not_solicited_again(driver: ShardDriver) -> None:
    client = joined(driver)
    assert client.is_solicited
    assert described(driver) == (DescriptionStatus.NOT_STORED, None)
    assert client.describe() is ErrorCode.NONE
    assert epochs(driver) == (0, -1)
    status, found = described(driver)
    assert status == DescriptionStatus.AVAILABLE
    assert found is not None
    assert [
        (it.name, it.node_type, it.source_topics, it.sink_topic, it.stores, it.successors)
        for it in found.subtopologies[0].nodes
    ] == [
        ("in", NodeType.SOURCE, ["t"], None, [], ["count"]),
        ("count", NodeType.PROCESSOR, [], None, ["c"], ["out"]),
        ("out", NodeType.SINK, [], "r", [], []),
    ]
    for _ in range(30):
        driver.advance(20 * SECOND)
        client.heartbeat()
        assert not client.is_solicited


def test_both_messages_have_the_same_fields() -> None:
    sent = description()
    sent.global_stores = [
        TopologyDescriptionGlobalStore(
            TopologyDescriptionNode("g", NodeType.SOURCE, source_topics=["all"]),
            TopologyDescriptionNode("gp", NodeType.PROCESSOR, stores=["global"]),
        )
    ]
    w = Writer()
    sent.write(w, 0)
    read = described_wire.TopologyDescription.read(Reader(w.getvalue()), 1)
    back = Writer()
    read.write(back, 1)
    assert back.getvalue() == w.getvalue()
    assert read.global_stores[0].processor.stores == ["global"]


def test_one_member_is_solicited_at_a_time_and_later_each_time(driver: ShardDriver) -> None:
    a, b = joined(driver, "a"), joined(driver, "b")
    assert (a.is_solicited, b.is_solicited) == (True, False)
    waits = []
    for _ in range(9):
        waits.append(heartbeats_until_solicited(b, 2 * HOUR))
        a.heartbeat()
        assert not a.is_solicited
    assert waits[:4] == [30 * SECOND, 60 * SECOND, 120 * SECOND, 240 * SECOND]
    assert waits[-2:] == [HOUR, HOUR]


def test_members_of_version_0_are_not_solicited(driver: ShardDriver) -> None:
    old = joined(driver, "old", version=0)
    assert not old.is_solicited
    assert joined(driver, "new").is_solicited, "no member got the request before"


def test_a_member_that_leaves_is_not_solicited(driver: ShardDriver) -> None:
    client = joined(driver, version=0)
    client.version = 1
    client.leave()
    assert not client.is_solicited
    assert joined(driver, "b").is_solicited


def test_a_member_with_an_old_topology_is_not_solicited(driver: ShardDriver) -> None:
    newer = Client(driver, "newer", "newer").request()
    newer.topology = topology(3)
    heartbeat(driver, newer)
    stale = joined(driver, "stale")
    assert not stale.is_solicited
    assert StatusCode.STALE_TOPOLOGY in stale.statuses


def test_nobody_is_solicited_while_topologies_are_not_described(driver: ShardDriver) -> None:
    driver.descriptions = None
    driver.restart()
    assert not joined(driver).is_solicited
    assert described(driver) == (DescriptionStatus.NOT_STORED, None)
    assert driver.shard.describe_streams(GROUP).topology_description_status == DescriptionStatus.NOT_REQUESTED
    missing = driver.shard.describe_streams("other", with_description=True)
    assert missing.topology_description_status == DescriptionStatus.NOT_REQUESTED


def test_an_invalid_description_is_refused_with_the_reason(driver: ShardDriver) -> None:
    client = joined(driver)
    before = [*driver.log]
    assert Client(driver, "a", "a", group="other").describe() is ErrorCode.GROUP_ID_NOT_FOUND
    assert Client(driver, "stranger", "a").describe() is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.describe(topology_epoch=1) is ErrorCode.INVALID_REQUEST
    unknown = description()
    unknown.subtopologies[0].nodes[0].node_type = 4
    assert client.describe(unknown) is ErrorCode.INVALID_REQUEST
    for source, processor in ((NodeType.SINK, NodeType.PROCESSOR), (NodeType.SOURCE, NodeType.SOURCE)):
        store = TopologyDescriptionGlobalStore(
            TopologyDescriptionNode("g", source), TopologyDescriptionNode("gp", processor)
        )
        assert client.describe(TopologyDescription([], [store])) is ErrorCode.INVALID_REQUEST
    assert driver.log == before
    assert heartbeats_until_solicited(client, HOUR) == 30 * SECOND, "none of that counts as an attempt"


def test_a_description_that_is_too_large_is_refused_for_good(driver: ShardDriver) -> None:
    client = joined(driver)
    large = description(more=MAX_DESCRIPTION_BYTES)
    assert client.describe(large) is ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
    assert epochs(driver) == (-1, 0)
    assert described(driver) == (DescriptionStatus.NOT_STORED, None)
    for restarts in (False, True):
        if restarts:
            driver.restart()
        for _ in range(10):
            driver.advance(40 * SECOND)
            client.heartbeat()
            assert not client.is_solicited
    assert client.describe() is ErrorCode.NONE, "a smaller one is welcome"
    assert epochs(driver) == (0, 0)


def test_without_room_a_member_is_solicited_again_later(driver: ShardDriver) -> None:
    client = joined(driver)
    driver.descriptions = DescriptionStore(max_bytes=200)
    driver.restart()
    driver.descriptions.put("another", StoredDescription(0, bytes(190)))
    client.heartbeat()
    assert client.is_solicited
    assert client.describe() is ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
    assert epochs(driver) == (-1, -1)
    assert heartbeats_until_solicited(client, HOUR) == 60 * SECOND
    driver.descriptions.forget("another")
    assert client.describe() is ErrorCode.NONE
    assert described(driver)[0] == DescriptionStatus.AVAILABLE


def test_a_description_that_cannot_be_recorded_is_not_stored_and_solicited_later(driver: ShardDriver) -> None:
    client = joined(driver)
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert client.describe() is ErrorCode.NOT_COORDINATOR
    assert sizes(driver) == (0, 0)
    driver.append_error = ErrorCode.NONE
    assert described(driver) == (DescriptionStatus.NOT_STORED, None)
    assert heartbeats_until_solicited(client, HOUR) == 60 * SECOND
    assert client.describe() is ErrorCode.NONE


def test_a_heartbeat_that_fails_solicits_nobody(driver: ShardDriver) -> None:
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert Client(driver, "a", "a").heartbeat() is not ErrorCode.NONE
    driver.append_error = ErrorCode.NONE
    assert joined(driver, "b").is_solicited


def test_another_coordinator_solicits_at_once(driver: ShardDriver) -> None:
    client = joined(driver)
    client.describe()
    driver.restart()
    assert epochs(driver) == (0, -1)
    assert described(driver) == (DescriptionStatus.NOT_STORED, None)
    client.heartbeat()
    assert client.is_solicited
    written = len(driver.log)
    assert client.describe() is ErrorCode.NONE
    assert len(driver.log) == written, "the record has it already"
    assert described(driver)[0] == DescriptionStatus.AVAILABLE


def test_the_newer_description_counts(driver: ShardDriver) -> None:
    client = joined(driver)
    client.describe()
    client.describe(description("t2", more=3_000))
    _, found = described(driver)
    assert found is not None
    assert found.subtopologies[0].nodes[0].source_topics == ["t2"]
    w = Writer()
    description("t2", more=3_000).write(w, 0)
    assert sizes(driver) == (1, len(w.getvalue()))


def test_a_new_epoch_keeps_what_was_described(driver: ShardDriver) -> None:
    a = joined(driver)
    a.describe()
    b = joined(driver, "b")
    assert epochs(driver) == (0, -1)
    b.leave()
    assert epochs(driver) == (0, -1)
    a.leave()
    assert epochs(driver) == (0, -1)
    assert described(driver)[0] == DescriptionStatus.AVAILABLE, "as long as there is the group"


@pytest.mark.parametrize("way", ["deleted", "expired", "unloaded", "replaced by a classic group"])
def test_a_description_goes_with_its_group(driver: ShardDriver, way: str) -> None:
    client = joined(driver)
    client.describe()
    client.leave()
    assert sizes(driver)[0] == 1
    match way:
        case "deleted":
            assert driver.delete_groups(GROUP) == [ErrorCode.NONE]
        case "expired":
            driver.advance(driver.config.offsets_retention_check_interval_ms)
        case "unloaded":
            driver.run(driver.shard.unload(now=driver.now))
        case "replaced by a classic group":
            driver.join()
            assert not isinstance(driver.shard.groups[GROUP], StreamsGroup)
    assert sizes(driver) == (0, 0)


def test_a_description_stays_while_a_deletion_fails(driver: ShardDriver) -> None:
    client = joined(driver)
    client.describe()
    assert driver.delete_groups(GROUP) == [ErrorCode.NON_EMPTY_GROUP]
    client.leave()
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    driver.delete_groups(GROUP)
    driver.append_error = ErrorCode.NONE
    assert described(driver)[0] == DescriptionStatus.AVAILABLE


@pytest.mark.parametrize("stored", [UNCERTAIN, 0])
def test_what_apache_kafka_recorded_stays_until_something_is_stored_here(driver: ShardDriver, stored: int) -> None:
    client = joined(driver)
    before = streams_group(driver).epoch_value()
    recorded = StreamsEpoch(
        before.epoch, before.metadata_hash, before.validated_topology_epoch, before.assignment_configs, stored, -1
    )
    driver.log.append(LoggedRecord(-1, *EpochChange(GROUP, recorded).record(), -1))
    driver.restart()
    assert streams_group(driver).stored_description_topology_epoch == stored
    joined(driver, "b")
    assert epochs(driver) == (stored, -1)
    assert described(driver) == (DescriptionStatus.NOT_STORED, None)
    assert client.describe() is ErrorCode.NONE
    assert epochs(driver) == (0, -1)


def test_a_group_of_another_kind_has_no_topology(driver: ShardDriver) -> None:
    driver.join()
    request = StreamsGroupTopologyDescriptionUpdateRequest(GROUP, "a", 0, description())
    assert update(driver, request) is ErrorCode.GROUP_ID_NOT_FOUND


# A broker


def joining() -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        GROUP,
        "a",
        topology=topology(),
        rebalance_timeout_ms=60 * SECOND,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="a",
        task_offsets=[TaskOffset("0", 0, 17)],
        task_end_offsets=[],
    )


def describing() -> StreamsGroupTopologyDescriptionUpdateRequest:
    return StreamsGroupTopologyDescriptionUpdateRequest(GROUP, "a", 0, description())


def test_a_broker_with_the_plugin_keeps_descriptions_and_one_without_refuses_them() -> None:
    async def scenario(kwire: InTrio, *, has_plugin: bool) -> None:
        kwire.create_topic("t")
        joined = await kwire.call(joining(), 1)
        assert (joined.error_code, joined.topology_description_required) == (ErrorCode.NONE, has_plugin)
        error = ErrorCode.NONE if has_plugin else ErrorCode.UNSUPPORTED_VERSION
        assert (await kwire.call(describing(), 0)).error_code == error
        request = described_wire.StreamsGroupDescribeRequest([GROUP], include_topology_description=True)
        (group,) = (await kwire.call(request, 1)).groups
        assert (group.topology_description is not None) == has_plugin

    with_broker(partial(scenario, has_plugin=True), settings=[f"{PLUGIN}={IN_MEMORY_DESCRIPTIONS}"])
    with_broker(partial(scenario, has_plugin=False))


def test_another_plugin_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"org\.example\.Mine.*kwire has only: org\.apache\.kafka\.server\.streams"):
        load_config(settings=[f"{PLUGIN}=org.example.Mine"])


def test_who_may_not_read_the_group_may_not_describe_it() -> None:
    class Cautious:
        allows_all = False

        def allows(self, _who: Requester, operation: Operation, kind: ResourceType, _name: str) -> bool:
            return kind is not ResourceType.GROUP or operation is not Operation.READ

    async def scenario(kwire: InTrio) -> None:
        authorizer: Any = Cautious()
        kwire.broker.authorization.authorizer = authorizer
        assert (await kwire.call(describing(), 0)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    with_broker(scenario, settings=[f"{PLUGIN}={IN_MEMORY_DESCRIPTIONS}"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
    ],
)
def test_a_description_without_a_sender_is_refused(fields: dict[str, Any], message: str) -> None:
    async def scenario(kwire: InTrio) -> None:
        response = await kwire.call(describing().replace(**fields), 0)
        assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)

    with_broker(scenario, settings=[f"{PLUGIN}={IN_MEMORY_DESCRIPTIONS}"])

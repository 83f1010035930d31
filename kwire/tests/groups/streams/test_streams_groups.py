"""Streams groups by example: the machine alone, and a client that may not create internal topics."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages import streams_group_heartbeat as wire
from kwire_protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kwire_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

from kwire.groups.config import GroupConfig, StreamsGroupSettings
from kwire.groups.streams.group import GroupState, StreamsGroup
from kwire.groups.streams.member import MemberState
from kwire.groups.streams.topology import MAX_SUBTOPOLOGIES, MAX_TOPICS, StatusCode, topology_of
from kwire.groups.streams_topics import MAX_FAILURES, InternalTopic, InternalTopicCreation
from kwire.runtime.futures import Future
from kwire.runtime.loop import Loop
from kwire.security.authorizer import Operation, ResourceType
from kwire.security.principal import Requester
from testkit.groups.shard_driver import GROUP, ShardDriver
from testkit.groups.streams.clients import REBALANCE_TIMEOUT_MS, Client, heartbeat, topology
from testkit.groups.topics import FakeTopics
from testkit.scenes.broker_in_trio import InTrio, with_broker

AT_ONCE = StreamsGroupSettings(assignment_interval_ms=0, initial_rebalance_delay_ms=0)


@pytest.fixture
def driver() -> ShardDriver:
    driver = ShardDriver(GroupConfig(), FakeTopics(t=2, r=2, c=2))
    driver.wall_ahead_ms = 1_700_000_000_000
    driver.streams_settings = AT_ONCE
    return driver


def streams_group(driver: ShardDriver) -> StreamsGroup:
    group = driver.shard.groups[GROUP]
    assert isinstance(group, StreamsGroup)
    return group


# The machine


def test_the_first_members_wait_for_company(driver: ShardDriver) -> None:
    driver.streams_settings = attrs.evolve(AT_ONCE, initial_rebalance_delay_ms=3_000)
    a, b = Client(driver, "a", "a"), Client(driver, "b", "b")
    for client in (a, b):
        assert client.heartbeat() is ErrorCode.NONE
        assert (client.epoch, client.active) == (1, set())
        assert client.statuses == {
            StatusCode.ASSIGNMENT_DELAYED: "Assignment delayed due to the configured initial rebalance delay."
        }
    driver.advance(3_000)
    assert streams_group(driver).assignment_epoch == 3, "without a heartbeat"
    for client in (a, b):
        client.heartbeat()
    assert [len(client.active) for client in (a, b)] == [2, 2]
    assert a.active | b.active == {(name, partition) for name in "01" for partition in range(2)}


def test_topics_that_come_while_the_first_assignment_waits_count_at_once(driver: ShardDriver) -> None:
    driver.streams_settings = attrs.evolve(AT_ONCE, initial_rebalance_delay_ms=3_000)
    driver.topics.delete("r")
    client = Client(driver, "a", "a")
    client.heartbeat()
    driver.topics.create("r", 2)
    driver.advance(3_000)
    client.heartbeat()
    client.heartbeat()
    assert len(client.active) == 4
    assert streams_group(driver).state is GroupState.STABLE


def test_a_task_moves_once_its_member_has_given_it_up(driver: ShardDriver) -> None:
    a, b = Client(driver, "a", "a", revokes=False), Client(driver, "b", "b")
    a.heartbeat()
    b.heartbeat()
    assert b.active == set()
    a.heartbeat()
    kept = {task for task in a.active if task[1] in streams_group(driver).current["a"].assigned.active.get(task[0], {})}
    assert streams_group(driver).current["a"].state is MemberState.UNREVOKED_TASKS
    a.heartbeat()
    b.heartbeat()
    assert b.active == set(), "a still runs them"
    a.give_up(kept, set())
    a.heartbeat()
    b.heartbeat()
    assert len(b.active) == 2
    assert not a.active & b.active


def test_a_member_that_does_not_give_up_tasks_is_removed(driver: ShardDriver) -> None:
    a, b = Client(driver, "a", "a", revokes=False), Client(driver, "b", "b")
    for client in (a, b, a):
        client.heartbeat()
    for _ in range(REBALANCE_TIMEOUT_MS // 10_000):
        driver.advance(10_000)
        if "a" in streams_group(driver).members:
            a.heartbeat()
        b.heartbeat()
    assert streams_group(driver).members.keys() == {"b"}
    b.heartbeat()
    assert len(b.active) == 4
    assert a.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lost_answer_is_given_again(driver: ShardDriver) -> None:
    client = Client(driver, "a", "a")
    client.heartbeat()
    driver.topics.create("t", 3)
    driver.topics.create("r", 3)
    driver.topics.create("c", 3)
    for _ in range(3):
        client.heartbeat(is_lost=True)
    assert client.heartbeat() is ErrorCode.NONE
    assert client.epoch == streams_group(driver).epoch
    assert client.active == {(name, partition) for name in "01" for partition in range(3)}


def test_a_member_that_lost_the_request_to_give_tasks_up_gets_it_again(driver: ShardDriver) -> None:
    a, b = Client(driver, "a", "a"), Client(driver, "b", "b")
    a.heartbeat()
    had = set(a.active)
    b.heartbeat()
    a.heartbeat(is_lost=True)
    assert a.active == had
    a.heartbeat()
    assert len(a.active) == len(had) / 2
    a.heartbeat()
    b.heartbeat()
    assert a.active | b.active == had


def test_all_members_get_the_shutdown_request_until_the_last_one_has_left(driver: ShardDriver) -> None:
    a, b = Client(driver, "a", "a"), Client(driver, "b", "b")
    a.heartbeat()
    b.heartbeat()
    a.leave(shutdown_application=True)
    b.heartbeat()
    assert b.statuses == {
        StatusCode.SHUTDOWN_APPLICATION: "Streams group member a encountered a fatal error and requested a shutdown "
        "for the entire application."
    }
    b.leave()
    b.leave(shutdown_application=True)
    b.heartbeat()
    assert b.statuses == {}, "who has left long ago ends nothing that begins later"


def test_a_request_to_end_that_could_not_be_recorded_has_not_been_made(driver: ShardDriver) -> None:
    a, b = Client(driver, "a", "a"), Client(driver, "b", "b")
    b.heartbeat()
    driver.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert a.heartbeat(shutdown_application=True) is not ErrorCode.NONE
    driver.append_error = ErrorCode.NONE
    b.heartbeat()
    assert b.statuses == {}


def test_standbys_follow_the_setting_and_have_other_processes(driver: ShardDriver) -> None:
    a, b = Client(driver, "a", "a"), Client(driver, "b", "b")
    for client in (a, b, a, b):
        client.heartbeat()
    driver.streams_settings = attrs.evolve(AT_ONCE, num_standby_replicas=1)
    for _ in range(3):
        a.heartbeat()
        b.heartbeat()
    assert {("1", 0), ("1", 1)} == a.standby | b.standby
    assert not a.standby & a.active
    assert not b.standby & b.active


def test_endpoints_of_other_members_are_sent_when_they_change(driver: ShardDriver) -> None:
    endpoint = wire.StreamsGroupHeartbeatRequestEndpoint("host", 9)
    a, b = Client(driver, "a", "a", endpoint=endpoint), Client(driver, "b", "b")
    a.heartbeat()
    b.heartbeat()
    assert {it.topic: it.partitions for it in b.endpoints["host", 9].active_partitions} == {"t": [0, 1], "r": [0, 1]}
    answer = heartbeat(driver, b.request()).response
    assert answer.partitions_by_user_endpoint is None, "it has them already"
    for _ in range(2):
        a.heartbeat()
        b.heartbeat()
    topics = {it.topic: it.partitions for it in b.endpoints["host", 9].active_partitions}
    assert sum(map(len, topics.values())) == 2


def test_an_empty_classic_group_becomes_a_streams_group_and_back(driver: ShardDriver) -> None:
    driver.commit({("t", 0): 7})
    client = Client(driver, "a", "a")
    assert client.heartbeat() is ErrorCode.NONE
    assert driver.offset("t", 0) == 7
    driver.restart()
    assert streams_group(driver).members.keys() == {"a"}
    client.leave()
    driver.stable_group("classic")
    assert driver.state() == "Stable"
    assert driver.offset("t", 0) == 7
    driver.restart()
    assert driver.state() == "Stable"
    assert Client(driver, "b", "b").heartbeat() is ErrorCode.GROUP_ID_NOT_FOUND, "it has members"


def test_offsets_are_committed_for_tasks_that_the_member_has(driver: ShardDriver) -> None:
    a = Client(driver, "a", "a")
    a.heartbeat()
    old = a.epoch
    driver.streams_settings = attrs.evolve(AT_ONCE, num_standby_replicas=1)
    a.heartbeat()
    assert a.epoch > old

    def commit(topic: str, epoch: int, **how: Any) -> list[ErrorCode]:
        return driver.commit({(topic, 0): 5}, member_id="a", generation=epoch, **how)

    assert commit("t", old) == [ErrorCode.NONE], "it has had the task since"
    assert commit("r", old) == [ErrorCode.NONE]
    assert commit("c", old) == [ErrorCode.STALE_MEMBER_EPOCH], "nobody reads it"
    assert commit("t", old - 1) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert commit("t", a.epoch + 1) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert commit("t", a.epoch, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    in_transaction = driver.commit_transactional({("t", 0): 6}, member_id="a", generation=old - 1)
    assert in_transaction == [ErrorCode.ILLEGAL_GENERATION]
    assert driver.delete_offsets(("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert driver.delete_offsets(("c", 0)) == [ErrorCode.NONE]


def test_topologies_have_bounds() -> None:
    for parts in (
        [wire.Subtopology(str(number), source_topics=["t"]) for number in range(MAX_SUBTOPOLOGIES + 1)],
        [wire.Subtopology("0", source_topics=[f"t{number}" for number in range(MAX_TOPICS + 1)])],
    ):
        with pytest.raises(KafkaError) as refused:
            topology_of(wire.Topology(0, parts))
        assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


# Internal topics


@attrs.define(eq=False)
class Controller:
    """A controller that creates topics, or fails as a test sets it."""

    error: ErrorCode = ErrorCode.NONE
    raises: bool = False
    requests: list[list[str]] = attrs.field(factory=list)
    now_ms: int = 0

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self.requests.append([it.name for it in request.topics])
        if self.raises:
            raise KafkaError(self.error)
        results = [CreatableTopicResult(it.name, error_code=self.error) for it in request.topics]
        return CreateTopicsResponse(topics=results)

    def creation(self, loop: Loop | None = None) -> InternalTopicCreation:
        return InternalTopicCreation(self.create_topics, loop or Loop(), lambda: self.now_ms)


@pytest.mark.parametrize("raises", [False, True])
def test_a_topic_that_could_not_be_created_is_not_requested_again_at_once(raises: bool) -> None:
    controller = Controller(ErrorCode.POLICY_VIOLATION, raises)
    creation, topics = controller.creation(), [InternalTopic("c", 2)]
    for now_ms, count in ((0, 1), (9_999, 1), (10_000, 2)):
        controller.now_ms = now_ms
        creation.begin(topics, retry_after_ms=10_000)
        assert creation.failures(["c", "d"]) == {"c": "POLICY_VIOLATION"}
        assert len(controller.requests) == count
    controller.error, controller.raises, controller.now_ms = ErrorCode.NONE, False, 30_000
    creation.begin(topics, retry_after_ms=10_000)
    assert creation.failures(["c"]) == {}


def test_a_topic_is_requested_once_at_a_time() -> None:
    controller = Controller()
    futures: list[Future[None]] = []

    class Later(Loop):
        def next_turn(self) -> Future[None]:
            futures.append(Future())
            return futures[-1]

    creation = controller.creation(Later())
    for _ in range(3):
        creation.begin([InternalTopic("c", 2)], retry_after_ms=10_000)
    futures[0].set(None)
    assert (len(futures), controller.requests) == (1, [["c"]])


def test_so_many_failures_are_remembered() -> None:
    controller = Controller(ErrorCode.POLICY_VIOLATION)
    creation = controller.creation()
    names = [f"c{number}" for number in range(MAX_FAILURES + 5)]
    creation.begin([InternalTopic(name, 1) for name in names], retry_after_ms=10_000)
    assert list(creation.failures(names)) == names[5:]


# A broker


def joining(name: str) -> StreamsGroupHeartbeatRequest:
    request = StreamsGroupHeartbeatRequest(
        "g", name, 0, rebalance_timeout_ms=60_000, topology=topology(), process_id=name
    )
    request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
    assert request.topology is not None
    request.topology.subtopologies[1].state_changelog_topics = [wire.TopicInfo("c")]
    return request


async def missing(kwire: InTrio, request: StreamsGroupHeartbeatRequest) -> str | None:
    response = await kwire.call(request, 0)
    assert isinstance(response, StreamsGroupHeartbeatResponse)
    assert response.error_code == ErrorCode.NONE
    found = [it.status_detail for it in response.status or () if it.status_code == StatusCode.MISSING_INTERNAL_TOPICS]
    return found[0] if found else None


SOON = ("group.streams.initial.rebalance.delay.ms=0", "group.streams.assignment.interval.ms=0")


def test_a_client_that_may_not_create_topics_gets_the_reason() -> None:
    class Cautious:
        allows_all = False

        def allows(self, _who: Requester, operation: Operation, _type: ResourceType, name: str) -> bool:
            return operation is not Operation.CREATE or name == "r"

    async def scenario(kwire: InTrio) -> None:
        kwire.create_topic("t")
        authorizer: Any = Cautious()
        kwire.broker.authorization.authorizer = authorizer
        for _ in range(2):
            detail = await missing(kwire, joining("a"))
            assert detail == "Internal topics are missing: c, r; Unauthorized to CREATE on topics c."
        assert "r" not in kwire.broker.metadata.image.topics

    with_broker(scenario, settings=SOON)

"""Consumers that read from the closest replica (KIP-392): where the leader sends them, and what a follower answers."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import attrs
import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kwire_protocol.records import Record, build_batch
from kwire_storage.disk.memory_disk import MemoryDisk

from devtools.suite.cases import naming
from kwire.config.definition import ConfigError
from kwire.config.server import load_config
from kwire.handlers import fetch
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.node.broker import Broker
from kwire.replicas.closest import closest_follower
from kwire.replicas.partition import Partition
from kwire.replicas.roles import Leader, role_of
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import Future, at_once

THIS, SECOND, THIRD, FOURTH = 1, 2, 3, 4
ALL = (THIS, SECOND, THIRD, FOURTH)
EPOCH = 5
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def leading(*isr: int) -> Leader:
    role = role_of(THIS, leader_id=THIS, leader_epoch=EPOCH, replicas=ALL, isr=isr or ALL)
    assert isinstance(role, Leader)
    return role


def has(role: Leader, node_id: int, end_offset: int, *, start_offset: int = 0, now_ms: int = 0) -> None:
    role.fetched(node_id, end_offset, start_offset=start_offset, leader_end=end_offset, now_ms=now_ms, broker_epoch=0)


# The choice


def test_a_follower_that_is_near_in_sync_and_has_the_offset_is_preferred() -> None:
    role = leading()
    has(role, SECOND, 10)
    has(role, THIRD, 10)
    assert closest_follower(role, 7, lambda node_id: node_id == THIRD) == THIRD
    assert closest_follower(role, 10, lambda node_id: node_id == THIRD) == THIRD, "it waits there for the next record"
    assert closest_follower(role, 7, lambda _: False) is None


def test_a_follower_that_lacks_the_offset_is_not_preferred() -> None:
    role = leading()
    assert closest_follower(role, 0, lambda _: True) is None, "nothing is known of them yet"
    has(role, SECOND, 10, start_offset=5)
    assert closest_follower(role, 11, lambda _: True) is None
    assert closest_follower(role, 4, lambda _: True) is None
    assert closest_follower(role, 5, lambda _: True) == SECOND


def test_a_follower_out_of_sync_is_not_preferred_even_if_it_has_the_offset() -> None:
    role = leading(THIS, SECOND)
    has(role, THIRD, 10)
    assert closest_follower(role, 7, lambda _: True) is None


def test_of_several_the_one_that_has_most_is_preferred_then_the_latest_then_the_last() -> None:
    role = leading()
    has(role, SECOND, 10, now_ms=3)
    has(role, THIRD, 9, now_ms=9)
    has(role, FOURTH, 10, now_ms=5)
    assert closest_follower(role, 7, lambda _: True) == FOURTH
    has(role, SECOND, 10, now_ms=7)
    assert closest_follower(role, 7, lambda _: True) == SECOND
    has(role, FOURTH, 10, now_ms=7)
    assert closest_follower(role, 7, lambda _: True) == FOURTH


# The leader


def opened(*settings: str) -> Broker:
    broker = Broker.open(load_config(settings=["broker.rack=here", *settings]), MemoryDisk(), SystemClock())
    at_once(broker.metadata.change(auto_create_topic, "t"))
    this = broker.metadata.image.brokers[THIS]
    broker.metadata.image.brokers[SECOND] = attrs.evolve(this, broker_id=SECOND, rack="there")
    return broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = opened(f"replica.selector.class={SELECTOR}")
    yield broker
    broker.close()


def append(partition: Partition, count: int) -> None:
    """Appends as a client or a leader would."""
    records = [Record(delta, 0, None, b"x") for delta in range(count)]
    base = partition.log_end_offset
    batch = memoryview(bytearray(build_batch(records, base_offset=base, leader_epoch=EPOCH)))
    partition.log.append_as_is(batch, now_ms=0)


def handled(broker: Broker, offset: int, version: int, rack: str, epoch: int, max_wait_ms: int) -> Any:
    topic_id = broker.metadata.image.topics["t"].topic_id
    named = FetchTopic(
        "" if version >= 13 else "t",
        topic_id if version >= 13 else bytes(16),
        [FetchPartition(0, epoch, offset, partition_max_bytes=1000)],
    )
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1000, rack_id=rack, topics=[named])
    return bound(fetch.handle, broker)(request, Context("client", "127.0.0.1", 9092, api_version=version))


def fetched_at_once(
    broker: Broker, offset: int = 0, *, version: int = 13, rack: str = "", epoch: int = -1
) -> PartitionData:
    """Returns the answer to a fetch that waits for nothing."""
    response = handled(broker, offset, version, rack, epoch, 0)
    assert isinstance(response, FetchResponse)
    answer: PartitionData = response.responses[0].partitions[0]
    return answer


def lead_with_follower(broker: Broker) -> Partition:
    partition = broker.partitions.find("t", 0)
    append(partition, 4)
    partition.take_role(role_of(THIS, leader_id=THIS, leader_epoch=EPOCH, replicas=[THIS, SECOND], isr=[THIS, SECOND]))
    partition.note_fetch(SECOND, 4)
    assert partition.high_watermark == 4
    return partition


def test_a_leader_sends_a_consumer_to_the_follower_in_its_rack_at_once_and_without_records(broker: Broker) -> None:
    lead_with_follower(broker)
    answer = handled(broker, 4, 13, "there", EPOCH, max_wait_ms=10_000)
    assert isinstance(answer, FetchResponse), "it does not wait"
    partition = answer.responses[0].partitions[0]
    assert (partition.error_code, partition.preferred_read_replica, partition.records) == (0, SECOND, b"")
    assert (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset) == (4, 4, 0)
    assert partition.aborted_transactions is None


@pytest.mark.parametrize(
    ("rack", "version"),
    [
        ("", 13),  # it does not say where it is
        ("here", 13),  # the leader is in its rack
        ("elsewhere", 13),  # nobody is
    ],
)
def test_a_leader_keeps_the_consumers_that_nobody_is_closer_to(broker: Broker, rack: str, version: int) -> None:
    lead_with_follower(broker)
    answer = fetched_at_once(broker, rack=rack, version=version)
    assert (answer.error_code, answer.preferred_read_replica) == (0, -1)
    assert answer.records


@pytest.mark.parametrize(
    "change",
    [{"fenced": True}, {"rack": None}, {"endpoints": {}}],
)
def test_a_broker_that_is_fenced_or_elsewhere_or_out_of_reach_is_not_preferred(
    broker: Broker, change: dict[str, Any]
) -> None:
    lead_with_follower(broker)
    brokers = broker.metadata.image.brokers
    brokers[SECOND] = attrs.evolve(brokers[SECOND], **change)
    assert fetched_at_once(broker, rack="there").preferred_read_replica == -1
    del brokers[SECOND]
    assert fetched_at_once(broker, rack="there").preferred_read_replica == -1


def test_without_a_selector_all_consumers_stay_with_the_leader() -> None:
    broker = opened()
    lead_with_follower(broker)
    answer = fetched_at_once(broker, rack="there")
    assert answer.preferred_read_replica == -1
    assert answer.records
    broker.close()


def test_a_consumer_is_sent_away_in_every_answer_of_its_session(broker: Broker) -> None:
    lead_with_follower(broker)
    topic_id = broker.metadata.image.topics["t"].topic_id
    named = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0)])
    context = Context("client", "127.0.0.1", 9092, api_version=13)
    request = FetchRequest(session_epoch=0, rack_id="there", max_wait_ms=0, topics=[named])
    response = bound(fetch.handle, broker)(request, context)
    assert isinstance(response, FetchResponse)
    for epoch in (1, 2):
        next_request = FetchRequest(
            session_id=response.session_id, session_epoch=epoch, rack_id="there", min_bytes=1, max_wait_ms=10_000
        )
        answer = bound(fetch.handle, broker)(next_request, context)
        assert isinstance(answer, FetchResponse)
        assert answer.responses[0].partitions[0].preferred_read_replica == SECOND


def test_a_selector_that_kwire_does_not_have_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(settings=["replica.selector.class=com.example.Nearest"])
    assert str(refused.value) == (
        f"Invalid value com.example.Nearest for configuration replica.selector.class: kwire has only: {SELECTOR}"
    )


# The follower


def follow(broker: Broker, *, high_watermark: int, end_offset: int = 8, start_offset: int = 0) -> Partition:
    partition = broker.partitions.find("t", 0)
    partition.take_role(role_of(THIS, leader_id=SECOND, leader_epoch=EPOCH, replicas=[SECOND, THIS], isr=[SECOND]))
    for _ in range(end_offset // 2):
        append(partition, 2)
    partition.follow_leader(leader_epoch=EPOCH, high_watermark=high_watermark, log_start_offset=start_offset, now_ms=0)
    return partition


def test_a_follower_serves_consumers_up_to_its_own_high_watermark(broker: Broker) -> None:
    partition = follow(broker, high_watermark=4)
    answer = fetched_at_once(broker)
    assert answer.error_code == 0
    assert (answer.high_watermark, answer.last_stable_offset, answer.preferred_read_replica) == (4, 4, -1)
    assert answer.records.size == partition.log.size_in_bytes // 2  # type: ignore[union-attr]


def test_a_follower_sends_no_consumer_to_another_replica(broker: Broker) -> None:
    follow(broker, high_watermark=4)
    assert fetched_at_once(broker, rack="there").preferred_read_replica == -1


def test_a_follower_does_not_serve_consumers_that_know_of_no_closest_replica(broker: Broker) -> None:
    follow(broker, high_watermark=4)
    for version in range(4, 11):
        with naming(f"v{version}"):
            assert fetched_at_once(broker, version=version).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_between_high_watermark_and_end_a_follower_has_nothing_and_beyond_it_is_out_of_range(broker: Broker) -> None:
    follow(broker, high_watermark=4, start_offset=2)
    for offset in range(4, 9):
        assert (fetched_at_once(broker, offset).error_code, fetched_at_once(broker, offset).records) == (0, b"")
    for offset in (1, 9):
        assert fetched_at_once(broker, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH), (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH), (EPOCH, ErrorCode.NONE)],
)
def test_a_follower_checks_the_leader_epoch_of_a_consumer(broker: Broker, epoch: int, code: ErrorCode) -> None:
    follow(broker, high_watermark=4)
    assert fetched_at_once(broker, epoch=epoch).error_code == code


def parked(broker: Broker, offset: int) -> tuple[Coroutine[Future[Any], None, FetchResponse], Future[Any]]:
    waiting = handled(broker, offset, 13, "", -1, max_wait_ms=10_000)
    assert isinstance(waiting, Coroutine)
    return waiting, waiting.send(None)


def answer_of(waiting: Coroutine[Future[Any], None, FetchResponse]) -> PartitionData:
    with pytest.raises(StopIteration) as ended:
        waiting.send(None)
    answer: PartitionData = ended.value.value.responses[0].partitions[0]
    return answer


def test_a_fetch_that_waits_at_a_follower_ends_when_its_high_watermark_moves(broker: Broker) -> None:
    partition = follow(broker, high_watermark=4)
    waiting, future = parked(broker, 4)
    append(partition, 2)
    was_woken = future.is_set
    assert not was_woken, "what is not committed is not for a consumer"
    partition.follow_leader(leader_epoch=EPOCH, high_watermark=8, log_start_offset=0, now_ms=0)
    assert future.is_set
    answer = answer_of(waiting)
    assert answer.high_watermark == 8
    assert answer.records


def test_a_fetch_that_waits_at_a_follower_ends_when_the_follower_loses_its_place(broker: Broker) -> None:
    partition = follow(broker, high_watermark=8)
    waiting, future = parked(broker, 8)
    partition.truncate(6, leader_epoch=EPOCH, now_ms=0)
    assert future.is_set
    assert answer_of(waiting).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

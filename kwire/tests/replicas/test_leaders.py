"""Responses about a partition that another node leads (KIP-951), in every version, without a socket."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kwire_protocol.records import Record, build_batch
from kwire_protocol.wire import Reader, Writer
from kwire_storage.disk.memory_disk import MemoryDisk

from devtools.suite.cases import naming
from kwire.config.server import load_config
from kwire.handlers import fetch, list_offsets, produce
from kwire.handlers.apis import bound
from kwire.handlers.context import Context
from kwire.metadata.controller.topics.auto_created_topics import auto_create_topic
from kwire.node.broker import Broker
from kwire.replicas.roles import role_of
from kwire.runtime.clock import SystemClock
from kwire.runtime.futures import at_once

OTHER_NODE = 2
EPOCH = 5


@pytest.fixture
def broker() -> Iterator[Broker]:
    opened = Broker.open(load_config(), MemoryDisk(), SystemClock())
    at_once(opened.metadata.change(auto_create_topic, "t"))
    partition = opened.partitions.find("t", 0)
    partition.take_role(
        role_of(1, leader_id=OTHER_NODE, leader_epoch=EPOCH, replicas=[OTHER_NODE, 1], isr=[OTHER_NODE])
    )
    yield opened
    opened.close()


def answered(response: Any, version: int) -> Any:
    """Returns the response as a client reads it; its handler must not wait."""
    assert not isinstance(response, Coroutine), "an answer with an error does not wait"
    writer = Writer()
    response.write(writer, version)
    return type(response).read(Reader(writer.getvalue()), version)


def context(version: int) -> Context:
    return Context("client", "127.0.0.1", 9092, api_version=version)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_returns_the_leader_where_its_version_has_room(broker: Broker, version: int) -> None:
    topic_id = broker.metadata.image.topics["t"].topic_id
    named = TopicProduceData("" if version >= 13 else "t", topic_id if version >= 13 else bytes(16))
    named.partition_data = [PartitionProduceData(0, memoryview(bytearray(build_batch([Record(value=b"x")]))))]
    request = ProduceRequest(None, 1, 1000, [named])
    answer: ProduceResponse = answered(bound(produce.handle, broker)(request, context(version)), version)
    partition = answer.responses[0].partition_responses[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert partition.current_leader is not None
        assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (OTHER_NODE, EPOCH)
        assert [(it.node_id, it.host, it.port) for it in answer.node_endpoints] == [(1, "127.0.0.1", 9092)]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_returns_the_leader_where_its_version_has_room(broker: Broker, version: int) -> None:
    topic_id = broker.metadata.image.topics["t"].topic_id
    is_served = version >= 11  # by followers, too, if it does not come with an earlier leader epoch
    wanted = FetchPartition(0, EPOCH - 1 if is_served else -1)
    named = FetchTopic("" if version >= 13 else "t", topic_id if version >= 13 else bytes(16), [wanted])
    request = FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[named])
    answer: FetchResponse = answered(bound(fetch.handle, broker)(request, context(version)), version)
    partition = answer.responses[0].partitions[0]
    refusal = ErrorCode.FENCED_LEADER_EPOCH if is_served else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.error_code == refusal
    assert partition.aborted_transactions is None
    leader = partition.current_leader
    assert (leader and (leader.leader_id, leader.leader_epoch)) == ((OTHER_NODE, EPOCH) if version >= 16 else None)
    assert bool(answer.node_endpoints) == (version >= 16)


def test_list_offsets_of_a_partition_led_elsewhere_is_an_error(broker: Broker) -> None:
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])])
    for version in range(1, 12):
        with naming(f"v{version}"):
            answer = answered(bound(list_offsets.handle, broker)(request, context(version)), version)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH), (5, ErrorCode.NONE)]
)
def test_a_client_with_another_leader_epoch_gets_an_error(broker: Broker, epoch: int, code: ErrorCode) -> None:
    partition = broker.partitions.find("t", 0)
    partition.take_role(role_of(1, leader_id=1, leader_epoch=EPOCH, replicas=[1], isr=[1]))
    named = FetchTopic("t", partitions=[FetchPartition(0, current_leader_epoch=epoch)])
    answer = answered(bound(fetch.handle, broker)(FetchRequest(topics=[named]), context(12)), 12)
    assert answer.responses[0].partitions[0].error_code == code


@pytest.mark.parametrize(
    ("replicas", "acks", "code"),
    [
        ([1, OTHER_NODE], -1, ErrorCode.NOT_ENOUGH_REPLICAS),
        ([1, OTHER_NODE], 1, ErrorCode.NONE),
        ([1], -1, ErrorCode.NONE),  # no more are required than there are
    ],
)
def test_all_acks_need_min_insync_replicas(broker: Broker, replicas: list[int], acks: int, code: ErrorCode) -> None:
    partition = broker.partitions.find("t", 0)
    partition.take_role(role_of(1, leader_id=1, leader_epoch=EPOCH, replicas=replicas, isr=[1]))
    partition.rules = type(partition.rules)(min_insync_replicas=2)
    batch = memoryview(bytearray(build_batch([Record(value=b"x")])))
    request = ProduceRequest(None, acks, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])])
    answer = answered(bound(produce.handle, broker)(request, context(9)), 9).responses[0].partition_responses[0]
    assert (answer.error_code, answer.log_start_offset) == (code, 0)


def test_a_repeated_batch_is_answered_with_its_first_offset_and_time(broker: Broker) -> None:
    partition = broker.partitions.find("t", 0)
    partition.take_role(role_of(1, leader_id=1, leader_epoch=EPOCH, replicas=[1], isr=[1]))
    sent = build_batch([Record(timestamp=1000, value=b"x")] * 3, producer_id=7, producer_epoch=0, base_sequence=0)
    answers = []
    for _ in range(2):
        data = [PartitionProduceData(0, memoryview(bytearray(sent)))]
        request = ProduceRequest(None, -1, 1000, [TopicProduceData("t", partition_data=data)])
        answers.append(
            answered(bound(produce.handle, broker)(request, context(9)), 9).responses[0].partition_responses[0]
        )
    assert [(it.error_code, it.base_offset, it.log_append_time_ms) for it in answers] == [(0, 0, -1), (0, 0, 1000)]
    assert partition.log_end_offset == 3

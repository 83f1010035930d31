"""Leader epochs over a stop or a kill of the only broker: each start is a new leadership, and clients notice it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import Message, TopicPartition
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from kwire_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from testkit.basics.waiting import Deadline, eventually
from testkit.clients.confluent import consuming, fill
from testkit.raw import topics
from testkit.raw.client import RawClient
from testkit.servers.brokers import RestartableBroker

E = ErrorCode
LATEST = -1


@pytest.fixture
def topic(restartable_broker: RestartableBroker, unique: Callable[[str], str]) -> str:
    name = unique("topic")
    topics.create(restartable_broker.bootstrap, name)
    return name


@contextmanager
def connected(broker: RestartableBroker, topic: str) -> Iterator[RawClient]:
    """A client of the broker once the partition has its leader."""
    with RawClient(broker.bootstrap) as client:
        eventually(lambda: described(client, topic).error_code == E.NONE, "a leader")
        yield client


def described(client: RawClient, topic: str) -> MetadataResponsePartition:
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    partition: MetadataResponsePartition = client.call(request, 9).topics[0].partitions[0]
    return partition


def fetched(client: RawClient, topic: str, current_leader_epoch: int) -> int:
    partition = FetchPartition(0, current_leader_epoch, 0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=[FetchTopic(topic, partitions=[partition])]
    )
    code: int = client.call(request, 12).responses[0].partitions[0].error_code
    return code


def leads(client: RawClient, topic: str, leader_epoch: int) -> bool:
    return fetched(client, topic, leader_epoch) == E.NONE


def listed(client: RawClient, topic: str, current_leader_epoch: int) -> tuple[int, int]:
    partition = ListOffsetsPartition(0, current_leader_epoch, LATEST)
    answer = client.call(ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [partition])]), 6).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch


def end_of(client: RawClient, topic: str, leader_epoch: int) -> tuple[int, int]:
    """The latest epoch up to this one, and its end offset."""
    partition = OffsetForLeaderPartition(0, leader_epoch=leader_epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic, [partition])])
    answer = client.call(request, 4).topics[0].partitions[0]
    assert answer.error_code == E.NONE
    return answer.leader_epoch, answer.end_offset


def test_each_start_begins_a_leader_epoch_and_ends_those_before(
    restartable_broker: RestartableBroker, topic: str
) -> None:
    broker = restartable_broker
    epochs: list[int] = []
    starts: list[Callable[[], None]] = [lambda: None, broker.restart, broker.kill_and_restart]
    for start in starts:
        start()
        with connected(broker, topic) as client:
            epoch = described(client, topic).leader_epoch
            # Apache Kafka answers Metadata before its partition has the new epoch.
            eventually(partial(leads, client, topic, epoch), "it leads in that epoch")
            for earlier in epochs:
                assert epoch > earlier
                assert fetched(client, topic, earlier) == E.FENCED_LEADER_EPOCH
                assert listed(client, topic, earlier)[0] == E.FENCED_LEADER_EPOCH
            assert listed(client, topic, epoch)[0] == E.NONE
            assert fetched(client, topic, epoch + 1) == E.UNKNOWN_LEADER_EPOCH
            epochs.append(epoch)
        fill(broker.bootstrap, topic, [b"of this epoch"] * 2)
    with connected(broker, topic) as client:
        assert [end_of(client, topic, epoch) for epoch in epochs] == [(epochs[0], 2), (epochs[1], 4), (epochs[2], 6)]


def test_a_consumer_with_the_earlier_epoch_continues_after_a_restart(
    restartable_broker: RestartableBroker, topic: str
) -> None:
    broker = restartable_broker
    fill(broker.bootstrap, topic, [b"before"])
    with consuming(broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        records: list[Message] = []
        for restart in (broker.restart, broker.kill_and_restart, lambda: None):
            deadline = Deadline()
            expected = len(records) + 1
            while len(records) < expected and deadline.not_over("the record"):
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    records.append(message)
            restart()
            fill(broker.bootstrap, topic, [b"after"])
    assert [record.offset() for record in records] == [0, 1, 2]
    epochs = [record.leader_epoch() for record in records]
    assert epochs == sorted(set(epochs))

"""Answers to the debugging consumer: replica id -2, which Kafka's ReplicaVerificationTool has.

On three nodes: node 1 leads the only partition, which ends with an open transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kwire_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

from testkit.basics.waiting import eventually
from testkit.raw.client import RawClient
from testkit.raw.nodes import wait_until_led
from testkit.servers.brokers import three_nodes

E = ErrorCode
TOPIC = "t"
LEADER, FOLLOWER = 0, 1
"""Their places in the fixture's list."""
CONSUMER, DEBUGGING = -1, -2
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
UNCOMMITTED, COMMITTED = 0, 1
DECIDED, END = 5, 8
"""The last stable offset and the end of the partition."""
TIME_MS = int(time.time() * 1000) + 3_000_000
"""The timestamp of the first record. Markers have the broker's time, which is earlier."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RawClient]]:
    """A connection to each node; the followers have everything."""
    with three_nodes({"transaction.state.log.num.partitions": "1"}) as cluster, ExitStack() as ended:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]])])[TOPIC].result(30)
        wait_until_led(servers, TOPIC, 1)
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "x"})
        producer.init_transactions(30)
        producer.begin_transaction()
        write(producer, range(DECIDED - 1))  # and the marker
        producer.commit_transaction(30)
        producer.begin_transaction()
        write(producer, range(DECIDED, END))
        connected = [ended.enter_context(RawClient(address)) for address in servers.split(",")]
        eventually(
            lambda: all(fetched(it, 12, CONSUMER).high_watermark == END for it in connected), "all know what is there"
        )
        yield connected
        producer.abort_transaction(30)


def write(producer: Producer, numbers: range) -> None:
    for number in numbers:
        producer.produce(TOPIC, b"%d" % number, partition=0, timestamp=TIME_MS + number)
    assert producer.flush(30) == 0


def listed(
    client: RawClient,
    timestamp: int,
    replica_id: int = DEBUGGING,
    *,
    isolation_level: int = UNCOMMITTED,
    leader_epoch: int = -1,
    version: int = 7,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(0, timestamp=timestamp, current_leader_epoch=leader_epoch)
    request = ListOffsetsRequest(replica_id, isolation_level, [ListOffsetsTopic(TOPIC, [wanted])])
    answer: ListOffsetsPartitionResponse = client.call(request, version).topics[0].partitions[0]
    return answer


def fetched(
    client: RawClient, version: int, replica_id: int = DEBUGGING, *, isolation_level: int = UNCOMMITTED
) -> PartitionData:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=100_000,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[FetchTopic(TOPIC, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=100_000)])],
        replica_id=replica_id,
    )
    answer: PartitionData = client.call(request, version).responses[0].partitions[0]
    return answer


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize("place", [LEADER, FOLLOWER])
def test_it_may_request_offsets_from_any_replica(nodes: list[RawClient], place: int, version: int) -> None:
    assert listed(nodes[place], LATEST, version=version).offset == END
    assert listed(nodes[place], EARLIEST, version=version).offset == 0
    assert listed(nodes[place], TIME_MS + 2, version=version).offset == 2
    refused = listed(nodes[FOLLOWER], LATEST, CONSUMER, version=version)
    assert refused.error_code == E.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("place", [LEADER, FOLLOWER])
def test_it_sees_everything_whatever_isolation_it_requests(nodes: list[RawClient], place: int) -> None:
    assert listed(nodes[place], LATEST, isolation_level=COMMITTED).offset == END
    assert listed(nodes[place], MAX_TIMESTAMP, isolation_level=COMMITTED).offset == END - 1
    assert listed(nodes[place], TIME_MS + 6, isolation_level=COMMITTED).offset == 6
    assert listed(nodes[LEADER], LATEST, CONSUMER, isolation_level=COMMITTED).offset == DECIDED


def test_a_follower_returns_the_leaders_epoch_and_refuses_others(nodes: list[RawClient]) -> None:
    epoch = listed(nodes[LEADER], LATEST).leader_epoch
    assert listed(nodes[FOLLOWER], LATEST, leader_epoch=epoch).leader_epoch == epoch
    assert listed(nodes[FOLLOWER], LATEST, leader_epoch=epoch + 1).error_code == E.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [4, 10])
def test_before_any_replica_could_be_read_it_fetches_from_the_leader_only(nodes: list[RawClient], version: int) -> None:
    assert fetched(nodes[LEADER], version).error_code == E.NONE
    assert fetched(nodes[FOLLOWER], version).error_code == E.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("place", [LEADER, FOLLOWER])
def test_it_fetches_as_a_consumer_does(nodes: list[RawClient], place: int, version: int) -> None:
    for isolation_level in (UNCOMMITTED, COMMITTED):
        answers = [fetched(nodes[place], version, it, isolation_level=isolation_level) for it in (CONSUMER, DEBUGGING)]
        assert bytes(answers[0].records or b"") == bytes(answers[1].records or b"") != b""
        assert answers[0].last_stable_offset == answers[1].last_stable_offset == DECIDED

"""Clients that hang up at once, and clients that send large requests together."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from kwire_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch

from testkit.basics.waiting import eventually
from testkit.raw import topics
from testkit.raw.client import RawClient, request_frame
from testkit.servers import brokers
from testkit.servers.brokers import Broker

LATEST = -1
TIMES = 20
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
"""For SO_LINGER: a close sends a reset, and not an orderly end."""

pytestmark = pytest.mark.asks_one_node


def produce(topic: str, value: bytes, acks: int) -> bytes:
    batch = bytes(build_batch([Record(value=value)]))
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
    return request_frame(ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data]), 9)


def end_of(client: RawClient, topic: str) -> int:
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=LATEST)])
    (answer,) = client.call(ListOffsetsRequest(-1, 0, [wanted]), 6).topics[0].partitions
    offset: int = answer.offset
    return offset


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_are_stored_though_their_producer_resets_its_connection_at_once(
    broker: Broker, new_topic: Callable[..., str], acks: int
) -> None:
    topic = new_topic()
    with RawClient(broker.bootstrap) as client:
        eventually(lambda: end_of(client, topic) == 0, f"{topic} is served")
        for number in range(TIMES):
            producer = RawClient(broker.bootstrap)
            producer.send(produce(topic, b"%d" % number, acks))
            producer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
            producer.close()
        eventually(lambda: end_of(client, topic) == TIMES, f"all records are in {topic}")


def test_large_requests_that_arrive_together_are_served_within_a_bounded_memory() -> None:
    clients, size = 12, 900_000
    bounds = {"socket_request_max_bytes": "2000000", "queued_max_request_bytes": "2000000"}
    with brokers.restartable_broker(**bounds) as broker, ExitStack() as stack:
        topics.create(broker.bootstrap, "large", replicas=brokers.NODES)
        reader = stack.enter_context(RawClient(broker.bootstrap))
        eventually(lambda: end_of(reader, "large") == 0, "the topic is served")
        producers = [stack.enter_context(RawClient(broker.bootstrap)) for _ in range(clients)]
        request = produce("large", bytes(size), acks=1)
        with ThreadPoolExecutor(clients) as threads:
            for part in (request[: size // 4], request[size // 4 :]):
                for sent in [threads.submit(client.send, part) for client in producers]:
                    sent.result()
        for client in producers:
            assert client.read_frame()
        eventually(lambda: end_of(reader, "large") == clients, "all are stored")

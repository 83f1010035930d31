"""Sends attacks and holds every answer to the protocol; meanwhile a healthy client goes about its business."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.api_versions import ApiVersionsRequest
from kwire_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire_protocol.records import Record, build_batch, iter_headers, iter_records

from kwire.handlers.apis import API_VERSIONS, APIS
from testkit.raw.client import ConnectionClosed, RawClient, decoded_reply, request_frame
from testkit.raw.fuzz.frames import Attack, FrameMaker

SENTINEL_ID = 0x7E57
SENTINEL = request_frame(ApiVersionsRequest(), 0, correlation_id=SENTINEL_ID)
PATIENCE_S = 20.0
MAY_STAY_SILENT = {0, 1}
"""Produce with acks=0 has no answer, and Fetch waits until the next request comes."""
MAY_WAIT = {11, 14}
"""The APIs whose requests wait for other members, which will not come."""
BRIEF_PATIENCE_S = 0.1
"""The pause before another request is sent; only requests that have no answer before its answer count as waiting."""
SLOWEST_ROUND_S = 20.0
"""A healthy client's round takes milliseconds, and on a busy machine seconds now and then."""


def ensure_topic(client: RawClient, name: str, configs: dict[str, str] | None = None) -> None:
    """Creates a topic of one partition unless it is there."""
    wanted = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name, num_partitions=1, replication_factor=1, configs=wanted)
    (answer,) = client.call(CreateTopicsRequest([topic], timeout_ms=10_000), 7).topics
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), answer


def topic_id(client: RawClient, name: str) -> bytes:
    (topic,) = client.call(MetadataRequest([MetadataRequestTopic(name=name)]), 12).topics
    assert topic.error_code == 0, topic
    found: bytes = topic.topic_id
    return found


class Fuzzer:
    """One attacker. `outcomes` counts the results of its attacks; every answer is decoded to the last byte."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client: RawClient | None = None
        self.outcomes: Counter[str] = Counter()

    def run(self, maker: FrameMaker, attacks: int) -> None:
        for _ in range(attacks):
            attack = maker.attack()
            try:
                self.outcomes[self._send(attack)] += 1
            except ConnectionClosed:
                self.outcomes["closed"] += 1
                self._hang_up()
            except TimeoutError:
                assert int.from_bytes(attack.data[4:6], "big") in MAY_WAIT, f"no answer to {attack}"
                self.outcomes["waited"] += 1
                self._hang_up()
            except BaseException as error:
                error.add_note(f"after {attack.kind}: {attack.data.hex()}")
                raise
        self._hang_up()

    def _send(self, attack: Attack) -> str:
        if self._client is None:
            self._client = RawClient(self._address, timeout_s=PATIENCE_S)
        client = self._client
        key, version = int.from_bytes(attack.data[4:6], "big"), int.from_bytes(attack.data[6:8], "big")
        if not attack.is_whole:
            # Nothing more will come, so the broker must let go, whatever size the frame has announced.
            client.send(attack.data)
            client.end()
            while True:
                client.read_frame()
        if key in MAY_STAY_SILENT:
            client.send(attack.data + SENTINEL)
            reply = client.read_frame()
            if int.from_bytes(reply[:4], "big") == SENTINEL_ID:
                return "unanswered"
            assert int.from_bytes(client.read_frame()[:4], "big") == SENTINEL_ID
        else:
            client.send(attack.data)
            reply = self._reply_or_wait(client) if key in MAY_WAIT else client.read_frame()
        if key == API_VERSIONS and version not in APIS[key].versions:
            version = 0
        assert decoded_reply(reply, key, version)[0] == int.from_bytes(attack.data[8:12], "big", signed=True)
        return "answered"

    def _reply_or_wait(self, client: RawClient) -> memoryview:
        """Raises TimeoutError where the broker keeps the request, however slow the machine is."""
        client.sock.settimeout(BRIEF_PATIENCE_S)
        try:
            return client.read_frame()
        except TimeoutError:
            # It reads what has arrived before it accepts a new connection, and answers in that order.
            with RawClient(self._address, timeout_s=PATIENCE_S) as other:
                other.call(ApiVersionsRequest(), 0)
            return client.read_frame()
        finally:
            client.sock.settimeout(PATIENCE_S)

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class HealthyClient(threading.Thread):
    """A client that produces to a topic of its own and reads its records back, again and again, until it is stopped."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(name="healthy client", daemon=True)
        self._address = address
        self._topic = topic
        self._stopping = threading.Event()
        self.rounds = 0
        self.slowest_s = 0.0
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        with RawClient(self._address) as client:
            # Its records have timestamps of long ago, and must not be deleted between a write and its read.
            ensure_topic(client, self._topic, {"retention.ms": "-1"})
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self.join()
        if error is None and self.error is not None:
            raise self.error

    def run(self) -> None:
        try:
            with RawClient(self._address, timeout_s=30.0) as client:
                while not self._stopping.wait(0.02):
                    started = time.monotonic()
                    self._round(client)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - started)
                    self.rounds += 1
        except BaseException as error:
            self.error = error

    def _round(self, client: RawClient) -> None:
        value = b"round %d" % self.rounds
        batch = build_batch([Record(timestamp=1_700_000_000_000 + self.rounds, value=value)])
        data = [TopicProduceData(self._topic, partition_data=[PartitionProduceData(0, batch)])]
        (topic,) = client.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data), 9).responses
        (written,) = topic.partition_responses
        assert (written.error_code, written.base_offset) == (0, self.rounds), written
        wanted = FetchPartition(0, fetch_offset=self.rounds, partition_max_bytes=1 << 20)
        fetch = FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[FetchTopic(self._topic, partitions=[wanted])])
        (topic,) = client.call(fetch, 12).responses
        (read,) = topic.partitions
        assert (read.error_code, read.high_watermark) == (0, self.rounds + 1), read
        assert read.records is not None
        assert [header.base_offset for _, header in iter_headers(read.records)] == [self.rounds]
        assert [record.value for record in iter_records(read.records)] == [value]

"""Fetch requests of consumers, with and without waits, and some of followers and sessions."""

from __future__ import annotations

from random import Random

import attrs
from kwire_protocol.conversation import decode_reply
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from kwire_protocol.wire import NULL_UUID

from kwire.replicas.partition import Partition
from testkit.fast_paths.topics import NAMES, id_of
from testkit.fast_paths.twins import Twins
from testkit.raw.client import request_frame

API_KEY = 1


@attrs.define(eq=False)
class Consuming:
    """A consumer. It changes its request from time to time, besides the offset."""

    random: Random
    twins: Twins
    _request: FetchRequest | None = None
    _version: int = 0
    _name: str = ""
    _client_id: str = ""

    def frame(self) -> bytes:
        random = self.random
        if self._request is None or random.random() < 0.1:
            self._request = self._new_request()
            self.prepare()
        request, by_id = self._request, self._version >= 13
        [topic] = self.topics
        topic.topic_id = id_of(self.twins, self._name) if by_id else NULL_UUID
        for partition in topic.partitions:
            ends = self._ends(self._name, partition.partition)
            offsets = (*ends, *ends, ends[-1], ends[-1] - 1, 0, *((ends[-1] + 1, -1) if self._seldom() else ()))
            if partition is topic.partitions[0] or random.random() < 0.3:
                partition.fetch_offset = max(random.choice(offsets), -1)
        self.complete(request)
        correlation_id = random.randrange(-(1 << 31), 1 << 31)
        return request_frame(request, self._version, correlation_id=correlation_id, client_id=self._client_id)

    @property
    def topics(self) -> list[FetchTopic]:
        """The topics that it reads."""
        assert self._request is not None
        return self._request.topics

    def prepare(self) -> None:
        """Called after the request has changed."""

    def complete(self, request: FetchRequest) -> None:
        """Called before the request is sent."""

    def received(self, reply: bytes) -> None:
        """Called with what the brokers have sent at once."""

    def _new_request(self) -> FetchRequest:
        random = self.random
        self._name = name = random.choice((*NAMES, *["plain"] * 20, *["busy"] * 5))
        self._version = version = random.choice(
            (11, 12, 12, 13, 16, 16, 18, *((4, 5, 9, 9, 9) if self._seldom() else ()))
        )
        self._client_id = random.choice(("one", "one", "two"))
        index = random.choice((0, 0, 0, 1, *((2, -1) if self._seldom() else ())))
        partitions = [self._partition(index)]
        if random.random() < 0.15:
            partitions.append(self._partition(1 - index if index in (0, 1) else 0))
        request = FetchRequest(
            max_wait_ms=random.choice((100, 500)) if random.random() < 0.4 else 0,
            min_bytes=random.choice((1, 1, 1, 0, 500, 100_000)),
            max_bytes=random.choice((1 << 20, 1 << 20, 100, 0)),
            isolation_level=random.choice((0, 0, 0, 1, *((2,) if self._seldom() else ()))),
            session_id=0,
            session_epoch=0 if version >= 7 and self._seldom() else -1,
            topics=[FetchTopic("" if version >= 13 else name, NULL_UUID, partitions)],
            rack_id="here" if version >= 11 and self._seldom() else "",
        )
        if self._seldom():
            if version >= 15:
                request.replica_state = ReplicaState(random.choice((-2, 2)), -1)
            else:
                request.replica_id = random.choice((-2, 2))
        return request

    def _seldom(self) -> bool:
        return self.random.random() < 0.08

    def _partition(self, index: int) -> FetchPartition:
        random, version = self.random, self._version
        epoch = random.choice((-1, -1, 0, *((1, 5) if self._seldom() else ())))
        return FetchPartition(
            partition=index,
            current_leader_epoch=epoch if version >= 9 else -1,
            last_fetched_epoch=random.choice((0, 1)) if version >= 12 and self._seldom() else -1,
            partition_max_bytes=random.choice((1 << 20, 1 << 20, 150, 0)),
        )

    def _ends(self, name: str, index: int) -> tuple[int, ...]:
        hosted = self.twins.plain.broker.partitions.by_name.get(name, [])
        if not 0 <= index < len(hosted):
            return (0,)
        partition = hosted[index]
        if not isinstance(partition, Partition):
            return (0,)
        log = partition.log
        return log.log_start_offset, partition.last_stable_offset, partition.high_watermark, log.log_end_offset


@attrs.define(eq=False)
class ConsumingInSession(Consuming):
    """A consumer with a session, like Java's: most requests name its partition only if the offset has changed."""

    _topics: list[FetchTopic] = attrs.field(factory=list)
    _session_id: int = 0
    _epoch: int = 0

    @property
    def topics(self) -> list[FetchTopic]:
        return self._topics

    def prepare(self) -> None:
        assert self._request is not None
        self._version = max(self._version, 7)
        self._topics = self._request.topics
        # The session ends, or goes on with another request.
        if self.random.random() < 0.8:
            self._session_id = self._epoch = 0

    def complete(self, request: FetchRequest) -> None:
        random = self.random
        request.session_id, request.session_epoch = self._session_id, self._epoch
        if self._epoch and random.random() < 0.03:
            request.session_epoch += random.choice((-1, 1, 5))
        elif self._epoch:
            self._epoch += 1
        named = not request.session_epoch or random.random() < 0.4
        request.topics = self._topics if named else []
        request.forgotten_topics_data = []
        if request.session_epoch and random.random() < 0.02:
            [topic] = self._topics
            request.forgotten_topics_data = [ForgottenTopic(topic.topic, topic.topic_id, [0])]

    def received(self, reply: bytes) -> None:
        if self._epoch or len(reply) < 4 or int.from_bytes(reply[:4], "big") != len(reply) - 4:
            return
        try:
            response = decode_reply(memoryview(reply)[4:], API_KEY, self._version)[1]
        except Exception:  # the reply to another request
            return
        self._session_id = response.session_id
        self._epoch = 1 if response.session_id else 0

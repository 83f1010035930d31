"""Fetch requests of consumers, with and without waits, and some of followers and sessions."""

from __future__ import annotations

from random import Random

import attrs
from kwire_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kwire_protocol.wire import NULL_UUID

from testkit.fast_paths.topics import NAMES, id_of
from testkit.fast_paths.twins import Twins
from testkit.raw.client import request_frame


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
        request, by_id = self._request, self._version >= 13
        [topic] = request.topics
        topic.topic_id = id_of(self.twins, self._name) if by_id else NULL_UUID
        for partition in topic.partitions:
            ends = self._ends(self._name, partition.partition)
            offsets = (*ends, *ends, ends[-1], ends[-1] - 1, 0, *((ends[-1] + 1, -1) if self._seldom() else ()))
            if partition is topic.partitions[0] or random.random() < 0.3:
                partition.fetch_offset = max(random.choice(offsets), -1)
        correlation_id = random.randrange(-(1 << 31), 1 << 31)
        return request_frame(request, self._version, correlation_id=correlation_id, client_id=self._client_id)

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
        partition = self.twins.plain.broker.partitions.by_name[name][index]
        log = getattr(partition, "log", None)
        if log is None:
            return (0,)
        return log.log_start_offset, partition.last_stable_offset, partition.high_watermark, log.log_end_offset  # type: ignore[union-attr]

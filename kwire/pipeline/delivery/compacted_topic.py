"""A compacted topic of one partition that keeps the newest value of each key, such as a writer's position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import TopicExists, UnknownTopic
from kwire.client.fetching import PartitionReader
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kwire.client.producing import Producer
from kwire.client.topics import NewTopic, create_topics

_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}
_FIRST_COUNT: Final = 32
_FARTHER: Final = 16
"""The factor by which the number of offsets to read grows, up to all, until a key's newest record is found."""


class CompactedTopic:
    """Reads such a topic. A producer writes to it, in one transaction with the data that belongs to the value.

    Readers of committed data wait for open transactions, because these may have newer records; only `committed_since`
    does not wait. All methods raise ClientError.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self.at = TopicPartition(topic, 0)

    def make(self) -> None:
        """Creates the topic if it does not exist."""
        try:
            self._cluster.topic(self.at.topic)
        except UnknownTopic:
            with suppress(TopicExists):
                create_topics(self._cluster, [NewTopic(self.at.topic, 1, configs=_CONFIGS)])

    def newest(self, key: bytes) -> bytes | None:
        """The value of a key; None if there is none, or if it was deleted."""
        first, end = self._ends()
        stop, count = end, _FIRST_COUNT
        while stop > first:
            start = max(first, stop - count)
            found = [it.value for it in self._records(start, stop) if it.key == key]
            if found:
                return found[-1]
            stop, count = start, count * _FARTHER
        return None

    def all(self, isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> dict[bytes, bytes]:
        """The values of all keys. Also empty if the topic does not exist."""
        found: dict[bytes, bytes] = {}
        try:
            first, end = self._ends()
        except UnknownTopic:
            return found
        for it in self._records(first, end, isolation_level):
            if it.key is None:
                continue
            if it.value is None:
                found.pop(it.key, None)
            else:
                found[it.key] = it.value
        return found

    def committed_since(self, offset: int) -> tuple[dict[bytes, bytes | None], int]:
        """The newest values of the keys written from an offset on, and the offset where the next call continues.

        A deleted key has None. It does not wait for open transactions; their records come in a later call.
        """
        first, end = self._ends(IsolationLevel.READ_COMMITTED)
        start = max(first, offset)
        return {it.key: it.value for it in self._records(start, end) if it.key is not None}, max(start, end)

    def write(self, values: Mapping[bytes, bytes | None], now_ms: int) -> None:
        """Writes values that belong to no other data, without a transaction. None deletes the key's value."""
        if values:
            records = [Record(0, now_ms, key, value) for key, value in values.items()]
            Producer(self._cluster).produce({self.at: records})

    def _ends(self, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> tuple[int, int]:
        first, end = (
            list_offsets(self._cluster, self.at.topic, which, isolation_level=level, partitions=[0])[0]
            for which in (EARLIEST, LATEST)
        )
        return first, end

    def _records(
        self, start: int, stop: int, isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> Iterator[Record]:
        with PartitionReader(self._cluster, self.at, start, stop, isolation_level=isolation_level) as reader:
            yield from reader.records()

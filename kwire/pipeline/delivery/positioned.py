"""A writer whose transactions contain its position: its records and its position are committed together.

For jobs that copy records from one place to another. Each part of the work (for example a partition) has its own
writer, with a name that it keeps across restarts. A writer

    1. takes its name, which fences an earlier writer of that name, and aborts its open transaction
    2. reads its position, which only this writer can move from now on
    3. writes records and the position behind them, in one transaction, again and again

So each record is written once, even if processes are killed and the work starts again. Without transactions the
records are written first and the position after them. Then nothing is lost, but records after the last position are
written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from kwire_protocol.compression import NONE
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.producing import Producer
from kwire.pipeline.delivery.compacted_topic import CompactedTopic

TIMEOUT_MS: Final = 60_000


class PositionedWriter:
    """Takes the name. All methods raise ClientError; ProducerFenced if another writer has taken the name since.

    name: becomes the transactional id.
    state_topic: the topic that has the position, under `key`.
    exactly_once: True to use transactions.
    timeout_ms: the time after which the brokers abort a transaction.
    now_ms: the time since the epoch, for the position's record.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        state_topic: CompactedTopic,
        key: bytes,
        *,
        now_ms: Callable[[], int],
        exactly_once: bool = True,
        timeout_ms: int = TIMEOUT_MS,
        compression: int = NONE,
    ) -> None:
        self._state_topic = state_topic
        self._key = key
        self._now_ms = now_ms
        self._exactly_once = exactly_once
        self._producer = Producer(
            cluster,
            transactional_id=name if exactly_once else None,
            transaction_timeout_ms=timeout_ms,
            compression=compression,
        )
        self._producer.init()

    def position(self) -> bytes | None:
        """Returns the last position that was stored; None for a new name."""
        return self._state_topic.newest(self._key)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits the block's records and position as a whole when it ends, and aborts them if it raises.

        Without transactions, records that were written before the block raised may remain.
        """
        if not self._exactly_once:
            yield
            return
        with self._producer.transaction():
            yield

    def write(self, batches: Mapping[TopicPartition, Sequence[Record]]) -> dict[TopicPartition, int]:
        """Writes a batch to each partition. Returns the offsets of their first records, -1 if a broker returns none."""
        return self._producer.produce(batches)

    def keep(self, position: bytes, others: Mapping[bytes, bytes | None] | None = None) -> None:
        """Stores the position, after all that was written. `others` are more values for the state topic."""
        now_ms = self._now_ms()
        values = {**(others or {}), self._key: position}
        self._producer.produce({self._state_topic.at: [Record(0, now_ms, key, value) for key, value in values.items()]})

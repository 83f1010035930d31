"""The ledger: each writer's last decided batch, in a compacted topic of one partition.

A record's key is the writer's name; its value is JSON:

    {"batch": 7, "parts": [[task, records, checksum, begun ms, id, producer id, epoch, of version 2], ...]}

A part without a transaction has only four entries. The record is written in a transaction under the writer's own
transactional id. A run that wants to decide takes that id first, which aborts any other run's unfinished decision, and
only then reads. So what it reads remains the last decision until it writes its own. If another run takes the id
meanwhile, its own decision fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import attrs
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster
from kwire.client.errors import ClientError
from kwire.client.producing import Producer
from kwire.pipeline.delivery.compacted_topic import CompactedTopic
from kwire.pipeline.delivery.parts import OpenTransaction, Part

DEFAULT_TOPIC: Final = "kwire-ledger"
_TIMEOUT_MS: Final = 10_000


class UnreadableLedger(ClientError):
    """A record of the ledger was not written by kwire."""


@attrs.frozen
class Decision:
    batch: int
    parts: tuple[Part, ...]


class Ledger:
    """A writer's entry in the ledger. Creating it fences any earlier owner. Raises ClientError."""

    def __init__(self, cluster: Cluster, writer: str, now_ms: Callable[[], int], topic: str = DEFAULT_TOPIC) -> None:
        self._state_topic = CompactedTopic(cluster, topic)
        self._key = writer.encode()
        self._now_ms = now_ms
        self._producer = Producer(cluster, transactional_id=f"{topic}-{writer}", transaction_timeout_ms=_TIMEOUT_MS)
        self._state_topic.make()
        self._producer.init()

    def last(self) -> Decision | None:
        """The last decision of this writer."""
        value = self._state_topic.newest(self._key)
        return None if value is None else decode(value)

    def decide(self, decision: Decision) -> None:
        """Writes a decision. Raises ProducerFenced if another run has taken the entry: then nothing is decided.

        After another ClientError it may be decided or not; `last` of a new Ledger has the result.
        """
        with self._producer.transaction():
            self._producer.produce({self._state_topic.at: [Record(0, self._now_ms(), self._key, encode(decision))]})


def encode(decision: Decision) -> bytes:
    parts = [
        [
            it.task,
            it.records,
            it.checksum,
            it.begun_ms,
            *(attrs.astuple(it.transaction) if it.transaction is not None else ()),
        ]
        for it in decision.parts
    ]
    return json.dumps({"batch": decision.batch, "parts": parts}, separators=(",", ":")).encode()


def decode(value: bytes) -> Decision:
    """Decodes a record's value. Raises UnreadableLedger."""
    try:
        found: dict[str, Any] = json.loads(value)
        parts = []
        for task, records, checksum, begun_ms, *name in found["parts"]:
            transaction = OpenTransaction(*name) if name else None
            parts.append(Part(task, records, checksum, transaction, begun_ms))
        return Decision(found["batch"], tuple(parts))
    except (ValueError, TypeError, KeyError):
        raise UnreadableLedger(f"the ledger has a record that is none of this version's: {value[:100]!r}") from None

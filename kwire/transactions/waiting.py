"""Batches that wait to join a producer's next transaction while the markers of its last one are written.

A producer gets the response of its EndTxn before the markers are written, and may send its next batch at once. Instead
of making the producer back off, the batch waits for a short time, as in Kafka's `ReplicaManager`. Kafka polls; here the
batch is woken. Times are of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.runtime.futures import Future

Joined: TypeAlias = Future[KafkaError | None] | None
"""None if the batch has joined the transaction; else a future of None when it has, or of the error."""


class UntilEnded(Future[KafkaError | None]):
    """Set when the batch has joined, or with the error if it may not: CONCURRENT_TRANSACTIONS after `timeout_ms`."""

    __slots__ = ("_join", "until_ms")

    def __init__(self, join: Callable[[], Joined], *, timeout_ms: int, now_ms: int) -> None:
        super().__init__(timeout_ms / 1000)
        self._join = join
        self.until_ms = now_ms + timeout_ms

    def give_up(self) -> None:
        if not self.is_set:
            self.set(KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS))

    def go_on(self) -> None:
        """Tries to join again, since the last transaction has ended."""
        if self.is_set:
            return
        try:
            joined = self._join()
        except KafkaError as error:
            self.set(error)
            return
        if joined is None:
            self.set(None)
        else:
            joined.when_set(lambda: self._joined(joined.value))

    def _joined(self, error: KafkaError | None) -> None:
        if not self.is_set:
            self.set(error)


class WaitingForEnd:
    """The waiting batches by transactional id. No entry stays after its timeout, even if no caller waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[UntilEnded]] = {}

    def add(self, transactional_id: str, future: UntilEnded, *, now_ms: int) -> None:
        others = self._waiting.get(transactional_id, ())
        self._waiting[transactional_id] = [it for it in others if it.until_ms > now_ms and not it.is_set] + [future]

    def ended(self, transactional_id: str, *, now_ms: int) -> None:
        for future in self._waiting.pop(transactional_id, ()):
            if future.until_ms > now_ms:
                future.go_on()

"""The requests that wait for the replicas of one partition. A state machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.runtime.futures import Future

ALL_IN_SYNC: Final = -1
"""acks=-1 (all): a producer waits until every replica in sync has its batch."""
DELETED_BY_ALL: Final = -2
"""A value in place of acks: DeleteRecords waits until no live replica has the records."""


class Acknowledgement(Future[KafkaError | None]):
    """A future that is set to None when the replicas have done what a request waits for, or to the error if they
    cannot.

    With `waits_for_others` it is set when other replicas have the batch, or have deleted the records: a client waits
    for at most its request's timeout, and gets REQUEST_TIMED_OUT.
    """

    __slots__ = ("waits_for_others",)

    def __init__(self, *, waits_for_others: bool = False) -> None:
        super().__init__()
        self.waits_for_others = waits_for_others

    def wait_at_most(self, timeout_ms: int) -> None:
        """Limits the time for which the client waits for other replicas."""
        if self.waits_for_others:
            self.timeout_s = timeout_ms / 1000

    def give_up(self) -> None:
        if not self.is_set:
            self.set(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "other replicas have not followed yet"))


@attrs.define(eq=False)
class Acknowledgements:
    """The acknowledgements of one partition that are not decided yet."""

    waiting: list[tuple[int, int, Acknowledgement]] = attrs.field(factory=list)
    """The last offset and acks of appended batches, or of deleted records, and the futures that wait for it."""

    def add(self, last_offset: int, acks: int, *, waits_for_others: bool) -> Acknowledgement:
        future = Acknowledgement(waits_for_others=waits_for_others)
        self.waiting.append((last_offset, acks, future))
        return future

    def settle(self, done_until: Callable[[int], int], *, lacks_replicas: bool) -> None:
        """Sets the futures whose condition is met by now.

        `done_until` returns, for acks, the first offset for which a request still waits. `lacks_replicas`: the ISR is
        smaller than min.insync.replicas.
        """
        waiting, self.waiting = self.waiting, []
        for it in waiting:
            last_offset, acks, future = it
            if future.is_set:
                continue  # its time was up
            if acks == ALL_IN_SYNC and lacks_replicas:
                # In Kafka it waits until its timeout. An earlier response is better for the client.
                future.set(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
            elif last_offset >= done_until(acks):
                self.waiting.append(it)
            else:
                future.set(None)

    def fail(self, error: KafkaError, *, from_offset: int = 0) -> None:
        """Sets the futures that wait for records from that offset on to the error."""
        waiting, self.waiting = self.waiting, []
        for it in waiting:
            last_offset, _, future = it
            if future.is_set:
                continue
            if last_offset >= from_offset:
                future.set(error)
            else:
                self.waiting.append(it)

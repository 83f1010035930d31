"""A log that a fake broker serves to the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from kwire_protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kwire_protocol.messages.list_offsets import ListOffsetsRequest
from kwire_protocol.records import read_header

from testkit.fakes.brokers import FakeBrokers
from testkit.fakes.listed_offsets import response_of


@attrs.define(eq=False)
class Log:
    """A partition as its leader has it. `batch_count` is how many batches an answer has."""

    brokers: FakeBrokers
    batches: list[bytes]
    log_start: int = 0
    batch_count: int = 2
    aborted: list[tuple[int, int]] = attrs.field(factory=list)
    codes: list[int] = attrs.field(factory=list)
    """Errors that come first."""
    leads: Callable[[int], bool] = attrs.field(default=lambda node_id: True)

    def __attrs_post_init__(self) -> None:
        self.brokers.answers[FetchRequest] = self.fetch
        self.brokers.answers[ListOffsetsRequest] = lambda _, request: response_of(
            request, lambda index: (0, self.log_start if request.topics[0].partitions[0].timestamp == -2 else self.end)
        )

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    def fetch(self, node_id: int, request: Any) -> FetchResponse:
        (topic,) = request.topics
        (partition,) = topic.partitions
        if not self.leads(node_id):
            return self.answer(topic, 6)
        if self.codes:
            return self.answer(topic, self.codes.pop(0))
        offset = partition.fetch_offset
        if not self.log_start <= offset <= self.end:
            return self.answer(topic, 1)
        found = [it for it in self.batches if read_header(it).next_offset > offset][: self.batch_count]
        if not found:
            self.brokers.clock.now_s += request.max_wait_ms / 1000
        return self.answer(topic, 0, b"".join(found))

    def answer(self, topic: Any, code: int, records: bytes = b"") -> FetchResponse:
        aborted = [AbortedTransaction(*it) for it in self.aborted]
        end = self.end if not code else -1
        partition = PartitionData(0, code, end, end, aborted_transactions=aborted, records=records)
        return FetchResponse(responses=[FetchableTopicResponse("", topic.topic_id, [partition])])

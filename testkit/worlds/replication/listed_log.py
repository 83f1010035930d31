"""A log as a list of batches, for the fetcher."""

from __future__ import annotations

import attrs
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kwire_protocol.record_batch import assign
from kwire_protocol.records import Record, build_batch, iter_headers

TOPIC_ID = b"topic-id-of-16-b"


KEY = TOPIC_ID, 0


EPOCH = 5


@attrs.define(eq=False)
class ListedLog:
    """Batches as (base offset, next offset, epoch)."""

    batches: list[tuple[int, int, int]] = attrs.field(factory=list)
    log_start_offset: int = 0
    is_held: bool = False
    is_gone: bool = False
    is_throttled: bool = False
    high_watermark: int = 0
    failure: KafkaError | None = None
    _end: int = 0

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1][1] if self.batches else self._end

    @property
    def latest_epoch(self) -> int:
        return self.batches[-1][2] if self.batches else -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        known = [it for it in self.batches if it[2] <= epoch]
        return (known[-1][2], known[-1][1]) if known and epoch <= self.latest_epoch else (-1, -1)

    def append_fetched(self, records: memoryview, *, leader_epoch: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.batches += [(it.base_offset, it.next_offset, it.partition_leader_epoch) for _, it in iter_headers(records)]

    def follow_leader(self, *, leader_epoch: int, high_watermark: int, log_start_offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.log_end_offset))

    def truncate(self, offset: int, *, leader_epoch: int) -> None:
        self.batches = [it for it in self.batches if it[1] <= offset]

    def start_afresh(self, offset: int, *, leader_epoch: int) -> None:
        self.batches.clear()
        self._end = self.log_start_offset = offset


def batch(base_offset: int, count: int = 1, epoch: int = EPOCH) -> bytearray:
    built = bytearray(build_batch([Record(value=b"v") for _ in range(count)]))
    assign(built, 0, base_offset, epoch)
    return built


def response(*answers: PartitionData, session_id: int = 9, error: int = 0) -> FetchResponse:
    return FetchResponse(
        error_code=error,
        session_id=session_id,
        responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(answers))],
    )


def records(*batches: bytes | bytearray, high_watermark: int = 0) -> PartitionData:
    return PartitionData(0, 0, high_watermark, records=memoryview(b"".join(batches)))

"""The requests of a member of a share group, and what it reads out of the responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from kwire_protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kwire_protocol.messages.share_fetch import (
    AcknowledgementBatch as FetchedBatch,
)
from kwire_protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kwire_protocol.records import read_header
from kwire_protocol.wire import Uuid

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
VERSION = 2
Acked = tuple[int, int, int | Sequence[int]]
"""First and last offset, and one type for all or one for each."""
Acks = Sequence[Acked]
Acquired = list[tuple[int, int, int]]


@attrs.define(eq=False)
class ShareRequests:
    """The requests of a member. Every request that continues has the next epoch of its session; the caller counts."""

    name: str
    topic_id: Uuid
    group_id: str = "g"
    epoch: int = 0
    version: int = VERSION

    def fetch_request(
        self,
        partitions: Sequence[int] = (),
        *,
        acks: Acks = (),
        forget: Sequence[int] = (),
        topic_id: Uuid | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        is_renewal: bool = False,
    ) -> ShareFetchRequest:
        topic_id = topic_id or self.topic_id
        partitions_to_fetch = [
            FetchPartition(index) for index in (partitions or ((0,) if self.epoch == 0 or acks else ()))
        ]
        if acks:
            partitions_to_fetch[0].acknowledgement_batches = [
                FetchedBatch(first, last, types(kind)) for first, last, kind in acks
            ]
        return ShareFetchRequest(
            self.group_id,
            self.name,
            self.epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            max_records,
            batch_size,
            mode,
            is_renewal,
            [FetchTopic(topic_id, partitions_to_fetch)] if partitions_to_fetch else [],
            [ForgottenTopic(topic_id, list(forget))] if forget else [],
        )

    def acknowledge_request(self, *batches: Acked, is_renewal: bool = False) -> ShareAcknowledgeRequest:
        """The acknowledgements of partition 0; without batches of none."""
        acknowledgements = [AcknowledgementBatch(first, last, types(kind)) for first, last, kind in batches]
        topics = [AcknowledgeTopic(self.topic_id, [AcknowledgePartition(0, acknowledgements)])]
        return ShareAcknowledgeRequest(self.group_id, self.name, self.epoch, is_renewal, topics if batches else [])


def types(kind: int | Sequence[int]) -> list[int]:
    return [kind] if isinstance(kind, int) else list(kind)


def partition_of(answer: Any, index: int = 0) -> Any:
    """The partition in the response; None if it is not there."""
    found = [data for topic in answer.responses for data in topic.partitions if data.partition_index == index]
    assert len(found) <= 1
    return found[0] if found else None


def acquired(answer: Any, index: int = 0) -> Acquired:
    data = partition_of(answer, index)
    if data is None:
        return []
    assert data.error_code == 0, data.error_code
    return [(it.first_offset, it.last_offset, it.delivery_count) for it in data.acquired_records]


def batches_in(answer: Any, index: int = 0) -> list[tuple[int, int]]:
    """Base and last offset of each batch that came."""
    records = bytes(partition_of(answer, index).records)
    found = []
    position = 0
    while position < len(records):
        header = read_header(records, position)
        found.append((header.base_offset, header.last_offset))
        position += header.size_in_bytes
    return found

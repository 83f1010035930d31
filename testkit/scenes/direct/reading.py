"""Reads Fetch responses and a group's offsets as clients do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
from kwire_protocol.control_records import ControlType, read_control_type
from kwire_protocol.errors import ErrorCode
from kwire_protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic
from kwire_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire_protocol.records import BatchHeader, Record, iter_headers, iter_records

from testkit.scenes.direct.broker_driver import BrokerDriver, TopicPartition

READ_COMMITTED = 1
WHOLE = 1 << 20


@attrs.frozen
class Batch:
    """A batch as it came over the wire."""

    header: BatchHeader
    records: list[Record]

    @property
    def committed(self) -> bool | None:
        """True or False for the marker of a commit or an abort. None for data, and for a batch that compaction has
        emptied.
        """
        if not self.header.is_control or not self.records:
            return None
        return read_control_type(self.records[0].key) is ControlType.COMMIT


@attrs.frozen
class Fetched:
    """One partition's answer; `aborted` as the broker has listed them."""

    batches: list[Batch]
    aborted: list[AbortedTransaction]
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int

    @property
    def end(self) -> int | None:
        """The next offset of the consumer."""
        return self.batches[-1].header.next_offset if self.batches else None


def fetch(driver: BrokerDriver, tp: TopicPartition, offset: int, *, committed: bool, max_bytes: int = WHOLE) -> Fetched:
    topic, index = tp
    request = FetchRequest(
        isolation_level=READ_COMMITTED if committed else 0,
        topics=[
            FetchTopic(topic, partitions=[FetchPartition(index, fetch_offset=offset, partition_max_bytes=max_bytes)])
        ],
    )
    answer = driver.answer(request, 12).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    data = b"" if answer.records == b"" else memoryview(answer.records.read())
    return Fetched(
        [
            Batch(header, list(iter_records(data[position : position + header.size_in_bytes])))
            for position, header in iter_headers(data)
        ],
        answer.aborted_transactions or [],
        answer.log_start_offset,
        answer.last_stable_offset,
        answer.high_watermark,
    )


def read_all(
    driver: BrokerDriver, tp: TopicPartition, offset: int, *, committed: bool, max_bytes: int = WHOLE
) -> Iterator[Fetched]:
    """Answer by answer, up to the end."""
    while True:
        fetched = fetch(driver, tp, offset, committed=committed, max_bytes=max_bytes)
        if fetched.end is None:
            return
        yield fetched
        offset = fetched.end


def visible(fetched: Fetched, offset: int) -> list[Record]:
    """Returns the records for a read_committed application: the clients' filter.

    A producer is hidden from the first offset of one of its aborted transactions up to its abort marker.
    """
    coming = sorted(fetched.aborted, key=lambda txn: txn.first_offset)
    hidden: set[int] = set()
    records: list[Record] = []
    for batch in fetched.batches:
        header = batch.header
        while coming and coming[0].first_offset <= header.last_offset:
            hidden.add(coming.pop(0).producer_id)
        if header.is_control:
            if batch.committed is False:
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            records += [record for record in batch.records if record.offset >= offset]
    return records


def committed_offsets(
    driver: BrokerDriver, group: str, partitions: Iterable[TopicPartition], *, stable: bool
) -> dict[TopicPartition, int | ErrorCode]:
    """Returns the offset of each partition, -1 for none, or the error."""
    topics: dict[str, OffsetFetchRequestTopics] = {}
    for topic, index in partitions:
        topics.setdefault(topic, OffsetFetchRequestTopics(topic)).partition_indexes.append(index)
    wanted = OffsetFetchRequestGroup(group, topics=list(topics.values()))
    answer = driver.answer(OffsetFetchRequest(groups=[wanted], require_stable=stable), 8).groups[0]
    assert answer.error_code == ErrorCode.NONE
    return {
        (topic.name, it.partition_index): ErrorCode(it.error_code) if it.error_code else it.committed_offset
        for topic in answer.topics
        for it in topic.partitions
    }

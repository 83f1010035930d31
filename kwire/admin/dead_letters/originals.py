"""Reads the records that letters refer to. They may be gone: deleted, compacted away, or their topic with them.

A letter does not name the topic's id. If the topic was deleted and created again, another record may have the offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Final

from kwire_protocol.records import Record

from kwire.admin.dead_letters.letters import Origin, Span, read_span
from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import UnknownTopic
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets

MAX_BYTES: Final = 4 << 20
"""The maximum size of keys and values that are returned at once, without the last record."""

_FETCH_BYTES: Final = 256 << 10
_NEAR: Final = 500
"""The maximum distance of two offsets that are read together, with the records between them."""


class Gone(Enum):
    """The reason why a record cannot be read."""

    TOPIC = "its record is gone: the topic does not exist"
    PARTITION = "its record is gone: the topic does not have the partition"
    DELETED = "its record is gone: it is before the start of the log"
    BEHIND = "its record is gone: it is behind the end of the log"
    REMOVED = "its record is gone: the log does not have it, perhaps since compaction"


def read_originals(cluster: Cluster, wanted: Collection[Origin]) -> dict[Origin, Record | Gone]:
    """Returns the records that fit into MAX_BYTES, but at least one; the caller requests the others later.

    Raises ClientError.
    """
    by_partition: dict[TopicPartition, set[int]] = defaultdict(set)
    for it in wanted:
        by_partition[it.at].add(it.offset)
    found: dict[Origin, Record | Gone] = {}
    room = MAX_BYTES
    for at, offsets in by_partition.items():
        missing = _missing(cluster, at, offsets)
        found |= {Origin(at, offset): why for offset, why in missing.items()}
        for run in _runs(sorted(offsets - missing.keys())):
            read_through = run[-1]
            span = Span(at, run[0], run[-1] + 1)
            # The record was delivered, perhaps to a group with isolation level read_uncommitted.
            level = IsolationLevel.READ_UNCOMMITTED
            records = {}
            for record in read_span(cluster, span, isolation_level=level, fetch_bytes=_FETCH_BYTES):
                if record.offset in offsets:
                    records[record.offset] = record
                    room -= len(record.key or b"") + len(record.value or b"")
                    if room <= 0:
                        read_through = record.offset
                        break
            found |= {Origin(at, it): records.get(it, Gone.REMOVED) for it in run if it <= read_through}
            if room <= 0:
                return found
    return found


def _missing(cluster: Cluster, at: TopicPartition, offsets: Collection[int]) -> dict[int, Gone]:
    try:
        if at.partition not in cluster.topic(at.topic).leaders:
            return dict.fromkeys(offsets, Gone.PARTITION)
        start, end = (
            list_offsets(cluster, at.topic, which, partitions=[at.partition])[at.partition]
            for which in (EARLIEST, LATEST)
        )
    except UnknownTopic:
        return dict.fromkeys(offsets, Gone.TOPIC)
    return {offset: Gone.DELETED if offset < start else Gone.BEHIND for offset in offsets if not start <= offset < end}


def _runs(offsets: Sequence[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] > _NEAR:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run

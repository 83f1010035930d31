"""Letters as values, a selection of them, and reading them from a dead-letter topic.

A group may copy a record with its letter, or only refer to it. Such a letter has no key, no value and no headers but
its own. The copy of a record without key, value and headers looks the same; it is read from its origin, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
from kwire_protocol import letter_headers
from kwire_protocol.kafka_error import quoted
from kwire_protocol.records import Record

from kwire.client.cluster import Cluster, TopicPartition
from kwire.client.errors import ClientError
from kwire.client.fetching import OffsetOutOfRange, PartitionReader
from kwire.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets

FETCH_BYTES: Final = 1 << 20
_LARGEST: Final = 2**63 - 1
_LONGEST_NUMBER: Final = 19


@attrs.frozen
class Origin:
    """The place where a record is, or was."""

    at: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.at} offset {self.offset}"


@attrs.frozen(kw_only=True)
class Letter:
    """A dead letter. `at` and `offset` are its own place; key, value and headers are the record's, if copied."""

    at: TopicPartition
    offset: int
    timestamp_ms: int
    origin: Origin
    group_id: str | None
    delivery_count: int | None
    reason: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The record's headers, without the letter's own."""

    @property
    def is_copy(self) -> bool:
        """True if the letter has the record's content."""
        return self.key is not None or self.value is not None or bool(self.headers)

    @classmethod
    def read(cls, at: TopicPartition, record: Record) -> Letter | None:
        """Returns None if the record has no headers about its origin: it is no dead letter."""
        own = {name: value for name, value in record.headers if name.startswith(letter_headers.PREFIX)}
        topic = _text(own.get(letter_headers.ORIGIN_TOPIC))
        partition = _number(own.get(letter_headers.ORIGIN_PARTITION))
        offset = _number(own.get(letter_headers.ORIGIN_OFFSET))
        if not topic or partition is None or partition >= 1 << 31 or offset is None:
            return None
        return cls(
            at=at,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            origin=Origin(TopicPartition(topic, partition), offset),
            group_id=_text(own.get(letter_headers.GROUP)),
            delivery_count=_number(own.get(letter_headers.DELIVERY_COUNT)),
            reason=_text(own.get(letter_headers.MESSAGE)),
            key=record.key,
            value=record.value,
            headers=tuple(it for it in record.headers if not it[0].startswith(letter_headers.PREFIX)),
        )


@attrs.frozen(kw_only=True)
class Selection:
    """A filter of the letters of a topic; without restrictions it selects all of them."""

    partition: int | None = None
    offsets: frozenset[int] = frozenset()
    """The offsets of letters in `partition`; empty for all."""
    groups: frozenset[str] = frozenset()
    origin_topics: frozenset[str] = frozenset()
    origin_partition: int | None = None
    origin_offset: int | None = None
    reason: str | None = None
    """A part of the reason; upper and lower case are equal."""
    since_ms: int | None = None
    until_ms: int | None = None
    """The end of the time range, exclusive."""

    @property
    def is_everything(self) -> bool:
        return self == Selection()

    def matches(self, letter: Letter) -> bool:
        return (
            self.is_at(letter.at.partition, letter.offset)
            and (not self.groups or letter.group_id in self.groups)
            and (not self.origin_topics or letter.origin.at.topic in self.origin_topics)
            and self.origin_partition in (None, letter.origin.at.partition)
            and self.origin_offset in (None, letter.origin.offset)
            and (self.reason is None or self.reason.lower() in (letter.reason or "").lower())
            and (self.since_ms is None or letter.timestamp_ms >= self.since_ms)
            and (self.until_ms is None or letter.timestamp_ms < self.until_ms)
        )

    def is_at(self, partition: int, offset: int) -> bool:
        """Returns True if the selection may contain a letter at that place."""
        return self.partition in (None, partition) and (not self.offsets or offset in self.offsets)


@attrs.frozen
class Span:
    """The offsets of a partition from `start` up to, but not including, `stop`."""

    at: TopicPartition
    start: int
    stop: int


def spans_of(cluster: Cluster, topic: str, selection: Selection) -> list[Span]:
    """Returns the spans to read for a selection, in order. Records that are written from now on are not part of them.

    Raises UnknownTopic, ClientError for an offset that does not exist, and other ClientErrors.
    """
    partitions = None
    if selection.partition is not None:
        cluster.leader(TopicPartition(topic, selection.partition))
        partitions = [selection.partition]
    committed = IsolationLevel.READ_COMMITTED
    starts = list_offsets(cluster, topic, EARLIEST, partitions=partitions)
    stops = list_offsets(cluster, topic, LATEST, isolation_level=committed, partitions=partitions)
    if selection.offsets:
        (index,) = starts
        return [_span_of_one(topic, index, offset, starts[index], stops[index]) for offset in sorted(selection.offsets)]
    if selection.since_ms is not None:
        # Everything before the first record at or after since_ms is older. Without such a record there is no span.
        starts = list_offsets(cluster, topic, max(selection.since_ms, 0), partitions=partitions)
    return [
        Span(TopicPartition(topic, index), start, stops[index])
        for index, start in sorted(starts.items())
        if start < stops.get(index, start)
    ]


def _span_of_one(topic: str, index: int, offset: int, start: int, stop: int) -> Span:
    at = TopicPartition(topic, index)
    if start <= offset < stop:
        return Span(at, offset, offset + 1)
    has = f"it has the offsets {start} to {stop - 1}" if start < stop else "it is empty"
    raise ClientError(f"offset {offset} of {at} not found: {has}")


def read_span(
    cluster: Cluster,
    span: Span,
    *,
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Record]:
    """Yields the records of a span. Records that are deleted meanwhile are left out. Raises ClientError."""
    start = span.start
    while start < span.stop:
        reader = PartitionReader(
            cluster, span.at, start, span.stop, isolation_level=isolation_level, fetch_bytes=fetch_bytes
        )
        try:
            with reader:
                for record in reader.records():
                    start = record.offset + 1
                    yield record
                return
        except OffsetOutOfRange as error:
            if error.earliest <= start:
                raise
            start = error.earliest


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _number(value: bytes | None) -> int | None:
    """Returns None if the value is no offset, count or index."""
    if value is None or not value.isdigit() or len(value) > _LONGEST_NUMBER:
        return None
    number = int(value)
    return number if number <= _LARGEST else None


def location_text(letter: Letter) -> str:
    """Returns the place of a letter as text for messages."""
    group = "" if letter.group_id is None else f", group {quoted(letter.group_id)}"
    return f"{letter.at} offset {letter.offset} (record {letter.origin}{group})"

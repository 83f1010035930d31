"""Dead letters as a share group's leader writes them, in Kafka's format."""

from __future__ import annotations

from kwire_protocol.records import Record

from kwire.client.cluster import TopicPartition

REJECTED = b"Offset rejected by client."
COUNTED = b"Offset delivery count exceeded the threshold."


def letter_headers(
    at: TopicPartition, offset: int, *, group: str = "g", count: int = 1, reason: bytes = REJECTED
) -> list[tuple[str, bytes | None]]:
    prefix = "__dlq.errors."
    return [
        (f"{prefix}topic", at.topic.encode()),
        (f"{prefix}partition", str(at.partition).encode()),
        (f"{prefix}offset", str(offset).encode()),
        (f"{prefix}group", group.encode()),
        (f"{prefix}delivery.count", str(count).encode()),
        (f"{prefix}message", reason),
    ]


def reference(at: TopicPartition, offset: int, *, timestamp_ms: int = 1_000, group: str = "g") -> Record:
    """A letter without the record."""
    return Record(0, timestamp_ms, headers=letter_headers(at, offset, group=group))


def copy(
    at: TopicPartition,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *headers: tuple[str, bytes | None],
    timestamp_ms: int = 1_000,
    group: str = "g",
    reason: bytes = REJECTED,
) -> Record:
    own = letter_headers(at, offset, group=group, reason=reason)
    return Record(0, timestamp_ms, key, value, [*headers, *own])

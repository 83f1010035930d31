"""The calls that the scenes need of a client. Each returns when the broker has answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import attrs


class Sent(NamedTuple):
    """A record to send. Without a time, the client's clock counts; without a partition, its partitioner."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """An acknowledgement. The time is the broker's for a topic with append time."""

    partition: int
    offset: int
    timestamp_ms: int


class Stored(NamedTuple):
    """A record that was read."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp_ms: int
    has_append_time: bool
    partition: int
    offset: int


class Refused(Exception):
    """A record was refused. `code` is Kafka's error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@attrs.frozen(kw_only=True)
class ProducerConfig:
    """compression.type, acks, enable.idempotence, batch.size and max.request.size."""

    codec: str | None = None
    acks: int | str = "all"
    is_idempotent: bool = False
    batch_bytes: int = 16_384
    max_request_bytes: int = 1_000_000


@attrs.frozen(kw_only=True)
class ReaderConfig:
    """Without a value, the client's default counts."""

    reset: str = "earliest"
    """auto.offset.reset: earliest, latest or none."""
    isolation: str | None = None
    """isolation.level."""
    fetch_bytes: int | None = None
    """The maximum size of a fetch, for each partition and in all."""


class Producer(Protocol):
    def send(self, topic: str, records: Iterable[Sent]) -> list[RecordMetadata]:
        """Sends them together, and waits for all. Raises Refused for the first refused one."""

    def settle(self, other_topic: str) -> None:
        """Returns when everything is sent that needs no answer. The producer has not seen `other_topic` yet."""


class Reader(Protocol):
    """A consumer without a group, with partitions of one topic. Raises `Client.out_of_range`."""

    def take(self, count: int) -> list[Stored]:
        """The next records, which must be so many."""

    def seek(self, partition: int, offset: int) -> None: ...

    def seek_to_beginning(self, partition: int) -> None: ...

    def seek_to_end(self, partition: int) -> None:
        """Records that are sent afterwards are the next."""

    def pause(self, partition: int) -> None: ...

    def resume(self, partition: int) -> None: ...

    def bounds(self, partition: int) -> tuple[int, int]:
        """The log start, and the high watermark."""

    def at_time(self, partition: int, timestamp_ms: int) -> tuple[int, int | None] | None:
        """The first record at or after the time: its offset, and its time if the client has it."""


class Client(Protocol):
    @property
    def earliest_ms(self) -> int:
        """The smallest time that it can send."""

    @property
    def out_of_range(self) -> tuple[type[Exception], ...]:
        """The errors of a reader whose position does not exist, and that may not go elsewhere."""

    @property
    def unknown_codes(self) -> frozenset[int]:
        """The error codes that this client lacks: it reports UNKNOWN_SERVER_ERROR for them."""

    def producing(self, bootstrap: str, config: ProducerConfig) -> AbstractContextManager[Producer]: ...

    def reading(
        self, bootstrap: str, topic: str, config: ReaderConfig, *, partitions: Sequence[int] = (0,)
    ) -> AbstractContextManager[Reader]:
        """Reading starts at the beginning."""

"""The client's interface in the scenes: a few verbs, each of which returns when the broker has answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

Spot = tuple[str, int]
"""Topic and partition."""


class Taken(NamedTuple):
    """A record that a member of a group was given."""

    partition: int
    offset: int
    value: bytes


class Source(Protocol):
    """A member of a group that reads read_committed and commits nothing by itself."""

    def take(self, count: int) -> list[Taken]:
        """The next records, which must be so many."""


class Producer(Protocol):
    """A transactional producer that has been initialised. What the client raises goes through."""

    def begin(self) -> None: ...

    def send(self, topic: str, values: Iterable[bytes], *, partition: int = 0) -> None:
        """Returns when all are acknowledged; raises what the first refused one was refused with."""

    def send_offsets(self, offsets: Mapping[Spot, int], source: Source) -> None:
        """Sends the offsets in the transaction, with all that the client has of the member."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Client(Protocol):
    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The errors that its calls raise."""

    def producing(
        self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> AbstractContextManager[Producer]:
        """`timeout_ms` is the transaction's; a transaction that is open in the end is left to the broker."""

    def reading(self, bootstrap: str, group: str, topic: str) -> AbstractContextManager[Source]: ...

    def values(self, bootstrap: str, topic: str, partitions: Sequence[int], *, committed: bool) -> list[bytes]:
        """Returns the values up to the end, by partition: read_committed, or else read_uncommitted."""

    def is_fenced(self, error: Exception) -> bool:
        """True if the error means that another producer has taken over."""

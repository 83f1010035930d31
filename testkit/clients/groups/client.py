"""The calls that the scenes need of a client. Each returns when the broker has answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import attrs

from testkit.clients.members import MemberProcess

GIVEN, TAKEN = "given", "taken"


class Taken(NamedTuple):
    """A record that a member was given."""

    partition: int
    offset: int
    value: bytes | None


class Committed(NamedTuple):
    """A committed offset, and the text that was committed with it."""

    offset: int
    metadata: str = ""


class Refused(Exception):
    """A member or a commit was refused. `code` is Kafka's error code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Evicted(Exception):
    """A commit was refused because the group does not have the member any more, or not in this generation.

    Some clients put an error of their own in the place of Kafka's.
    """


@attrs.frozen(kw_only=True)
class MemberConfig:
    """A member's configuration; without a value, the client's default counts."""

    group: str
    strategy: str | None = None
    """One of the client's strategies."""
    way: str = "sync"
    """The way of committing: one of those that the client has."""
    reset: str = "earliest"
    """auto.offset.reset."""
    client_id: str | None = None
    instance: str | None = None
    """group.instance.id."""
    session_ms: int | None = None
    max_poll_ms: int | None = None
    looks_often: bool = False
    """True if it requests the metadata of topics several times in a second."""


class Offsets(Protocol):
    """Commits and fetches a group's offsets."""

    def commit_offsets(self, topic: str, offsets: Mapping[int, Committed]) -> None:
        """Commits offsets by partition. Raises Refused, or Evicted."""

    def committed(self, topic: str, partition: int) -> Committed | None: ...


class Member(Offsets, Protocol):
    @property
    def owned(self) -> list[int]:
        """The partitions that it has, of one topic."""

    @property
    def topics(self) -> set[str]:
        """The topics that it has partitions of."""

    @property
    def changes(self) -> list[tuple[str, list[int]]]:
        """The partitions that were GIVEN to it and TAKEN from it, each time."""

    def subscribe(self, topic: str) -> None: ...

    def subscribe_to_pattern(self, pattern: str) -> None:
        """Subscribes to a regular expression, with a circumflex at its start."""

    def poll(self) -> list[Taken]:
        """Returns the records that come within a moment. Raises Refused."""

    def take(self, count: int) -> list[Taken]:
        """Returns the next records, and does not read beyond them. Raises Refused."""

    def commit(self) -> None:
        """Commits what it took, in its way. Returns when that is done, unless it is done when the member leaves."""

    def close(self) -> None: ...


class Client(Protocol):
    @property
    def strategies(self) -> Sequence[str]: ...

    @property
    def crash_strategies(self) -> Sequence[str | None]:
        """The strategies that a member in a process of its own can have; None is the default."""

    @property
    def ways(self) -> Sequence[str]:
        """The ways in which its members commit: "sync", "at close", and others."""

    @property
    def bytes_after_metadata(self) -> int:
        """The number of bytes that it adds to the metadata of a commit."""

    def joining(self, bootstrap: str, config: MemberConfig) -> AbstractContextManager[Member]:
        """A member that is not subscribed yet."""

    def in_a_process(
        self, bootstrap: str, topic: str, config: MemberConfig
    ) -> AbstractContextManager[MemberProcess]: ...

    def assigned(
        self, bootstrap: str, group: str, topic: str, partitions: Sequence[int] = (0,)
    ) -> AbstractContextManager[Offsets]:
        """A consumer that uses the group's offsets without being a member."""

    def settle(self, members: Sequence[Member], partitions: int, *, most: int) -> list[list[int]]:
        """Polls until they share the partitions of one topic; returns those of each."""


class CooperativeClient(Client, Protocol):
    @property
    def cooperative(self) -> str:
        """The strategy with which members keep what does not move."""

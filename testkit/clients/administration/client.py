"""The calls that the scenes need of a client. Each returns when the broker has answered, and raises Refused."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from testkit.clients.groups.client import Committed

SET_FOR_TOPIC, DEFAULT = 1, 5
"""Where the value of a config is from, as in the protocol."""


class Refused(Exception):
    """`code` is Kafka's error code. The message is empty if the client keeps it to itself."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class Config(NamedTuple):
    value: str
    source: int


class Cluster(NamedTuple):
    cluster_id: str
    controller: int
    addresses: dict[int, str]
    """Host and port of each broker."""


class DescribedMember(NamedTuple):
    client_id: str
    instance: str | None
    host: str
    partitions: list[int]


class DescribedGroup(NamedTuple):
    state: str
    strategy: str
    members: list[DescribedMember]


class Admin(Protocol):
    def create(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """With one replica."""

    def delete(self, topic: str) -> None: ...

    def grow(self, topic: str, partitions: int, *, validate_only: bool = False) -> None:
        """To so many partitions in all."""

    def topics(self) -> set[str]: ...

    def partitions(self, topic: str) -> int:
        """How many there are."""

    def configs(self, topic: str, *names: str) -> dict[str, Config]:
        """Those that are named, or else all."""

    def alter(self, topic: str, name: str, value: str) -> None: ...

    def cluster(self) -> Cluster: ...

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """The log start afterwards; -1 is for all records."""

    def groups(self) -> set[str]: ...

    def offsets(self, group: str) -> dict[tuple[str, int], Committed]:
        """By topic and partition."""


class FullAdmin(Admin, Protocol):
    """What not every client has."""

    def delete_group(self, group: str) -> None: ...

    def create_acl(self) -> None:
        """One that lets somebody read a topic."""

    def delete_acls(self) -> None:
        """Those like that one."""


class FurtherAdmin(FullAdmin, Protocol):
    """What even fewer clients have."""

    def described(self, group: str) -> DescribedGroup: ...

    def listed(self, group: str, *states: str) -> str | None:
        """The state of a group that is listed among all, or among those in the given states."""

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None: ...

    def offset_at(self, topic: str, time: str | int, *, committed: bool) -> tuple[int, int]:
        """Offset and time of a record of partition 0, or -1 for what there is not.

        The first one since a time, or one that EARLIEST, LATEST or MAX_TIMESTAMP names; as read_committed sees it, or
        as read_uncommitted does.
        """


EARLIEST, LATEST, MAX_TIMESTAMP = "earliest", "latest", "max timestamp"


class Client(Protocol):
    def administering(self, bootstrap: str) -> AbstractContextManager[Admin]: ...


class FullClient(Protocol):
    def administering(self, bootstrap: str) -> AbstractContextManager[FullAdmin]: ...


class FurtherClient(Protocol):
    def administering(self, bootstrap: str) -> AbstractContextManager[FurtherAdmin]: ...

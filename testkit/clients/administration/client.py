"""The calls that the scenes need of a client. Each returns when the broker has answered, and raises Refused."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from testkit.clients.groups.client import Committed

SET_FOR_TOPIC, DEFAULT = 1, 5
"""The sources of a configuration's value, as in the protocol."""


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
        """Creates a topic with one replica."""

    def delete(self, topic: str) -> None: ...

    def grow(self, topic: str, partitions: int, *, validate_only: bool = False) -> None:
        """Adds partitions, up to so many in all."""

    def topics(self) -> set[str]: ...

    def partitions(self, topic: str) -> int:
        """Returns the number of partitions."""

    def configs(self, topic: str, *names: str) -> dict[str, Config]:
        """Returns the named configs, or else all."""

    def alter(self, topic: str, name: str, value: str) -> None: ...

    def cluster(self) -> Cluster: ...

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Deletes records, all if `before` is -1; returns the log start afterwards."""

    def groups(self) -> set[str]: ...

    def offsets(self, group: str) -> dict[tuple[str, int], Committed]:
        """Returns a group's offsets by topic and partition."""


class FullAdmin(Admin, Protocol):
    """Requests that not every client has."""

    def delete_group(self, group: str) -> None: ...

    def create_acl(self) -> None:
        """Creates an ACL that lets a user read a topic."""

    def delete_acls(self) -> None:
        """Deletes the ACLs that match it."""


class FurtherAdmin(FullAdmin, Protocol):
    """Requests that even fewer clients have."""

    def described(self, group: str) -> DescribedGroup: ...

    def listed(self, group: str, *states: str) -> str | None:
        """Returns the state of a group that is listed among all, or among those in the given states."""

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None: ...

    def offset_at(self, topic: str, time: str | int, *, committed: bool) -> tuple[int, int]:
        """Returns offset and time of a record of partition 0, or -1 for what there is not.

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

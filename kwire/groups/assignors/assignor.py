"""What an assignor is asked, and what it answers.

A question holds no names of topics: a topic that is made again under its name is another topic. An answer holds every
member. One whose part stays as it is gets back the very object it came with, so that a caller finds what changed by
`is`, without comparing thousands of sets.

An assignor relies on nothing that a log could have told it wrongly. Partitions that do not exist, that a member no
longer subscribes to, or that two members have are given to others as if nobody had them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import attrs
from kwire_protocol.wire import Uuid

Partitions: TypeAlias = frozenset[int]

Assignment: TypeAlias = Mapping[Uuid, Partitions]
"""Partitions by topic id, without empty sets."""


@attrs.frozen
class TopicSpec:
    """`racks` has for each partition the racks of its replicas. It is empty when none are known."""

    partition_count: int
    racks: tuple[frozenset[str], ...] = ()

    def racks_of(self, partition: int) -> frozenset[str]:
        return self.racks[partition] if self.racks else frozenset()


@attrs.frozen
class MemberSpec:
    """`topics`: ids of the topics it subscribes to that exist; members that subscribe alike best share the object.

    `assigned` is its part of the target assignment so far.
    """

    topics: frozenset[Uuid]
    assigned: Assignment
    rack_id: str | None = None
    instance_id: str | None = None


@attrs.frozen
class GroupSpec:
    """`members` by member id; `topics` has at least those that a member subscribes to."""

    members: Mapping[str, MemberSpec]
    topics: Mapping[Uuid, TopicSpec]


class Assignor(Protocol):
    """`name` is what clients ask for, and `group.consumer.assignors` lists."""

    name: str

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """The new target assignment, by member id. Each partition of a subscribed topic has exactly one owner."""
        ...

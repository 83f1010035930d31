"""The interface of an assignor: its input and its output.

A `GroupSpec` has no topic names: a topic that is created again under its name is another topic. The output has every
member. A member whose part does not change gets back the same object that it had, so that a caller finds the changes
by `is`, without comparing thousands of sets.

An assignor does not rely on the log being correct. Partitions that do not exist, that a member no longer subscribes to,
or that two members have are assigned as if no member had them.
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
    """`topics`: the ids of the existing topics that it subscribes to; equal subscriptions should share one object.

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
    """`name` is the assignor's name in requests and in `group.consumer.assignors`."""

    name: str

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """The new target assignment, by member id. Each partition of a subscribed topic has exactly one owner."""
        ...

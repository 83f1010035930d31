"""A member of a consumer group as values: its metadata and its current assignment.

Both are frozen, and each is one record of `__consumer_offsets` (`changes.py`). A change of a member replaces one of
them, so the value before can be put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Final

import attrs
from kwire_protocol.wire import Uuid

Partitions = Mapping[Uuid, Mapping[int, int]]
"""Topic id -> partition -> the member epoch in which the member got it (KIP-1251). No empty topics."""

Owned = Mapping[Uuid, frozenset[int]]
"""Topic id -> partitions, as a member reports them."""

NOTHING: Final[Partitions] = {}
_NOTHING_OF_TOPIC: Final[Mapping[int, int]] = {}

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
"""The member leaves the group."""
STATIC_LEAVING_EPOCH: Final = -2
"""The static member leaves, and expects to be back before its session ends."""


class MemberState(IntEnum):
    """The progress of a member between two assignments. The numbers are those of Kafka's `MemberState`, in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has not given up all partitions that it has to."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not given up."""
    UNKNOWN = 127
    """A later version wrote a state that this one does not know."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in cls.__members__.values() else cls.UNKNOWN


@attrs.frozen
class ClassicProtocol:
    """A member that uses the classic protocol's requests. `protocols` are its assignors, preferred first.

    Each has the metadata that the member sent in JoinGroup: a subscription of the consumer protocol.
    """

    session_timeout_ms: int
    protocols: Mapping[str, bytes]


@lru_cache(maxsize=16)
def _first_equal(names: frozenset[str]) -> frozenset[str]:
    return names


def _shared(names: frozenset[str]) -> frozenset[str]:
    """Returns one shared object for equal sets: members of a group mostly subscribe to the same topics.

    Otherwise each member has strings of its own, from the wire or the log, which are 280 KiB for 2,000 names.
    """
    return _first_equal(names)


@attrs.frozen
class MemberMetadata:
    """The member's request. `subscribed_topic_regex` is empty without one, `rebalance_timeout_ms` -1 if unknown.

    `classic` is None for members that send ConsumerGroupHeartbeat.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = attrs.field(default=frozenset(), converter=_shared)
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicProtocol | None = None


@attrs.frozen
class CurrentAssignment:
    """The member's partitions. `assigned` are those that it may use, or gets with the next response.

    It still uses those in `pending_revocation`, or has not yet reported that it stopped.
    """

    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    pending_revocation: Partitions = NOTHING

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved_to(
        self, epoch: int, state: MemberState, assigned: Partitions, pending_revocation: Partitions = NOTHING
    ) -> CurrentAssignment:
        """Returns the next one. Its previous epoch is this one's, to recognize a member whose response was lost."""
        return CurrentAssignment(epoch, self.epoch, state, assigned, pending_revocation)

    def held(self) -> Partitions:
        """All partitions that no other member may have: those that it may use, and those that it is to give up."""
        if not self.pending_revocation:
            return self.assigned
        held = dict(self.assigned)
        for topic_id, partitions in self.pending_revocation.items():
            held[topic_id] = {**held.get(topic_id, _NOTHING_OF_TOPIC), **partitions}
        return held

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch in which the member got a partition that it has or is to give up; None for other partitions."""
        epoch = self.assigned.get(topic_id, _NOTHING_OF_TOPIC).get(partition)
        return self.pending_revocation.get(topic_id, _NOTHING_OF_TOPIC).get(partition) if epoch is None else epoch


NEW_MEMBER: Final = CurrentAssignment()


def owned_partitions(reported: Iterable[tuple[Uuid, Iterable[int]]]) -> Owned:
    """Returns the partitions that a member reports; a topic may occur more than once."""
    owned: dict[Uuid, frozenset[int]] = {}
    for topic_id, partitions in reported:
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(partitions)
    return owned


def owns_any(owned: Owned, partitions: Partitions) -> bool:
    return any(not owned.get(topic_id, frozenset()).isdisjoint(of_topic) for topic_id, of_topic in partitions.items())


def owns_only(owned: Owned, partitions: Partitions) -> bool:
    return all(of_topic <= partitions.get(topic_id, _NOTHING_OF_TOPIC).keys() for topic_id, of_topic in owned.items())

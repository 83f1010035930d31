"""The simple assignor of share groups (KIP-932): partitions may be shared, so it deals out slots.

Each partition has the same number of slots: one, or, if there are more members than partitions, as many as it takes to
give every member a partition. The slots are divided so that the members' parts differ by at most one. If all members
have the same subscription, all partitions are divided at once. Otherwise each topic is divided among its subscribers.

Members keep what they have, as far as these numbers allow. Kafka's `SimpleAssignor` (4.3.1) aims at the same numbers.
It deals in the order of a Java hash map, and leaves a slot free that only members could take that have the partition
already. Here another member takes it, and gives up one of its own for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs
from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import Assignment, GroupSpec, Partitions

TopicIdPartition: TypeAlias = tuple[Uuid, int]


class SimpleAssignor:
    name = "simple"

    def assign(self, group: GroupSpec, assignable: Mapping[Uuid, Partitions]) -> dict[str, Assignment]:
        """The new target assignment, by member id. Every assignable partition of a subscribed topic is in it.

        `assignable` are the partitions that may be assigned, whose states are initialized.
        """
        member_ids = sorted(group.members)
        parts: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in member_ids}
        for pool, subscribers in _pools(group, member_ids, assignable):
            had = {
                member_id: {
                    (topic, partition)
                    for topic, partitions in group.members[member_id].assigned.items()
                    for partition in partitions
                }
                for member_id in subscribers
            }
            for member_id, has in _Deal.of(pool, subscribers, had).run().items():
                for topic, partition in has:
                    parts[member_id].setdefault(topic, set()).add(partition)
        return {member_id: _same_or_new(group.members[member_id].assigned, part) for member_id, part in parts.items()}


def _pools(
    group: GroupSpec, member_ids: Sequence[str], assignable: Mapping[Uuid, Partitions]
) -> list[tuple[list[TopicIdPartition], list[str]]]:
    """Returns the divisions: partitions, and the members among which they are divided."""
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in member_ids:
        for topic in group.members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    partitions = {topic: [(topic, it) for it in sorted(assignable.get(topic, ()))] for topic in sorted(subscribers)}
    if len({member.topics for member in group.members.values()}) == 1:
        return [([partition for of_topic in partitions.values() for partition in of_topic], list(member_ids))]
    return [(of_topic, subscribers[topic]) for topic, of_topic in partitions.items()]


def _same_or_new(before: Assignment, part: Mapping[Uuid, set[int]]) -> Assignment:
    after = {topic: frozenset(partitions) for topic, partitions in part.items()}
    return before if after == before else after


@attrs.define(eq=False)
class _Deal:
    """One division. `has` are the members' partitions so far, `holders` the number of members of each partition."""

    sharing: int
    quotas: Mapping[str, int]
    has: dict[str, set[TopicIdPartition]]
    holders: dict[TopicIdPartition, int]

    @classmethod
    def of(
        cls, partitions: Sequence[TopicIdPartition], members: Sequence[str], had: Mapping[str, set[TopicIdPartition]]
    ) -> _Deal:
        known = set(partitions)
        has = {member_id: had[member_id] & known for member_id in members}
        holders = dict.fromkeys(partitions, 0)
        for of_member in has.values():
            for partition in of_member:
                holders[partition] += 1
        sharing = -(-len(members) // len(partitions)) if partitions else 0
        least, more = divmod(sharing * len(partitions), len(members))
        # The members with the most partitions get the larger quotas, so that they keep more.
        by_size = sorted(members, key=lambda member_id: (-len(has[member_id]), member_id))
        quotas = {member_id: least + (number < more) for number, member_id in enumerate(by_size)}
        return cls(sharing, quotas, has, holders)

    def run(self) -> dict[str, set[TopicIdPartition]]:
        self._take_from_members()
        self._take_from_partitions()
        self._fill()
        return self.has

    def _take_from_members(self) -> None:
        """Members over their quota give up the partitions with the most holders."""
        for member_id, has in self.has.items():
            too_many = len(has) - self.quotas[member_id]
            if too_many > 0:
                for partition in sorted(has, key=lambda it: (-self.holders[it], it))[:too_many]:
                    self._take(member_id, partition)

    def _take_from_partitions(self) -> None:
        """Partitions with too many holders are taken from the members with the most partitions."""
        for partition, count in list(self.holders.items()):
            if count > self.sharing:
                holding = [member_id for member_id, has in self.has.items() if partition in has]
                holding.sort(key=lambda member_id: (-len(self.has[member_id]), member_id))
                for member_id in holding[: count - self.sharing]:
                    self._take(member_id, partition)

    def _take(self, member_id: str, partition: TopicIdPartition) -> None:
        self.has[member_id].remove(partition)
        self.holders[partition] -= 1

    def _fill(self) -> None:
        open_to = deque(member_id for member_id, has in self.has.items() if len(has) < self.quotas[member_id])
        # Partitions with the fewest holders come first.
        for partition in sorted(self.holders, key=lambda it: (self.holders[it], it)):
            while self.holders[partition] < self.sharing:
                self._fill_slot(open_to, partition)
                if len(self.has[open_to[-1]]) == self.quotas[open_to[-1]]:
                    open_to.pop()

    def _fill_slot(self, open_to: deque[str], partition: TopicIdPartition) -> None:
        """Gives the partition, or another one in exchange, to the next member in the queue, which is then the last."""
        for _ in range(len(open_to)):
            open_to.rotate(-1)
            if partition not in self.has[open_to[-1]]:
                self._give(open_to[-1], partition)
                return
        # All of them have it, and nothing else: it is shared only if there are more members than partitions, and then
        # no member gets more than two.
        giver = next(member_id for member_id, has in self.has.items() if partition not in has)
        given = min(self.has[giver])
        self._take(giver, given)
        self._give(giver, partition)
        self._give(open_to[-1], given)

    def _give(self, member_id: str, partition: TopicIdPartition) -> None:
        self.has[member_id].add(partition)
        self.holders[partition] += 1

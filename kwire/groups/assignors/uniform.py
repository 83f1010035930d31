"""The uniform assignor: all members get as many partitions as they can, equally, and keep what they have.

It is Kafka's default and has the same aims as its `UniformAssignor`, in this order:

1. Balance: members that subscribe alike differ by at most one partition, and all loads are as even as the
   subscriptions allow.
2. Stickiness: no more partitions change hands than balance needs. On its own result it changes nothing.
3. Racks: a member prefers partitions that have a replica in its rack, so that it can fetch there (KIP-392, KIP-881).
   Kafka's assignors of the broker ignore racks (4.3.1). Here they never cost balance or stickiness.

`shares.py` decides the numbers of partitions that each member gets. The partitions themselves are chosen here. A member
that gets fewer first gives up those that have no replica in its rack, and of these first the ones near a member that
gets more. Then the partitions without an owner are dealt out, first to members that are near a replica.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

import attrs
from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import Assignment, GroupSpec, MemberSpec, Partitions
from kwire.groups.assignors.audiences import Audience, audiences_of
from kwire.groups.assignors.shares import Shares

Partition: TypeAlias = tuple[Uuid, int]


class UniformAssignor:
    name = "uniform"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        deal = _Deal.of(group)
        deal.decide()
        return deal.parts()


@attrs.define(eq=False)
class _Deal:
    """One assignment in progress. Members and audiences by position.

    `retained`: the partitions that members have and may keep. `unowned`: partitions without an owner, by audience.
    `given_up`, `got`: the partitions that each member loses and gains.
    """

    group: GroupSpec
    member_ids: list[str]
    members: list[MemberSpec]
    audiences: list[Audience]
    audience_of: dict[Uuid, int]
    retained: list[Assignment]
    held: list[dict[int, int]]
    unowned: list[list[Partition]]
    given_up: defaultdict[int, list[Partition]] = attrs.field(factory=lambda: defaultdict(list))
    got: defaultdict[int, list[Partition]] = attrs.field(factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, group: GroupSpec) -> _Deal:
        member_ids = sorted(group.members)
        members = [group.members[it] for it in member_ids]
        audiences = audiences_of(group, member_ids)
        audience_of = {topic: number for number, audience in enumerate(audiences) for topic in audience.topics}
        owned: dict[Uuid, set[int]] = {}
        retained, held = [], []
        for member in members:
            retained.append(_retained(member, group, owned))
            counts: dict[int, int] = {}
            for topic, partitions in retained[-1].items():
                audience = audience_of[topic]
                counts[audience] = counts.get(audience, 0) + len(partitions)
            held.append(dict(sorted(counts.items())))
        unowned = [
            [(topic, it) for topic in audience.topics for it in _missing(group, topic, owned.get(topic, ()))]
            for audience in audiences
        ]
        return cls(group, member_ids, members, audiences, audience_of, retained, held, unowned)

    def decide(self) -> None:
        numbers = Shares([it.subscribers for it in self.audiences], self.held)
        numbers.share_out([len(it) for it in self.unowned])
        for number, audience in enumerate(self.audiences):
            more: dict[int, int] = {}
            less: dict[int, int] = {}
            for member in audience.subscribers:
                change = numbers.shares[member].get(number, 0) - self.held[member].get(number, 0)
                if change > 0:
                    more[member] = change
                elif change < 0:
                    less[member] = -change
            pool = list(self.unowned[number])
            wanted = {self.members[it].rack_id for it in more}
            for member, count in less.items():
                given_up = self._least_wanted(member, number, count, wanted)
                self.given_up[member] += given_up
                pool += given_up
            self._deal_out(sorted(pool), more)

    def _least_wanted(self, member: int, audience: int, count: int, wanted: set[str | None]) -> list[Partition]:
        """Returns what a member gives up of an audience's topics. `wanted`: the racks of the members that get more."""
        here = self.members[member].rack_id
        topics = (it for it in self.retained[member] if self.audience_of[it] == audience)
        partitions = sorted((topic, it) for topic in topics for it in self.retained[member][topic])

        def sort_key(partition: Partition) -> tuple[bool, bool]:
            racks = self._racks(partition)
            return (here not in racks, not wanted.isdisjoint(racks))

        return sorted(partitions, key=sort_key)[-count:]

    def _deal_out(self, pool: Sequence[Partition], more: dict[int, int]) -> None:
        """Deals out the pool. `more`: the number of partitions that each member takes; their sum is the whole pool."""
        left = self._deal_out_by_racks(pool, more)
        # One at a time, so that many members share each topic.
        queue = deque(sorted(it for it, count in more.items() if count))
        for partition in left:
            member = queue.popleft()
            self.got[member].append(partition)
            more[member] -= 1
            if more[member]:
                queue.append(member)

    def _deal_out_by_racks(self, pool: Sequence[Partition], more: dict[int, int]) -> list[Partition]:
        """Deals out the partitions that have a replica near a member that takes any, and returns the rest.

        Partitions with few possible racks come first, and go to the member that still takes most. This choice is good,
        but not always the best.
        """
        takers: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for member, count in more.items():
            if rack := self.members[member].rack_id:
                takers[rack].append((-count, member))
        if not takers:
            return list(pool)
        free_slots = {rack: -sum(count for count, _ in its) for rack, its in takers.items()}
        for its in takers.values():
            heapify(its)
        near = {it: sorted(self._racks(it) & takers.keys()) for it in pool}
        left = []
        for partition in sorted(pool, key=lambda it: len(near[it])):
            rack = max(near[partition], key=lambda it: free_slots[it], default=None)
            if rack is None or free_slots[rack] == 0:
                left.append(partition)
                continue
            _, member = takers[rack][0]
            self.got[member].append(partition)
            more[member] -= 1
            free_slots[rack] -= 1
            if more[member]:
                heapreplace(takers[rack], (-more[member], member))
            else:
                heappop(takers[rack])
        return left

    def _racks(self, partition: Partition) -> frozenset[str]:
        topic, number = partition
        return self.group.topics[topic].racks_of(number)

    def parts(self) -> dict[str, Assignment]:
        return {member_id: self._part(position) for position, member_id in enumerate(self.member_ids)}

    def _part(self, member: int) -> Assignment:
        if member not in self.given_up and member not in self.got:
            return self.retained[member]
        part = {topic: set(partitions) for topic, partitions in self.retained[member].items()}
        for topic, partition in self.given_up[member]:
            part[topic].remove(partition)
        for topic, partition in self.got[member]:
            part.setdefault(topic, set()).add(partition)
        return {topic: frozenset(part[topic]) for topic in sorted(part) if part[topic]}


def _retained(member: MemberSpec, group: GroupSpec, owned: dict[Uuid, set[int]]) -> Assignment:
    """Returns what a member may keep, the same object as `assigned` if that is all. Adds it to `owned`."""
    retained: dict[Uuid, Partitions] = {}
    is_all = True
    for topic, partitions in member.assigned.items():
        if topic not in member.topics:
            is_all = False
            continue
        others = owned.setdefault(topic, set())
        count = group.topics[topic].partition_count
        if not others.isdisjoint(partitions) or max(partitions, default=-1) >= count:
            partitions = frozenset(it for it in partitions if it < count and it not in others)
            is_all = False
        others |= partitions
        if partitions:
            retained[topic] = partitions
    return member.assigned if is_all else retained


def _missing(group: GroupSpec, topic: Uuid, owned: Iterable[int]) -> list[int]:
    partitions = range(group.topics[topic].partition_count)
    taken = set(owned)
    return [] if len(taken) == len(partitions) else [it for it in partitions if it not in taken]

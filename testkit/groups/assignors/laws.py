"""The laws of an assignment, and the cost of the best one, computed in another way than by the assignors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TypeAlias

import attrs
from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import Assignment, Assignor, GroupSpec

Partition: TypeAlias = tuple[Uuid, int]
Cost: TypeAlias = tuple[int, int]
"""The sum of the squares of all loads, and how many partitions changed hands."""


def owners(parts: Mapping[str, Assignment]) -> dict[Partition, str]:
    """Fails where a partition has two."""
    found: dict[Partition, str] = {}
    for member_id, part in parts.items():
        for topic, partitions in part.items():
            for partition in partitions:
                assert (topic, partition) not in found, f"{(topic, partition)} is {member_id}'s, too"
                found[topic, partition] = member_id
    return found


def subscribed_partitions(group: GroupSpec) -> set[Partition]:
    topics = {topic for member in group.members.values() for topic in member.topics}
    return {(topic, it) for topic in topics for it in range(group.topics[topic].partition_count)}


def owners_without_moves(group: GroupSpec) -> dict[Partition, str]:
    """Returns the partitions that members have and may keep."""
    found = owners({member_id: spec.assigned for member_id, spec in group.members.items()})
    wanted = subscribed_partitions(group)
    return {it: owner for it, owner in found.items() if it in wanted and it[0] in group.members[owner].topics}


def moved(group: GroupSpec, parts: Mapping[str, Assignment]) -> int:
    """Returns the number of partitions that left a member although it might have kept them."""
    now = owners(parts)
    return sum(now[it] != owner for it, owner in owners_without_moves(group).items())


def loads(parts: Mapping[str, Assignment]) -> dict[str, int]:
    return {member_id: sum(map(len, part.values())) for member_id, part in parts.items()}


def cost(group: GroupSpec, parts: Mapping[str, Assignment]) -> Cost:
    return sum(load**2 for load in loads(parts).values()), moved(group, parts)


def near(group: GroupSpec, parts: Mapping[str, Assignment]) -> int:
    """Returns the number of partitions that have a replica in the rack of their owner."""
    return sum(
        group.members[owner].rack_id in group.topics[topic].racks_of(partition)
        for (topic, partition), owner in owners(parts).items()
    )


def without_racks(group: GroupSpec) -> GroupSpec:
    members = {member_id: attrs.evolve(spec, rack_id=None) for member_id, spec in group.members.items()}
    return GroupSpec(members, {topic: attrs.evolve(spec, racks=()) for topic, spec in group.topics.items()})


def with_parts(group: GroupSpec, parts: Mapping[str, Assignment]) -> GroupSpec:
    members = {
        member_id: attrs.evolve(spec, assigned=parts.get(member_id, {})) for member_id, spec in group.members.items()
    }
    return GroupSpec(members, group.topics)


def in_another_order(group: GroupSpec) -> GroupSpec:
    members = {
        member_id: attrs.evolve(
            spec,
            assigned=dict(reversed(list(spec.assigned.items()))),
            topics=frozenset(sorted(spec.topics, reverse=True)),
        )
        for member_id, spec in reversed(list(group.members.items()))
    }
    return GroupSpec(members, dict(reversed(list(group.topics.items()))))


def check_all(assignor: Assignor, group: GroupSpec) -> dict[str, Assignment]:
    """Checks the laws of any assignor."""
    parts = assignor.assign(group)
    check_owners(group, parts)
    for member_id, part in parts.items():
        assigned = group.members[member_id].assigned
        assert part is assigned or part != assigned, "an unchanged part is another object"
    assert parts == assignor.assign(in_another_order(group)), "the order of the question matters"
    again = with_parts(group, parts)
    for member_id, part in assignor.assign(again).items():
        assert part is parts[member_id], "its own result does not satisfy it"
    return parts


def check_owners(group: GroupSpec, parts: Mapping[str, Assignment]) -> None:
    assert parts.keys() == group.members.keys()
    assert owners(parts).keys() == subscribed_partitions(group), "each partition has one owner, and no others do"
    for member_id, part in parts.items():
        assert part.keys() <= group.members[member_id].topics, "a member has what it does not subscribe to"
        assert all(part.values()), "a set is empty"


def check_level(group: GroupSpec, parts: Mapping[str, Assignment]) -> None:
    count = loads(parts)
    for one, other in combinations(sorted(group.members), 2):
        if group.members[one].topics == group.members[other].topics:
            assert abs(count[one] - count[other]) <= 1, "members that subscribe alike have different loads"


def check_uniform(assignor: Assignor, group: GroupSpec, *, small: bool) -> dict[str, Assignment]:
    """Checks the laws of the uniform assignor. With `small`, also compares with the best cost, which takes a while."""
    parts = check_all(assignor, group)
    check_level(group, parts)
    if small:
        assert cost(group, parts) == best_cost(group)
    plain = assignor.assign(without_racks(group))
    assert cost(group, plain) == cost(group, parts), "racks cost balance or stickiness"
    return parts


def check_range(assignor: Assignor, group: GroupSpec) -> dict[str, Assignment]:
    parts = check_all(assignor, group)
    for topic in {it for member in group.members.values() for it in member.topics}:
        subscribers = [it for it in in_kafkas_order(group) if topic in group.members[it].topics]
        ranges = [sorted(parts[it].get(topic, ())) for it in subscribers]
        assert [it for part in ranges for it in part] == list(range(group.topics[topic].partition_count))
        sizes = [len(it) for it in ranges]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1
    return parts


def in_kafkas_order(group: GroupSpec) -> list[str]:
    static = {spec.instance_id: it for it, spec in group.members.items() if spec.instance_id is not None}
    return [static[it] for it in sorted(static)] + sorted(group.members.keys() - set(static.values()))


def best_cost(group: GroupSpec) -> Cost:
    """The lowest cost there is: balance first, then what changes hands.

    One partition after the other enters by the cheapest way, on which others may be passed on. After each the cost is
    the lowest for those that entered.
    """
    had = owners_without_moves(group)
    owner: dict[Partition, str] = {}
    load: Counter[str] = Counter()
    for entering in sorted(subscribed_partitions(group)):
        ways = {it: (int(had.get(entering, it) != it), [(entering, it)]) for it in _may_have(group, entering)}
        improved = True
        while improved:
            improved = False
            for partition, giver in owner.items():
                if giver not in ways:
                    continue
                for taker in _may_have(group, partition):
                    original = had.get(partition)
                    more = int(original not in (None, taker)) - int(original not in (None, giver))
                    if taker not in ways or ways[giver][0] + more < ways[taker][0]:
                        ways[taker] = (ways[giver][0] + more, [*ways[giver][1], (partition, taker)])
                        improved = True
        end = min(ways, key=lambda it: (load[it], ways[it][0], it))
        load[end] += 1
        owner.update(ways[end][1])
    return sum(it**2 for it in load.values()), sum(owner[it] != before for it, before in had.items())


def _may_have(group: GroupSpec, partition: Partition) -> Iterator[str]:
    return (it for it, member in group.members.items() if partition[0] in member.topics)

"""Deliberate mistakes in the assignors. The laws find each of them within a few lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kwire.groups.assignors.assignor import GroupSpec
from kwire.groups.assignors.audiences import Audience
from testkit.mutants.changes import Change, Function, always, instead

ASSIGNORS = "kwire.groups.assignors"
SHARES = f"{ASSIGNORS}.shares:Shares"
DEAL = f"{ASSIGNORS}.uniform:_Deal"


def with_copies(assign: Function) -> Function:
    def mistaken(assignor: Any, group: GroupSpec) -> dict[str, Any]:
        return {member_id: dict(part) for member_id, part in assign(assignor, group).items()}

    return mistaken


def without_the_last(partitions: Function) -> Function:
    return lambda *args: partitions(*args)[:-1]


def reversed_list(function: Function) -> Function:
    return lambda *args: function(*args)[::-1]


def last_to_first(cut: Function) -> Function:
    """The smaller ranges come first."""

    def mistaken(partition_count: int, ways: int) -> list[frozenset[int]]:
        sizes = [len(it) for it in cut(partition_count, ways)][::-1]
        starts = [sum(sizes[:it]) for it in range(len(sizes))]
        return [frozenset(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]

    return mistaken


def whatever_it_subscribes_to(_retained: Function) -> Function:
    def mistaken(member: Any, group: GroupSpec, owned: Any) -> Mapping[bytes, frozenset[int]]:
        topics = member.topics | {it for it in member.assigned if it in group.topics}
        found: Mapping[bytes, frozenset[int]] = _retained(attrs.evolve(member, topics=topics), group, owned)
        return found

    return mistaken


def nothing_of_others(_retained: Function) -> Function:
    """Considers each member's partitions separately."""
    return lambda member, group, _owned: _retained(member, group, {})


def with_loads_left_alone(move: Function) -> Function:
    def mistaken(shares: Any, giver: int, audience: int, taker: int) -> None:
        loads = list(shares.loads)
        move(shares, giver, audience, taker)
        if len(shares.subscribers) > 1:
            shares.loads[:] = loads

    return mistaken


def one_by_one(_audiences_of: Function) -> Function:
    """No topic is shared."""

    def mistaken(group: GroupSpec, member_ids: list[str]) -> list[Audience]:
        firsts: dict[bytes, int] = {}
        for position, member_id in enumerate(member_ids):
            for topic in group.members[member_id].topics:
                firsts.setdefault(topic, position)
        return [Audience((topic,), (firsts[topic],)) for topic in sorted(firsts)]

    return mistaken


def as_they_come(_in_order: Function) -> Function:
    return lambda group: list(group.members)


def by_member_id(_in_order: Function) -> Function:
    return lambda group: sorted(group.members)


def with_racks_for_load(loads_first: Function) -> Function:
    """A member in a rack gets all that is near it."""

    def mistaken(deal: Any, pool: Any, more: dict[int, int]) -> Any:
        near = [it for it in more if deal.members[it].rack_id]
        if near:
            more = {near[0]: sum(more.values())}
        return loads_first(deal, pool, more)

    return mistaken


def nearest_first(_least_wanted: Function) -> Function:
    def mistaken(deal: Any, member: int, audience: int, count: int, _wanted: Any) -> list[tuple[bytes, int]]:
        own = deal.retained[member]
        partitions = sorted((topic, it) for topic in own if deal.audience_of[topic] == audience for it in own[topic])
        here = deal.members[member].rack_id
        return sorted(partitions, key=lambda it: here not in deal._racks(it))[:count]

    return mistaken


UNIFORM_MISTAKES: dict[str, Change] = {
    "an unchanged part is copied": instead(f"{ASSIGNORS}.uniform:UniformAssignor.assign", with_copies),
    "a partition without an owner is overlooked": instead(f"{ASSIGNORS}.uniform:_missing", without_the_last),
    "a member keeps what it no longer subscribes to": instead(
        f"{ASSIGNORS}.uniform:_retained", whatever_it_subscribes_to
    ),
    "two members keep the same partition": instead(f"{ASSIGNORS}.uniform:_retained", nothing_of_others),
    "only the first of a topic's subscribers counts": instead(f"{ASSIGNORS}.audiences:audiences_of", one_by_one),
    "nothing is levelled": instead(f"{SHARES}._level", always(0)),
    "no circle is looked for": instead(f"{SHARES}._make_all_circles", always(None)),
    "the search for circles ends at once": instead(f"{ASSIGNORS}.shares:STEPS", lambda _: 1),
    "passing on costs as much as giving up": instead(f"{SHARES}._cost_of_giving", always(1)),
    "getting back saves nothing": instead(f"{SHARES}._cost_of_taking", always(0)),
    "a move leaves the loads as they are": instead(f"{SHARES}._move", with_loads_left_alone),
    "racks decide who gets how many": instead(f"{DEAL}._deal_out", with_racks_for_load),
    "what is given up is dealt out to nobody": instead(f"{DEAL}._deal_out", always(None)),
}
"""Found by the laws of the uniform assignor."""

RANGE_MISTAKES: dict[str, Change] = {
    "an unchanged range is copied": instead(f"{ASSIGNORS}.range:RangeAssignor.assign", with_copies),
    "the order of the dict is the order of members": instead(f"{ASSIGNORS}.range:_in_order", as_they_come),
    "static members do not come first": instead(f"{ASSIGNORS}.range:_in_order", by_member_id),
    "the last range is left out": instead(f"{ASSIGNORS}.range:_cut", without_the_last),
    "the smaller ranges come first": instead(f"{ASSIGNORS}.range:_cut", last_to_first),
    "the last member gets the first range": instead(f"{ASSIGNORS}.range:_cut", reversed_list),
}
"""Found by the laws of the range assignor."""

RACK_MISTAKES: dict[str, Change] = {
    "what is near is given up": instead(f"{DEAL}._least_wanted", nearest_first),
    "racks are not looked at": instead(f"{DEAL}._deal_out_by_racks", lambda _: lambda _deal, pool, _more: list(pool)),
}
"""No law forbids them: racks are a wish. Found because less is near its owner."""

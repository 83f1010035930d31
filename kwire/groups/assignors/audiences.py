"""Topics that the same members subscribe to: an audience.

A group may subscribe to thousands of topics in a few combinations only. For who may have a partition, and for how many
each member gets, it matters which members subscribe to its topic, but not which topic it is. So assignors count by
audience. A group whose members all subscribe alike is one audience.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import GroupSpec


@attrs.frozen
class Audience:
    """`topics` in order of their ids; `subscribers` are positions of members, ascending."""

    topics: tuple[Uuid, ...]
    subscribers: tuple[int, ...]


def audiences_of(group: GroupSpec, member_ids: Sequence[str]) -> list[Audience]:
    """All audiences of a group, in order of their first topics. `member_ids` says which position a member has."""
    alike: dict[frozenset[Uuid], list[int]] = {}
    for position, member_id in enumerate(member_ids):
        alike.setdefault(group.members[member_id].topics, []).append(position)
    subscriptions: dict[Uuid, list[int]] = {}
    for number, topics in enumerate(alike):
        for topic in topics:
            subscriptions.setdefault(topic, []).append(number)
    together: dict[tuple[int, ...], list[Uuid]] = {}
    for topic in sorted(subscriptions):
        together.setdefault(tuple(subscriptions[topic]), []).append(topic)
    positions = list(alike.values())
    return [
        Audience(tuple(topics), tuple(sorted(it for number in numbers for it in positions[number])))
        for numbers, topics in together.items()
    ]

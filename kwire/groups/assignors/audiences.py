"""Topics that the same members subscribe to: an audience.

A group may subscribe to thousands of topics in a few combinations only. The members that may have a partition, and the
number that each member gets, depend on the subscribers of its topic, not on the topic itself. So assignors count by
audience. A group whose members all have the same subscription is one audience.
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
    """All audiences of a group, in order of their first topics. `member_ids` gives each member its position."""
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

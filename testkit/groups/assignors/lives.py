"""Random lives of groups: members join and leave, subscribe to other topics, and topics grow, vanish and appear.

A seed decides all of it. The members' partitions come from the caller: they are the assignment of the assignor under
test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import attrs
from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import Assignment, GroupSpec, MemberSpec, TopicSpec

RACKS = ("north", "east", "south")


def topic_id(number: int) -> Uuid:
    return number.to_bytes(16, "big")


@attrs.define(eq=False)
class Life:
    """`alike`: all members subscribe to all topics. `large` groups are too much for a search of every possibility."""

    seed: int
    alike: bool
    large: bool = False
    _random: Random = attrs.field(init=False, repr=False)
    _has_racks: bool = attrs.field(init=False, repr=False)
    _members: dict[str, MemberSpec] = attrs.field(init=False, repr=False, factory=dict)
    _topics: dict[Uuid, TopicSpec] = attrs.field(init=False, repr=False, factory=dict)
    _names: int = attrs.field(init=False, repr=False, default=0)
    _ids: int = attrs.field(init=False, repr=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._random = Random(self.seed)
        self._has_racks = self._random.random() < 0.5
        for _ in range(1 + self._up_to(8 if self.large else 5)):
            self._appear()
        for _ in range(1 + self._up_to(40 if self.large else 7)):
            self._join()

    def group(self, assigned: Mapping[str, Assignment] | None = None) -> GroupSpec:
        """The group of now. `assigned`: what its members have; without it they have nothing."""
        members = {
            member_id: attrs.evolve(spec, topics=self._subscribed(spec), assigned=(assigned or {}).get(member_id, {}))
            for member_id, spec in self._members.items()
        }
        return GroupSpec(members, dict(self._topics))

    def go_on(self, assigned: Mapping[str, Assignment]) -> GroupSpec:
        """Applies some random events, and returns the group, whose members have `assigned`."""
        parts = dict(assigned)
        changes: tuple[Callable[[dict[str, Assignment]], None], ...] = (
            lambda _: self._join(),
            lambda _: self._leave(),
            lambda _: self._grow(),
            lambda _: self._vanish(),
            lambda _: self._appear(),
            lambda _: self._appear(),
            lambda _: self._subscribe_again(),
            self._come_back,
        )
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 8))):
            self._random.choice(changes)(parts)
        return self.group(parts)

    def _up_to(self, most: int) -> int:
        return self._random.randint(1, most)

    def _subscribed(self, spec: MemberSpec) -> frozenset[Uuid]:
        return frozenset(self._topics) if self.alike else spec.topics.intersection(self._topics)

    def _some_topics(self) -> frozenset[Uuid]:
        topics = sorted(self._topics)
        return frozenset(self._random.sample(topics, self._random.randint(min(1, len(topics)), len(topics))))

    def _join(self) -> None:
        self._names += 1
        rack = self._random.choice((*RACKS, None)) if self._has_racks else None
        instance = f"i{self._random.randrange(1000)}-{self._names}" if self._random.random() < 0.3 else None
        member_id = f"{self._random.randrange(16**4):04x}-{self._names}"
        self._members[member_id] = MemberSpec(self._some_topics(), {}, rack, instance)

    def _leave(self) -> None:
        if len(self._members) > 1:
            del self._members[self._random.choice(sorted(self._members))]

    def _come_back(self, parts: dict[str, Assignment]) -> None:
        """A static member under a new member id, to which the coordinator passes what it had."""
        static = sorted(it for it, spec in self._members.items() if spec.instance_id)
        if static:
            old = self._random.choice(static)
            self._names += 1
            new = f"{self._random.randrange(16**4):04x}-{self._names}"
            self._members[new] = self._members.pop(old)
            parts[new] = parts.pop(old, {})

    def _subscribe_again(self) -> None:
        member_id = self._random.choice(sorted(self._members))
        self._members[member_id] = attrs.evolve(self._members[member_id], topics=self._some_topics())

    def _appear(self) -> None:
        self._ids += 1
        topic = topic_id(self._ids)
        self._topics[topic] = self._of_size(TopicSpec(0), self._up_to(40 if self.large else 6))
        for member_id, spec in self._members.items():
            if self._random.random() < 0.4:
                self._members[member_id] = attrs.evolve(spec, topics=spec.topics | {topic})

    def _grow(self) -> None:
        if self._topics:
            topic = self._random.choice(sorted(self._topics))
            spec = self._topics[topic]
            self._topics[topic] = self._of_size(spec, spec.partition_count + self._up_to(4))

    def _vanish(self) -> None:
        if self._topics:
            del self._topics[self._random.choice(sorted(self._topics))]

    def _of_size(self, spec: TopicSpec, count: int) -> TopicSpec:
        more = count - spec.partition_count
        racks = tuple(frozenset(self._random.sample(RACKS, self._random.choice((1, 1, 2)))) for _ in range(more))
        return TopicSpec(count, spec.racks + racks if self._has_racks else ())

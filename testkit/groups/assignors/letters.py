"""Groups as a person writes them down: topics are letters, and a part is "a0 a1 b0"."""

from __future__ import annotations

from collections.abc import Mapping

from kwire_protocol.wire import Uuid

from kwire.groups.assignors.assignor import Assignment, GroupSpec, MemberSpec, TopicSpec
from testkit.groups.assignors.lives import topic_id


def topic(letter: str) -> Uuid:
    return topic_id(ord(letter))


def part(text: str) -> Assignment:
    found: dict[Uuid, set[int]] = {}
    for it in text.split():
        found.setdefault(topic(it[0]), set()).add(int(it[1:]))
    return {it: frozenset(partitions) for it, partitions in found.items()}


def written(parts: Mapping[str, Assignment]) -> dict[str, str]:
    return {member_id: _written(it) for member_id, it in parts.items()}


def _written(it: Assignment) -> str:
    partitions = sorted((chr(int.from_bytes(topic, "big")), number) for topic in it for number in it[topic])
    return " ".join(f"{letter}{number}" for letter, number in partitions)


def member(topics: str, has: str = "", *, rack: str | None = None, instance: str | None = None) -> MemberSpec:
    """`topics`: the letters of those it subscribes to."""
    return MemberSpec(frozenset(map(topic, topics)), part(has), rack, instance)


def racks(*near: str) -> TopicSpec:
    """A topic with a partition for each argument: the racks of its replicas, one letter each."""
    return TopicSpec(len(near), tuple(map(frozenset, near)))


def group(topics: Mapping[str, int | TopicSpec], **members: MemberSpec) -> GroupSpec:
    specs = {letter: TopicSpec(it) if isinstance(it, int) else it for letter, it in topics.items()}
    return GroupSpec(members, {topic(letter): it for letter, it in specs.items()})

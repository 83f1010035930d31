"""The simple assignor of share groups: by example, and what always holds while groups live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from kwire_protocol.wire import Uuid

from devtools.suite.tiers import examples
from kwire.groups.assignors.assignor import Assignment, GroupSpec, Partitions
from kwire.groups.assignors.simple import SimpleAssignor
from testkit.groups.assignors import laws
from testkit.groups.assignors.letters import group, member, part, written
from testkit.groups.assignors.lives import Life

ROUNDS = 8


def everything(spec: GroupSpec) -> Mapping[Uuid, Partitions]:
    return {topic: frozenset(range(it.partition_count)) for topic, it in spec.topics.items()}


def assigned(spec: GroupSpec) -> dict[str, str]:
    return written(SimpleAssignor().assign(spec, everything(spec)))


def test_partitions_are_divided_while_there_are_enough() -> None:
    parts = assigned(group({"a": 3, "b": 2}, m1=member("ab"), m2=member("ab")))
    assert sorted(len(it.split()) for it in parts.values()) == [2, 3]
    assert sorted(" ".join(parts.values()).split()) == ["a0", "a1", "a2", "b0", "b1"]


def test_members_share_partitions_when_there_are_too_few() -> None:
    members = {f"m{number}": member("a") for number in range(5)}
    parts = assigned(group({"a": 2}, **members))
    assert all(parts.values()), "everybody has one"
    assert Counter(" ".join(parts.values()).split()) == {"a0": 3, "a1": 3}


def test_what_is_not_initialized_is_not_assigned() -> None:
    spec = group({"a": 3, "b": 1}, m1=member("ab", "a0 a2"))
    assert written(SimpleAssignor().assign(spec, part("a0 a1"))) == {"m1": "a0 a1"}
    assert written(SimpleAssignor().assign(spec, {})) == {"m1": ""}


def test_members_keep_what_they_have() -> None:
    spec = group({"a": 4}, m1=member("a", "a0 a1"), m2=member("a", "a2 a3"))
    parts = SimpleAssignor().assign(spec, everything(spec))
    assert all(parts[member_id] is it.assigned for member_id, it in spec.members.items())
    spec = group({"a": 4}, m1=member("a", "a0 a1"), m2=member("a", "a2 a3"), m3=member("a"))
    before, after = {"m1": "a0 a1", "m2": "a2 a3"}, assigned(spec)
    assert [len(after[it].split()) for it in ("m1", "m2", "m3")] == [2, 1, 1]
    assert set(after["m1"].split()) <= set(before["m1"].split())
    assert set(after["m2"].split()) <= set(before["m2"].split())


def test_topics_are_divided_one_by_one_when_subscriptions_differ() -> None:
    spec = group({"a": 2, "b": 2}, m1=member("a"), m2=member("b"), m3=member("ab"))
    parts = assigned(spec)
    assert len(parts["m1"].split()) == len(parts["m2"].split()) == 1
    assert sorted(it[0] for it in parts["m3"].split()) == ["a", "b"]


def test_nobody_is_needed_to_assign_nothing() -> None:
    assert SimpleAssignor().assign(GroupSpec({}, {}), {}) == {}


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "mixed"])
def test_its_numbers_hold_through_the_lives_of_groups(*, alike: bool) -> None:
    for seed in range(examples(150)):
        life = Life(seed, alike)
        spec = life.group()
        for _ in range(ROUNDS):
            parts = SimpleAssignor().assign(spec, everything(spec))
            check(spec, parts)
            again = SimpleAssignor().assign(laws.with_parts(spec, parts), everything(spec))
            assert all(again[member_id] is parts[member_id] for member_id in parts), "a second look moves nothing"
            spec = life.go_on(parts)


def check(spec: GroupSpec, parts: Mapping[str, Assignment]) -> None:
    assert parts.keys() == spec.members.keys()
    counts = Counter((topic, it) for of_member in parts.values() for topic in of_member for it in of_member[topic])
    assert set(counts) == laws.subscribed_partitions(spec), "every partition has a member, and no other is assigned"
    for member_id, of_member in parts.items():
        assert of_member.keys() <= spec.members[member_id].topics, "nobody has what it does not subscribe to"
        assert all(of_member.values()), "no empty sets"
    if len({it.topics for it in spec.members.values()}) == 1:
        loads = laws.loads(parts).values()
        assert not counts or max(loads) - min(loads) <= 1
        sharing = -(-len(parts) // len(counts)) if counts else 0
        assert set(counts.values()) <= {sharing}
    else:
        for topic, it in spec.topics.items():
            sizes = [len(parts[member_id].get(topic, ())) for member_id in parts if reads(spec, member_id, topic)]
            if not sizes:
                continue
            assert max(sizes) - min(sizes) <= 1
            sharing = -(-len(sizes) // it.partition_count)
            assert {counts[topic, partition] for partition in range(it.partition_count)} == {sharing}


def reads(spec: GroupSpec, member_id: str, topic: Uuid) -> bool:
    return topic in spec.members[member_id].topics


def test_a_slot_that_only_a_holder_could_take_is_filled_by_an_exchange() -> None:
    """m3 is to have both. When its turn comes, only a0 has a slot left, and it has a0 already."""
    parts = assigned(group({"a": 2}, m1=member("a"), m2=member("a"), m3=member("a", "a0")))
    assert Counter(" ".join(parts.values()).split()) == {"a0": 2, "a1": 2}
    assert parts["m3"] == "a0 a1"

"""The assignors' laws hold for any group, and for a group in all that happens to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.suite.tiers import examples
from kwire.groups.assignors import ASSIGNORS, shares
from kwire.groups.assignors.assignor import Assignment, GroupSpec, MemberSpec, TopicSpec
from testkit.groups.assignors import laws
from testkit.groups.assignors.lives import RACKS, Life, topic_id

UNIFORM = ASSIGNORS["uniform"]
RANGE = ASSIGNORS["range"]

ROUNDS = 5


@st.composite
def groups(draw: st.DrawFn) -> GroupSpec:
    """Draws small groups. A member may have what it does not subscribe to, and what does not exist."""
    racks = st.frozensets(st.sampled_from(RACKS), min_size=1, max_size=2)
    topics = {}
    for number in range(1, draw(st.integers(1, 4)) + 1):
        count = draw(st.integers(0, 6))
        known = draw(st.booleans())
        topics[topic_id(number)] = TopicSpec(count, tuple(draw(racks) for _ in range(count)) if known else ())
    member_ids = [f"m{number}" for number in range(draw(st.integers(1, 5)))]
    assigned: dict[str, dict[bytes, set[int]]] = {it: {} for it in member_ids}
    for topic, spec in topics.items():
        for partition in range(spec.partition_count + 1):
            if owner := draw(st.sampled_from([None, *member_ids])):
                assigned[owner].setdefault(topic, set()).add(partition)
    subscriptions = st.frozensets(st.sampled_from(sorted(topics)))
    if draw(st.booleans()):
        subscriptions = st.just(frozenset(topics))
    members = {}
    for member_id in member_ids:
        part: Assignment = {topic: frozenset(its) for topic, its in assigned[member_id].items()}
        rack = draw(st.sampled_from([None, *RACKS]))
        instance = draw(st.sampled_from([None, f"i-{member_id[::-1]}"]))
        members[member_id] = MemberSpec(draw(subscriptions), part, rack, instance)
    return GroupSpec(members, topics)


@given(groups())
@settings(max_examples=examples(100))
def test_a_uniform_assignment_is_as_balanced_and_as_sticky_as_can_be(group: GroupSpec) -> None:
    laws.check_uniform(UNIFORM, group, small=True)


@given(groups())
@settings(max_examples=examples(50))
def test_a_range_assignment_is_ranges_in_the_order_of_members(group: GroupSpec) -> None:
    laws.check_range(RANGE, group)


@given(groups(), st.data())
@settings(max_examples=examples(50))
def test_only_what_a_leaving_member_had_finds_other_owners(group: GroupSpec, data: st.DataObject) -> None:
    """All must subscribe alike: otherwise its load may have withheld partitions from other members."""
    group = alike(group)
    before = laws.with_parts(group, UNIFORM.assign(group))
    gone = data.draw(st.sampled_from(sorted(group.members)))
    after = GroupSpec({it: spec for it, spec in before.members.items() if it != gone}, group.topics)
    assert laws.moved(after, UNIFORM.assign(after)) == 0


@given(groups())
@settings(max_examples=examples(50))
def test_a_joining_member_gets_its_share_and_nothing_else_moves(group: GroupSpec) -> None:
    group = alike(group)
    parts = UNIFORM.assign(group)
    joined = laws.with_parts(group, parts)
    [topics, *_] = [it.topics for it in group.members.values()]
    joined = GroupSpec({**joined.members, "new": MemberSpec(topics, {})}, group.topics)
    after = UNIFORM.assign(joined)
    total = len(laws.subscribed_partitions(group))
    assert laws.moved(joined, after) == laws.loads(after)["new"] == total // len(joined.members)


def alike(group: GroupSpec) -> GroupSpec:
    members = {
        it: MemberSpec(frozenset(group.topics), {}, spec.rack_id, spec.instance_id)
        for it, spec in group.members.items()
    }
    return GroupSpec(members, group.topics)


def test_a_search_that_ends_early_leaves_every_partition_owned_and_equals_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shares, "STEPS", 1)
    for seed in range(100):
        life = Life(seed, alike=False, large=seed % 2 == 0)
        group = life.group()
        for _ in range(ROUNDS):
            parts = UNIFORM.assign(group)
            laws.check_owners(group, parts)
            laws.check_level(group, parts)
            group = life.go_on(parts)


@pytest.mark.parametrize("is_alike", [True, False], ids=["alike", "not alike"])
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_group_keeps_the_laws_all_its_life(name: str, *, large: bool, is_alike: bool) -> None:
    for seed in range(examples(20 if large else 50)):
        life = Life(seed, alike=is_alike, large=large)
        group = life.group()
        for _ in range(ROUNDS):
            if name == "uniform":
                parts = laws.check_uniform(UNIFORM, group, small=not large)
            else:
                parts = laws.check_range(RANGE, group)
            group = life.go_on(parts)

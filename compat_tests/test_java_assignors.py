"""Our assignors beside Kafka's own classes, from the same assignments, through all that happens to groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from devtools.suite.tiers import small_and_full
from kwire.groups.assignors.assignor import Assignment, GroupSpec
from testkit.groups.assignors import laws
from testkit.groups.assignors.letters import group, member
from testkit.groups.assignors.oracle import kafkas, lives, questions
from testkit.java.java_host import JavaHost

SMALL, FULL = 48, 2_000


@small_and_full
def test_uniform_is_as_balanced_as_kafkas_and_moves_no_more(java: JavaHost, *, full: bool) -> None:
    for question in questions(java, "uniform", lives(range(FULL if full else SMALL))):
        assert laws.owners(question.kafkas).keys() == laws.subscribed_partitions(question.group)
        ours, theirs = (sorted(laws.loads(it).values(), reverse=True) for it in (question.ours, question.kafkas))
        assert ours <= theirs, question.life
        assert question.our_cost[0] <= question.kafkas_cost[0], question.life
        if ours == theirs:
            assert question.our_cost[1] <= question.kafkas_cost[1], question.life
        else:
            assert not question.life.alike, question.life


@small_and_full
def test_range_is_kafkas_partition_by_partition(java: JavaHost, *, full: bool) -> None:
    for question in questions(java, "range", lives(range(FULL if full else SMALL))):
        assert question.ours == question.kafkas, question.life


@small_and_full
def test_simple_shares_as_evenly_as_kafkas(java: JavaHost, *, full: bool) -> None:
    """Kafka's leaves slots free that only members could take that have the partition already; ours fills each."""
    we_keep = they_keep = 0
    for question in questions(java, "simple", lives(range(FULL if full else SMALL))):
        ours, theirs = (holders(it) for it in (question.ours, subscribed(question.group, question.kafkas)))
        assert ours.keys() == theirs.keys() == laws.subscribed_partitions(question.group), question.life
        assert all(ours[place] >= count for place, count in theirs.items()), question.life
        if ours == theirs:
            our_loads, their_loads = (sorted(laws.loads(it).values()) for it in (question.ours, question.kafkas))
            if question.life.alike:
                assert our_loads[-1] - our_loads[0] <= min(1, their_loads[-1] - their_loads[0]), question.life
            if our_loads == their_loads:
                we_keep += kept(question.group, question.ours)
                they_keep += kept(question.group, question.kafkas)
    assert we_keep >= they_keep, "by and large"


def subscribed(group: GroupSpec, parts: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """Removes topics without a subscription, which Kafka's assignor leaves to members; the coordinator does so, too."""
    return {
        member_id: {topic: it for topic, it in part.items() if topic in group.members[member_id].topics}
        for member_id, part in parts.items()
    }


def kept(group: GroupSpec, parts: Mapping[str, Assignment]) -> int:
    """Returns the number of partitions of subscribed topics that stay with a member that has them."""
    return sum(
        len(part.get(topic, frozenset()) & partitions)
        for member_id, part in parts.items()
        for topic, partitions in group.members[member_id].assigned.items()
        if topic in group.members[member_id].topics
    )


def holders(parts: Mapping[str, Assignment]) -> Counter[laws.Partition]:
    """Returns the number of members of each partition."""
    return Counter((topic, it) for part in parts.values() for topic in part for it in part[topic])


def test_kafkas_assignors_do_not_look_at_racks(java: JavaHost) -> None:
    groups = [it.group() for it in lives(range(SMALL))]
    assert any(spec.racks for group in groups for spec in group.topics.values())
    for name in ("uniform", "range"):
        assert kafkas(java, name, groups) == kafkas(java, name, list(map(laws.without_racks, groups)))


def test_kafkas_uniform_assignor_looks_at_each_topic_alone(java: JavaHost) -> None:
    """Two groups for which ours has something better, as kwire/tests/groups/assignors/test_uniform.py shows."""
    uneven = group({"a": 2, "b": 4}, m1=member("a", "a0"), m2=member("ab", "a1 b0"), m3=member("b", "b1 b2 b3"))
    in_need = group({"a": 1, "b": 1, "c": 1}, m1=member("bc", "c0"), m2=member("abc"), m3=member("ac"))
    loads, moves = kafkas(java, "uniform", [uneven, in_need])
    assert laws.loads(loads) == {"m1": 1, "m2": 2, "m3": 3}
    assert laws.moved(in_need, moves) == 1

"""The uniform assignor by example."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kwire.groups.assignors import ASSIGNORS
from kwire.groups.assignors.assignor import GroupSpec, TopicSpec
from testkit.groups.assignors.laws import loads, moved
from testkit.groups.assignors.letters import group, member, racks, topic, written

ASSIGNOR = ASSIGNORS["uniform"]


def assigned(spec: GroupSpec) -> dict[str, str]:
    return written(ASSIGNOR.assign(spec))


def test_uniform_is_the_default() -> None:
    assert [*ASSIGNORS] == ["uniform", "range"]
    assert [it.name for it in ASSIGNORS.values()] == ["uniform", "range"]


def test_a_new_group_shares_each_topic_among_its_members() -> None:
    assert assigned(group({"a": 3, "b": 3}, m1=member("ab"), m2=member("ab"), m3=member("ab"))) == {
        "m1": "a0 b0",
        "m2": "a1 b1",
        "m3": "a2 b2",
    }


def test_a_joining_member_takes_from_the_most_loaded() -> None:
    spec = group({"a": 7}, m1=member("a", "a0 a1"), m2=member("a", "a2 a3 a4 a5 a6"), m3=member("a"))
    parts = ASSIGNOR.assign(spec)
    assert parts["m1"] is spec.members["m1"].assigned
    assert written(parts) == {"m1": "a0 a1", "m2": "a2 a3 a4", "m3": "a5 a6"}


def test_who_has_one_more_keeps_it() -> None:
    spec = group({"a": 5}, m1=member("a", "a0"), m2=member("a", "a1 a2"), m3=member("a", "a3 a4"))
    parts = ASSIGNOR.assign(spec)
    assert all(parts[it] is spec.members[it].assigned for it in spec.members)


def test_what_a_leaving_member_had_goes_to_the_least_loaded() -> None:
    spec = group({"a": 6}, m1=member("a", "a0 a1"), m2=member("a", "a2"), m3=member("a", "a3"))
    assert assigned(spec) == {"m1": "a0 a1", "m2": "a2 a4", "m3": "a3 a5"}


def test_new_partitions_of_a_topic_go_to_the_least_loaded() -> None:
    spec = group({"a": 4}, m1=member("a", "a0 a2"), m2=member("a", "a1"))
    parts = ASSIGNOR.assign(spec)
    assert parts["m1"] is spec.members["m1"].assigned
    assert written(parts) == {"m1": "a0 a2", "m2": "a1 a3"}


def test_topics_that_are_gone_or_no_longer_subscribed_to_leave_a_part() -> None:
    spec = group({"a": 1, "b": 1}, m1=member("a", "a0 b0 x3"), m2=member("ab", "x1"))
    assert assigned(spec) == {"m1": "a0", "m2": "b0"}


def test_a_partition_that_does_not_exist_is_taken_away() -> None:
    assert assigned(group({"a": 1}, m1=member("a", "a0 a1"))) == {"m1": "a0"}


def test_of_two_members_with_one_partition_one_keeps_it() -> None:
    assert assigned(group({"a": 2}, m1=member("a", "a0"), m2=member("a", "a0"))) == {"m1": "a0", "m2": "a1"}


def test_who_subscribes_to_little_gets_it_from_those_who_can_have_other_topics() -> None:
    spec = group({"a": 2, "b": 2}, m1=member("a"), m2=member("ab"))
    assert assigned(spec) == {"m1": "a0 a1", "m2": "b0 b1"}


def test_a_topic_that_only_some_subscribe_to_keeps_others_from_an_even_share() -> None:
    spec = group({"a": 6, "b": 1}, m1=member("a"), m2=member("b"))
    assert assigned(spec) == {"m1": "a0 a1 a2 a3 a4 a5", "m2": "b0"}


def test_a_partition_passes_through_a_member_in_between() -> None:
    """With 1, 2 and 3 the subscribers of each topic differ by no more than one, and Kafka leaves it at that."""
    spec = group({"a": 2, "b": 4}, m1=member("a", "a0"), m2=member("ab", "a1 b0"), m3=member("b", "b1 b2 b3"))
    parts = ASSIGNOR.assign(spec)
    assert loads(parts) == {"m1": 2, "m2": 2, "m3": 2}
    assert moved(spec, parts) == 2


def test_what_has_an_owner_stays_where_what_has_none_can_go_elsewhere() -> None:
    """Dealt to the member with the least at the time, a0 goes to m2, so b0 to m1, and c0 has to leave m1 for m3."""
    spec = group({"a": 1, "b": 1, "c": 1}, m1=member("bc", "c0"), m2=member("abc"), m3=member("ac"))
    parts = ASSIGNOR.assign(spec)
    assert written(parts) == {"m1": "c0", "m2": "b0", "m3": "a0"}
    assert parts["m1"] is spec.members["m1"].assigned


def test_members_without_topics_have_nothing() -> None:
    spec = group({"a": 2, "b": 0}, m1=member("a"), m2=member(""), m3=member("b"))
    parts = ASSIGNOR.assign(spec)
    assert written(parts) == {"m1": "a0 a1", "m2": "", "m3": ""}
    assert parts["m2"] is spec.members["m2"].assigned


def test_a_group_without_members_has_no_assignment() -> None:
    assert ASSIGNOR.assign(group({"a": 2})) == {}


def test_members_get_partitions_with_a_replica_in_their_rack() -> None:
    topics = {"a": racks("x", "y", "x", "y")}
    assert assigned(group(topics, m1=member("a", rack="y"), m2=member("a", rack="x"))) == {
        "m1": "a1 a3",
        "m2": "a0 a2",
    }


def test_what_is_near_to_few_is_dealt_out_before_what_is_near_to_many() -> None:
    topics = {"a": racks("xy", "xy", "x", "x")}
    assert assigned(group(topics, m1=member("a", rack="x"), m2=member("a", rack="y"))) == {
        "m1": "a2 a3",
        "m2": "a0 a1",
    }


def test_a_member_gives_up_what_is_near_another_and_not_near_itself() -> None:
    topics = {"a": racks("x", "y", "z", "z")}
    spec = group(topics, m1=member("a", "a0 a1 a2 a3", rack="x"), m2=member("a", rack="y"))
    assert set(assigned(spec)["m2"].split()) >= {"a1"}
    assert "a0" in assigned(spec)["m1"].split()


def test_racks_move_nothing() -> None:
    topics = {"a": racks("x", "y")}
    spec = group(topics, m1=member("a", "a0", rack="y"), m2=member("a", "a1", rack="x"))
    parts = ASSIGNOR.assign(spec)
    assert all(parts[it] is spec.members[it].assigned for it in spec.members)


def test_racks_do_not_make_shares_uneven() -> None:
    topics = {"a": racks("x", "x", "x", "x")}
    spec = group(topics, m1=member("a", rack="x"), m2=member("a", rack="y"), m3=member("a"), m4=member("a"))
    assert set(loads(ASSIGNOR.assign(spec)).values()) == {1}


def test_one_member_of_unknown_rack_and_one_topic_of_unknown_racks_are_dealt_out_as_well() -> None:
    topics: dict[str, int | TopicSpec] = {"a": racks("x", "y"), "b": 2}
    spec = group(topics, m1=member("ab", rack="y"), m2=member("ab"))
    parts = ASSIGNOR.assign(spec)
    assert loads(parts) == {"m1": 2, "m2": 2}
    assert 1 in parts["m1"][topic("a")]


LIVES = """
import hashlib
from kwire.groups.assignors import ASSIGNORS
from testkit.groups.assignors.lives import Life
digest = hashlib.sha256()
for seed in range(40):
    life = Life(seed, alike=seed % 4 == 0, large=seed % 2 == 0)
    group = life.group()
    for _ in range(3):
        for assignor in ASSIGNORS.values():
            parts = assignor.assign(group)
            shown = {member: {it: sorted(part[it]) for it in part} for member, part in parts.items()}
            digest.update(repr(shown).encode())
        group = life.go_on(ASSIGNORS["uniform"].assign(group))
print(digest.hexdigest())
"""


def test_an_assignment_does_not_depend_on_how_this_process_hashes() -> None:
    def digest(hash_seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", LIVES], capture_output=True, text=True, check=True, env=environment
        )
        return done.stdout

    assert len({digest("1"), digest("2"), digest("3")}) == 1


@pytest.mark.parametrize("names", [("m1", "m2", "m3"), ("m3", "m1", "m2")])
def test_an_assignment_does_not_depend_on_who_comes_first_in_a_dict(names: tuple[str, ...]) -> None:
    spec = group({"a": 4, "b": 3}, **{it: member("ab") for it in names})
    assert assigned(spec) == {"m1": "a0 a3 b2", "m2": "a1 b0", "m3": "a2 b1"}

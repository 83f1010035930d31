"""The range assignor by example."""

from __future__ import annotations

import attrs

from kwire.groups.assignors import ASSIGNORS
from kwire.groups.assignors.assignor import GroupSpec
from testkit.groups.assignors.laws import with_parts, without_racks
from testkit.groups.assignors.letters import group, member, racks, written

ASSIGNOR = ASSIGNORS["range"]


def assigned(spec: GroupSpec) -> dict[str, str]:
    return written(ASSIGNOR.assign(spec))


def test_members_get_ranges_and_the_first_ones_get_one_more() -> None:
    assert assigned(group({"a": 8}, m1=member("a"), m2=member("a"), m3=member("a"))) == {
        "m1": "a0 a1 a2",
        "m2": "a3 a4 a5",
        "m3": "a6 a7",
    }


def test_topics_with_as_many_partitions_are_cut_alike() -> None:
    assert assigned(group({"a": 3, "b": 3, "c": 2}, m1=member("abc"), m2=member("abc"))) == {
        "m1": "a0 a1 b0 b1 c0",
        "m2": "a2 b2 c1",
    }


def test_static_members_come_first_in_order_of_their_instance_ids() -> None:
    spec = group({"a": 4}, m1=member("a"), m2=member("a", instance="i2"), m3=member("a", instance="i1"), m4=member("a"))
    assert assigned(spec) == {"m3": "a0", "m2": "a1", "m1": "a2", "m4": "a3"}


def test_a_static_member_under_a_new_member_id_has_the_partitions_it_had() -> None:
    before = group({"a": 3}, m5=member("a", instance="i1"), m6=member("a", instance="i2"))
    after = group({"a": 3}, m5=member("a", instance="i1"), m1=member("a", instance="i2"))
    assert assigned(before)["m6"] == assigned(after)["m1"] == "a2"


def test_the_last_of_more_members_than_partitions_get_nothing() -> None:
    assert assigned(group({"a": 1, "b": 0}, m1=member("ab"), m2=member("ab"))) == {"m1": "a0", "m2": ""}


def test_a_topic_is_cut_among_those_who_subscribe_to_it() -> None:
    spec = group({"a": 4, "b": 4}, m1=member("a"), m2=member("ab"), m3=member("b"))
    assert assigned(spec) == {"m1": "a0 a1", "m2": "a2 a3 b0 b1", "m3": "b2 b3"}


def test_what_members_have_does_not_matter() -> None:
    spec = group({"a": 3}, m1=member("a", "a2"), m2=member("a", "a0 a1"))
    assert assigned(spec) == {"m1": "a0 a1", "m2": "a2"}


def test_racks_do_not_matter() -> None:
    spec = group({"a": racks("x", "y")}, m1=member("a", rack="y"), m2=member("a", rack="x"))
    assert ASSIGNOR.assign(spec) == ASSIGNOR.assign(without_racks(spec))


def test_who_keeps_its_range_keeps_its_object() -> None:
    spec = group({"a": 4}, m1=member("a"), m2=member("a"))
    settled = with_parts(spec, ASSIGNOR.assign(spec))
    grown = attrs.evolve(settled, members={**settled.members, "m3": member("a")})
    parts = ASSIGNOR.assign(grown)
    assert written(parts) == {"m1": "a0 a1", "m2": "a2", "m3": "a3"}
    assert parts["m1"] is settled.members["m1"].assigned


def test_a_group_without_members_has_no_assignment() -> None:
    assert ASSIGNOR.assign(group({"a": 2})) == {}

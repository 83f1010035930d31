"""Circles of mirrors: a copy that would return to its origin is refused, over any number of clusters."""

from __future__ import annotations

import pytest

from kwire.pipeline.mirror.origins import Cycle, Lineage, Origin, check_origins

A, B, C = (Origin(cluster, "t") for cluster in "ABC")


def lineage(*origins: Origin, topic: str = "t") -> Lineage:
    return {topic: {"kwire-mirror-m": frozenset(origins)}}


def test_the_origins_are_the_topic_and_all_of_its_own() -> None:
    assert check_origins(A, B, {}) == {A}
    assert check_origins(B, C, lineage(A)) == {A, B}
    assert check_origins(B, C, lineage(A, topic="another")) == {B}


@pytest.mark.parametrize(
    ("source", "target", "known"),
    [
        (B, A, lineage(A)),
        (B, Origin("A", "renamed"), lineage(A)),
        (C, A, lineage(A, B)),
        (Origin("A", "copy"), A, {"copy": {"kwire-mirror-m": frozenset({A})}}),
        (Origin("A", "copy"), B, {"copy": {"kwire-mirror-m": frozenset({A, Origin("B", "u")})}}),
    ],
)
def test_records_that_would_come_back_are_refused(source: Origin, target: Origin, known: Lineage) -> None:
    with pytest.raises(Cycle, match="would go in a circle: .* as kwire-mirror-m says"):
        check_origins(source, target, known)


def test_a_topic_cannot_be_its_own_mirror() -> None:
    with pytest.raises(Cycle, match="would be mirrored to itself"):
        check_origins(A, A, {})


def test_a_topic_may_be_copied_within_a_cluster() -> None:
    copy = Origin("A", "copy")
    assert check_origins(A, copy, {}) == {A}
    assert check_origins(copy, Origin("A", "another"), lineage(A, topic="copy")) == {A, copy}


def test_several_mirrors_may_write_a_topic_and_all_of_them_count() -> None:
    known = {"t": {"kwire-mirror-m": frozenset({A}), "kwire-mirror-n": frozenset({C})}}
    assert check_origins(B, Origin("D", "t"), known) == {A, B, C}
    with pytest.raises(Cycle, match="as kwire-mirror-n says"):
        check_origins(B, C, known)

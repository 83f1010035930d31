"""A mirror's plan as a value, and the work due for topics and groups. All of it without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.client.cluster import TopicPartition
from kwire.client.groups import CommittedOffset
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.groups import to_commit
from kwire.pipeline.mirror.offsets import Run
from kwire.pipeline.mirror.plan import MirrorPlan
from kwire.pipeline.mirror.state import Position
from kwire.pipeline.mirror.topic import MirroredPartition
from kwire.pipeline.mirror.topics import Changes, changes, wanted_configs


def plan(**options: Any) -> MirrorPlan:
    return MirrorPlan(**{"source": "one:9092", "target": "two:9092", "topics": ("orders",), **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": ()}, "no topic is named"),
        ({"topics": ("a", "b", "a")}, "topic a is named twice"),
        ({"topics": ("a,b",)}, "'a,b' is no name of a topic"),
        ({"topics": ("__consumer_offsets",)}, "is the cluster's or a mirror's own"),
        ({"topics": ("kwire-mirror-x",)}, "is the cluster's or a mirror's own"),
        ({"rename": "copy"}, "all topics would become one"),
        ({"rename": "{topic}/x"}, "makes 'orders/x' of topic orders, which is no name of a topic"),
        ({"name": "a/b"}, "--name 'a/b' is no name"),
        ({"name": "n" * 240}, "is no name: up to 236 letters"),
        ({"groups": "("}, "--groups '\\(' is no regular expression"),
        ({"source_options": {"minPartitions": "4"}}, "minPartitions would split partitions"),
        ({"source_options": {"startingOffsets": "latest"}}, "the job sets startingOffsets by itself"),
        ({"source_options": {"kafka.group.id": "g"}}, "Spark's readers are in no group"),
    ],
)
def test_what_cannot_be_meant_is_a_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        plan(**options).check()


def test_a_mirror_is_named_by_its_clusters_unless_it_has_a_name() -> None:
    plan().check()
    assert plan().named("a", "b") == "a-b"
    assert plan(name="mine").named(None, None) == "mine"
    with pytest.raises(PipelineError, match="the mirror needs a name: --name NAME"):
        plan().named("a", None)


def test_topics_are_renamed_by_a_template() -> None:
    assert plan(topics=("a", "b"), rename="one.{topic}").pairs == {"a": "one.a", "b": "one.b"}


def test_the_plan_shows_what_it_does_and_no_secrets() -> None:
    described = plan(exactly_once=True, source_options={"kafka.ssl.key.password": "x"}).describe()
    assert (described["delivery"], described["topics"], described["groups"]) == (
        "exactly once",
        {"orders": "orders"},
        ".*",
    )
    options = described["source_options"]
    assert isinstance(options, dict)
    assert (options["subscribe"], options["kafka.ssl.key.password"]) == ("orders", "(not shown)")
    assert options["kafka.isolation.level"] == "read_committed"


# Topics.

SET = {"retention.ms": "1", "min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime", "x.y": "z"}


def test_configurations_that_name_brokers_or_would_change_timestamps_are_left_out() -> None:
    assert wanted_configs(SET, {"x.y"}) == {"retention.ms": "1"}


@pytest.mark.parametrize(
    ("wanted", "mirrored", "partitions", "there", "expected"),
    [
        ({"a": "1"}, {}, 3, None, Changes(True, 3, {"a": "1"}, ())),
        ({"a": "1"}, {}, 3, 1, Changes(False, 3, {"a": "1"}, [])),
        ({"a": "1"}, {"a": "1"}, 3, 3, Changes(False, 0, {}, [])),
        ({"a": "2"}, {"a": "1", "b": "1"}, 3, 5, Changes(False, 0, {"a": "2"}, ["b"])),
    ],
)
def test_only_what_has_changed_since_it_was_carried_over_is_done(
    wanted: dict[str, str], mirrored: dict[str, str], partitions: int, there: int | None, expected: Changes
) -> None:
    found = changes(wanted, mirrored, partitions=partitions, there=there)
    assert found == expected
    assert found.is_nothing is (wanted == mirrored and there == 3)


# Groups.

AT, THERE = TopicPartition("orders", 0), TopicPartition("copy", 0)
MIRRORED = MirroredPartition(
    Position(
        at=AT,
        next=40,
        target_topic="copy",
        target_begin=2,
        run=Run(30, 20, 5),
        cluster_id="a",
        topic_id="t",
        target_topic_id="u",
        origins=frozenset(),
        run_id="r",
    ),
    [Run(10, 5, 10), Run(30, 20, 5)],
)


@pytest.mark.parametrize(
    ("committed", "at_target", "start", "expected"),
    [
        (12, None, 0, 7),
        (12, 6, 0, 7),
        (12, 7, 0, None),
        (12, 9, 0, None),
        (3, None, 0, 2),
        (3, None, 4, 4),
        (40, None, 0, 25),
        (99, None, 0, 25),
    ],
)
def test_a_group_goes_to_the_offset_of_the_same_record_and_only_forward(
    committed: int, at_target: int | None, start: int, expected: int | None
) -> None:
    there = {} if at_target is None else {THERE: CommittedOffset(at_target)}
    found = to_commit({AT: CommittedOffset(committed, "why")}, there, {AT: MIRRORED}, {THERE: start})
    assert found == ({} if expected is None else {THERE: CommittedOffset(expected, "why")})


def test_offsets_of_topics_that_are_not_mirrored_are_left_out() -> None:
    assert to_commit({TopicPartition("other", 0): CommittedOffset(1)}, {}, {AT: MIRRORED}, {}) == {}

"""Partition counts of internal topics, and members' statuses when topics are missing or wrong."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError

from kwire.groups.streams.internal_topics import ConfiguredTopology, configure
from kwire.groups.streams.tasks import Subtopology
from kwire.groups.streams.topology import Status, StatusCode, Topology, TopologyPart
from kwire.groups.streams_topics import InternalTopic


def part(
    source: str = "", repartition: str = "", sink: str = "", changelog: str = "", together: str = ""
) -> TopologyPart:
    """Makes a topology part of topic names, with spaces between; "r:4" has its number given.

    `together`: copartition groups, with "," between.
    """
    return TopologyPart(
        tuple(source.split()),
        _internal(repartition),
        tuple(sink.split()),
        _internal(changelog),
        frozenset(frozenset(it.split()) for it in together.split(",")),
    )


def _internal(text: str) -> tuple[InternalTopic, ...]:
    named = (it.partition(":") for it in text.split())
    return tuple(InternalTopic(name, int(count or 0)) for name, _, count in named)


def configured(existing: dict[str, int], **parts: TopologyPart) -> ConfiguredTopology:
    return configure(Topology(1, parts), existing.get)


def created(topology: ConfiguredTopology) -> dict[str, int]:
    return {it.name: it.partitions for it in topology.to_create}


def refused(**parts: TopologyPart) -> str | None:
    with pytest.raises(KafkaError) as error:
        configured({"s": 3}, **parts)
    assert error.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    return error.value.message


def test_a_topology_whose_topics_exist_is_ready() -> None:
    topology = configured({"s": 3, "t": 5, "c": 5}, a=part("s t", changelog="c"), b=part("s"))
    assert topology.is_ready
    assert topology == ConfiguredTopology({"a": Subtopology(5, True), "b": Subtopology(3, False)})


def test_missing_source_topics_are_named_and_nothing_is_created() -> None:
    topology = configured({"s": 3}, a=part("d s b", changelog="c"), b=part("a e"))
    assert topology == ConfiguredTopology(
        {},
        status=Status(StatusCode.MISSING_SOURCE_TOPICS, "Source topics a, b, d and 1 additional topics are missing."),
    )


def test_missing_internal_topics_are_created_and_tasks_are_known() -> None:
    topology = configured({"s": 3}, a=part("s", sink="r"), b=part(repartition="r", changelog="c"))
    assert created(topology) == {"c": 3, "r": 3}
    assert topology.subtopologies == {"a": Subtopology(3, False), "b": Subtopology(3, True)}
    assert topology.status == Status(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: c, r")


def test_a_created_topic_keeps_its_settings_in_the_topology() -> None:
    changelog = InternalTopic("c", 0, 2, {"cleanup.policy": "compact"})
    topology = configure(Topology(1, {"a": TopologyPart(("s",), state_changelog_topics=(changelog,))}), {"s": 3}.get)
    assert topology.to_create == (InternalTopic("c", 3, 2, {"cleanup.policy": "compact"}),)


def test_a_repartition_topic_gets_as_many_as_its_writers_largest_source() -> None:
    topology = configured({"s": 3, "t": 6}, a=part("s t", sink="r"), b=part(repartition="r"))
    assert created(topology) == {"r": 6}


def test_numbers_are_passed_on_from_writer_to_writer_in_whatever_order() -> None:
    topology = configured(
        {"s": 4}, a=part(repartition="r2"), b=part(repartition="r1", sink="r2"), c=part("s", sink="r1")
    )
    assert created(topology) == {"r1": 4, "r2": 4}


def test_a_given_number_stays() -> None:
    topology = configured({"s": 3}, a=part("s", sink="r"), b=part(repartition="r:8", changelog="c"))
    assert created(topology) == {"r": 8, "c": 8}


def test_a_loop_of_repartition_topics_is_refused() -> None:
    assert "loops" in str(refused(a=part(repartition="r1", sink="r2"), b=part(repartition="r2", sink="r1")))


def test_a_repartition_topic_that_nobody_writes_is_refused() -> None:
    assert "never used as a sink" in str(refused(a=part("s", repartition="r")))


def test_a_subtopology_that_reads_nothing_is_refused() -> None:
    assert refused(a=part(changelog="c")) == "No source topics found for subtopology a"


def test_a_repartition_topic_gets_as_many_as_the_source_topic_it_is_joined_with() -> None:
    topology = configured({"s": 3, "t": 7}, a=part("s", sink="r"), b=part("t", "r", changelog="c", together="t r"))
    assert created(topology) == {"r": 7, "c": 7}


def test_repartition_topics_that_are_joined_get_as_many_as_the_largest() -> None:
    topology = configured(
        {"s": 3, "t": 7}, a=part("s", sink="r1"), b=part("t", sink="r2"), c=part(repartition="r1 r2", together="r1 r2")
    )
    assert created(topology) == {"r1": 7, "r2": 7}


def test_repartition_topics_that_are_joined_get_as_many_as_the_one_whose_number_is_given() -> None:
    topology = configured(
        {"s": 3, "t": 7},
        a=part("s", sink="r1"),
        b=part("t", sink="r2"),
        c=part(repartition="r1:2 r2", together="r1 r2"),
    )
    assert created(topology) == {"r1": 2, "r2": 2}


def test_a_number_that_is_given_elsewhere_does_not_matter() -> None:
    topology = configured(
        {"s": 3}, a=part("s", sink="r1 r2"), b=part(repartition="r1", together="r1"), c=part(repartition="r2:9")
    )
    assert created(topology) == {"r1": 3, "r2": 9}


@pytest.mark.parametrize(
    ("parts", "detail"),
    [
        (
            {"a": part("s t", together="s t")},
            "Following topics do not have the same number of partitions: [{s=3, t=7}]",
        ),
        (
            {"a": part("s", sink="r1 r2"), "b": part(repartition="r1:2 r2:4", together="r1 r2")},
            "Following topics do not have the same number of partitions: [{r1=2, r2=4}]",
        ),
        (
            {"a": part("s", sink="r"), "b": part("t", "r:2", together="t r")},
            "Number of partitions [2] of repartition topic [r] doesn't match number of partitions [7] of the source "
            "topic.",
        ),
        (
            {"a": part("s", changelog="t")},
            "Existing topic t has different number of partitions: expected 3, found 7",
        ),
    ],
)
def test_wrong_numbers_of_partitions_are_reported(parts: dict[str, TopologyPart], detail: str) -> None:
    topology = configured({"s": 3, "t": 7}, **parts)
    assert topology == ConfiguredTopology({}, status=Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail))

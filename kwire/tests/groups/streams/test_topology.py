"""The topology that members send, and the parts of it that a group uses."""

from __future__ import annotations

import pytest
from kwire_protocol.errors import ErrorCode
from kwire_protocol.kafka_error import KafkaError
from kwire_protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)

from kwire.groups.streams.topology import (
    Status,
    StatusCode,
    TopologyPart,
    stale_status,
    topology_after_join,
    topology_of,
)
from kwire.groups.streams_topics import InternalTopic

JOIN = Subtopology(
    "1",
    source_topics=["s2", "s1"],
    state_changelog_topics=[TopicInfo("c", 0, 3, [KeyValue("cleanup.policy", "compact")])],
    repartition_sink_topics=["r2"],
    repartition_source_topics=[TopicInfo("r", 4)],
    copartition_groups=[CopartitionGroup([1], [], [0])],
)


def test_a_topology_is_read_with_the_names_of_its_copartition_groups() -> None:
    topology = topology_of(Topology(7, [JOIN, Subtopology("0", ["s"])]))
    assert topology.epoch == 7
    assert list(topology.subtopologies) == ["0", "1"]
    assert topology.subtopologies["1"] == TopologyPart(
        ("s1", "s2"),
        (InternalTopic("r", 4),),
        ("r2",),
        (InternalTopic("c", 0, 3, {"cleanup.policy": "compact"}),),
        frozenset([frozenset(["s1", "r"])]),
    )
    assert topology.required_topics() == {"s", "s1", "s2", "r", "c"}


def test_only_a_subtopology_with_changelog_topics_is_stateful() -> None:
    parts = topology_of(Topology(0, [JOIN, Subtopology("0", ["s"])])).subtopologies
    assert {name: part.is_stateful for name, part in parts.items()} == {"0": False, "1": True}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (
            [Subtopology("0", ["s"], state_changelog_topics=[TopicInfo("c", 2)])],
            "Changelog topic c must have an undefined partition count, but it is set to 2.",
        ),
        ([Subtopology("0", ["s"]), Subtopology("0", ["t"])], "The subtopology id 0 is used twice."),
        (
            [Subtopology("0", ["s"], copartition_groups=[CopartitionGroup([1])])],
            "A copartition group of subtopology 0 has an unknown topic.",
        ),
        (
            [Subtopology("0", ["s"], copartition_groups=[CopartitionGroup([0], [], [-1])])],
            "A copartition group of subtopology 0 has an unknown topic.",
        ),
    ],
)
def test_a_topology_that_contradicts_itself_is_refused(parts: list[Subtopology], reason: str) -> None:
    with pytest.raises(KafkaError) as refused:
        topology_of(Topology(0, parts))
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert refused.value.message == reason


def test_patterns_of_source_topics_are_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        topology_of(Topology(0, [Subtopology("0", source_topic_regex=["s.*"])]))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_the_first_topology_is_the_groups_and_the_same_one_may_join() -> None:
    first = topology_of(Topology(1, [Subtopology("0", ["a", "b"])]))
    assert topology_after_join(None, first) is first
    same = topology_of(Topology(1, [Subtopology("0", ["b", "a"])]))
    assert topology_after_join(first, same) == first


def test_an_older_topology_leaves_the_groups_as_it_is() -> None:
    current = topology_of(Topology(2, [Subtopology("0", ["a"])]))
    assert topology_after_join(current, topology_of(Topology(1, [Subtopology("0", ["z"])]))) is current


@pytest.mark.parametrize(("epoch", "topic"), [(1, "z"), (2, "a")])
def test_another_topology_is_refused(epoch: int, topic: str) -> None:
    current = topology_of(Topology(1, [Subtopology("0", ["a"])]))
    with pytest.raises(KafkaError) as refused:
        topology_after_join(current, topology_of(Topology(epoch, [Subtopology("0", [topic])])))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_member_with_an_older_topology_gets_the_stale_status() -> None:
    assert stale_status(2, 2) is None
    assert stale_status(1, 2) == Status(
        StatusCode.STALE_TOPOLOGY, "The member's topology epoch 1 is behind the group's topology epoch 2."
    )

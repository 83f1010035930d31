"""The options of a replay, and the decisions of its first run."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kwire.pipeline.bounds import parse_bound
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.replay.pinned import Pinned, PinnedTable, PinnedTopic, check_source
from kwire.pipeline.replay.plan import Range, ReplayPlan, TableSource, TopicSource, table_condition
from kwire.pipeline.topic_state import TopicState
from kwire.pipeline.warehouse import Warehouse
from testkit.spark.pinned_plan import PINNED

NOW_MS = 1_700_000_000_000
TOPIC = TopicState("cluster", "orders", "id", {0: 0, 1: 0}, {0: 100, 1: 50})


def between(first: str, until: str) -> Range:
    return Range(parse_bound(first, now_ms=NOW_MS), parse_bound(until, now_ms=NOW_MS), first, until)


def plan(first: str = "earliest", until: str = "latest", **others: Any) -> ReplayPlan:
    given: dict[str, Any] = {
        "source": TopicSource("127.0.0.1:9092", "orders"),
        "range": between(first, until),
        "where": None,
        "bootstrap": "127.0.0.1:9092",
        "to_topic": "copy",
        **others,
    }
    return ReplayPlan(**given)


def test_the_same_command_has_the_same_name_whatever_the_brokers_addresses_are() -> None:
    elsewhere = plan(source=TopicSource("other:9092", "orders"), bootstrap="other:9092", rate_per_s=5.0)
    assert elsewhere.name == plan().name
    assert plan().name.startswith("orders-to-copy-")
    others = [
        plan("2h"),
        plan(until="100"),
        plan(where="kafka.partition = 0"),
        plan(to_topic="copy2"),
        plan(source=TableSource(Warehouse("kwire", None, {}), "orders")),
    ]
    assert len({it.name for it in [plan(), *others]}) == 6
    for it in [plan(), *others]:
        it.check()


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"given_name": "a/b"}, "--name 'a/b' is no name"),
        ({"given_name": ""}, "is no name"),
        ({"to_topic": "kwire-replays"}, "where replays keep their positions"),
        ({"rate_per_s": 0.0}, "--rate"),
        ({"range": between("latest", "latest")}, "the range is empty: it begins at latest"),
        ({"range": between("0", "earliest")}, "the range is empty"),
        ({"source": TopicSource("b:1", "orders", {"startingOffsets": "x"})}, "--option cannot"),
        (
            {
                "source": TableSource(Warehouse("kwire", None, {}), "orders"),
                "range": between("0:5", "1:5"),
            },
            "no partition in common",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(others: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message) as caught:
        plan(**others).check()
    assert "\n" not in str(caught.value)


def test_a_range_of_a_table_is_a_condition_on_its_offsets_and_times() -> None:
    assert table_condition(between("earliest", "latest")) == "TRUE"
    assert table_condition(between("5", "latest")) == "kafka.`offset` >= 5"
    assert table_condition(between("2023-11-14T22:13:20", "1:7,0:9")) == (
        "kafka.`timestamp` >= timestamp_millis(1700000000000) AND (kafka.`partition` = 0 AND kafka.`offset` < 9"
        " OR kafka.`partition` = 1 AND kafka.`offset` < 7)"
    )


@pytest.mark.parametrize("source", [PINNED.source, PinnedTable(1 << 62, "TRUE")])
def test_what_was_decided_is_read_as_it_was_kept(source: PinnedTable | PinnedTopic) -> None:
    it = attrs.evolve(PINNED, source=source)
    assert Pinned.from_json(it.to_json()) == it


def test_a_stored_replay_that_is_newer_or_broken_is_refused() -> None:
    with pytest.raises(PipelineError, match="newer kwire"):
        Pinned.from_json(PINNED.to_json().replace(b'"version": 1', b'"version": 2'))
    for broken in (b"", b"[]", b"{}", PINNED.to_json().replace(b'"run"', b'"walk"')):
        with pytest.raises(PipelineError, match="cannot be read"):
            Pinned.from_json(broken)


def test_another_command_under_the_same_name_is_refused() -> None:
    PINNED.check_command("n", {"topic": "orders", "--where": None})
    with pytest.raises(PipelineError, match="replay n was begun with no --where, not --where x: .*--name"):
        PINNED.check_command("n", {"topic": "orders", "--where": "x"})
    with pytest.raises(PipelineError, match="begun with another source than a table, not table orders"):
        PINNED.check_command("n", {"table": "orders", "--where": None})


def test_a_target_that_is_another_or_has_grown_is_refused() -> None:
    PINNED.check_target("copy", "t", 3)
    with pytest.raises(PipelineError, match="created again.*--again"):
        PINNED.check_target("copy", "u", 3)
    with pytest.raises(PipelineError, match="has 4 partitions and had 3"):
        PINNED.check_target("copy", "t", 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cluster_id": "c2"}, "of cluster cluster, and this is cluster c2"),
        ({"topic_id": "new"}, "deleted and created again"),
        ({"ends": {0: 99, 1: 50}}, "partition 0 of topic orders ends at offset 99"),
        ({"starts": {0: 30, 1: 60}}, "partition 0 offsets 10 to 29; partition 1 offsets 20 to 49. --skip-lost"),
    ],
)
def test_a_source_that_has_not_all_any_more_is_refused(change: dict[str, Any], message: str) -> None:
    source = PINNED.source
    assert isinstance(source, PinnedTopic)
    with pytest.raises(PipelineError, match=message):
        check_source(source, attrs.evolve(TOPIC, **change), {1: 20}, skip_lost=False)


def test_what_is_gone_and_was_replayed_is_no_loss() -> None:
    source = PINNED.source
    assert isinstance(source, PinnedTopic)
    check_source(source, attrs.evolve(TOPIC, starts={0: 10, 1: 20}), {1: 20}, skip_lost=False)
    check_source(source, attrs.evolve(TOPIC, starts={0: 70, 1: 50}), {}, skip_lost=True)

"""One mirrored topic as a value that the driver changes, without threads, brokers or Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from kwire.client.cluster import TopicPartition
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.offsets import MOST_RUNS, Run
from kwire.pipeline.mirror.origins import Origin
from kwire.pipeline.mirror.state import Position, State
from kwire.pipeline.mirror.topic import MirroredPartition, MirroredTopic, Terms
from kwire.pipeline.mirror.writing import AnotherMirror, Copied, Writing
from kwire.pipeline.report import Step
from kwire.pipeline.tables.position import TABLE
from kwire.pipeline.topic_state import TopicState

HERE = Origin("a", "orders")
WRITING = Writing(name="m", state_topic="kwire-mirror-m", run_id="mine", exactly_once=True, compression=0)


def at(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def state(starts: Mapping[int, int], ends: Mapping[int, int], topic_id: str = "t") -> TopicState:
    return TopicState("a", "orders", topic_id, starts, ends)


def topic(starts: Mapping[int, int], ends: Mapping[int, int]) -> MirroredTopic:
    """Makes a topic of which nothing is declared."""
    return MirroredTopic(
        name="orders",
        target="copy",
        target_id="u",
        state=state(starts, ends),
        terms=Terms(frozenset({HERE}), batch_bytes=1000),
    )


def begun(starts: Mapping[int, int], ends: Mapping[int, int]) -> MirroredTopic:
    """Makes a topic at its start."""
    found = topic(starts, ends)
    for position in found.undeclared(starts, dict.fromkeys(starts, 0), WRITING):
        found.declared(position)
    return found


def copied(before: Position, until: int, *, run_id: str = "mine", was_further: bool = False, **about: Any) -> Copied:
    position = attrs.evolve(before, next=until, run_id=run_id)
    return Copied(position=position, was_further=was_further, **{"records": 0, "runs": (), **about})


def test_a_new_partition_is_declared_where_the_target_ends() -> None:
    orders = topic({0: 5, 1: 0}, {0: 9, 1: 0})
    first, second = orders.undeclared({0: 5, 1: 0}, {0: 70, 1: 0}, WRITING)
    assert first == Position(
        at=at(0),
        next=5,
        target_topic="copy",
        target_begin=70,
        cluster_id="a",
        topic_id="t",
        target_topic_id="u",
        origins=frozenset({HERE}),
        run_id="mine",
    )
    assert orders.offsets == {}, "it is not written yet"
    orders.declared(first)
    assert orders.offsets == {0: 5}
    assert orders.undeclared({0: 5, 1: 0}, {1: 0}, WRITING) == [second]
    orders.declared(second)
    assert orders.undeclared({0: 5, 1: 0}, {}, WRITING) == []


def test_a_position_is_declared_again_behind_a_gap_and_with_new_origins() -> None:
    orders = begun({0: 0, 1: 0}, {0: 9, 1: 9})
    orders.partitions[0] = MirroredPartition(
        attrs.evolve(orders.partitions[0].position, run_id="other"), [Run(0, 0, 1)]
    )
    (behind,) = orders.undeclared({0: 4, 1: 0}, {}, WRITING)
    assert behind == attrs.evolve(orders.partitions[0].position, next=4), "and stays the other run's until it moves"
    orders.declared(behind)
    assert orders.partitions[0].runs == [Run(0, 0, 1)]
    orders.terms = attrs.evolve(orders.terms, origins=frozenset({HERE, Origin("z", "first")}))
    again = orders.undeclared(orders.offsets, {}, WRITING)
    assert [(it.at, it.next, it.origins) for it in again] == [
        (at(0), 4, orders.terms.origins),
        (at(1), 0, orders.terms.origins),
    ]


def test_a_batch_has_the_partitions_that_end_later() -> None:
    orders = begun({0: 0, 1: 0, 2: 7}, {0: 9, 1: 9, 2: 9})
    found = orders.ranges({0: 3, 1: 0, 2: 9})
    assert [(where, it.position.next, it.until, it.batch_bytes) for where, it in found.items()] == [
        (at(0), 0, 3, 1000),
        (at(2), 7, 9, 1000),
    ]


def test_what_was_copied_moves_the_position_and_extends_the_map() -> None:
    orders = begun({0: 0}, {0: 9})
    orders.copied(copied(orders.partitions[0].position, 4, runs=[Run(0, 0, 2), Run(3, 2, 1)]))
    orders.copied(copied(orders.partitions[0].position, 6, runs=[Run(3, 2, 3)]))
    assert orders.partitions[0].runs == [Run(0, 0, 2), Run(3, 2, 3)]
    assert orders.partitions[0].translate(5) == 4
    assert orders.offsets == {0: 6}


def test_runs_that_a_batch_drops_are_gone_when_it_is_written() -> None:
    orders = begun({0: 0}, {0: 9999})
    many = [Run(number * 2, number, 1) for number in range(MOST_RUNS + 1)]
    orders.copied(copied(orders.partitions[0].position, 5000, runs=many))
    dropped = orders.ranges({0: 6000})[at(0)].dropped
    assert dropped == many[1 : len(many) // 2 : 2]
    assert orders.partitions[0].runs == many, "they are in the state topic until then"
    orders.copied(copied(orders.partitions[0].position, 6000, runs=[Run(5000, 600, 1)]))
    assert orders.partitions[0].runs == [*(it for it in many if it not in dropped), Run(5000, 600, 1)]


def test_runs_of_records_that_retention_took_are_dropped_with_the_next_batch() -> None:
    orders = begun({0: 0}, {0: 9})
    orders.copied(copied(orders.partitions[0].position, 9, runs=[Run(0, 0, 2), Run(3, 2, 2), Run(6, 4, 3)]))
    orders.replace_state(state({0: 7}, {0: 20}), TABLE)
    assert orders.ranges({0: 12})[at(0)].dropped == [Run(0, 0, 2), Run(3, 2, 2)]


def test_a_task_that_was_further_leaves_the_map_of_the_state_topic() -> None:
    orders = begun({0: 0}, {0: 9})
    retained = [Run(0, 0, 5), Run(6, 5, 1)]
    orders.copied(copied(orders.partitions[0].position, 9, was_further=True, runs=[Run(6, 5, 3)]), retained)
    assert orders.partitions[0].runs == [Run(0, 0, 5), Run(6, 5, 3)]
    with pytest.raises(AssertionError):
        orders.copied(copied(orders.partitions[0].position, 9, was_further=True))


def test_a_step_shows_all_partitions_and_what_is_left_of_the_newest_state() -> None:
    orders = begun({0: 0, 1: 0}, {0: 9, 1: 9})
    orders.replace_state(state({0: 0, 1: 0}, {0: 12, 1: 9}), TABLE)
    orders.copied(copied(orders.partitions[0].position, 9, records=8))
    assert orders.step(8, 0.5) == Step(
        name="orders", records=8, errors=0, took_s=0.5, offsets={0: 9, 1: 0}, lag={0: 3, 1: 9}
    )
    orders.copied(copied(orders.partitions[0].position, 15))
    assert orders.step(0, 0.5).lag[0] == 0, "the batch may end behind the state"


@pytest.mark.parametrize("newer", [state({0: 0, 1: 0}, {0: 9, 1: 9}, "other"), state({0: 0}, {0: 9})])
def test_another_topic_of_the_name_is_noticed_and_its_state_not_taken(newer: TopicState) -> None:
    orders = begun({0: 0, 1: 0}, {0: 9, 1: 9})
    known = orders.state
    with pytest.raises(PipelineError, match="deleted and created again"):
        orders.replace_state(newer, TABLE)
    assert orders.state == known
    orders.replace_state(state({0: 0, 1: 0, 2: 0}, {0: 9, 1: 9, 2: 1}), TABLE)
    assert orders.state.ends[2] == 1


@pytest.mark.parametrize(("mover", "alone"), [("mine", True), ("before", True), ("other", False)])
def test_a_position_that_another_run_has_moved_meanwhile_is_noticed(mover: str, alone: bool) -> None:
    orders = begun({0: 0}, {0: 9})
    position = attrs.evolve(orders.partitions[0].position, run_id="before")
    orders.partitions[0] = MirroredPartition(position, [])
    stored = State(positions={at(0): attrs.evolve(position, run_id=mover)})
    if alone:
        orders.check_alone(stored, WRITING)
    else:
        with pytest.raises(AnotherMirror, match="another mirror named m writes orders-0"):
            orders.check_alone(stored, WRITING)
    orders.check_alone(State(), WRITING)

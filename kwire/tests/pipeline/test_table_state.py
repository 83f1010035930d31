"""The position of a table and the start of its job, as pyiceberg reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from kwire.pipeline.errors import PipelineError
from kwire.pipeline.tables.plan import TablePlan
from kwire.pipeline.tables.position import LostRange, Position
from kwire.pipeline.tables.table_state import job_start, table_state
from kwire.pipeline.topic_state import TopicState
from kwire.pipeline.warehouse import Warehouse, parse_warehouse
from testkit.spark.iceberg import commit, make_table, table_at

TOPIC = TopicState("cluster", "orders", "id-1", {0: 5, 1: 0}, {0: 100, 1: 50})
AT = Position("cluster", "orders", "id-1", {0: 10, 1: 20})


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return parse_warehouse(str(tmp_path / "w"), {})


@pytest.fixture
def plan(warehouse: Warehouse) -> TablePlan:
    return TablePlan(bootstrap="127.0.0.1:1", topic="orders", warehouse=warehouse, table="orders")


def test_what_was_never_written_stands_nowhere_and_nothing_is_made_of_looking(warehouse: Warehouse) -> None:
    assert table_state(warehouse, "orders") is None
    assert warehouse.folder is not None
    assert not warehouse.folder.exists()
    make_table(warehouse, "orders", {"kwire.topic": "orders"})
    assert table_state(warehouse, "clicks") is None
    found = table_state(warehouse, "orders")
    assert found is not None
    assert (found.snapshot_id, found.position) == (None, None)
    assert found.properties["kwire.topic"] == "orders"


def test_the_newest_snapshot_with_offsets_has_the_position(warehouse: Warehouse) -> None:
    make_table(warehouse, "orders", {})
    for position in (AT.moved({0: 6}), AT, None, None):
        commit(warehouse, "orders", position)
    found = table_state(warehouse, "orders")
    assert found is not None
    assert found.position == AT
    assert found.snapshot_id is not None


@pytest.mark.parametrize(("begin", "start"), [("earliest", {0: 5, 1: 0}), ("latest", {0: 100, 1: 50})])
def test_a_new_table_would_begin_as_planned(plan: TablePlan, begin: Any, start: dict[int, int]) -> None:
    found = job_start(attrs.evolve(plan, begin=begin), TOPIC)
    assert found.describe() == {
        "table_exists": False,
        "start": {str(number): offset for number, offset in start.items()},
        "unread": {str(number): TOPIC.ends[number] - offset for number, offset in start.items()},
        "lost": [],
    }


def test_a_table_would_resume_at_its_position(plan: TablePlan) -> None:
    table_at(plan, AT)
    found = job_start(attrs.evolve(plan, begin="latest"), TOPIC)
    assert found.table_exists
    assert found.start.position == AT
    assert found.unread == {0: 90, 1: 30}


def test_what_would_stop_the_job_is_reported(plan: TablePlan) -> None:
    table_at(plan, AT)
    cut = attrs.evolve(TOPIC, starts={0: 12, 1: 0})
    with pytest.raises(LostRange, match="partition 0 offsets 10 to 11"):
        job_start(plan, cut)
    assert job_start(attrs.evolve(plan, on_gap="record"), cut).describe()["lost"] == ["partition 0 offsets 10 to 11"]
    with pytest.raises(PipelineError, match="deleted and created again"):
        job_start(plan, attrs.evolve(TOPIC, topic_id="id-2"))
    with pytest.raises(PipelineError, match="made with --mode append, not upsert"):
        job_start(attrs.evolve(plan, mode="upsert"), TOPIC)
    with pytest.raises(PipelineError, match="made with --value bytes, not json"):
        job_start(attrs.evolve(plan, value="json"), TOPIC)
    with pytest.raises(PipelineError, match="made with topic orders, not clicks"):
        job_start(attrs.evolve(plan, topic="clicks"), attrs.evolve(TOPIC, topic="clicks"))


def test_somebody_elses_table_is_left_alone(plan: TablePlan) -> None:
    make_table(plan.warehouse, plan.table, {})
    with pytest.raises(PipelineError, match="was not made by kwire"):
        job_start(plan, TOPIC)


def test_a_table_whose_files_are_gone_is_one_line(plan: TablePlan) -> None:
    table_at(plan, AT)
    assert plan.warehouse.folder is not None
    for file in plan.warehouse.folder.rglob("*.metadata.json"):
        file.unlink()
    with pytest.raises(PipelineError, match="the table orders in .* cannot be read") as caught:
        table_state(plan.warehouse, plan.table)
    assert "\n" not in str(caught.value)

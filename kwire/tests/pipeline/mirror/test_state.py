"""The state of a mirror is read as it was written, and anything else is an error in one line."""

from __future__ import annotations

import json

import attrs
import pytest

from kwire.client.cluster import TopicPartition
from kwire.pipeline.errors import PipelineError
from kwire.pipeline.mirror.offsets import Run
from kwire.pipeline.mirror.origins import Origin
from kwire.pipeline.mirror.state import Position, State, configs_values, gap_values, run_values
from kwire.pipeline.tables.position import Gap

AT = TopicPartition("orders", 3)
POSITION = Position(
    at=AT,
    next=47,
    target_topic="copy.orders",
    target_begin=5,
    run=Run(40, 30, 7),
    cluster_id="a",
    topic_id="t",
    target_topic_id="u",
    origins=frozenset({Origin("a", "orders"), Origin("z", "first")}),
    run_id="r",
)


def test_all_that_is_kept_is_read_again() -> None:
    values = {
        POSITION.key: POSITION.value(),
        **run_values(AT, [Run(40, 30, 7), Run(9, 8, 1)]),
        **gap_values("orders", [Gap(3, 10, 20)]),
        **configs_values("orders", {"retention.ms": "1"}),
    }
    found = State.read({key: value for key, value in values.items() if value is not None})
    assert found.positions == {AT: POSITION}
    assert found.runs == {AT: [Run(9, 8, 1), Run(40, 30, 7)]}
    assert found.gaps == {AT: [Gap(3, 10, 20)]}
    assert found.configs == {"orders": {"retention.ms": "1"}}


def test_it_is_as_documented() -> None:
    assert POSITION.key == b'{"position":["orders",3]}'
    stored = json.loads(POSITION.value())
    assert (stored["next"], stored["next_target"], stored["run"]) == (47, 37, [40, 30, 7])
    assert stored["origins"] == [["a", "orders"], ["z", "first"]]
    assert json.loads(attrs.evolve(POSITION, run=None).value())["next_target"] == 5
    assert run_values(AT, [Run(40, 30, 7)], [Run(1, 1, 1)]) == {
        b'{"run":["orders",3,40]}': b'{"target":30,"count":7}',
        b'{"run":["orders",3,1]}': None,
    }


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"nonsense", b"{}", "has something else in it"),
        (b'["position"]', b"{}", "has something else in it"),
        (b'{"run":["orders",3,1]}', b"{}", "has something else in it"),
        (POSITION.key, b'{"version": 2}', "this kwire reads 1: upgrade kwire"),
        (POSITION.key, b'{"version": 1}', "cannot be read"),
    ],
)
def test_what_is_no_mirrors_is_a_line(key: bytes, value: bytes, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        State.read({key: value})


def test_what_a_later_kwire_keeps_besides_is_passed_over() -> None:
    assert State.read({b'{"weather":["orders"]}': b'{"rain":1}'}) == State()

"""The reports of a replay while it works."""

from __future__ import annotations

from kwire.pipeline.replay.pinned import position_key
from kwire.pipeline.replay.progress import Progress
from kwire.pipeline.replay.writing import Position
from kwire.pipeline.report import Step


def values_of(target: int, position: Position, *, name: str = "r", generation: int = 2) -> dict[bytes, bytes | None]:
    return {position_key(name, generation, target): position.to_json()}


def test_a_step_reports_the_new_records_and_what_is_left() -> None:
    it = Progress("r", 2, {0: 10, 1: 20, 2: 30})
    it.take(values_of(0, Position(3, {0: 4})))
    it.begin()
    assert not it.has_news
    it.take(values_of(0, Position(2, {0: 3})))  # read before the one above
    assert not it.has_news
    it.take(values_of(0, Position(5, {0: 7, 1: 5})) | values_of(1, Position(1, {1: 9})))
    assert it.step(0.5) == Step(name="r", records=3, errors=0, took_s=0.5, offsets={0: 7, 1: 5}, lag={0: 3, 1: 15})
    assert not it.has_news
    it.take(values_of(1, Position(2, {1: 20})))
    assert it.last_step(0.5) == Step(
        name="r", records=1, errors=0, took_s=0.5, offsets={0: 10, 1: 20, 2: 30}, lag={0: 0, 1: 0, 2: 0}
    )
    assert it.records == 7


def test_what_others_keep_is_passed_over() -> None:
    it = Progress("r", 2, {})
    one = Position(1, {0: 1})
    it.take(values_of(0, one, name="other") | values_of(0, one, generation=1) | {b"r": b"{}", b"r/2/1": None})
    it.take(values_of(0, one, generation=22))
    assert it.positions == {}


def test_a_source_partition_is_replayed_for_certain_where_all_targets_have_of_it() -> None:
    it = Progress("r", 2, {})
    it.take(values_of(0, Position(2, {0: 4, 1: 8})))
    assert it.replayed(2) == {}
    it.take(values_of(1, Position(1, {0: 3})))
    assert it.replayed(2) == {0: 3}

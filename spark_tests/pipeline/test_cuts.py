"""A job that ends at any of its steps, as a kill would end it, loses and doubles nothing; deliberate mistakes do.

The steps are those that change a table: a draft begun, written, published. The run is cut before each of them in turn,
and the next run continues from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import DataFrame

from kwire.pipeline.tables import rows
from kwire.pipeline.tables.draft import Table
from kwire.pipeline.tables.position import PROPERTY, Position
from kwire.pipeline.tables.writer import Counts, TableWriter
from testkit.spark.jobs import Jobs, positions
from testkit.spark.records import Record

pytestmark = pytest.mark.more

Sent = Callable[..., None]

STEPS = ("begin", "append", "merge", "publish")
MOST_STEPS = 20


class Cut(Exception):
    """The process is no more."""


@contextmanager
def cut_before(step: int) -> Iterator[list[str]]:
    """Ends the job at the step of that number, from 0, without any cleanup. Yields the steps that were taken."""
    taken: list[str] = []

    def counted(name: str, original: Callable[..., object]) -> Callable[..., object]:
        def take(*arguments: object, **named: object) -> object:
            if len(taken) == step:
                raise Cut
            taken.append(name)
            return original(*arguments, **named)

        return take

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(Table, name, counted(name, getattr(Table, name)))
        patch.setattr(Table, "drop_draft", lambda _: None)
        yield taken


class Scene:
    """A topic and its table, to which each cut adds three records, one of them bad."""

    def __init__(self, jobs: Jobs, topic: str, sent: Sent, **options: object) -> None:
        self._jobs, self._topic, self._sent = jobs, topic, sent
        self._options = {"value": "json", "schema": "n BIGINT", **options}
        self._sent_records = 0
        self._send()
        jobs.once(topic, **self._options)

    def _send(self) -> None:
        values = [b'{"n": %d}' % self._sent_records, b"{broken", b'{"n": %d}' % (self._sent_records + 2)]
        self._sent(self._topic, [Record(value, key=value) for value in values])
        self._sent_records += len(values)

    def cut(self, step: int) -> bool:
        """Cuts a run before that step, then runs to the end; returns False if the run had no such step."""
        self._send()
        with cut_before(step):
            try:
                self._jobs.once(self._topic, **self._options)
            except Cut:
                was_cut = True
            else:
                was_cut = False
        self._jobs.once(self._topic, **self._options)
        return was_cut

    def problem(self) -> str | None:
        """Describes lost or doubled rows and errors; None if there are none."""
        bad = [(0, n) for n in range(1, self._sent_records, 3)]
        good = [(0, n) for n in range(self._sent_records) if n % 3 != 1]
        if positions(self._jobs.errors(self._topic)) != bad:
            return f"errors {positions(self._jobs.errors(self._topic))}"
        found = positions(self._jobs.rows(self._topic))
        return None if found == good else f"rows {found}"


@pytest.mark.parametrize("mode", ["append", pytest.param("upsert", marks=pytest.mark.soak)])
def test_a_job_that_is_cut_at_any_step_loses_and_doubles_nothing(jobs: Jobs, topic: str, sent: Sent, mode: str) -> None:
    scene = Scene(jobs, topic, sent, mode=mode)
    steps = 0
    for step in itertools.count():
        if not scene.cut(step):
            steps = step
            break
        assert scene.problem() is None, f"cut before step {step}: {scene.problem()}"
    assert 6 <= steps < MOST_STEPS


def _offsets_before_rows(writer: TableWriter, decoded: DataFrame, after: Position) -> Counts:
    nothing = decoded.sparkSession.table(writer.table.name).limit(0)
    writer.table.append(nothing, {PROPERTY: after.to_json()})
    writer.table.publish(with_position=True)
    writer.table.append(rows.good(decoded), {})
    return Counts(decoded.count(), decoded.where("reason IS NOT NULL").count())


def _rows_before_offsets(writer: TableWriter, decoded: DataFrame, after: Position) -> Counts:
    writer.table.append(rows.good(decoded), {})
    writer.table.publish(with_position=False)
    nothing = decoded.sparkSession.table(writer.table.name).limit(0)
    writer.table.append(nothing, {PROPERTY: after.to_json()})
    return Counts(decoded.count(), decoded.where("reason IS NOT NULL").count())


@pytest.mark.parametrize("mistake", [_offsets_before_rows, _rows_before_offsets])
def test_offsets_and_rows_in_two_commits_are_found_out(
    jobs: Jobs,
    topic: str,
    sent: Sent,
    monkeypatch: pytest.MonkeyPatch,
    mistake: Callable[[TableWriter, DataFrame, Position], Counts],
) -> None:
    scene = Scene(jobs, topic, sent)
    monkeypatch.setattr(TableWriter, "_append", mistake)
    assert _found_out(scene)


def test_errors_without_a_position_of_their_own_are_found_out(
    jobs: Jobs, topic: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch that is tried again cannot see which of its errors are written already."""
    scene = Scene(jobs, topic, sent)
    monkeypatch.setattr(TableWriter, "_noted", staticmethod(lambda _: {}))
    assert _found_out(scene)


def _found_out(scene: Scene) -> bool:
    """Returns whether a cut shows the mistake. Middle steps are first: there the mistakes show."""
    for step in (5, *range(MOST_STEPS)):
        scene.cut(step)
        if scene.problem() is not None:
            return True
    return False
